#include "tests/kernels/step/rewrite.h"

#include <cmath>
#include <stdexcept>

#include "kernels/core/float16.h"
#include "kernels/core/random.h"
#include "kernels/ops/linear/linear.h"

namespace hbmtune::testing {
namespace {

void Accept(const OpArgs&) {}
Cost NoCost(const OpArgs&) { return {}; }

// Where element `i` of a tensor of any strides lies, in elements.
int64_t Offset(const TensorArg& tensor, int64_t i) {
  int64_t offset = 0;
  for (size_t d = tensor.shape.rank(); d-- > 0;) {
    offset += i % tensor.shape[d] * tensor.strides[d];
    i /= tensor.shape[d];
  }
  return offset;
}

struct RoundingAttrs {
  int64_t significand_bits;
  uint64_t seed;
};

void AddRoundings(const OpArgs& args) {
  const auto attrs = args.attrs.As<RoundingAttrs>();
  const TensorArg& tensor = args.out[0];
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    double& x = tensor.as<double>()[Offset(tensor, i)];
    const int bits = static_cast<int>(attrs.significand_bits);
    int exponent = 0;
    const double significand = std::ldexp(std::frexp(x, &exponent), bits);
    if (significand == std::trunc(significand)) continue;  // rounds to itself: a row looked up
    const uint64_t random = Mix(attrs.seed + static_cast<uint64_t>(i));
    const double uniform = static_cast<double>(random >> 11) * 0x1p-53 - 0.5;
    x += std::ldexp(uniform, exponent - bits);  // the numbers beside x are that far apart
  }
}
constexpr OpKind kRoundings{"roundings", Accept, NoCost, AddRoundings};

struct ScaleAttrs {
  double factor;
};

void Scale(const OpArgs& args) {
  const auto factor = static_cast<float>(args.attrs.As<ScaleAttrs>().factor);
  const TensorArg& tensor = args.out[0];
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    Bf16& x = tensor.as<Bf16>()[Offset(tensor, i)];
    x = NarrowToBf16(factor * Widen(x));
  }
}
constexpr OpKind kScaleInPlace{"scale_in_place", Accept, NoCost, Scale};

// linear of dense bf16 tensors, but for its sums.
void NarrowLinear(const OpArgs& args) {
  const auto attrs = args.attrs.As<ops::LinearAttrs>();
  const TensorArg &x = args.in[0], &w = args.in[1], &y = args.out[0];
  const int64_t depth = x.shape.back(), width = y.shape.back();
  const int64_t along = attrs.weight_in_out ? width : 1, across = attrs.weight_in_out ? 1 : depth;
  for (int64_t i = 0; i < y.elements(); ++i) {
    Bf16 sum = NarrowToBf16(0);
    for (int64_t k = 0; k < depth; ++k) {
      sum = NarrowToBf16(Widen(sum) + Widen(x.as<Bf16>()[i / width * depth + k]) *
                                          Widen(w.as<Bf16>()[i % width * across + k * along]));
    }
    float total = static_cast<float>(attrs.alpha) * Widen(sum);
    if (args.in.size() > 2) total += Widen(args.in[2].as<Bf16>()[i % width]);
    if (attrs.accumulate) total += Widen(y.as<Bf16>()[i]);
    y.as<Bf16>()[i] = NarrowToBf16(total);
  }
}
constexpr OpKind kNarrowLinear{"linear", Accept, NoCost, NarrowLinear};

}  // namespace

Program AfterOutputs(Program program, const OpKind& in_place,
                     const std::function<std::optional<Attrs>(const Output&)>& choose) {
  std::vector<Instruction> code;
  size_t inserted = 0, index = 0;
  for (size_t i = 0; i < program.code.size(); ++i) {
    code.push_back(program.code[i]);
    const auto* run = std::get_if<Run>(&program.code[i]);
    if (run == nullptr || i < program.first_step || i >= program.steady_step) continue;
    for (uint32_t o = 0; o < run->outputs; ++o) {
      const ViewId view = program.args[run->first_arg + run->inputs + o];
      const std::optional<Attrs> attrs = choose({i, run->op, view, index++});
      if (!attrs) continue;
      code.push_back(Run{&in_place, static_cast<uint32_t>(program.args.size()), 0, 1,
                         static_cast<uint32_t>(program.attrs.size()), run->stream});
      program.args.push_back(view);
      program.attrs.push_back(*attrs);
      ++inserted;
    }
  }
  program.code = std::move(code);
  program.steady_step += inserted;
  return program;
}

Program WithRoundings(const Program& half, const Program& full, int significand_bits,
                      uint64_t seed) {
  if (half.code.size() != full.code.size()) throw std::logic_error("no twins");
  std::vector<bool> rounds;
  AfterOutputs(half, kRoundings, [&](const Output& output) {
    const auto* twin = std::get_if<Run>(&full.code[output.position]);
    if (twin == nullptr || twin->op != output.op) throw std::logic_error("no twins");
    rounds.push_back(IsHalf(half.views[output.view].dtype));
    return std::nullopt;
  });
  return AfterOutputs(full, kRoundings, [&](const Output& output) -> std::optional<Attrs> {
    if (!rounds[output.index]) return std::nullopt;
    return Attrs::Of(RoundingAttrs{significand_bits, Mix(seed * 10'000 + output.index)});
  });
}

Program WithScaledOutputs(Program program, std::string_view op, float factor) {
  const std::vector<View> views = program.views;
  return AfterOutputs(std::move(program), kScaleInPlace,
                      [&](const Output& output) -> std::optional<Attrs> {
                        if (output.op->name != op || !IsHalf(views[output.view].dtype)) {
                          return std::nullopt;
                        }
                        return Attrs::Of(ScaleAttrs{factor});
                      });
}

Program WithNarrowSums(Program program) {
  for (Instruction& instruction : program.code) {
    auto* run = std::get_if<Run>(&instruction);
    if (run != nullptr && run->op == &ops::kLinear) run->op = &kNarrowLinear;
  }
  return program;
}

}  // namespace hbmtune::testing
