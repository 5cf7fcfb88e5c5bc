#include "kernels/ops/aten_range/aten_range.h"

#include <cmath>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/strided.h"

namespace hbmtune::ops {
namespace {

void CheckVector(const OpArgs& args) {
  const Check check("aten_range", args, {}, {"y"});
  check.MinRank(check.out(0), 1).AllDense();
}

void CheckMask(const OpArgs& args) {
  const Check check("aten_causal_mask", args, {}, {"y"});
  check.MinRank(check.out(0), 2).AllDense();
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 0); }

void Arange(const OpArgs& args) {
  for (int64_t i = 0; i < args.out[0].elements(); ++i) {
    StoreElement(args.out[0], static_cast<double>(i), i);
  }
}

void InverseFrequencies(const OpArgs& args) {
  const double theta = args.attrs.As<AtenRangeAttrs>().theta;
  const int64_t count = args.out[0].elements();
  for (int64_t i = 0; i < count; ++i) {
    StoreScalar(args.out[0], std::pow(theta, -static_cast<double>(i) / count), i);
  }
}

void CausalMask(const OpArgs& args) {
  const TensorArg& y = args.out[0];
  const int64_t columns = y.shape.back(), rows = y.shape[y.shape.rank() - 2];
  const double lowest = y.dtype == Dtype::kF16 ? -65504 : -1e30;
  for (int64_t i = 0; i < y.elements(); ++i) {
    StoreScalar(y, i % columns <= i / columns % rows ? 0 : lowest, i);
  }
}

}  // namespace

const OpKind kAtenArange = {"aten_range", CheckVector, CostOf, Arange};
const OpKind kAtenInverseFrequencies = {"aten_range_inverse_frequencies", CheckVector, CostOf,
                                        InverseFrequencies};
const OpKind kAtenCausalMask = {"aten_range_causal_mask", CheckMask, CostOf, CausalMask};

}  // namespace hbmtune::ops
