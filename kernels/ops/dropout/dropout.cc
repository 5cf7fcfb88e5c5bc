#include "kernels/ops/dropout/dropout.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/philox.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("dropout", args, {"x", "key"}, {"y"});
  const TensorArg &x = check.in(0), &key = check.in(1);
  check.Floating(x).Floating(check.out(0)).AllDense().SameShape(check.out(0), x);
  check.Dtype(key, Dtype::kI64).Shape(key, {2}, key);
  const double probability = args.attrs.As<DropoutAttrs>().probability;
  check.That(probability >= 0 && probability < 1,
             "probability " + std::to_string(probability) + " is not in [0, 1)");
}

// 10 rounds of about 10 integer operations give four numbers.
Cost CostOf(const OpArgs& args) { return StreamCost(args, 25); }

template <class C>
void Dropout(const OpArgs& args) {
  const auto attrs = args.attrs.As<DropoutAttrs>();
  const auto mask =
      DropoutMask::Of(args.in[1].as<int64_t>(), attrs.site, attrs.probability);
  const RowOperand<C> x(args.in[0], 0), y(args.out[0], 1);
  ParallelBlocks(args.in[0].elements(), kElementBlock, 1, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    C multipliers[kElementBlock];
    FillDropoutMultipliers(mask, static_cast<uint64_t>(begin), multipliers, n);
    C* row = y.Write(begin, n);
    MultiplyRow(x.Read(begin, n), multipliers, row, n);
    y.Commit(row, begin, n);
  });
}

void Host(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Dropout<decltype(c)>(args); });
}

}  // namespace

const OpKind kDropout = {"dropout", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops
