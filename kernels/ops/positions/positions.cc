#include "kernels/ops/positions/positions.h"

#include <algorithm>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckTable(const Check& check, const TensorArg& activation, const TensorArg& table) {
  check.Floating(activation).Floating(table).Floating(check.out(0)).AllDense();
  check.Rank(activation, 3).Rank(table, 2);
  check.That(table.shape[1] == activation.shape[2] && table.shape[0] >= activation.shape[1],
             check.NameOf(table) + " " + ToString(table.shape) + " has no row for each of the " +
                 "positions of " + check.NameOf(activation) + " " + ToString(activation.shape));
}

void CheckForward(const OpArgs& args) {
  const Check check("positions", args, {"x", "weight", "starts?"}, {"y"});
  CheckTable(check, check.in(0), check.in(1));
  if (check.has_in(2)) CheckStarts(check, check.in(2), check.in(0));
  check.SameShape(check.out(0), check.in(0));
}

void CheckBackward(const OpArgs& args) {
  const Check check("positions_backward", args, {"dy", "starts?"}, {"dweight"});
  CheckTable(check, check.in(0), check.out(0));
  if (check.has_in(1)) CheckStarts(check, check.in(1), check.in(0));
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 1); }

template <class C>
void Forward(const OpArgs& args) {
  const int64_t length = args.in[0].shape[1], width = args.in[0].shape[2];
  const int64_t* starts = args.in.size() > 2 ? args.in[2].as<int64_t>() : nullptr;
  const RowOperand<C> x(args.in[0], 0), weight(args.in[1], 1), y(args.out[0], 2);
  ParallelFor(args.in[0].shape[0] * length, width, [&](int64_t n) {
    C* row = y.Write(n * width, width);
    const C* from = x.Read(n * width, width);
    if (row != from) std::copy_n(from, width, row);
    const int64_t position = n % length - (starts == nullptr ? 0 : starts[n]);
    AddTo(row, weight.Read(position * width, width), width);
    y.Commit(row, n * width, width);
  });
}

template <class C>
void Backward(const OpArgs& args) {
  const int64_t batch = args.in[0].shape[0], length = args.in[0].shape[1];
  const int64_t width = args.in[0].shape[2];
  const bool accumulate = args.attrs.As<PositionsBackwardAttrs>().accumulate != 0;
  const RowOperand<C> dy(args.in[0], 0), dweight(args.out[0], 1);
  const int64_t* starts = args.in.size() > 1 ? args.in[1].as<int64_t>() : nullptr;
  ParallelFor(args.out[0].shape[0], batch * width, [&](int64_t position) {
    C* row = dweight.Update(position * width, width);
    if (!accumulate) std::fill_n(row, width, C(0));
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t end = starts == nullptr ? std::min(position + 1, length) : length;
      for (int64_t s = position; s < end; ++s) {
        const int64_t n = b * length + s;
        if (starts != nullptr && s - starts[n] != position) continue;
        AddTo(row, dy.Read(n * width, width), width);
      }
    }
    dweight.Commit(row, position * width, width);
  });
}

void HostForward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Forward<decltype(c)>(args); });
}
void HostBackward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Backward<decltype(c)>(args); });
}

}  // namespace

const OpKind kPositions = {"positions", CheckForward, CostOf, HostForward};
const OpKind kPositionsBackward = {"positions_backward", CheckBackward, CostOf, HostBackward};

}  // namespace hbmtune::ops
