#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/program/op_kind.h"

namespace hbmtune::ops {

// Checks the arguments of one call. Every method throws std::invalid_argument with a sentence
// that names the op, the tensor and, where shapes do not fit, both shapes.
class Check {
 public:
  // Names in the order of the arguments; those that end in '?' may be left out, from the last on.
  Check(std::string_view op, const OpArgs& args, std::initializer_list<std::string_view> inputs,
        std::initializer_list<std::string_view> outputs);

  const TensorArg& in(size_t i) const { return args_.in[i]; }
  const TensorArg& out(size_t i) const { return args_.out[i]; }
  bool has_in(size_t i) const { return i < args_.in.size(); }
  bool has_out(size_t i) const { return i < args_.out.size(); }

  // `tensor` must have this shape, because `other` has the shape that it has.
  const Check& Shape(const TensorArg& tensor, const Dims& expected, const TensorArg& other) const;
  const Check& SameShape(const TensorArg& tensor, const TensorArg& other) const;
  const Check& Rank(const TensorArg& tensor, size_t rank) const;
  const Check& MinRank(const TensorArg& tensor, size_t rank) const;
  const Check& Elements(const TensorArg& tensor, int64_t count, const TensorArg& other) const;
  const Check& Dtype(const TensorArg& tensor, hbmtune::Dtype dtype) const;
  const Check& Floating(const TensorArg& tensor) const;
  const Check& AllFloating() const;
  const Check& Dense(const TensorArg& tensor) const;
  const Check& AllDense() const;
  // The last stride is 1 and the leading dimensions fold into rows of one common stride.
  const Check& Rows(const TensorArg& tensor) const;
  const Check& LastStrideOne(const TensorArg& tensor) const;
  // Saved statistics: fp32, or fp64 where any tensor of the call is.
  const Check& Statistic(const TensorArg& tensor) const;
  const Check& That(bool holds, const std::string& otherwise) const;

  // "linear: weight is fp32 [4, 8]: <why>"
  [[noreturn]] void Fail(const TensorArg& tensor, const std::string& why) const;
  std::string NameOf(const TensorArg& tensor) const;

 private:
  std::string_view op_;
  const OpArgs& args_;
  std::vector<std::string_view> inputs_;
  std::vector<std::string_view> outputs_;
};

// `starts` (document_starts) has an int64 for each token of `x` [B, S, …].
void CheckStarts(const Check& check, const TensorArg& starts, const TensorArg& x);

// The rows of a tensor whose last dimension is a row; true if leading dimensions fold.
struct RowLayout {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  // elements from one row to the next
  bool folds = false;
};
RowLayout FoldRows(const TensorArg& tensor);

// Whether arithmetic is in fp64: where any tensor of the call is.
bool AnyF64(const OpArgs& args);

// Bytes of all inputs and outputs, read and written once: the cost of a memory-bound op.
Cost StreamCost(const OpArgs& args, double flops_per_element, CostClass kind = CostClass::kMemory);

}  // namespace hbmtune::ops
