#include "kernels/ops/aten_dropout/aten_dropout.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/strided.h"

namespace hbmtune::ops {
namespace {

void CheckForward(const OpArgs& args) {
  const Check check("aten_dropout", args, {"x"}, {"y", "mask"});
  check.SameShape(check.out(0), check.in(0)).SameShape(check.out(1), check.in(0));
  check.Dtype(check.out(1), Dtype::kU8);
}

void CheckBackward(const OpArgs& args) {
  const Check check("aten_dropout_backward", args, {"dy", "mask"}, {"dx"});
  check.SameShape(check.in(1), check.in(0)).SameShape(check.out(0), check.in(0));
  check.Dtype(check.in(1), Dtype::kU8);
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 1); }

// SplitMix64: one step of a counter-based generator (Steele, Lea, Flood 2014).
double UniformAt(int64_t seed, int64_t index) {
  uint64_t z = (static_cast<uint64_t>(seed) << 32) + static_cast<uint64_t>(index);
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

void Forward(const OpArgs& args) {
  const auto attrs = args.attrs.As<AtenDropoutAttrs>();
  const TensorArg& x = args.in[0];
  for (int64_t i = 0; i < x.elements(); ++i) {
    const bool keep = UniformAt(attrs.seed, i) >= attrs.probability;
    const double value = LoadScalar(x, OffsetOf(i, x.shape, x.strides));
    StoreScalar(args.out[0], keep ? value / (1 - attrs.probability) : 0,
                OffsetOf(i, x.shape, args.out[0].strides));
    args.out[1].as<uint8_t>()[OffsetOf(i, x.shape, args.out[1].strides)] = keep;
  }
}

void Backward(const OpArgs& args) {
  const auto attrs = args.attrs.As<AtenDropoutAttrs>();
  const TensorArg& dy = args.in[0];
  for (int64_t i = 0; i < dy.elements(); ++i) {
    const bool keep = args.in[1].as<uint8_t>()[OffsetOf(i, dy.shape, args.in[1].strides)] != 0;
    const double value = LoadScalar(dy, OffsetOf(i, dy.shape, dy.strides));
    StoreScalar(args.out[0], keep ? value / (1 - attrs.probability) : 0,
                OffsetOf(i, dy.shape, args.out[0].strides));
  }
}

}  // namespace

const OpKind kAtenDropout = {"aten_dropout", CheckForward, CostOf, Forward};
const OpKind kAtenDropoutBackward = {"aten_dropout_backward", CheckBackward, CostOf, Backward};

}  // namespace hbmtune::ops
