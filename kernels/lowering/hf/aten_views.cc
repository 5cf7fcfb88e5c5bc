#include <algorithm>
#include <stdexcept>

#include "kernels/lowering/hf/aten.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/fill/fill.h"

namespace hbmtune::lowering {

// ATen/TensorUtils.cpp, computeStride: chunks of `to` must fit into dense runs of `shape`.
std::optional<Dims> ViewStrides(const Dims& shape, const Dims& strides, const Dims& to) {
  if (ElementCount(shape) == 0) return DenseStrides(to);
  Dims result = to;
  int view_d = static_cast<int>(to.rank()) - 1;
  int64_t base_stride = shape.rank() > 0 ? strides.back() : 1;
  int64_t run = 1, view_run = 1;
  for (int d = static_cast<int>(shape.rank()) - 1; d >= 0; --d) {
    run *= shape[d];
    if (d > 0 && (shape[d - 1] == 1 || strides[d - 1] == run * base_stride)) continue;
    while (view_d >= 0 && (view_run < run || to[view_d] == 1)) {
      result[view_d] = view_run * base_stride;
      view_run *= to[view_d];
      --view_d;
    }
    if (view_run != run) return std::nullopt;
    if (d > 0) {
      base_stride = strides[d - 1];
      run = 1;
      view_run = 1;
    }
  }
  while (view_d >= 0) result[view_d--] = view_run * base_stride;
  return result;
}

bool IsContiguous(const Tensor& x) {
  int64_t expected = 1;
  for (size_t d = x.shape().rank(); d-- > 0;) {
    if (x.shape()[d] == 1) continue;
    if (x.strides()[d] != expected) return false;
    expected *= x.shape()[d];
  }
  return true;
}

Dims BroadcastShape(const Dims& a, const Dims& b) {
  const Dims& longer = a.rank() >= b.rank() ? a : b;
  const Dims& shorter = a.rank() >= b.rank() ? b : a;
  Dims shape = longer;
  const size_t missing = longer.rank() - shorter.rank();
  for (size_t d = 0; d < shorter.rank(); ++d) {
    shape[missing + d] = std::max(longer[missing + d], shorter[d]);
  }
  return shape;
}

// ATen/TensorIterator.cpp, reorder_dimensions: the first input that tells two dimensions apart
// decides which is the inner one.
Dims ResultStrides(const Dims& shape, const Tensor& a, const Tensor* b) {
  const size_t rank = shape.rank();
  auto stride_of = [&](const Tensor& t, size_t d) -> int64_t {
    const size_t missing = rank - t.shape().rank();
    if (d < missing || (t.shape()[d - missing] == 1 && shape[d] != 1)) return 0;
    return t.strides()[d - missing];
  };
  // Negative: d0 is inside d1 already; positive: they have to change places.
  auto compare = [&](size_t d0, size_t d1) {
    for (const Tensor* t : {&a, b}) {
      if (t == nullptr) continue;
      const int64_t s0 = stride_of(*t, d0), s1 = stride_of(*t, d1);
      if (s0 == 0 || s1 == 0) continue;
      if (s0 != s1) return s0 < s1 ? -1 : 1;
      if (shape[d0] > shape[d1]) return 1;
    }
    return 0;
  };
  std::array<size_t, Dims::kMaxRank> order{};  // innermost first
  for (size_t i = 0; i < rank; ++i) order[i] = rank - 1 - i;
  for (size_t i = 1; i < rank; ++i) {
    size_t place = i;
    for (size_t j = i; j-- > 0;) {
      const int sign = compare(order[j], order[place]);
      if (sign > 0) {
        std::swap(order[j], order[place]);
        place = j;
      } else if (sign < 0) {
        break;
      }
    }
  }
  Dims strides = shape;
  int64_t stride = 1;
  for (size_t i = 0; i < rank; ++i) {
    strides[order[i]] = stride;
    stride *= shape[order[i]];
  }
  return strides;
}

namespace {

// A view node's edge; its backward pass needs nothing but shapes.
Dims With(const Dims& dims, int position, int64_t value) {
  Dims changed = dims;
  changed[static_cast<size_t>(position)] = value;
  return changed;
}

Dims Insert(const Dims& dims, int position, int64_t value) {
  std::vector<int64_t> longer(dims.begin(), dims.end());
  longer.insert(longer.begin() + position, value);
  return Dims(std::span<const int64_t>(longer));
}

}  // namespace

Tensor Aten::Clone(Tensor x) {
  Node node = Record("CloneBackward0", {&x});
  Tensor out = New(x.dtype(), x.shape());
  CopyInto(x, out);
  Finish(std::move(node), {&x}, out, [](Backward& b) { return Tensors{b.grads[0]}; });
  return out;
}

Tensor Aten::Contiguous(Tensor x) { return IsContiguous(x) ? x : Clone(std::move(x)); }

Tensor Aten::ReshapeNoGrad(const Tensor& x, const Dims& shape) {
  if (auto strides = ViewStrides(x.shape(), x.strides(), shape)) {
    return tape_.Alias(x, shape, *strides);
  }
  Tensor copy = New(x.dtype(), x.shape());
  tape_.Run(ops::kCopy, {x}, {copy});
  return tape_.ViewOf(copy, shape, DenseStrides(shape));
}

Tensor Aten::View(Tensor x, const Dims& shape) {
  auto strides = ViewStrides(x.shape(), x.strides(), shape);
  if (!strides) throw std::logic_error("view of " + ToString(x.shape()) + " as " + ToString(shape));
  Node node = Record("ViewBackward0", {&x});
  Tensor out = tape_.Alias(x, shape, *strides);
  Finish(std::move(node), {&x}, out, [this, from = x.shape()](Backward& b) {
    return Tensors{ReshapeNoGrad(b.grads[0], from)};
  });
  return out;
}

Tensor Aten::UnsafeView(Tensor x, const Dims& shape) {
  Node node = Record("UnsafeViewBackward0", {&x});
  Tensor out = tape_.ViewOf(x, shape, DenseStrides(shape));
  Finish(std::move(node), {&x}, out, [this, from = x.shape()](Backward& b) {
    return Tensors{ReshapeNoGrad(b.grads[0], from)};
  });
  return out;
}

Tensor Aten::Reshape(Tensor x, const Dims& shape) {
  if (ViewStrides(x.shape(), x.strides(), shape)) return View(std::move(x), shape);
  return UnsafeView(Clone(std::move(x)), shape);
}

Tensor Aten::Transpose(Tensor x, int first, int second) {
  Node node = Record("TransposeBackward0", {&x});
  Dims shape = x.shape(), strides = x.strides();
  std::swap(shape[first], shape[second]);
  std::swap(strides[first], strides[second]);
  Tensor out = tape_.Alias(x, shape, strides);
  Finish(std::move(node), {&x}, out, [this, first, second](Backward& b) {
    Dims shape = b.grads[0].shape(), strides = b.grads[0].strides();
    std::swap(shape[first], shape[second]);
    std::swap(strides[first], strides[second]);
    return Tensors{tape_.Alias(b.grads[0], shape, strides)};
  });
  return out;
}

Tensor Aten::Slice(Tensor x, int dim, int64_t begin, int64_t end) {
  Node node = Record("SliceBackward0", {&x});
  const Dims shape = With(x.shape(), dim, end - begin);
  Tensor out = tape_.Alias(x, shape, x.strides(), begin * x.strides()[dim]);
  Finish(std::move(node), {&x}, out, [this, from = x.shape(), dim, begin](Backward& b) {
    Tensor whole = Full(b.grads[0].dtype(), from, 0);
    Tensor part = tape_.ViewOf(whole, b.grads[0].shape(), whole.strides(),
                               begin * whole.strides()[dim]);
    tape_.Run(ops::kCopy, {b.grads[0]}, {part});
    return Tensors{std::move(whole)};
  });
  return out;
}

Tensor Aten::Index(Tensor x, int dim, int64_t position) {
  Node node = Record("IndexBackward0", {&x});
  Tensor list = Scratch(Dtype::kI64, {1});
  Save(node, list);
  const Dims shape = With(x.shape(), dim, 1);
  const int64_t offset = position * x.strides()[dim];
  Tensor out = New(x.dtype(), shape);
  tape_.Run(ops::kCopy, {tape_.ViewOf(x, shape, x.strides(), offset)}, {out});
  Finish(std::move(node), {&x}, out, [this, from = x.shape(), dim, position](Backward& b) {
    Tensor whole = Full(b.grads[0].dtype(), from, 0);
    IndexPutScratch(b.grads[0]);
    Tensor part = tape_.ViewOf(whole, b.grads[0].shape(), whole.strides(),
                               position * whole.strides()[dim]);
    tape_.Run(ops::kCopy, {b.grads[0]}, {part});
    return Tensors{std::move(whole)};
  });
  list = {};
  x = {};
  return out;
}

// _index_put_impl_ with accumulation sorts its (here: one) indices.
void Aten::IndexPutScratch(const Tensor& values) {
  Tensor remainder = Scratch(Dtype::kI64, {1});
  Tensor linear = Scratch(Dtype::kI64, {1});
  remainder = {};
  Tensor dense;
  if (!IsContiguous(values)) {
    dense = New(values.dtype(), values.shape());
    tape_.Run(ops::kCopy, {values}, {dense});
  }
  Tensor sorted = Scratch(Dtype::kI64, {1});
  Tensor original = Scratch(Dtype::kI64, {1});
  Tensor range = Scratch(Dtype::kI64, {1});
  Scratch(Dtype::kU8, {1});
  range = {};
  original = {};
  sorted = {};
  dense = {};
  linear = {};
}

// The gradients of the parts are put together in one tensor; a missing one counts as zeros.
std::array<Tensor, 3> Aten::SplitLast3(Tensor x) {
  Node node = Record("SplitBackward0", {&x});
  const size_t last = x.shape().rank() - 1;
  const int64_t width = x.shape()[last] / 3;
  const Dims shape = With(x.shape(), static_cast<int>(last), width);
  std::array<Tensor, 3> parts;
  for (int i = 0; i < 3; ++i) {
    parts[i] = tape_.Alias(x, shape, x.strides(), i * width * x.strides()[last]);
  }
  Finish(std::move(node), {&x}, parts, [this, from = x.shape(), dtype = x.dtype(),
                                        width](Backward& b) {
    Tensor whole = New(dtype, from);
    for (int i = 0; i < 3; ++i) {
      const Dims part = With(from, static_cast<int>(from.rank()) - 1, width);
      Tensor view = tape_.ViewOf(whole, part, whole.strides(), i * width);
      if (b.grads[i]) {
        tape_.Run(ops::kCopy, {b.grads[i]}, {view});
      } else {
        tape_.Run(ops::kFill, {}, {view}, Attrs::Of(FillAttrs{0}));
      }
    }
    return Tensors{std::move(whole)};
  });
  return parts;
}

Tensor Aten::Unsqueeze(Tensor x, int dim) {
  Node node = Record("UnsqueezeBackward0", {&x});
  const bool last = dim == static_cast<int>(x.shape().rank());
  const int64_t stride = last ? 1 : x.shape()[dim] * x.strides()[dim];
  Tensor out = tape_.Alias(x, Insert(x.shape(), dim, 1), Insert(x.strides(), dim, stride));
  Finish(std::move(node), {&x}, out, [this, dim](Backward& b) {
    std::vector<int64_t> shape(b.grads[0].shape().begin(), b.grads[0].shape().end());
    std::vector<int64_t> strides(b.grads[0].strides().begin(), b.grads[0].strides().end());
    shape.erase(shape.begin() + dim);
    strides.erase(strides.begin() + dim);
    return Tensors{tape_.Alias(b.grads[0], Dims(std::span<const int64_t>(shape)),
                               Dims(std::span<const int64_t>(strides)))};
  });
  return out;
}

Tensor Aten::Expand(Tensor x, const Dims& shape) {
  if (x.shape() == shape) {
    // An expansion to its own shape is a view all the same.
    return View(std::move(x), shape);
  }
  Node node = Record("ExpandBackward0", {&x});
  Dims strides = shape;
  const size_t missing = shape.rank() - x.shape().rank();
  for (size_t d = 0; d < shape.rank(); ++d) {
    const bool own = d >= missing && x.shape()[d - missing] == shape[d];
    strides[d] = own ? x.strides()[d - missing] : 0;
  }
  Tensor out = tape_.Alias(x, shape, strides);
  Finish(std::move(node), {&x}, out, [this, from = x.shape()](Backward& b) {
    return Tensors{SumTo(b.grads[0], from)};
  });
  return out;
}

}  // namespace hbmtune::lowering
