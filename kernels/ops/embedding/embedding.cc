#include "kernels/ops/embedding/embedding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckForward(const OpArgs& args) {
  const Check check("embedding", args, {"ids", "weight"}, {"y"});
  const TensorArg &ids = check.in(0), &weight = check.in(1), &y = check.out(0);
  check.Dtype(ids, Dtype::kI64).Floating(weight).Floating(y).AllDense();
  check.Rank(weight, 2).MinRank(y, 1);
  check.That(y.shape.back() == weight.shape.back(),
             "y " + ToString(y.shape) + " and weight " + ToString(weight.shape) +
                 " have rows of different length");
  check.Elements(y, ids.elements() * weight.shape.back(), ids);
}

void CheckBackward(const OpArgs& args) {
  const Check check("embedding_backward", args, {"dy", "ids"}, {"dweight"});
  const TensorArg &dy = check.in(0), &ids = check.in(1), &dweight = check.out(0);
  check.Dtype(ids, Dtype::kI64).Floating(dweight).Floating(dy).AllDense();
  check.Rank(dweight, 2).MinRank(dy, 1);
  check.That(dy.shape.back() == dweight.shape.back(),
             "dy " + ToString(dy.shape) + " and dweight " + ToString(dweight.shape) +
                 " have rows of different length");
  check.Elements(dy, ids.elements() * dweight.shape.back(), ids);
}

// Only the rows that are looked up are read.
Cost CostForward(const OpArgs& args) {
  Cost cost;
  cost.bytes_read = static_cast<double>(args.in[0].bytes()) +
                    static_cast<double>(args.out[0].elements() * SizeOf(args.in[1].dtype));
  cost.bytes_written = static_cast<double>(args.out[0].bytes());
  return cost;
}

Cost CostBackward(const OpArgs& args) { return StreamCost(args, 1); }

void CheckIds(const TensorArg& ids, int64_t vocab) {
  const int64_t* id = ids.as<int64_t>();
  for (int64_t n = 0; n < ids.elements(); ++n) {
    if (id[n] >= 0 && id[n] < vocab) continue;
    throw std::invalid_argument("embedding: token id " + std::to_string(id[n]) + " at index " +
                                std::to_string(n) + " is outside the vocabulary of " +
                                std::to_string(vocab));
  }
}

template <class C>
void Forward(const OpArgs& args) {
  const int64_t* ids = args.in[0].as<int64_t>();
  const int64_t width = args.in[1].shape.back();
  CheckIds(args.in[0], args.in[1].shape[0]);
  const RowOperand<C> weight(args.in[1], 0), y(args.out[0], 1);
  ParallelFor(args.in[0].elements(), width, [&](int64_t n) {
    C* row = y.Write(n * width, width);
    const C* from = weight.Read(ids[n] * width, width);
    std::copy_n(from, width, row);
    y.Commit(row, n * width, width);
  });
}

// Positions of the tokens ordered by id, and within an id ascending.
std::vector<int64_t> OrderById(const int64_t* ids, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [ids](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  return order;
}

// One thread per run of equal ids: the sum has one order, and no row has two writers.
template <class C>
void Scatter(const OpArgs& args) {
  const int64_t* ids = args.in[1].as<int64_t>();
  const int64_t count = args.in[1].elements(), width = args.out[0].shape.back();
  const std::vector<int64_t> order = OrderById(ids, count);
  std::vector<int64_t> first;  // where a new id begins in `order`
  for (int64_t i = 0; i < count; ++i) {
    if (i == 0 || ids[order[i]] != ids[order[i - 1]]) first.push_back(i);
  }
  first.push_back(count);
  const RowOperand<C> dy(args.in[0], 0), dweight(args.out[0], 1);
  ParallelFor(static_cast<int64_t>(first.size()) - 1, width, [&](int64_t run) {
    const int64_t offset = ids[order[first[run]]] * width;
    C* row = dweight.Update(offset, width);
    for (int64_t i = first[run]; i < first[run + 1]; ++i) {
      AddTo(row, dy.Read(order[i] * width, width), width);
    }
    dweight.Commit(row, offset, width);
  });
}

void Backward(const OpArgs& args) {
  const TensorArg& dweight = args.out[0];
  CheckIds(args.in[1], dweight.shape[0]);
  if (!args.attrs.As<EmbeddingBackwardAttrs>().accumulate) {
    const int64_t row_bytes = dweight.shape.back() * SizeOf(dweight.dtype);
    ParallelBlocks(dweight.shape[0], 64, dweight.shape[1], [&](int64_t begin, int64_t end) {
      std::memset(dweight.as<char>() + begin * row_bytes, 0,
                  static_cast<size_t>((end - begin) * row_bytes));
    });
  }
  WithArithmetic(args, [&](auto c) { Scatter<decltype(c)>(args); });
}

void HostForward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { Forward<decltype(c)>(args); });
}

}  // namespace

const OpKind kEmbedding = {"embedding", CheckForward, CostForward, HostForward};
const OpKind kEmbeddingBackward = {"embedding_backward", CheckBackward, CostBackward, Backward};

}  // namespace hbmtune::ops
