#include "kernels/ops/add/add.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

void CheckNamed(const char* op, const OpArgs& args) {
  const Check check(op, args, {"a", "b"}, {"y"});
  check.SameShape(check.in(1), check.in(0)).SameShape(check.out(0), check.in(0));
  check.AllFloating().AllDense();
}

void CheckAdd(const OpArgs& args) { CheckNamed("add", args); }

void CheckAddInPlace(const OpArgs& args) {
  CheckNamed("add_in_place", args);
  const Check check("add_in_place", args, {"a", "b"}, {"y"});
  check.That(args.in[0].data == args.out[0].data && args.in[0].dtype == args.out[0].dtype,
             "the output is not the first input");
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 1); }

template <class C>
HBMTUNE_INLINE void AddBody(const C* a, const C* b, C* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}
HBMTUNE_VECTOR_CLONES void AddRow(const float* a, const float* b, float* y, int64_t n) {
  AddBody(a, b, y, n);
}
HBMTUNE_VECTOR_CLONES void AddRow(const double* a, const double* b, double* y, int64_t n) {
  AddBody(a, b, y, n);
}

template <class C>
void Add(const OpArgs& args) {
  const RowOperand<C> a(args.in[0], 0), b(args.in[1], 1), y(args.out[0], 2);
  ParallelBlocks(args.in[0].elements(), kElementBlock, 1, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    C* row = y.Write(begin, n);
    AddRow(a.Read(begin, n), b.Read(begin, n), row, n);
    y.Commit(row, begin, n);
  });
}

void Host(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Add<decltype(c)>(args); });
}

}  // namespace

const OpKind kAdd = {"add", CheckAdd, CostOf, Host};
const OpKind kAddInPlace = {"add_in_place", CheckAddInPlace, CostOf, Host};

}  // namespace hbmtune::ops
