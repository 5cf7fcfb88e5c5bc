#include "kernels/ops/silu_gate/silu_gate.h"

#include <algorithm>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vector_math.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

void CheckForward(const OpArgs& args) {
  const Check check("silu_gate", args, {"gate", "up"}, {"y"});
  check.AllFloating().SameShape(check.in(1), check.in(0)).SameShape(check.out(0), check.in(0));
  check.Rows(check.in(0)).Rows(check.in(1)).Rows(check.out(0));
}

void CheckBackward(const OpArgs& args) {
  const Check check("silu_gate_backward", args, {"dy", "gate", "up"}, {"dgate", "dup", "y?"});
  check.AllFloating();
  for (const TensorArg& tensor : args.in) check.SameShape(tensor, check.in(0)).Rows(tensor);
  for (const TensorArg& tensor : args.out) check.SameShape(tensor, check.in(0)).Rows(tensor);
}

Cost CostForward(const OpArgs& args) { return StreamCost(args, 5); }
Cost CostBackward(const OpArgs& args) { return StreamCost(args, 11); }

template <class C>
HBMTUNE_INLINE void GateBody(const C* gate, const C* up, C* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] * Sigmoid(gate[i]) * up[i];
}
HBMTUNE_VECTOR_CLONES void Gate(const float* gate, const float* up, float* y, int64_t n) {
  GateBody(gate, up, y, n);
}
HBMTUNE_VECTOR_CLONES void Gate(const double* gate, const double* up, double* y, int64_t n) {
  GateBody(gate, up, y, n);
}

template <class C>
struct GateRows {
  const C *dy, *gate, *up;
  C *dgate, *dup;
  C* y;  // the forward result again, if wanted
};

// silu'(x) = σ(x) · (1 + x · (1 − σ(x))). Outputs may be inputs: each element is read first.
template <bool kForward, class C>
HBMTUNE_INLINE void GateBackwardBody(GateRows<C> r, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C gate = r.gate[i], dy = r.dy[i], up = r.up[i];
    const C sigmoid = Sigmoid(gate);
    r.dgate[i] = dy * up * sigmoid * (C(1) + gate * (C(1) - sigmoid));
    r.dup[i] = dy * gate * sigmoid;
    if constexpr (kForward) r.y[i] = gate * sigmoid * up;
  }
}
HBMTUNE_VECTOR_CLONES void GateBackward(GateRows<float> r, int64_t n) {
  GateBackwardBody<false>(r, n);
}
HBMTUNE_VECTOR_CLONES void GateBackward(GateRows<double> r, int64_t n) {
  GateBackwardBody<false>(r, n);
}
HBMTUNE_VECTOR_CLONES void GateBackwardAndForward(GateRows<float> r, int64_t n) {
  GateBackwardBody<true>(r, n);
}
HBMTUNE_VECTOR_CLONES void GateBackwardAndForward(GateRows<double> r, int64_t n) {
  GateBackwardBody<true>(r, n);
}

template <class C>
void Forward(const OpArgs& args) {
  const RowLayout shape = FoldRows(args.in[0]);
  const StridedRows<C> gate(args.in[0], 0), up(args.in[1], 1), y(args.out[0], 2);
  ParallelFor(shape.rows, shape.columns, [&](int64_t n) {
    for (int64_t at = 0; at < shape.columns; at += kElementBlock) {
      const int64_t count = std::min(kElementBlock, shape.columns - at);
      C* row = y.Write(n, at, count);
      Gate(gate.Read(n, at, count), up.Read(n, at, count), row, count);
      y.Commit(row, n, at, count);
    }
  });
}

template <class C>
void Backward(const OpArgs& args) {
  const RowLayout shape = FoldRows(args.in[0]);
  const bool forward = args.out.size() > 2;
  const StridedRows<C> dy(args.in[0], 0), gate(args.in[1], 1), up(args.in[2], 2);
  const StridedRows<C> dgate(args.out[0], 3), dup(args.out[1], 4), y(args.out[forward ? 2 : 1], 5);
  ParallelFor(shape.rows, shape.columns, [&](int64_t n) {
    for (int64_t at = 0; at < shape.columns; at += kElementBlock) {
      const int64_t count = std::min(kElementBlock, shape.columns - at);
      const GateRows<C> rows = {dy.Read(n, at, count),     gate.Read(n, at, count),
                                up.Read(n, at, count),     dgate.Write(n, at, count),
                                dup.Write(n, at, count),   y.Write(n, at, count)};
      forward ? GateBackwardAndForward(rows, count) : GateBackward(rows, count);
      dgate.Commit(rows.dgate, n, at, count);
      dup.Commit(rows.dup, n, at, count);
      if (forward) y.Commit(rows.y, n, at, count);
    }
  });
}

void HostForward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Forward<decltype(c)>(args); });
}
void HostBackward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Backward<decltype(c)>(args); });
}

}  // namespace

const OpKind kSiluGate = {"silu_gate", CheckForward, CostForward, HostForward};
const OpKind kSiluGateBackward = {"silu_gate_backward", CheckBackward, CostBackward,
                                  HostBackward};

}  // namespace hbmtune::ops
