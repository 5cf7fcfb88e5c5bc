#include "kernels/ops/layer_norm/layer_norm.h"

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
  const Check check("layer_norm", args, {"x", "weight", "bias"}, {"y", "mean", "rstd"});
  const TensorArg& x = check.in(0);
  check.AllFloating().AllDense().MinRank(x, 1).SameShape(check.out(0), x);
  check.Shape(check.in(1), {x.shape.back()}, x).Shape(check.in(2), {x.shape.back()}, x);
  for (size_t i : {1, 2}) {
    check.Elements(check.out(i), FoldRows(x).rows, x).Statistic(check.out(i));
  }
}

void CheckBackward(const OpArgs& args) {
  const Check check("layer_norm_backward", args, {"dy", "x", "weight", "mean", "rstd"},
                    {"dx", "dweight?", "dbias?", "partials?"});
  const TensorArg& x = check.in(1);
  const int64_t rows = FoldRows(x).rows, width = x.shape.back();
  check.AllFloating().AllDense().MinRank(x, 1);
  check.SameShape(check.in(0), x).SameShape(check.out(0), x).Shape(check.in(2), {width}, x);
  for (size_t i : {3, 4}) check.Elements(check.in(i), rows, x).Statistic(check.in(i));
  if (!check.has_out(1)) return;
  check.That(check.has_out(3), "dweight needs dbias and the workspace `partials` beside it");
  check.Shape(check.out(1), {width}, x).Shape(check.out(2), {width}, x);
  check.Shape(check.out(3), {2 * NormPartials(rows), width}, x).Statistic(check.out(3));
}

Cost CostForward(const OpArgs& args) { return StreamCost(args, 7); }
Cost CostBackward(const OpArgs& args) { return StreamCost(args, 14); }

template <class C>
HBMTUNE_INLINE C VarianceBody(const C* x, C mean, int64_t n) {
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum / static_cast<C>(n);
}
HBMTUNE_VECTOR_CLONES float Variance(const float* x, float mean, int64_t n) {
  return VarianceBody(x, mean, n);
}
HBMTUNE_VECTOR_CLONES double Variance(const double* x, double mean, int64_t n) {
  return VarianceBody(x, mean, n);
}

template <class C>
struct Normalisation {
  const C *x, *weight, *bias;
  C mean, rstd;
  int64_t n;
};

template <class C>
HBMTUNE_INLINE void NormaliseBody(Normalisation<C> r, C* y) {
#pragma omp simd
  for (int64_t i = 0; i < r.n; ++i) {
    y[i] = (r.x[i] - r.mean) * r.rstd * r.weight[i] + r.bias[i];
  }
}
HBMTUNE_VECTOR_CLONES void Normalise(Normalisation<float> r, float* y) {
  NormaliseBody(r, y);
}
HBMTUNE_VECTOR_CLONES void Normalise(Normalisation<double> r, double* y) {
  NormaliseBody(r, y);
}

template <class C>
void Forward(const OpArgs& args) {
  const auto [rows, width, stride, folds] = FoldRows(args.in[0]);
  const double eps = args.attrs.As<NormAttrs>().eps;
  const RowOperand<C> x(args.in[0], 0), weight(args.in[1], 1), bias(args.in[2], 2);
  const RowOperand<C> y(args.out[0], 3);
  C* means = args.out[1].as<C>();
  C* rstds = args.out[2].as<C>();
  ParallelBlocks(rows, 8, width, [&, width = width](int64_t begin, int64_t end) {
    const C* scale = weight.Read(0, width);
    const C* shift = bias.Read(0, width);
    for (int64_t n = begin; n < end; ++n) {
      const C* from = x.Read(n * width, width);
      means[n] = SumRow(from, width) / static_cast<C>(width);
      rstds[n] = C(1) / std::sqrt(Variance(from, means[n], width) + static_cast<C>(eps));
      C* row = y.Write(n * width, width);
      Normalise({from, scale, shift, means[n], rstds[n], width}, row);
      y.Commit(row, n * width, width);
    }
  });
}

// With x̂ = (x − mean)·rstd and g = dy·weight:
// dx = rstd · (g − mean(g) − x̂ · mean(g·x̂)); dweight += dy·x̂; dbias += dy.
template <class C>
struct RowGradient {
  const C *dy, *x, *weight;
  C mean, rstd;
  int64_t n;
};

template <class C>
struct Means {
  C g = 0;       // mean(g)
  C g_xhat = 0;  // mean(g · x̂)
};

template <class C>
HBMTUNE_INLINE Means<C> MeansBody(RowGradient<C> r) {
  C sum = 0, sum_xhat = 0;
#pragma omp simd reduction(+ : sum, sum_xhat)
  for (int64_t i = 0; i < r.n; ++i) {
    const C g = r.dy[i] * r.weight[i];
    sum += g;
    sum_xhat += g * (r.x[i] - r.mean);
  }
  return {sum / static_cast<C>(r.n), sum_xhat * r.rstd / static_cast<C>(r.n)};
}
HBMTUNE_VECTOR_CLONES Means<float> MeansOf(RowGradient<float> r) { return MeansBody(r); }
HBMTUNE_VECTOR_CLONES Means<double> MeansOf(RowGradient<double> r) {
  return MeansBody(r);
}

// dx may be dy, unless it is added to.
template <class C, bool kAdd>
HBMTUNE_INLINE void ApplyBody(RowGradient<C> r, Means<C> means, C* dx) {
#pragma omp simd
  for (int64_t i = 0; i < r.n; ++i) {
    const C xhat = (r.x[i] - r.mean) * r.rstd;
    const C value = r.rstd * (r.dy[i] * r.weight[i] - means.g - xhat * means.g_xhat);
    dx[i] = kAdd ? dx[i] + value : value;
  }
}
HBMTUNE_VECTOR_CLONES void Apply(RowGradient<float> r, Means<float> means,
                                 float* dx) {
  ApplyBody<float, false>(r, means, dx);
}
HBMTUNE_VECTOR_CLONES void Apply(RowGradient<double> r, Means<double> means,
                                 double* dx) {
  ApplyBody<double, false>(r, means, dx);
}
HBMTUNE_VECTOR_CLONES void ApplyAdding(RowGradient<float> r, Means<float> means,
                                       float* dx) {
  ApplyBody<float, true>(r, means, dx);
}
HBMTUNE_VECTOR_CLONES void ApplyAdding(RowGradient<double> r, Means<double> means,
                                       double* dx) {
  ApplyBody<double, true>(r, means, dx);
}

template <class C>
HBMTUNE_INLINE void ParametersBody(RowGradient<C> r, C* dweight, C* dbias) {
#pragma omp simd
  for (int64_t i = 0; i < r.n; ++i) {
    dweight[i] += r.dy[i] * (r.x[i] - r.mean) * r.rstd;
    dbias[i] += r.dy[i];
  }
}
HBMTUNE_VECTOR_CLONES void Parameters(RowGradient<float> r, float* dweight,
                                      float* dbias) {
  ParametersBody(r, dweight, dbias);
}
HBMTUNE_VECTOR_CLONES void Parameters(RowGradient<double> r, double* dweight,
                                      double* dbias) {
  ParametersBody(r, dweight, dbias);
}

template <class C>
void Backward(const OpArgs& args) {
  const auto [rows, width, stride, folds] = FoldRows(args.in[1]);
  const auto attrs = args.attrs.As<NormBackwardAttrs>();
  const RowOperand<C> dy(args.in[0], 0), x(args.in[1], 1), weight(args.in[2], 2);
  const RowOperand<C> dx(args.out[0], 3);
  const C* means = args.in[3].as<C>();
  const C* rstds = args.in[4].as<C>();
  C* partials = args.out.size() > 1 ? args.out[3].as<C>() : nullptr;
  const int64_t parts = NormPartials(rows);
  ParallelFor(parts, rows / parts * width, [&, rows = rows, width = width](int64_t part) {
    C* dweight = partials == nullptr ? nullptr : partials + part * width;
    C* dbias = partials == nullptr ? nullptr : partials + (parts + part) * width;
    if (partials != nullptr) std::fill_n(dweight, width, C(0));
    if (partials != nullptr) std::fill_n(dbias, width, C(0));
    const C* scale = weight.Read(0, width);
    for (int64_t n = rows * part / parts; n < rows * (part + 1) / parts; ++n) {
      const int64_t at = n * width;
      const RowGradient<C> r = {dy.Read(at, width), x.Read(at, width), scale, means[n], rstds[n],
                                width};
      if (partials != nullptr) Parameters(r, dweight, dbias);
      const Means<C> row_means = MeansOf(r);
      C* row = attrs.accumulate_input ? dx.Update(at, width) : dx.Write(at, width);
      attrs.accumulate_input ? ApplyAdding(r, row_means, row) : Apply(r, row_means, row);
      dx.Commit(row, at, width);
    }
  });
  if (partials == nullptr) return;
  const bool accumulate = attrs.accumulate_parameters != 0;
  SumPartials(partials, parts, width, args.out[1], accumulate);
  SumPartials(partials + parts * width, parts, width, args.out[2], accumulate);
}

void HostForward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Forward<decltype(c)>(args); });
}
void HostBackward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Backward<decltype(c)>(args); });
}

}  // namespace

const OpKind kLayerNorm = {"layer_norm", CheckForward, CostForward, HostForward};
const OpKind kLayerNormBackward = {"layer_norm_backward", CheckBackward, CostBackward,
                                   HostBackward};

}  // namespace hbmtune::ops
