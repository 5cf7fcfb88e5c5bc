#include "kernels/ops/rotary/rotary.h"

#include <cmath>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

void CheckTable(const OpArgs& args) {
  const Check check("rotary_table", args, {}, {"cos", "sin"});
  check.Rank(check.out(0), 2).SameShape(check.out(1), check.out(0)).AllFloating().AllDense();
}

void CheckRotary(const OpArgs& args) {
  const Check check("rotary", args, {"x", "cos", "sin", "starts?"}, {"y"});
  const TensorArg &x = check.in(0), &cos = check.in(1);
  check.Rank(x, 4).SameShape(check.out(0), x).Floating(x).Floating(check.out(0));
  check.Floating(cos).Floating(check.in(2));
  if (check.has_in(3)) CheckStarts(check, check.in(3), x);
  check.LastStrideOne(x).LastStrideOne(check.out(0));
  check.That(x.shape[3] % 2 == 0, "head_dim of x " + ToString(x.shape) + " is odd");
  check.Rank(cos, 2).Dense(cos).SameShape(check.in(2), cos).Dense(check.in(2));
  check.That(cos.shape[0] >= x.shape[1] && cos.shape[1] * 2 == x.shape[3],
             "cos " + ToString(cos.shape) + " has no row of head_dim/2 for each position of x " +
                 ToString(x.shape));
}

Cost CostTable(const OpArgs& args) { return StreamCost(args, 4); }
Cost CostRotary(const OpArgs& args) { return StreamCost(args, 3); }

void HostTable(const OpArgs& args) {
  const auto attrs = args.attrs.As<RotaryTableAttrs>();
  const int64_t positions = args.out[0].shape[0], half = args.out[0].shape[1];
  ParallelFor(positions, 16 * half, [&](int64_t s) {
    for (int64_t i = 0; i < half; ++i) {
      const double exponent = -static_cast<double>(i) / static_cast<double>(half);
      const double angle =
          static_cast<double>(s + attrs.position_offset) * std::pow(attrs.theta, exponent);
      StoreScalar(args.out[0], std::cos(angle), s * half + i);
      StoreScalar(args.out[1], std::sin(angle), s * half + i);
    }
  });
}

// One head: x = (x₁, x₂) of `half` elements each; sign is −1 to rotate back. y may be x.
template <class C>
struct Rotation {
  const C *x, *cos, *sin;
  C sign;
  int64_t half;
};

template <class C>
HBMTUNE_INLINE void RotateBody(Rotation<C> r, C* y) {
#pragma omp simd
  for (int64_t i = 0; i < r.half; ++i) {
    const C x1 = r.x[i], x2 = r.x[i + r.half];
    const C sin = r.sign * r.sin[i];
    y[i] = x1 * r.cos[i] - x2 * sin;
    y[i + r.half] = x2 * r.cos[i] + x1 * sin;
  }
}
HBMTUNE_VECTOR_CLONES void Rotate(Rotation<float> r, float* y) { RotateBody(r, y); }
HBMTUNE_VECTOR_CLONES void Rotate(Rotation<double> r, double* y) { RotateBody(r, y); }

template <class C>
void Rotary(const OpArgs& args) {
  const TensorArg &x = args.in[0], &y = args.out[0];
  const C sign = args.attrs.As<RotaryAttrs>().inverse ? C(-1) : C(1);
  const int64_t length = x.shape[1], heads = x.shape[2], width = x.shape[3], half = width / 2;
  const int64_t* starts = args.in.size() > 3 ? args.in[3].as<int64_t>() : nullptr;
  const RowOperand<C> from(x, 0), cos(args.in[1], 1), sin(args.in[2], 2), to(y, 3);
  ParallelFor(x.shape[0] * length, heads * width, [&](int64_t n) {
    const int64_t b = n / length, s = n % length;
    const int64_t at = (starts == nullptr ? s : s - starts[n]) * half;
    Rotation<C> r = {nullptr, cos.Read(at, half), sin.Read(at, half), sign, half};
    for (int64_t h = 0; h < heads; ++h) {
      r.x = from.Read(b * x.strides[0] + s * x.strides[1] + h * x.strides[2], width);
      const int64_t offset = b * y.strides[0] + s * y.strides[1] + h * y.strides[2];
      C* row = to.Write(offset, width);
      Rotate(r, row);
      to.Commit(row, offset, width);
    }
  });
}

void HostRotary(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Rotary<decltype(c)>(args); });
}

}  // namespace

const OpKind kRotaryTable = {"rotary_table", CheckTable, CostTable, HostTable};
const OpKind kRotary = {"rotary", CheckRotary, CostRotary, HostRotary};

}  // namespace hbmtune::ops
