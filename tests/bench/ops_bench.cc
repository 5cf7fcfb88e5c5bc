// Every op that takes time in a training step, at the shapes of one (Llama: hidden 512, 8 heads,
// ffn 1376, vocab 8192, 4 × 256 tokens), with the rates that its own cost() stands for. Beside
// them the step's list of matrix products run bare through oneDNN:
//   OMP_NUM_THREADS=2 build/release/bench/ops_bench --benchmark_filter=fp32

#include <benchmark/benchmark.h>
#include <omp.h>

#include <cstdlib>
#include <dnnl.hpp>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/adamw_8bit/adamw_8bit.h"
#include "kernels/ops/add/add.h"
#include "kernels/ops/attention_materialised/attention_materialised.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/dropout/dropout.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/grad_norm/grad_norm.h"
#include "kernels/ops/layer_norm/layer_norm.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rotary/rotary.h"
#include "kernels/ops/silu_gate/silu_gate.h"
#include "tests/kernels/ops/harness.h"

namespace hbmtune {
namespace {

using testing::HostTensor;

constexpr int64_t kBatch = 4, kLength = 256, kTokens = kBatch * kLength;
constexpr int64_t kHidden = 512, kHeads = 8, kHeadDim = 64, kFfn = 1376, kVocab = 8192;

// A tensor of a benchmark: its dtype is the benchmark's unless it says otherwise.
struct Shape {
  Dims shape;
  std::optional<Dtype> dtype = std::nullopt;
};

struct Bench {
  std::string name;
  const OpKind* op;
  std::vector<Shape> in, out;
  Attrs attrs = {};
};

HostTensor Make(const Shape& shape, Dtype dtype, uint64_t seed) {
  const Dtype actual = shape.dtype.value_or(dtype);
  if (actual == Dtype::kU8) return HostTensor::Zeros(actual, shape.shape);
  if (actual != Dtype::kI64) return HostTensor::Random(actual, shape.shape, seed, 0.5);
  std::vector<int64_t> ids(static_cast<size_t>(ElementCount(shape.shape)));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7919 % kVocab);
  if (ids.size() == 1) ids[0] = 10;  // the optimizer's step
  return HostTensor::Ints(shape.shape, ids);
}

void RunBench(benchmark::State& state, const Bench& bench, Dtype dtype) {
  std::vector<HostTensor> tensors;
  uint64_t seed = 1;
  for (const Shape& shape : bench.in) tensors.push_back(Make(shape, dtype, seed++));
  for (const Shape& shape : bench.out) tensors.push_back(Make(shape, dtype, seed++));
  std::vector<TensorArg> args;
  for (const HostTensor& tensor : tensors) args.push_back(tensor.arg());
  const OpArgs call = {{args.data(), bench.in.size()},
                       {args.data() + bench.in.size(), bench.out.size()},
                       bench.attrs};
  bench.op->check(call);
  const Cost cost = bench.op->cost(call);
  bench.op->host(call);
  for (auto _ : state) bench.op->host(call);
  using benchmark::Counter;
  const auto flags = Counter::kIsIterationInvariantRate;
  state.counters["flop/s"] = Counter(cost.flops, flags);
  state.counters["bytes/s"] =
      Counter(cost.bytes_read + cost.bytes_written, flags, Counter::kIs1024);
}

std::vector<Bench> NormsAndActivations() {
  const Shape x = {{kTokens, kHidden}}, weight = {{kHidden}}, row = {{kTokens}, Dtype::kF32};
  const Shape inner = {{kTokens, kFfn}};
  const Shape partials = {{ops::NormPartials(kTokens), kHidden}, Dtype::kF32};
  const Shape two_partials = {{2 * ops::NormPartials(kTokens), kHidden}, Dtype::kF32};
  const Attrs norm = Attrs::Of(ops::NormAttrs{});
  return {
      {"rms_norm", &ops::kRmsNorm, {x, weight}, {x, row}, norm},
      {"rms_norm_backward", &ops::kRmsNormBackward, {x, x, weight, row}, {x, weight, partials}},
      {"layer_norm", &ops::kLayerNorm, {x, weight, weight}, {x, row, row}, norm},
      {"layer_norm_backward", &ops::kLayerNormBackward, {x, x, weight, row, row},
       {x, weight, weight, two_partials}},
      {"silu_gate", &ops::kSiluGate, {inner, inner}, {inner}},
      {"silu_gate_backward", &ops::kSiluGateBackward, {inner, inner, inner},
       {inner, inner, inner}},
      {"gelu_erf", &ops::kGelu, {inner}, {inner}},
      {"gelu_backward_erf", &ops::kGeluBackward, {inner, inner}, {inner}},
      {"gelu_tanh", &ops::kGelu, {inner}, {inner}, Attrs::Of(ops::GeluAttrs{1})},
      {"gelu_backward_tanh", &ops::kGeluBackward, {inner, inner}, {inner},
       Attrs::Of(ops::GeluAttrs{1})},
      {"add", &ops::kAdd, {x, x}, {x}},
      {"copy", &ops::kCopy, {x}, {x}},
      {"copy_to_bf16", &ops::kCopy, {x}, {{{kTokens, kHidden}, Dtype::kBf16}}},
      {"fill", &ops::kFill, {}, {x}},
      {"dropout", &ops::kDropout, {x, {{2}, Dtype::kI64}}, {x},
       Attrs::Of(ops::DropoutAttrs{0.1, 0})},
  };
}

std::vector<Bench> TokensAndAttention() {
  const Shape heads = {{kBatch, kLength, kHeads, kHeadDim}};
  const Shape lse = {{kBatch, kHeads, kLength}, Dtype::kF32};
  const Shape square = {{kBatch, kHeads, kLength, kLength}};
  const Shape table = {{kLength, kHeadDim / 2}, Dtype::kF32};
  const Shape ids = {{kTokens}, Dtype::kI64}, one = {{1}, Dtype::kF32};
  const Shape logits = {{kTokens, kVocab}}, losses = {{kTokens}, Dtype::kF32};
  const Shape x = {{kTokens, kHidden}}, vocabulary = {{kVocab, kHidden}};
  const Attrs attention = Attrs::Of(ops::AttentionAttrs{.scale = 0.125});
  return {
      {"attention_tiled", &ops::kAttentionTiled, {heads, heads, heads}, {heads, lse}, attention},
      {"attention_tiled_backward", &ops::kAttentionTiledBackward,
       {heads, heads, heads, heads, heads, lse}, {heads, heads, heads, lse}, attention},
      {"attention_materialised", &ops::kAttentionMaterialised, {heads, heads, heads},
       {heads, square}, attention},
      {"attention_materialised_backward", &ops::kAttentionMaterialisedBackward,
       {heads, heads, heads, heads, square}, {heads, heads, heads, square}, attention},
      {"rotary", &ops::kRotary, {heads, table, table}, {heads}},
      {"embedding", &ops::kEmbedding, {ids, vocabulary}, {x}},
      {"embedding_backward", &ops::kEmbeddingBackward, {x, ids}, {vocabulary}},
      {"cross_entropy", &ops::kCrossEntropy, {logits, ids, one}, {losses, logits},
       Attrs::Of(ops::CrossEntropyAttrs{})},
  };
}

std::vector<Bench> Optimizers() {
  const int64_t elements = kFfn * kHidden;
  const Shape p = {{elements}}, state = {{elements}, Dtype::kF32}, step = {{1}, Dtype::kI64};
  const Shape codes = {{elements}, Dtype::kU8};
  const Shape scales = {{ops::Adamw8bitBlocks(elements)}, Dtype::kF32};
  const Shape partials = {{ops::SquaresPartials(elements)}, Dtype::kF32};
  const Attrs attrs = Attrs::Of(ops::AdamwAttrs{});
  return {
      {"adamw", &ops::kAdamw, {p, step}, {p, state, state}, attrs},
      {"adamw_master", &ops::kAdamw, {p, step}, {p, state, state, state}, attrs},
      {"adamw_8bit", &ops::kAdamw8bit, {p, step}, {p, codes, codes, scales, scales}, attrs},
      {"grad_norm_squares", &ops::kGradNormSquares, {p}, {partials}},
  };
}

std::vector<Bench> Products() {
  std::vector<Bench> benches;
  const Attrs attrs = Attrs::Of(ops::LinearAttrs{});
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
           {kHidden, kHidden}, {kHidden, kFfn}, {kFfn, kHidden}, {kHidden, kVocab}}) {
    const std::string size = "/" + std::to_string(in) + "x" + std::to_string(out);
    const Shape x = {{kTokens, in}}, y = {{kTokens, out}}, weight = {{out, in}};
    benches.push_back({"linear" + size, &ops::kLinear, {x, weight}, {y}, attrs});
    benches.push_back({"linear_backward_input" + size, &ops::kLinearBackwardInput, {y, weight},
                       {x}, attrs});
    benches.push_back({"linear_backward_weight" + size, &ops::kLinearBackwardWeight, {y, x},
                       {weight}, attrs});
  }
  return benches;
}

// What oneDNN's own sgemm takes for the same product on all threads.
void Bare(benchmark::State& state, char a, char b, int64_t m, int64_t n, int64_t k) {
  const auto x = HostTensor::Random(Dtype::kF32, {m, k}, 1);
  const auto y = HostTensor::Random(Dtype::kF32, {k, n}, 2);
  const HostTensor z(Dtype::kF32, {m, n});
  for (auto _ : state) {
    dnnl_sgemm(a, b, m, n, k, 1.0f, x.arg().as<float>(), a == 'N' ? k : m, y.arg().as<float>(),
               b == 'N' ? n : k, 0.0f, z.arg().as<float>(), n);
  }
  state.counters["flop/s"] =
      benchmark::Counter(2.0 * static_cast<double>(m * n * k),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void RegisterBare() {
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
           {kHidden, kHidden}, {kHidden, kFfn}, {kFfn, kHidden}, {kHidden, kVocab}}) {
    const std::string size = std::to_string(in) + "x" + std::to_string(out);
    const auto add = [&](const std::string& name, char a, char b, int64_t m, int64_t n,
                         int64_t k) {
      benchmark::RegisterBenchmark((name + "/" + size + "/fp32").c_str(),
                                   [=](benchmark::State& state) { Bare(state, a, b, m, n, k); })
          ->UseRealTime();
    };
    add("bare_linear", 'N', 'T', kTokens, out, in);
    add("bare_linear_backward_input", 'N', 'N', kTokens, in, out);
    add("bare_linear_backward_weight", 'T', 'N', out, in, kTokens);
  }
}

void RegisterAll() {
  for (const auto& family : {Products(), NormsAndActivations(), TokensAndAttention(),
                             Optimizers()}) {
    for (const Bench& bench : family) {
      for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
        benchmark::RegisterBenchmark(
            (bench.name + "/" + std::string(Name(dtype))).c_str(),
            [bench, dtype](benchmark::State& state) { RunBench(state, bench, dtype); })
            ->UseRealTime();
      }
    }
  }
  RegisterBare();
}

}  // namespace
}  // namespace hbmtune

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  hbmtune::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
}
