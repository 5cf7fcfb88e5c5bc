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
};

// silu'(x) = σ(x) · (1 + x · (1 − σ(x)))
template <class C>
HBMTUNE_INLINE void GateBackwardBody(const GateRows<C>& r, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C gate = r.gate[i], dy = r.dy[i], up = r.up[i];
    const C sigmoid = Sigmoid(gate);
    r.dgate[i] = dy * up * sigmoid * (C(1) + gate * (C(1) - sigmoid));
    r.dup[i] = dy * gate * sigmoid;
  }
}
HBMTUNE_VECTOR_CLONES void GateBackward(const GateRows<float>& r, int64_t n) {
  GateBackwardBody(r, n);
}
HBMTUNE_VECTOR_CLONES void GateBackward(const GateRows<double>& r, int64_t n) {
  GateBackwardBody(r, n);
}

template <class C>
void Forward(const OpArgs& args) {
  const RowLayout shape = FoldRows(args.in[0]);
  const int64_t gate_stride = shape.stride, up_stride = FoldRows(args.in[1]).stride;
  const int64_t y_stride = FoldRows(args.out[0]).stride;
  const RowOperand<C> gate(args.in[0], 0), up(args.in[1], 1), y(args.out[0], 2);
  ParallelFor(shape.rows, [&](int64_t n) {
    for (int64_t at = 0; at < shape.columns; at += kElementBlock) {
      const int64_t count = std::min(kElementBlock, shape.columns - at);
      C* row = y.Write(n * y_stride + at, count);
      Gate(gate.Read(n * gate_stride + at, count), up.Read(n * up_stride + at, count), row,
           count);
      y.Commit(row, n * y_stride + at, count);
    }
  });
}

// y is made before dgate and dup, which may lie where gate and up are, and stored after them, so
// that it may lie where dy is.
template <class C>
class BackwardKernel {
 public:
  explicit BackwardKernel(const OpArgs& args)
      : dy_(args.in[0]), gate_(args.in[1]), up_(args.in[2]), dgate_(args.out[0]),
        dup_(args.out[1]), y_(args.out.size() > 2 ? &args.out[2] : nullptr) {}

  void Run() const {
    const RowLayout shape = FoldRows(dy_);
    const RowOperand<C> dy(dy_, 0), gate(gate_, 1), up(up_, 2), dgate(dgate_, 3), dup(dup_, 4);
    const int64_t dy_stride = shape.stride, gate_stride = FoldRows(gate_).stride;
    const int64_t up_stride = FoldRows(up_).stride, dgate_stride = FoldRows(dgate_).stride;
    const int64_t dup_stride = FoldRows(dup_).stride;
    ParallelFor(shape.rows, [&](int64_t n) {
      for (int64_t at = 0; at < shape.columns; at += kElementBlock) {
        const int64_t count = std::min(kElementBlock, shape.columns - at);
        GateRows<C> rows = {dy.Read(n * dy_stride + at, count),
                            gate.Read(n * gate_stride + at, count),
                            up.Read(n * up_stride + at, count),
                            dgate.Write(n * dgate_stride + at, count),
                            dup.Write(n * dup_stride + at, count)};
        C again[kElementBlock];
        if (y_ != nullptr) Gate(rows.gate, rows.up, again, count);
        GateBackward(rows, count);
        dgate.Commit(rows.dgate, n * dgate_stride + at, count);
        dup.Commit(rows.dup, n * dup_stride + at, count);
        if (y_ != nullptr) Store(again, n, at, count);
      }
    });
  }

 private:
  void Store(const C* values, int64_t n, int64_t at, int64_t count) const {
    const RowOperand<C> y(*y_, 5);
    const int64_t offset = n * FoldRows(*y_).stride + at;
    C* row = y.Write(offset, count);
    std::copy(values, values + count, row);
    y.Commit(row, offset, count);
  }

  const TensorArg &dy_, &gate_, &up_, &dgate_, &dup_;
  const TensorArg* y_;
};

void HostForward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Forward<decltype(c)>(args); });
}
void HostBackward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { BackwardKernel<decltype(c)>(args).Run(); });
}

}  // namespace

const OpKind kSiluGate = {"silu_gate", CheckForward, CostForward, HostForward};
const OpKind kSiluGateBackward = {"silu_gate_backward", CheckBackward, CostBackward,
                                  HostBackward};

}  // namespace hbmtune::ops
