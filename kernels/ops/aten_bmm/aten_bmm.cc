#include "kernels/ops/aten_bmm/aten_bmm.h"

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/strided.h"

namespace hbmtune::ops {
namespace {

// Extent and stride of a matrix or a batch of them; a lone matrix is a batch of one.
struct Matrix {
  int64_t batch, rows, columns, batch_stride, row_stride, column_stride;
};

Matrix MatrixOf(const TensorArg& t) {
  const size_t r = t.shape.rank();
  return {r == 3 ? t.shape[0] : 1, t.shape[r - 2],   t.shape[r - 1],
          r == 3 ? t.strides[0] : 0, t.strides[r - 2], t.strides[r - 1]};
}

void CheckArgs(const OpArgs& args) {
  const Check check("aten_bmm", args, {"a", "b", "bias?"}, {"y"});
  for (const TensorArg* t : {&args.in[0], &args.in[1], &args.out[0]}) {
    check.That(t->shape.rank() == 2 || t->shape.rank() == 3, "takes matrices or batches of them");
  }
  const Matrix a = MatrixOf(args.in[0]), b = MatrixOf(args.in[1]), y = MatrixOf(args.out[0]);
  check.That(a.columns == b.rows && y.rows == a.rows && y.columns == b.columns &&
                 a.batch == b.batch && y.batch == a.batch,
             ToString(args.in[0].shape) + " times " + ToString(args.in[1].shape) + " is not " +
                 ToString(args.out[0].shape));
}

Cost CostOf(const OpArgs& args) {
  const Matrix a = MatrixOf(args.in[0]), b = MatrixOf(args.in[1]);
  Cost cost = StreamCost(args, 0, CostClass::kMatmul);
  cost.m = a.rows, cost.n = b.columns, cost.k = a.columns;
  cost.flops = 2.0 * a.batch * a.rows * b.columns * a.columns;
  return cost;
}

void Host(const OpArgs& args) {
  const Matrix a = MatrixOf(args.in[0]), b = MatrixOf(args.in[1]), y = MatrixOf(args.out[0]);
  const double alpha = args.attrs.As<AtenBmmAttrs>().alpha;
  const bool biased = args.in.size() > 2;
  const Dims bias = biased ? BroadcastStrides(args.in[2], args.out[0].shape) : Dims{};
  ParallelFor(y.batch * y.rows, y.columns * a.columns, [&](int64_t line) {
    const int64_t n = line / y.rows, i = line % y.rows;
    for (int64_t j = 0; j < y.columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < a.columns; ++k) {
        sum += LoadScalar(args.in[0], n * a.batch_stride + i * a.row_stride + k * a.column_stride) *
               LoadScalar(args.in[1], n * b.batch_stride + k * b.row_stride + j * b.column_stride);
      }
      sum *= alpha;
      if (biased) {
        const int64_t index = (n * y.rows + i) * y.columns + j;
        sum += LoadScalar(args.in[2], OffsetOf(index, args.out[0].shape, bias));
      }
      StoreScalar(args.out[0], sum,
                  n * y.batch_stride + i * y.row_stride + j * y.column_stride);
    }
  });
}

}  // namespace

const OpKind kAtenBmm = {"aten_bmm", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops
