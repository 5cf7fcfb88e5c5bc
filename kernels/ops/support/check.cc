#include "kernels/ops/support/check.h"

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace hbmtune::ops {
namespace {

size_t Required(std::initializer_list<std::string_view> names) {
  return static_cast<size_t>(
      std::count_if(names.begin(), names.end(), [](auto name) { return name.back() != '?'; }));
}

void CheckCount(std::string_view op, const char* what, size_t count,
                std::initializer_list<std::string_view> names) {
  if (count >= Required(names) && count <= names.size()) return;
  std::string list;
  for (std::string_view name : names) list += (list.empty() ? "" : ", ") + std::string(name);
  throw std::invalid_argument(std::string(op) + ": " + std::to_string(count) + " " + what +
                              " given, expected (" + list + ")");
}

bool IsFloating(Dtype dtype) { return dtype <= Dtype::kF64; }

}  // namespace

Check::Check(std::string_view op, const OpArgs& args,
             std::initializer_list<std::string_view> inputs,
             std::initializer_list<std::string_view> outputs)
    : op_(op), args_(args), inputs_(inputs), outputs_(outputs) {
  CheckCount(op, "inputs", args.in.size(), inputs);
  CheckCount(op, "outputs", args.out.size(), outputs);
}

std::string Check::NameOf(const TensorArg& tensor) const {
  const auto within = [&](std::span<const TensorArg> args) {
    return !args.empty() && std::greater_equal<>()(&tensor, args.data()) &&
           std::less<>()(&tensor, args.data() + args.size());
  };
  std::string_view name = "tensor";
  if (within(args_.in)) name = inputs_[static_cast<size_t>(&tensor - args_.in.data())];
  if (within(args_.out)) name = outputs_[static_cast<size_t>(&tensor - args_.out.data())];
  if (name.back() == '?') name.remove_suffix(1);
  return std::string(name);
}

void Check::Fail(const TensorArg& tensor, const std::string& why) const {
  throw std::invalid_argument(std::string(op_) + ": " + NameOf(tensor) + " is " +
                              std::string(Name(tensor.dtype)) + " " + ToString(tensor.shape) +
                              ": " + why);
}

const Check& Check::Shape(const TensorArg& tensor, const Dims& expected,
                          const TensorArg& other) const {
  if (tensor.shape == expected) return *this;
  Fail(tensor, "expected " + ToString(expected) + " to fit " + NameOf(other) + " " +
                   ToString(other.shape));
}

const Check& Check::SameShape(const TensorArg& tensor, const TensorArg& other) const {
  if (tensor.shape == other.shape) return *this;
  Fail(tensor, "expected the shape of " + NameOf(other) + " " + ToString(other.shape));
}

const Check& Check::Rank(const TensorArg& tensor, size_t rank) const {
  if (tensor.shape.rank() == rank) return *this;
  Fail(tensor, "expected " + std::to_string(rank) + " dimensions");
}

const Check& Check::MinRank(const TensorArg& tensor, size_t rank) const {
  if (tensor.shape.rank() >= rank) return *this;
  Fail(tensor, "expected at least " + std::to_string(rank) + " dimensions");
}

const Check& Check::Elements(const TensorArg& tensor, int64_t count,
                             const TensorArg& other) const {
  if (tensor.elements() == count) return *this;
  Fail(tensor, "expected " + std::to_string(count) + " elements to fit " + NameOf(other) + " " +
                   ToString(other.shape));
}

const Check& Check::Dtype(const TensorArg& tensor, hbmtune::Dtype dtype) const {
  if (tensor.dtype == dtype) return *this;
  Fail(tensor, "expected " + std::string(Name(dtype)));
}

const Check& Check::Floating(const TensorArg& tensor) const {
  if (IsFloating(tensor.dtype)) return *this;
  Fail(tensor, "expected fp32, bf16, fp16 or fp64");
}

const Check& Check::AllFloating() const {
  for (const TensorArg& tensor : args_.in) Floating(tensor);
  for (const TensorArg& tensor : args_.out) Floating(tensor);
  return *this;
}

const Check& Check::Dense(const TensorArg& tensor) const {
  const Dims dense = DenseStrides(tensor.shape);
  for (size_t i = 0; i < dense.rank(); ++i) {
    if (tensor.strides.rank() == dense.rank() &&
        (tensor.strides[i] == dense[i] || tensor.shape[i] == 1)) {
      continue;
    }
    Fail(tensor, "has strides " + ToString(tensor.strides) + ", expected dense " +
                     ToString(dense));
  }
  return *this;
}

const Check& Check::AllDense() const {
  for (const TensorArg& tensor : args_.in) Dense(tensor);
  for (const TensorArg& tensor : args_.out) Dense(tensor);
  return *this;
}

const Check& Check::Rows(const TensorArg& tensor) const {
  MinRank(tensor, 1);
  if (FoldRows(tensor).folds) return *this;
  Fail(tensor, "has strides " + ToString(tensor.strides) +
                   ", expected rows of stride 1 at one common distance");
}

const Check& Check::LastStrideOne(const TensorArg& tensor) const {
  MinRank(tensor, 1);
  if (tensor.strides.back() == 1 || tensor.shape.back() == 1) return *this;
  Fail(tensor, "has strides " + ToString(tensor.strides) + ", expected the last to be 1");
}

const Check& Check::Statistic(const TensorArg& tensor) const {
  return Dtype(tensor, AnyF64(args_) ? hbmtune::Dtype::kF64 : hbmtune::Dtype::kF32);
}

const Check& Check::That(bool holds, const std::string& otherwise) const {
  if (holds) return *this;
  throw std::invalid_argument(std::string(op_) + ": " + otherwise);
}

void CheckStarts(const Check& check, const TensorArg& starts, const TensorArg& x) {
  check.Dtype(starts, Dtype::kI64).Dense(starts).Shape(starts, {x.shape[0], x.shape[1]}, x);
}

RowLayout FoldRows(const TensorArg& tensor) {
  RowLayout layout;
  const size_t rank = tensor.shape.rank();
  if (rank == 0) return layout;
  layout.columns = tensor.shape.back();
  layout.rows = layout.columns == 0 ? 0 : tensor.elements() / layout.columns;
  layout.stride = layout.columns;
  layout.folds = tensor.strides.back() == 1 || layout.columns <= 1;
  int64_t expected = 0;  // the stride at which the next outer dimension continues the rows
  for (size_t i = rank - 1; i-- > 0;) {
    if (tensor.shape[i] == 1) continue;
    if (expected == 0) {
      layout.stride = tensor.strides[i];
    } else if (tensor.strides[i] != expected) {
      layout.folds = false;
    }
    expected = tensor.strides[i] * tensor.shape[i];
  }
  return layout;
}

bool AnyF64(const OpArgs& args) {
  const auto is_f64 = [](const TensorArg& tensor) { return tensor.dtype == Dtype::kF64; };
  return std::any_of(args.in.begin(), args.in.end(), is_f64) ||
         std::any_of(args.out.begin(), args.out.end(), is_f64);
}

Cost StreamCost(const OpArgs& args, double flops_per_element, CostClass kind) {
  Cost cost;
  cost.kind = kind;
  int64_t elements = 0;
  for (const TensorArg& tensor : args.in) {
    cost.bytes_read += static_cast<double>(tensor.bytes());
    elements = std::max(elements, tensor.elements());
  }
  for (const TensorArg& tensor : args.out) {
    cost.bytes_written += static_cast<double>(tensor.bytes());
    elements = std::max(elements, tensor.elements());
  }
  cost.flops = flops_per_element * static_cast<double>(elements);
  return cost;
}

}  // namespace hbmtune::ops
