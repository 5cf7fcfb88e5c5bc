#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/core/model_spec.h"
#include "kernels/core/visit.h"

namespace hbmtune {

// Whose behaviour the answer is for: `fused` is this stack at its best; the others are
// Transformers on PyTorch, alone, with DistributedDataParallel or with DeepSpeed.
enum class Framework : uint8_t {
  kFused,
  kHfEager,
  kHfSdpa,
  kHfEagerDdp,
  kHfSdpaDdp,
  kHfEagerDeepspeed,
  kHfSdpaDeepspeed,
};
template <>
struct EnumNames<Framework> {
  static constexpr std::array<std::string_view, 7> kNames = {
      "fused",        "hf-eager",           "hf-sdpa",          "hf-eager+ddp",
      "hf-sdpa+ddp",  "hf-eager+deepspeed", "hf-sdpa+deepspeed"};
};
constexpr bool UsesDeepspeed(Framework f) { return f >= Framework::kHfEagerDeepspeed; }
constexpr bool UsesDdp(Framework f) {
  return f == Framework::kHfEagerDdp || f == Framework::kHfSdpaDdp;
}
constexpr bool UsesSdpa(Framework f) {
  return f == Framework::kHfSdpa || f == Framework::kHfSdpaDdp ||
         f == Framework::kHfSdpaDeepspeed;
}

enum class Optimizer : uint8_t { kAdamw, kAdamw8bit, kSgd };
template <>
struct EnumNames<Optimizer> {
  static constexpr std::array<std::string_view, 3> kNames = {"adamw", "adamw-8bit", "sgd"};
};

// How sequence lengths are spread: every one `seq_len`, or drawn between min and `seq_len` and
// padded to the longest of the optimizer step, or packed into full rows.
enum class SequenceLayout : uint8_t { kFixed, kPadded, kPacked };
template <>
struct EnumNames<SequenceLayout> {
  static constexpr std::array<std::string_view, 3> kNames = {"fixed", "padded", "packed"};
};

// When a row of `seq_len` tokens comes, where rows are padded: in the first step, which is kind to
// the allocator; in the last, when its cache is full of blocks of other lengths; or by chance.
enum class SequenceOrder : uint8_t { kLongestLate, kLongestFirst, kDrawn };
template <>
struct EnumNames<SequenceOrder> {
  static constexpr std::array<std::string_view, 3> kNames = {"longest-late", "longest-first",
                                                             "drawn"};
};

struct SequenceSpec {
  SequenceLayout layout = SequenceLayout::kFixed;
  int64_t min_tokens = 1;
  double mean_ratio = 0.5;
  SequenceOrder order = SequenceOrder::kLongestLate;
  int64_t pad_multiple = 64;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"layout", "how lengths are spread: fixed, padded or packed"}, self.layout);
    v(Field{"min_tokens", "shortest sequence, in tokens, when lengths vary"}, self.min_tokens);
    v(Field{"mean_ratio", "mean length as a share of seq_len, when lengths vary"},
      self.mean_ratio);
    v(Field{"order", "when the longest padded row comes: longest-late, longest-first or drawn"},
      self.order);
    v(Field{"pad_multiple", "padded rows end at a multiple of so many tokens, or at seq_len"},
      self.pad_multiple);
  }
};

// Low-rank adapters; rank 0 is full fine-tuning.
struct LoraSpec {
  int64_t rank = 0;
  double alpha = 16;
  double dropout = 0;
  std::string targets = "attention";

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"rank", "rank of the adapters, 0 for full fine-tuning"}, self.rank);
    v(Field{"alpha", "scale of the adapters: alpha / rank"}, self.alpha);
    v(Field{"dropout", "dropout before the adapters"}, self.dropout);
    v(Field{"targets", "adapted layers: attention (query and value), or all-linear"},
      self.targets);
  }
};

// What the user trains. Everything here is given; everything in TrainConfig is searched.
struct Workload {
  ModelSpec model;
  int64_t seq_len = 2048;
  SequenceSpec sequences;
  LoraSpec lora;
  Optimizer optimizer = Optimizer::kAdamw;
  double grad_clip = 1.0;
  int64_t global_batch = 0;
  int64_t world_size = 1;
  Framework framework = Framework::kFused;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"model", "model: a preset's name or a path to a Hugging Face config.json"},
      self.model);
    v(Field{"seq_len", "tokens in a sequence"}, self.seq_len);
    v(Field{"sequences", "distribution of sequence lengths"}, self.sequences);
    v(Field{"lora", "low-rank adapters"}, self.lora);
    v(Field{"optimizer", "optimizer: adamw, adamw-8bit or sgd"}, self.optimizer);
    v(Field{"grad_clip", "largest global gradient norm, 0 for no clipping"}, self.grad_clip);
    v(Field{"global_batch", "sequences in one optimizer step over all ranks, 0 for any"},
      self.global_batch);
    v(Field{"world_size", "ranks (GPUs) that train together"}, self.world_size);
    v(Field{"framework", "whose behaviour is asked for"}, self.framework);
  }
};

}  // namespace hbmtune
