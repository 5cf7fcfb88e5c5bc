#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/core/visit.h"

namespace hbmtune {

enum class Architecture : uint8_t { kLlama, kMistral, kQwen2, kFalcon, kGpt2 };
template <>
struct EnumNames<Architecture> {
  static constexpr std::array<std::string_view, 5> kNames = {"llama", "mistral", "qwen2",
                                                             "falcon", "gpt2"};
};

// The shape of a decoder-only model, as read from a Hugging Face config.json by kernels/model.
struct ModelSpec {
  std::string name;
  Architecture architecture = Architecture::kLlama;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t max_positions = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  bool tied_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool parallel_block = false;
  bool separate_norms = false;
  int64_t sliding_window = 0;
  double dropout = 0;
  double attention_dropout = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"name", "name of the model, for people"}, self.name);
    v(Field{"architecture", "llama, mistral, qwen2, falcon or gpt2"}, self.architecture);
    v(Field{"hidden", "width of the residual stream"}, self.hidden);
    v(Field{"layers", "decoder layers"}, self.layers);
    v(Field{"heads", "query heads"}, self.heads);
    v(Field{"kv_heads", "key and value heads: 1 is multi-query"}, self.kv_heads);
    v(Field{"head_dim", "width of one head"}, self.head_dim);
    v(Field{"ffn", "inner width of the MLP"}, self.ffn);
    v(Field{"vocab", "rows of the embedding"}, self.vocab);
    v(Field{"max_positions", "longest sequence that the model knows"}, self.max_positions);
    v(Field{"norm_eps", "epsilon of the norms"}, self.norm_eps);
    v(Field{"rope_theta", "base of the rotary frequencies"}, self.rope_theta);
    v(Field{"tied_embeddings", "the output head is the embedding"}, self.tied_embeddings);
    v(Field{"attention_bias", "biases on query, key and value (Qwen2) or on all (GPT-2)"},
      self.attention_bias);
    v(Field{"mlp_bias", "biases in the MLP"}, self.mlp_bias);
    v(Field{"parallel_block", "attention and MLP read the same input (Falcon)"},
      self.parallel_block);
    v(Field{"separate_norms", "a parallel block with a norm for each branch (Falcon 40B)"},
      self.separate_norms);
    v(Field{"sliding_window", "attention window in tokens, 0 for none"}, self.sliding_window);
    v(Field{"dropout", "dropout on embeddings and residual branches"}, self.dropout);
    v(Field{"attention_dropout", "dropout on attention weights"}, self.attention_dropout);
  }
};

}  // namespace hbmtune
