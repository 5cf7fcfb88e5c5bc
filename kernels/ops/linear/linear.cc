#include "kernels/ops/linear/linear.h"

#include <algorithm>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/gemm.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

LinearAttrs AttrsOf(const OpArgs& args) { return args.attrs.As<LinearAttrs>(); }

// The weight goes with `outer`, whose rows are its outputs, and `inner`, whose rows are its inputs.
void CheckWeight(const Check& check, const TensorArg& weight, bool in_out, const TensorArg& outer,
                 const TensorArg& inner) {
  const int64_t out = outer.shape.back(), in = inner.shape.back();
  const Dims expected = in_out ? Dims{in, out} : Dims{out, in};
  if (weight.shape != expected) {
    check.Fail(weight, "expected " + ToString(expected) + " to fit " + check.NameOf(inner) + " " +
                           ToString(inner.shape) + " and " + check.NameOf(outer) + " " +
                           ToString(outer.shape));
  }
  check.Dense(weight);
}

void CheckSameRows(const Check& check, const TensorArg& a, const TensorArg& b) {
  check.Rows(a).Rows(b);
  check.That(FoldRows(a).rows == FoldRows(b).rows,
             check.NameOf(a) + " " + ToString(a.shape) + " and " + check.NameOf(b) + " " +
                 ToString(b.shape) + " have different numbers of rows");
}

void CheckForward(const OpArgs& args) {
  const Check check("linear", args, {"x", "weight", "bias?"}, {"y"});
  const TensorArg &x = check.in(0), &y = check.out(0);
  check.AllFloating();
  CheckSameRows(check, x, y);
  CheckWeight(check, check.in(1), AttrsOf(args).weight_in_out, y, x);
  if (check.has_in(2)) check.Dense(check.in(2)).Shape(check.in(2), {y.shape.back()}, y);
}

void CheckBackwardInput(const OpArgs& args) {
  const Check check("linear_backward_input", args, {"dy", "weight"}, {"dx"});
  const TensorArg &dy = check.in(0), &dx = check.out(0);
  check.AllFloating();
  CheckSameRows(check, dy, dx);
  CheckWeight(check, check.in(1), AttrsOf(args).weight_in_out, dy, dx);
}

void CheckBackwardWeight(const OpArgs& args) {
  const Check check("linear_backward_weight", args, {"dy", "x"}, {"dweight"});
  const TensorArg &dy = check.in(0), &x = check.in(1);
  check.AllFloating();
  CheckSameRows(check, dy, x);
  CheckWeight(check, check.out(0), AttrsOf(args).weight_in_out, dy, x);
}

void CheckBackwardBias(const OpArgs& args) {
  const Check check("linear_backward_bias", args, {"dy"}, {"dbias"});
  check.AllFloating().Rows(check.in(0)).Dense(check.out(0));
  check.Shape(check.out(0), {check.in(0).shape.back()}, check.in(0));
}

Cost ProductCost(const OpArgs& args, int64_t m, int64_t n, int64_t k) {
  Cost cost = StreamCost(args, 0, CostClass::kMatmul);
  cost.m = m;
  cost.n = n;
  cost.k = k;
  cost.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (AttrsOf(args).accumulate) cost.bytes_read += static_cast<double>(args.out[0].bytes());
  return cost;
}

Cost CostForward(const OpArgs& args) {
  const RowLayout x = FoldRows(args.in[0]), y = FoldRows(args.out[0]);
  return ProductCost(args, x.rows, y.columns, x.columns);
}
Cost CostBackwardInput(const OpArgs& args) {
  const RowLayout dy = FoldRows(args.in[0]), dx = FoldRows(args.out[0]);
  return ProductCost(args, dy.rows, dx.columns, dy.columns);
}
Cost CostBackwardWeight(const OpArgs& args) {
  const RowLayout dy = FoldRows(args.in[0]), x = FoldRows(args.in[1]);
  return ProductCost(args, dy.columns, x.columns, dy.rows);
}
Cost CostBackwardBias(const OpArgs& args) {
  return StreamCost(args, 1, CostClass::kReduction);
}

Matrix Rows(const TensorArg& tensor) {
  return {tensor.data, tensor.dtype, FoldRows(tensor).stride, 1};
}

Matrix Transposed(const Matrix& matrix) {
  return {matrix.data, matrix.dtype, matrix.column_stride, matrix.row_stride};
}

// The weight seen as [out, in].
Matrix OutIn(const TensorArg& weight, bool in_out) {
  const Matrix stored = {weight.data, weight.dtype, weight.shape[1], 1};
  return in_out ? Transposed(stored) : stored;
}

void Run(const LinearAttrs& attrs, const Matrix& a, const Matrix& b, const Matrix& c, int64_t m,
         int64_t n, int64_t k) {
  Multiply({.a = a, .b = b, .c = c, .m = m, .n = n, .k = k, .alpha = attrs.alpha,
            .beta = attrs.accumulate ? 1.0 : 0.0});
}

template <class C>
void AddBias(const TensorArg& y, const TensorArg& bias) {
  const auto [rows, width, stride, folds] = FoldRows(y);
  const RowOperand<C> out(y, 0), shift(bias, 1);
  ParallelBlocks(rows, 16, width, [&, width = width, stride = stride](int64_t begin, int64_t end) {
    const C* from = shift.Read(0, width);
    for (int64_t n = begin; n < end; ++n) {
      C* row = out.Update(n * stride, width);
      AddTo(row, from, width);
      out.Commit(row, n * stride, width);
    }
  });
}

void Forward(const OpArgs& args) {
  const LinearAttrs attrs = AttrsOf(args);
  const TensorArg &x = args.in[0], &y = args.out[0];
  const Matrix weight = OutIn(args.in[1], attrs.weight_in_out);
  Run(attrs, Rows(x), Transposed(weight), Rows(y), FoldRows(x).rows, y.shape.back(),
      x.shape.back());
  if (args.in.size() > 2) {
    WithArithmetic(args, [&](auto c) { AddBias<decltype(c)>(y, args.in[2]); });
  }
}

void BackwardInput(const OpArgs& args) {
  const LinearAttrs attrs = AttrsOf(args);
  const TensorArg &dy = args.in[0], &dx = args.out[0];
  Run(attrs, Rows(dy), OutIn(args.in[1], attrs.weight_in_out), Rows(dx), FoldRows(dy).rows,
      dx.shape.back(), dy.shape.back());
}

void BackwardWeight(const OpArgs& args) {
  const LinearAttrs attrs = AttrsOf(args);
  const TensorArg &dy = args.in[0], &x = args.in[1], &dweight = args.out[0];
  const TensorArg& left = attrs.weight_in_out ? x : dy;
  const TensorArg& right = attrs.weight_in_out ? dy : x;
  const Matrix out = {dweight.data, dweight.dtype, dweight.shape[1], 1};
  Run(attrs, Transposed(Rows(left)), Rows(right), out, dweight.shape[0], dweight.shape[1],
      FoldRows(dy).rows);
}

// Each thread sums its own columns over all rows, ascending.
template <class C>
void SumRows(const OpArgs& args) {
  const auto [rows, width, stride, folds] = FoldRows(args.in[0]);
  const bool accumulate = args.attrs.As<LinearBackwardBiasAttrs>().accumulate != 0;
  const RowOperand<C> dy(args.in[0], 0), dbias(args.out[0], 1);
  ParallelBlocks(width, 256, rows, [&, rows = rows, stride = stride](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    C* row = dbias.Update(begin, n);
    if (!accumulate) std::fill_n(row, n, C(0));
    for (int64_t i = 0; i < rows; ++i) AddTo(row, dy.Read(i * stride + begin, n), n);
    dbias.Commit(row, begin, n);
  });
}

void BackwardBias(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { SumRows<decltype(c)>(args); });
}

}  // namespace

const OpKind kLinear = {"linear", CheckForward, CostForward, Forward};
const OpKind kLinearBackwardInput = {"linear_backward_input", CheckBackwardInput,
                                     CostBackwardInput, BackwardInput};
const OpKind kLinearBackwardWeight = {"linear_backward_weight", CheckBackwardWeight,
                                      CostBackwardWeight, BackwardWeight};
const OpKind kLinearBackwardBias = {"linear_backward_bias", CheckBackwardBias, CostBackwardBias,
                                    BackwardBias};

}  // namespace hbmtune::ops
