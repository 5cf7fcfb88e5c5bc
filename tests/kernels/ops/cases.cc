#include "tests/kernels/ops/cases.h"

#include <cmath>
#include <map>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/adamw_8bit/adamw_8bit.h"
#include "kernels/ops/add/add.h"
#include "kernels/ops/attention_materialised/attention_materialised.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/document_starts/document_starts.h"
#include "kernels/ops/dropout/dropout.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/finite/finite.h"
#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/grad_norm/grad_norm.h"
#include "kernels/ops/labels/labels.h"
#include "kernels/ops/layer_norm/layer_norm.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/loss_scale/loss_scale.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"
#include "kernels/ops/positions/positions.h"
#include "kernels/ops/random_key/random_key.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rotary/rotary.h"
#include "kernels/ops/scale/scale.h"
#include "kernels/ops/sgd/sgd.h"
#include "kernels/ops/silu_gate/silu_gate.h"

namespace hbmtune::testing {
namespace {

using namespace hbmtune::ops;  // NOLINT: the cases name every op

uint64_t next_seed = 1;

CaseTensor Data(Dims shape, double scale = 1) {
  return {Role::kData, HostTensor::Random(Dtype::kF64, shape, next_seed++, scale)};
}
CaseTensor Statistic(Dims shape) {
  CaseTensor tensor = {Role::kStatistic,
                       HostTensor::Random(Dtype::kF64, shape, next_seed++)};
  return tensor;
}
// In [0.5, 1.5]: what must not change its sign.
CaseTensor Positive(Role role, Dims shape) {
  HostTensor values = HostTensor::Random(Dtype::kF64, shape, next_seed++);
  for (int64_t i = 0; i < values.elements(); ++i) {
    values.Set(i, 1 + 0.5 * std::sin(values.At(i)));
  }
  return {role, values};
}
CaseTensor Fixed(HostTensor values) { return {Role::kFixed, std::move(values)}; }
CaseTensor Scalar(double value) {
  return Fixed(HostTensor::Of(Dtype::kF32, {1}, {value}));
}
CaseTensor Key() { return Fixed(HostTensor::Ints({2}, {1234567, 3})); }
CaseTensor Step(int64_t step) { return Fixed(HostTensor::Ints({1}, {step})); }
CaseTensor Control() {
  return Fixed(HostTensor::Of(Dtype::kF32, {kControlSize}, {2.0, 0.5, 0.0}));
}
// Documents of 1 to 7 tokens, as document_starts gives them.
CaseTensor Starts(int64_t batch, int64_t length) {
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < batch; ++b) {
    int64_t start = 0, next = 3 + b;
    for (int64_t s = 0; s < length; ++s) {
      if (s == next) {
        start = s;
        next += 1 + (s * 5 + b) % 7;
      }
      starts.push_back(start);
    }
  }
  return Fixed(HostTensor::Ints({batch, length}, starts));
}
CaseTensor Ids(Dims shape, int64_t below, int64_t ignored_every = 0) {
  HostTensor ids(Dtype::kI64, shape);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < ids.elements(); ++i) {
    const bool ignored = ignored_every > 0 && i % ignored_every == 2;
    values.push_back(ignored ? -100 : (i * 7919 + 13) % below);
  }
  return Fixed(HostTensor::Ints(shape, values));
}

std::vector<OpCase> ElementwiseCases(int64_t size) {
  const Dims shape = {3, 37 * size, 45};
  std::vector<OpCase> cases;
  cases.push_back({"fill", &kFill, {}, {Data(shape)}, Attrs::Of(FillAttrs{0.3}), {}, 1, 1});
  cases.push_back({"copy", &kCopy, {Data(shape)}, {Data(shape)}, {}, {}, 1, 1});
  cases.push_back({"add", &kAdd, {Data(shape), Data(shape)}, {Data(shape)}, {}, {}, 1, 1});
  cases.push_back(
      {"add_in_place", &kAddInPlace, {Data(shape), Data(shape)}, {Data(shape)}, {}, {0}, 1, 1});
  cases.push_back({"scale", &kScale, {Data(shape), Scalar(0.7)}, {Data(shape)},
                   Attrs::Of(ScaleAttrs{1.3}), {}, 1, 3});
  cases.push_back({"silu_gate", &kSiluGate, {Data(shape), Data(shape)}, {Data(shape)}, {}, {}, 1,
                   12});
  cases.push_back({"silu_gate_backward", &kSiluGateBackward,
                   {Data(shape), Data(shape), Data(shape)},
                   {Data(shape), Data(shape), Data(shape)}, {}, {}, 1, 16});
  for (const int64_t tanh_form : {0, 1}) {
    const std::string form = tanh_form ? "_tanh" : "_erf";
    const Attrs attrs = Attrs::Of(GeluAttrs{tanh_form});
    cases.push_back({"gelu" + form, &kGelu, {Data(shape, 2)}, {Data(shape)}, attrs, {}, 1, 16});
    cases.push_back({"gelu_backward" + form, &kGeluBackward, {Data(shape), Data(shape, 2)},
                     {Data(shape)}, attrs, {}, 1, 24});
  }
  cases.push_back({"dropout", &kDropout, {Data(shape), Key()}, {Data(shape)},
                   Attrs::Of(DropoutAttrs{0.3, 5}), {}, 1, 2});
  return cases;
}

std::vector<OpCase> NormCases(int64_t size) {
  const int64_t rows = 3 * 37 * size, width = 45;
  const Dims shape = {3, 37 * size, width};
  const double row_chain = std::sqrt(static_cast<double>(width)) + 8;
  const double column_chain = std::sqrt(static_cast<double>(rows)) + 8;
  const Attrs attrs = Attrs::Of(NormAttrs{1e-5});
  std::vector<OpCase> cases;
  cases.push_back({"rms_norm", &kRmsNorm, {Data(shape), Data({width})},
                   {Data(shape), Statistic({rows})}, attrs, {}, 1, row_chain});
  cases.push_back({"layer_norm", &kLayerNorm, {Data(shape), Data({width}), Data({width})},
                   {Data(shape), Statistic({rows}), Statistic({rows})}, attrs, {}, 1,
                   2 * row_chain});
  for (const int64_t accumulate : {0, 1}) {
    const Attrs backward = Attrs::Of(NormBackwardAttrs{accumulate, accumulate});
    const std::string suffix = accumulate ? "_accumulating" : "";
    cases.push_back({"rms_norm_backward" + suffix, &kRmsNormBackward,
                     {Data(shape), Data(shape), Data({width}),
                      Positive(Role::kStatistic, {rows})},
                     {Data(shape), Data({width}), Statistic({NormPartials(rows), width})},
                     backward, {}, 1, row_chain + column_chain});
    cases.push_back({"layer_norm_backward" + suffix, &kLayerNormBackward,
                     {Data(shape), Data(shape), Data({width}), Statistic({rows}),
                      Positive(Role::kStatistic, {rows})},
                     {Data(shape), Data({width}), Data({width}),
                      Statistic({2 * NormPartials(rows), width})},
                     backward, {}, 1, row_chain + column_chain});
  }
  return cases;
}

std::vector<OpCase> LinearCases(int64_t size) {
  const int64_t rows = 37 * size, in = 45 * size, out = 29 * size;
  const double chain = std::sqrt(static_cast<double>(in)) + std::sqrt(37.0 * size) + 8;
  std::vector<OpCase> cases;
  for (const bool in_out : {false, true}) {
    const Dims weight = in_out ? Dims{in, out} : Dims{out, in};
    const LinearAttrs attrs = {in_out ? 0.5 : 1.0, in_out, in_out};
    const std::string suffix = in_out ? "_in_out" : "";
    cases.push_back({"linear" + suffix, &kLinear,
                     {Data({rows, in}), Data(weight), Data({out})}, {Data({rows, out})},
                     Attrs::Of(attrs), {}, 2, chain});
    cases.push_back({"linear_backward_input" + suffix, &kLinearBackwardInput,
                     {Data({rows, out}), Data(weight)}, {Data({rows, in})}, Attrs::Of(attrs), {},
                     1, chain});
    cases.push_back({"linear_backward_weight" + suffix, &kLinearBackwardWeight,
                     {Data({rows, out}), Data({rows, in})}, {Data(weight)}, Attrs::Of(attrs), {},
                     1, chain});
    cases.push_back({"linear_backward_bias" + suffix, &kLinearBackwardBias, {Data({rows, out})},
                     {Data({out})}, Attrs::Of(LinearBackwardBiasAttrs{in_out}), {}, 1, chain});
  }
  return cases;
}

std::vector<OpCase> TokenCases(int64_t size) {
  const int64_t batch = 2, length = 19 * size, width = 45, vocab = 53;
  const Dims shape = {batch, length, width};
  const double repeats = static_cast<double>(batch * length) / vocab + 8;
  std::vector<OpCase> cases;
  cases.push_back({"embedding", &kEmbedding, {Ids({batch, length}, vocab), Data({vocab, width})},
                   {Data(shape)}, {}, {}, 1, 1});
  cases.push_back({"embedding_backward", &kEmbeddingBackward,
                   {Data(shape), Ids({batch, length}, vocab)}, {Data({vocab, width})},
                   Attrs::Of(EmbeddingBackwardAttrs{1}), {}, 1, repeats});
  cases.push_back({"positions", &kPositions, {Data(shape), Data({length + 3, width})},
                   {Data(shape)}, {}, {}, 1, 1});
  cases.push_back({"positions_backward", &kPositionsBackward, {Data(shape)},
                   {Data({length + 3, width})}, Attrs::Of(PositionsBackwardAttrs{1}), {}, 1, 4});
  cases.push_back({"positions_documents", &kPositions,
                   {Data(shape), Data({length + 3, width}), Starts(batch, length)},
                   {Data(shape)}, {}, {}, 1, 1});
  cases.push_back({"positions_backward_documents", &kPositionsBackward,
                   {Data(shape), Starts(batch, length)}, {Data({length + 3, width})},
                   Attrs::Of(PositionsBackwardAttrs{0}), {}, 1,
                   static_cast<double>(batch * length)});
  cases.push_back({"document_starts", &kDocumentStarts, {Ids({batch, length}, vocab, 5)},
                   {Ids({batch, length}, vocab)}, Attrs::Of(DocumentStartsAttrs{}), {}, 0, 0});
  cases.push_back({"labels", &kLabels, {Ids({batch, length}, vocab)},
                   {Ids({batch, length}, vocab), Scalar(0)}, Attrs::Of(LabelsAttrs{}), {}, 0, 0});
  cases.push_back({"cross_entropy", &kCrossEntropy,
                   {Data({batch * length, vocab}, 2), Ids({batch, length}, vocab, 5), Scalar(30),
                    Scalar(8)},
                   {Statistic({batch * length}), Data({batch * length, vocab})},
                   Attrs::Of(CrossEntropyAttrs{.grad_scale = 0.5}), {}, 1, 24});
  cases.push_back({"cross_entropy_mean", &kCrossEntropyMean,
                   {Positive(Role::kStatistic, {batch, length}), Scalar(30)}, {Statistic({1})},
                   Attrs::Of(CrossEntropyMeanAttrs{0.5, 1}), {}, 1, 8});
  return cases;
}

std::vector<OpCase> RotaryCases(int64_t size) {
  const Dims shape = {2, 19 * size, 3, 14};
  const Dims table = {19 * size + 2, 7};
  std::vector<OpCase> cases;
  cases.push_back({"rotary_table", &kRotaryTable, {}, {Statistic(table), Statistic(table)},
                   Attrs::Of(RotaryTableAttrs{10000, 3}), {}, 1, 4});
  for (const int64_t inverse : {0, 1}) {
    cases.push_back({inverse ? "rotary_inverse" : "rotary", &kRotary,
                     {Data(shape), Statistic(table), Statistic(table)}, {Data(shape)},
                     Attrs::Of(RotaryAttrs{inverse}), {}, 1, 4});
    cases.push_back({inverse ? "rotary_inverse_documents" : "rotary_documents", &kRotary,
                     {Data(shape), Statistic(table), Statistic(table), Starts(2, 19 * size)},
                     {Data(shape)}, Attrs::Of(RotaryAttrs{inverse}), {}, 1, 4});
  }
  return cases;
}

// Saved values come from a forward pass in fp64.
void AddAttention(std::vector<OpCase>& cases, const std::string& name, int64_t length,
                  int64_t kv_heads, const AttentionAttrs& attrs) {
  const int64_t batch = 2, heads = 4, width = 24;
  const Dims q = {batch, length, heads, width}, k = {batch, length, kv_heads, width};
  const Dims square = {batch, heads, length, length}, rows = {batch, heads, length};
  const double chain = 4 * std::sqrt(static_cast<double>(length)) + 64;
  OpCase materialised = {"attention_materialised" + name, &kAttentionMaterialised,
                         {Data(q), Data(k), Data(k)}, {Data(q), Data(square)}, Attrs::Of(attrs),
                         {}, 2, chain};
  OpCase tiled = {"attention_tiled" + name, &kAttentionTiled, materialised.in,
                  {Data(q), Statistic(rows)}, Attrs::Of(attrs), {}, 2, chain};
  std::vector<CaseTensor> optional;
  if (attrs.dropout > 0) optional.push_back(Key());
  if (attrs.documents != 0) optional.push_back(Starts(batch, length));
  const auto append = [&](std::vector<CaseTensor>& inputs) {
    inputs.insert(inputs.end(), optional.begin(), optional.end());
  };
  append(materialised.in);
  append(tiled.in);
  const auto saved = RunCase(materialised, Dtype::kF64, Dtype::kF64);
  const auto saved_tiled = RunCase(tiled, Dtype::kF64, Dtype::kF64);
  const CaseTensor grad = Data(q);
  std::vector<CaseTensor> in = {grad, tiled.in[0], tiled.in[1], tiled.in[2]};
  std::vector<CaseTensor> in_tiled = in;
  in.push_back({Role::kData, saved[1]});
  in_tiled.push_back({Role::kData, saved_tiled[0]});
  in_tiled.push_back({Role::kStatistic, saved_tiled[1]});
  append(in);
  append(in_tiled);
  cases.push_back(materialised);
  cases.push_back(tiled);
  cases.push_back({"attention_materialised_backward" + name, &kAttentionMaterialisedBackward, in,
                   {Data(q), Data(k), Data(k), Data(square)}, Attrs::Of(attrs), {}, 6, chain});
  cases.push_back({"attention_tiled_backward" + name, &kAttentionTiledBackward, in_tiled,
                   {Data(q), Data(k), Data(k), Statistic(rows)}, Attrs::Of(attrs), {}, 6,
                   chain});
}

std::vector<OpCase> AttentionCases(int64_t size) {
  std::vector<OpCase> cases;
  const int64_t length = size == 1 ? 37 : 300;
  const double scale = 1 / std::sqrt(24.0);
  AddAttention(cases, "", length, 4, {.scale = scale});
  AddAttention(cases, "_full", length, 2, {.scale = scale, .causal = 0});
  AddAttention(cases, "_window", length, 1, {.scale = scale, .window = 11});
  AddAttention(cases, "_dropout", length, 2, {.scale = scale, .dropout = 0.2, .site = 1});
  AddAttention(cases, "_documents", length, 2,
               {.scale = scale, .window = 5, .dropout = 0.2, .site = 1, .documents = 1});
  return cases;
}

std::vector<OpCase> OptimizerCases(int64_t size) {
  const Dims shape = {1111 * size};
  const int64_t blocks = Adamw8bitBlocks(1111 * size);
  const Attrs attrs = Attrs::Of(AdamwAttrs{.lr = 0.01, .weight_decay = 0.1});
  const auto master = [&] { return Statistic(shape); };
  std::vector<OpCase> cases;
  cases.push_back({"adamw", &kAdamw, {Data(shape), Step(3), Control()},
                   {Data(shape), Data(shape, 0.1), Positive(Role::kData, shape)}, attrs, {}, 2,
                   12});
  cases.push_back({"adamw_master", &kAdamw, {Data(shape), Step(3), Control()},
                   {Data(shape), Statistic(shape), Positive(Role::kStatistic, shape), master()},
                   attrs, {}, 1, 12});
  const std::vector<int64_t> zeros(static_cast<size_t>(blocks), 0);
  cases.push_back({"adamw_8bit", &kAdamw8bit, {Data(shape), Step(1), Control()},
                   {Data(shape), Fixed(HostTensor::Zeros(Dtype::kU8, shape)),
                    Fixed(HostTensor::Zeros(Dtype::kU8, shape)),
                    Fixed(HostTensor::Zeros(Dtype::kF32, {blocks})),
                    Fixed(HostTensor::Zeros(Dtype::kF32, {blocks})), master()},
                   attrs, {}, 1, 12});
  cases.push_back({"sgd", &kSgd, {Data(shape), Control()}, {Data(shape)},
                   Attrs::Of(SgdAttrs{.lr = 0.1, .weight_decay = 0.01}), {}, 1, 6});
  cases.push_back({"sgd_momentum", &kSgd, {Data(shape), Control()},
                   {Data(shape), Data(shape), master()},
                   Attrs::Of(SgdAttrs{.lr = 0.1, .momentum = 0.9}), {}, 1, 6});
  return cases;
}

std::vector<OpCase> ControlCases(int64_t size) {
  const Dims shape = {40000 * size};
  const int64_t partials = SquaresPartials(40000 * size);
  std::vector<OpCase> cases;
  cases.push_back({"grad_norm_squares", &kGradNormSquares, {Data(shape)}, {Statistic({partials})},
                   {}, {}, 1, 256});
  cases.push_back({"grad_norm", &kGradNorm,
                   {Positive(Role::kStatistic, {partials}), Scalar(4)},
                   {Statistic({kControlSize})}, Attrs::Of(GradNormAttrs{0.01}), {}, 1, 16});
  cases.push_back({"finite", &kFinite, {Data(shape)}, {Scalar(0)}, {}, {}, 0, 0});
  cases.push_back({"finite_unscale", &kFiniteUnscale, {Data(shape), Scalar(3)},
                   {Data(shape), Scalar(0)}, {}, {}, 1, 2});
  cases.push_back({"loss_scale", &kLossScale, {Control()},
                   {Scalar(1024), Fixed(HostTensor::Ints({2}, {4, 1}))},
                   Attrs::Of(LossScaleAttrs{.window = 5}), {}, 0, 0});
  cases.push_back({"optimizer_step", &kOptimizerStep, {Control()}, {Step(6)}, {}, {}, 0, 0});
  cases.push_back({"random_key", &kRandomKey, {Key()}, {Key(), Key()}, {}, {-1, 0}, 0, 0});
  return cases;
}

}  // namespace

const std::vector<OpCase>& AllCases(int64_t size) {
  static std::map<int64_t, std::vector<OpCase>> by_size;
  std::vector<OpCase>& cases = by_size[size];
  if (!cases.empty()) return cases;
  for (const auto& family : {ElementwiseCases(size), NormCases(size), LinearCases(size),
                             TokenCases(size), RotaryCases(size), AttentionCases(size),
                             OptimizerCases(size), ControlCases(size)}) {
    cases.insert(cases.end(), family.begin(), family.end());
  }
  return cases;
}

std::vector<HostTensor> RunCase(const OpCase& op_case, Dtype dtype, Dtype rounding) {
  const auto prepare = [&](const CaseTensor& tensor) {
    if (tensor.role == Role::kFixed) return tensor.values;
    if (tensor.role == Role::kData) return tensor.values.As(rounding).As(dtype);
    return tensor.values.As(Dtype::kF32).As(dtype == Dtype::kF64 ? dtype : Dtype::kF32);
  };
  std::vector<HostTensor> in, out;
  for (const CaseTensor& tensor : op_case.in) in.push_back(prepare(tensor));
  for (const CaseTensor& tensor : op_case.out) out.push_back(prepare(tensor));
  std::vector<TensorArg> in_args, out_args;
  for (const HostTensor& tensor : in) in_args.push_back(tensor.arg());
  for (size_t i = 0; i < out.size(); ++i) {
    const int alias = i < op_case.aliases.size() ? op_case.aliases[i] : -1;
    out_args.push_back(alias < 0 ? out[i].arg() : in_args[static_cast<size_t>(alias)]);
  }
  RunOp(*op_case.op, in_args, out_args, op_case.attrs);
  for (size_t i = 0; i < op_case.aliases.size(); ++i) {
    if (op_case.aliases[i] >= 0) out[i] = in[static_cast<size_t>(op_case.aliases[i])];
  }
  return out;
}

}  // namespace hbmtune::testing
