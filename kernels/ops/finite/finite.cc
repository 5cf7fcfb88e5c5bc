#include "kernels/ops/finite/finite.h"

#include <atomic>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

void CheckFinite(const OpArgs& args) {
  const Check check("finite", args, {"x"}, {"flag"});
  check.AllFloating().AllDense().Elements(check.out(0), 1, check.in(0));
}

void CheckUnscale(const OpArgs& args) {
  const Check check("finite_unscale", args, {"x", "loss_scale"}, {"y", "flag"});
  check.AllFloating().AllDense().Elements(check.in(1), 1, check.in(0));
  check.SameShape(check.out(0), check.in(0)).Elements(check.out(1), 1, check.in(0));
}

Cost CostFinite(const OpArgs& args) { return StreamCost(args, 1, CostClass::kReduction); }
Cost CostUnscale(const OpArgs& args) { return StreamCost(args, 2); }

// 0 · x is 0 for finite x and NaN otherwise, and NaN survives the sum.
template <class C>
HBMTUNE_INLINE bool AllFiniteBody(const C* x, int64_t n) {
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += C(0) * x[i];
  return sum == 0;
}
HBMTUNE_VECTOR_CLONES bool AllFinite(const float* x, int64_t n) { return AllFiniteBody(x, n); }
HBMTUNE_VECTOR_CLONES bool AllFinite(const double* x, int64_t n) { return AllFiniteBody(x, n); }

// Visits blocks of x; the flag is set if one holds what is not finite.
template <class C, class Fn>
void CheckBlocks(const TensorArg& tensor, const TensorArg& flag, Fn&& fn) {
  const RowOperand<C> x(tensor, 0);
  std::atomic<bool> finite = true;
  ParallelBlocks(tensor.elements(), kElementBlock, 1, [&](int64_t begin, int64_t end) {
    const C* row = x.Read(begin, end - begin);
    if (!AllFinite(row, end - begin)) finite.store(false, std::memory_order_relaxed);
    fn(row, begin, end - begin);
  });
  if (!finite) StoreScalar(flag, 1.0);
}

template <class C>
void Unscale(const OpArgs& args) {
  const C factor = static_cast<C>(1.0 / LoadScalar(args.in[1]));
  const RowOperand<C> y(args.out[0], 1);
  CheckBlocks<C>(args.in[0], args.out[1], [&](const C* x, int64_t begin, int64_t n) {
    C* row = y.Write(begin, n);
    ScaleRow(x, factor, row, n);
    y.Commit(row, begin, n);
  });
}

void HostFinite(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) {
    using C = decltype(c);
    CheckBlocks<C>(args.in[0], args.out[0], [](const C*, int64_t, int64_t) {});
  });
}
void HostUnscale(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Unscale<decltype(c)>(args); });
}

}  // namespace

const OpKind kFinite = {"finite", CheckFinite, CostFinite, HostFinite};
const OpKind kFiniteUnscale = {"finite_unscale", CheckUnscale, CostUnscale, HostUnscale};

}  // namespace hbmtune::ops
