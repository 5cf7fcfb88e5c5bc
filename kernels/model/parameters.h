#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/model_spec.h"
#include "kernels/core/shape.h"
#include "kernels/core/workload.h"

namespace hbmtune {

// What a parameter does. A `k…Weight` of a linear layer is [out, in], save in GPT-2, whose Conv1D
// keeps [in, out]; a norm's weight and a bias are [width].
enum class ParameterRole : uint8_t {
  kEmbedding,          // [vocab, hidden]
  kPositionEmbedding,  // [max_positions, hidden] (GPT-2)
  kNormWeight,
  kNormBias,
  kQuery,
  kKey,
  kValue,
  kQkv,  // query, key and value in one product (Falcon, GPT-2)
  kAttentionOutput,
  kGate,
  kUp,
  kDown,
  kBias,  // of any linear layer
  kHead,  // [vocab, hidden]; absent when tied to the embedding
  kLoraA,
  kLoraB,
};
template <>
struct EnumNames<ParameterRole> {
  static constexpr std::array<std::string_view, 16> kNames = {
      "embedding", "position_embedding", "norm_weight", "norm_bias", "query", "key",
      "value",     "qkv",                "attention_output", "gate", "up",    "down",
      "bias",      "head",               "lora_a",      "lora_b"};
};

struct ParameterEntry {
  std::string name;  // as model.named_parameters() of Transformers gives it
  Dims shape;
  ParameterRole role = ParameterRole::kEmbedding;
  int64_t layer = -1;  // -1 outside the decoder layers
};

// Every parameter of the model with its head, in the order of named_parameters(); tied tensors
// once.
std::vector<ParameterEntry> ParameterTable(const ModelSpec& spec);

int64_t ParameterCount(const ModelSpec& spec);

// The adapters that PEFT adds, in its order: for each target first A [rank, in], then B
// [out, rank]. `targets` is "attention" (query and value; the fused product of Falcon and GPT-2)
// or "all-linear" (every linear layer of the decoder, not the head). Empty for rank 0. Throws
// std::invalid_argument for other targets or a negative rank.
std::vector<ParameterEntry> LoraTable(const ModelSpec& spec, const LoraSpec& lora);

// Elements of the table: the trained parameters of a LoRA run, or all of a full one.
int64_t ElementCount(const std::vector<ParameterEntry>& table);

}  // namespace hbmtune
