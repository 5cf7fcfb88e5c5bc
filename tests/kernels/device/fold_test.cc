#include <cstdlib>
#include <iostream>
#include <random>

#include <gtest/gtest.h>

#include "kernels/device/modelled/folded_trace.h"
#include "kernels/lowering/fused.h"
#include "kernels/lowering/hf.h"
#include "kernels/lowering/period.h"
#include "kernels/memory/rounding.h"

// A folded trace against the written-out one of the whole model, over random configs.
namespace hbmtune::device {
namespace {

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  template <class T>
  T Of(std::initializer_list<T> choices) {
    return choices.begin()[random_() % choices.size()];
  }

 private:
  std::mt19937 random_;
};

ModelSpec DrawModel(Draw& draw) {
  ModelSpec model;
  model.architecture = draw.Of({Architecture::kLlama, Architecture::kMistral, Architecture::kQwen2,
                                Architecture::kFalcon, Architecture::kGpt2});
  model.heads = draw.Of<int64_t>({4, 8});
  model.head_dim = draw.Of<int64_t>({16, 64});
  model.hidden = model.heads * model.head_dim;
  const bool gpt2 = model.architecture == Architecture::kGpt2;
  const bool falcon = model.architecture == Architecture::kFalcon;
  model.kv_heads = gpt2 ? model.heads : falcon ? 1 : draw.Of<int64_t>({1, 2, model.heads});
  model.ffn = draw.Of<int64_t>({2, 3, 4}) * model.hidden;
  model.vocab = draw.Of<int64_t>({1000, 5000});
  model.max_positions = 2048;
  model.layers = draw.Of<int64_t>({5, 6, 9, 12, 17});
  model.tied_embeddings = draw.Of({true, false});
  model.dropout = model.attention_dropout = draw.Of({0.0, 0.1});
  model.tied_embeddings = model.tied_embeddings || gpt2;
  model.parallel_block = falcon;
  model.attention_bias = model.architecture == Architecture::kQwen2 || gpt2;
  model.mlp_bias = gpt2;
  return model;
}

void DrawJob(Draw& draw, Workload& w, TrainConfig& c) {
  w.model = DrawModel(draw);
  w.framework = draw.Of({Framework::kHfSdpa, Framework::kHfEager, Framework::kFused});
  w.seq_len = draw.Of<int64_t>({64, 100, 512, 1024});
  w.grad_clip = draw.Of({0.0, 1.0});
  const bool fused = w.framework == Framework::kFused;
  if (draw.Of({0, 0, 1}) == 1) {
    w.lora.rank = 8;
    w.lora.targets = draw.Of({"attention", "all-linear"});
    w.lora.dropout = fused ? 0 : draw.Of({0.0, 0.1});
  }
  c.micro_batch = draw.Of<int64_t>({1, 2, 5});
  c.grad_accum = draw.Of<int64_t>({1, 2});
  const int precision = draw.Of({0, 1, 2, 3});
  c.param_dtype = precision == 1 ? Dtype::kBf16 : Dtype::kF32;
  c.compute_dtype = precision == 0 ? Dtype::kF32 : precision == 3 ? Dtype::kF16 : Dtype::kBf16;
  c.optimizer_state_dtype = c.param_dtype;
  c.checkpoint.every = draw.Of<int64_t>({0, 1, fused ? 2 : 1});
  c.checkpoint.reentrant = draw.Of({true, false});
  c.optimizer_loop =
      draw.Of({OptimizerLoop::kFused, OptimizerLoop::kForeach, OptimizerLoop::kForLoop});
  if (fused) {
    w.model.dropout = w.model.attention_dropout = 0;
    c.checkpoint.reentrant = false;
    c.optimizer_loop = OptimizerLoop::kFused;
    if (c.checkpoint.every == 0) {
      c.checkpoint.attention = draw.Of<int64_t>({0, 0, 1, 2});
      c.checkpoint.mlp = draw.Of<int64_t>({0, 0, 1, 2});
      c.checkpoint.keep_inputs = draw.Of({true, false});
    }
    c.loss_chunk_tokens = draw.Of<int64_t>({0, 64});
  }
}

StepTrace TraceWith(Workload workload, const TrainConfig& config, int64_t layers) {
  workload.model.layers = layers;
  if (workload.framework == Framework::kFused) {
    return TraceOf(lowering::LowerFused(workload, config));
  }
  lowering::HfOptions options;
  options.evaluate = true;
  return TraceOf(lowering::LowerHf(workload, config, options));
}

bool SameKernel(const TraceKernel& a, const TraceKernel& b) {
  return a.cost.kind == b.cost.kind && a.cost.flops == b.cost.flops &&
         a.cost.bytes_read == b.cost.bytes_read && a.cost.bytes_written == b.cost.bytes_written &&
         a.cost.m == b.cost.m && a.cost.n == b.cost.n && a.cost.k == b.cost.k &&
         a.dtype == b.dtype && a.elements == b.elements;
}

// The first op that differs, or "".
std::string Difference(const StepTrace& folded, const StepTrace& whole) {
  if (folded.ops.size() != whole.ops.size()) {
    return std::to_string(folded.ops.size()) + " ops for " + std::to_string(whole.ops.size());
  }
  if (folded.first_step != whole.first_step || folded.steady_step != whole.steady_step ||
      folded.storage_count != whole.storage_count || folded.event_count != whole.event_count) {
    return "sections or counts";
  }
  for (size_t i = 0; i < whole.ops.size(); ++i) {
    TraceOp a = folded.ops[i], b = whole.ops[i];
    if (a.kind == TraceOp::Kind::kRun && b.kind == a.kind) {
      if (!SameKernel(folded.work[a.id], whole.work[b.id])) {
        return "kernel of op " + std::to_string(i);
      }
      a.id = b.id;
    }
    if (a != b) {
      return "op " + std::to_string(i) + " of " + std::to_string(whole.ops.size()) + ": id " +
             std::to_string(a.id) + " for " + std::to_string(b.id) + ", " +
             std::to_string(a.bytes) + " bytes for " + std::to_string(b.bytes);
    }
  }
  return "";
}

int64_t WalkedPeak(const StepTrace& trace) {
  int64_t live = 0, peak = 0;
  for (const TraceOp& op : trace.ops) {
    if (op.pinned || op.bytes == 0) continue;
    if (op.kind == TraceOp::Kind::kAllocate) live += memory::RoundRequest(op.bytes, {});
    if (op.kind == TraceOp::Kind::kFree) live -= memory::RoundRequest(op.bytes, {});
    peak = std::max(peak, live);
  }
  return peak;
}

TEST(Fold, IsTheWholeTraceForEveryLowering) {
  const char* given = std::getenv("HBMTUNE_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::atoi(given)) : 1;
  int drawn = 0, folded_ones = 0;
  for (uint32_t i = 0; drawn < 300 && i < 3000; ++i) {
    Draw draw(seed * 100000 + i);
    Workload workload;
    TrainConfig config;
    DrawJob(draw, workload, config);
    const int64_t period = lowering::LayerPeriod(workload, config).value();
    const int64_t base = 3 * period + workload.model.layers % period;
    const int64_t more = (workload.model.layers - base) / period;
    if (more < 1) continue;
    StepTrace shorter;
    try {
      shorter = TraceWith(workload, config, base);
    } catch (const std::invalid_argument&) {
      continue;  // not modelled
    }
    ++drawn;
    const auto folded = Fold(shorter, TraceWith(workload, config, base + period), more);
    if (!folded) continue;
    ++folded_ones;
    const StepTrace whole = TraceWith(workload, config, workload.model.layers);
    EXPECT_EQ(Difference(Unfold(*folded), whole), "")
        << "seed " << seed * 100000 + i << ": " << Name(workload.framework) << " "
        << Name(workload.model.architecture) << ", " << workload.model.layers << " layers";
    EXPECT_EQ(PeakOfBlocks(*folded, {}).bytes, WalkedPeak(whole));
  }
  std::cout << drawn << " configs, " << folded_ones << " folded\n";
  EXPECT_EQ(drawn, 300);
  EXPECT_GE(folded_ones, 285);
}

}  // namespace
}  // namespace hbmtune::device
