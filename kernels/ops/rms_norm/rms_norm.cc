#include "kernels/ops/rms_norm/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/norm_partials.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

void CheckForward(const OpArgs& args) {
  const Check check("rms_norm", args, {"x", "weight"}, {"y", "rstd"});
  const TensorArg& x = check.in(0);
  check.AllFloating().AllDense().MinRank(x, 1).SameShape(check.out(0), x);
  check.Shape(check.in(1), {x.shape.back()}, x);
  check.Elements(check.out(1), FoldRows(x).rows, x).Statistic(check.out(1));
}

void CheckBackward(const OpArgs& args) {
  const Check check("rms_norm_backward", args, {"dy", "x", "weight", "rstd"},
                    {"dx", "dweight?", "partials?"});
  const TensorArg& x = check.in(1);
  const int64_t rows = FoldRows(x).rows, width = x.shape.back();
  check.AllFloating().AllDense().MinRank(x, 1);
  check.SameShape(check.in(0), x).SameShape(check.out(0), x).Shape(check.in(2), {width}, x);
  check.Elements(check.in(3), rows, x).Statistic(check.in(3));
  if (!check.has_out(1)) return;
  check.Shape(check.out(1), {width}, x);
  check.That(check.has_out(2), "dweight needs the workspace `partials`");
  check.Shape(check.out(2), {NormPartials(rows), width}, x).Statistic(check.out(2));
}

Cost CostForward(const OpArgs& args) { return StreamCost(args, 4); }
Cost CostBackward(const OpArgs& args) { return StreamCost(args, 10); }

template <class C>
HBMTUNE_INLINE void NormaliseBody(const C* x, const C* weight, C rstd, C* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * weight[i];
}
HBMTUNE_VECTOR_CLONES void Normalise(const float* x, const float* weight, float rstd, float* y,
                                     int64_t n) {
  NormaliseBody(x, weight, rstd, y, n);
}
HBMTUNE_VECTOR_CLONES void Normalise(const double* x, const double* weight, double rstd,
                                     double* y, int64_t n) {
  NormaliseBody(x, weight, rstd, y, n);
}

template <class C>
void Forward(const OpArgs& args) {
  const auto [rows, width, stride, folds] = FoldRows(args.in[0]);
  const double eps = args.attrs.As<NormAttrs>().eps;
  const RowOperand<C> x(args.in[0], 0), weight(args.in[1], 1), y(args.out[0], 2);
  C* rstds = args.out[1].as<C>();
  ParallelBlocks(rows, 8, width, [&, width = width](int64_t begin, int64_t end) {
    const C* scale = weight.Read(0, width);
    for (int64_t n = begin; n < end; ++n) {
      const C* from = x.Read(n * width, width);
      const C mean_square = DotRow(from, from, width) / static_cast<C>(width);
      rstds[n] = C(1) / std::sqrt(mean_square + static_cast<C>(eps));
      C* row = y.Write(n * width, width);
      Normalise(from, scale, rstds[n], row, width);
      y.Commit(row, n * width, width);
    }
  });
}

// With x̂ = x·rstd and g = dy·weight: dx = rstd · (g − x̂ · mean(g·x̂)); dweight += dy·x̂.
template <class C>
struct RowGradient {
  const C *dy, *x, *weight;
  C rstd;
  int64_t n;
};

template <class C>
HBMTUNE_INLINE C ProjectionBody(RowGradient<C> r) {
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < r.n; ++i) sum += r.dy[i] * r.weight[i] * r.x[i];
  return sum;
}
HBMTUNE_VECTOR_CLONES float Projection(RowGradient<float> r) { return ProjectionBody(r); }
HBMTUNE_VECTOR_CLONES double Projection(RowGradient<double> r) {
  return ProjectionBody(r);
}

// dx may be dy, unless it is added to.
template <class C, bool kAdd>
HBMTUNE_INLINE void ApplyBody(RowGradient<C> r, C projection, C* dx) {
  const C mean = projection * r.rstd * r.rstd / static_cast<C>(r.n);
#pragma omp simd
  for (int64_t i = 0; i < r.n; ++i) {
    const C value = r.rstd * (r.dy[i] * r.weight[i] - r.x[i] * mean);
    dx[i] = kAdd ? dx[i] + value : value;
  }
}
HBMTUNE_VECTOR_CLONES void Apply(RowGradient<float> r, float projection, float* dx) {
  ApplyBody<float, false>(r, projection, dx);
}
HBMTUNE_VECTOR_CLONES void Apply(RowGradient<double> r, double projection, double* dx) {
  ApplyBody<double, false>(r, projection, dx);
}
HBMTUNE_VECTOR_CLONES void ApplyAdding(RowGradient<float> r, float projection,
                                       float* dx) {
  ApplyBody<float, true>(r, projection, dx);
}
HBMTUNE_VECTOR_CLONES void ApplyAdding(RowGradient<double> r, double projection,
                                       double* dx) {
  ApplyBody<double, true>(r, projection, dx);
}

template <class C>
HBMTUNE_INLINE void WeightGradientBody(RowGradient<C> r, C* dweight) {
#pragma omp simd
  for (int64_t i = 0; i < r.n; ++i) dweight[i] += r.dy[i] * r.x[i] * r.rstd;
}
HBMTUNE_VECTOR_CLONES void WeightGradient(RowGradient<float> r, float* dweight) {
  WeightGradientBody(r, dweight);
}
HBMTUNE_VECTOR_CLONES void WeightGradient(RowGradient<double> r, double* dweight) {
  WeightGradientBody(r, dweight);
}

template <class C>
void Backward(const OpArgs& args) {
  const auto [rows, width, stride, folds] = FoldRows(args.in[1]);
  const auto attrs = args.attrs.As<NormBackwardAttrs>();
  const RowOperand<C> dy(args.in[0], 0), x(args.in[1], 1), weight(args.in[2], 2);
  const RowOperand<C> dx(args.out[0], 3);
  const C* rstds = args.in[3].as<C>();
  C* partials = args.out.size() > 1 ? args.out[2].as<C>() : nullptr;
  const int64_t parts = NormPartials(rows);
  ParallelFor(parts, rows / parts * width, [&, rows = rows, width = width](int64_t part) {
    C* partial = partials == nullptr ? nullptr : partials + part * width;
    if (partial != nullptr) std::fill_n(partial, width, C(0));
    const C* scale = weight.Read(0, width);
    for (int64_t n = rows * part / parts; n < rows * (part + 1) / parts; ++n) {
      const RowGradient<C> r = {dy.Read(n * width, width), x.Read(n * width, width), scale,
                                rstds[n], width};
      const C projection = Projection(r);
      if (partial != nullptr) WeightGradient(r, partial);
      C* row = attrs.accumulate_input ? dx.Update(n * width, width) : dx.Write(n * width, width);
      attrs.accumulate_input ? ApplyAdding(r, projection, row) : Apply(r, projection, row);
      dx.Commit(row, n * width, width);
    }
  });
  if (partials != nullptr) {
    SumPartials(partials, parts, width, args.out[1], attrs.accumulate_parameters != 0);
  }
}

void HostForward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Forward<decltype(c)>(args); });
}
void HostBackward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Backward<decltype(c)>(args); });
}

}  // namespace

const OpKind kRmsNorm = {"rms_norm", CheckForward, CostForward, HostForward};
const OpKind kRmsNormBackward = {"rms_norm_backward", CheckBackward, CostBackward, HostBackward};

}  // namespace hbmtune::ops
