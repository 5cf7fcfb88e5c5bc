#include "kernels/lowering/hf/aten.h"
#include "kernels/ops/aten_bmm/aten_bmm.h"

namespace hbmtune::lowering {
namespace {

const Attrs kPlain = Attrs::Of(ops::AtenBmmAttrs{});

}  // namespace

void Aten::Product(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out) {
  Tensor workspace;
  Tensor& kept = kept_workspaces_[in_backward_ ? 1 : 0];
  if (gpu_.workspace_bytes > 0 && !kept) {
    workspace = tape_.Empty(Dtype::kU8, {gpu_.workspace_bytes}, Category::kWorkspace);
    if (gpu_.keeps_workspace) kept = std::move(workspace);
  }
  if (bias) {
    tape_.Run(ops::kAtenBmm, {a, b, bias}, {out}, kPlain);
  } else {
    tape_.Run(ops::kAtenBmm, {a, b}, {out}, kPlain);
  }
}

// mm(x, weightᵀ). The gradient of the weight comes first, already in the weight's own layout
// (FunctionsManual.cpp, mm_mat2_backward).
Tensor Aten::Mm(Tensor x, Tensor weight_t) {
  Node node = Record("MmBackward0", {&x, &weight_t});
  Save(node, node.needs(0) ? weight_t : Tensor{});
  Save(node, node.needs(1) ? x : Tensor{});
  Tensor out = New(x.dtype(), {x.shape()[0], weight_t.shape()[1]});
  Product(x, weight_t, {}, out);
  Finish(std::move(node), {&x, &weight_t}, out, [this](Backward& g) {
    const Tensor& grad = g.grads[0];
    Tensors grads(2);
    if (g.needs(1)) grads[1] = WeightGradient(grad, g.saved[1]);
    if (g.needs(0)) grads[0] = InputGradient(grad, g.saved[0]);
    return grads;
  });
  return out;
}

// gradᵀ·x [out, in], returned as the gradient of the transposed weight.
Tensor Aten::WeightGradient(const Tensor& grad, const Tensor& x) {
  const Category before = std::exchange(category_, Category::kGradients);
  const int64_t out = grad.shape()[1], in = x.shape()[1];
  Tensor dweight = New(grad.dtype(), {out, in});
  category_ = before;
  Tensor grad_t = tape_.ViewOf(grad, {out, grad.shape()[0]},
                               {grad.strides()[1], grad.strides()[0]});
  Product(grad_t, x, {}, dweight);
  return tape_.Alias(dweight, {in, out}, {1, in});
}

Tensor Aten::InputGradient(const Tensor& grad, const Tensor& weight_t) {
  const int64_t in = weight_t.shape()[0], out = weight_t.shape()[1];
  Tensor dx = New(grad.dtype(), {grad.shape()[0], in});
  Tensor weight = tape_.ViewOf(weight_t, {out, in}, {weight_t.strides()[1], weight_t.strides()[0]});
  Product(grad, weight, {}, dx);
  return dx;
}

Tensor Aten::Addmm(Tensor bias, Tensor x, Tensor weight) {
  Node node = Record("AddmmBackward0", {&bias, &x, &weight});
  Save(node, node.needs(2) ? x : Tensor{});
  Save(node, node.needs(1) ? weight : Tensor{});
  Tensor out = New(x.dtype(), {x.shape()[0], weight.shape()[1]});
  Product(x, weight, bias, out);
  const bool row_major = weight.dense();
  Finish(std::move(node), {&bias, &x, &weight}, out, [this, row_major](Backward& g) {
    const Tensor& grad = g.grads[0];
    Tensors grads(3);
    if (g.needs(1)) grads[1] = InputGradient(grad, g.saved[1]);
    if (g.needs(2)) {
      grads[2] = row_major ? ConvGradient(grad, g.saved[0]) : WeightGradient(grad, g.saved[0]);
    }
    if (g.needs(0)) grads[0] = grad;
    return grads;
  });
  return out;
}

// xᵀ·grad [in, out], for a weight that is stored that way.
Tensor Aten::ConvGradient(const Tensor& grad, const Tensor& x) {
  const Category before = std::exchange(category_, Category::kGradients);
  const int64_t out = grad.shape()[1], in = x.shape()[1];
  Tensor dweight = New(grad.dtype(), {in, out});
  category_ = before;
  Tensor x_t = tape_.ViewOf(x, {in, x.shape()[0]}, {x.strides()[1], x.strides()[0]});
  Product(x_t, grad, {}, dweight);
  return dweight;
}

Tensor Aten::AutocastAddmm(const Tensor& bias, Tensor x, const Tensor& weight) {
  Tensor cast_weight = CastForProduct(weight);
  Tensor cast_x = CastForProduct(x);
  Tensor cast_bias = CastForProduct(bias);
  Tensor out = Addmm(cast_bias, cast_x, cast_weight);
  cast_bias = {};
  cast_x = {};
  cast_weight = {};
  return out;
}

// Autocast converts the arguments from the last to the first, and C++ drops what it made in the
// reverse order. With a bias a contiguous input goes through addmm, else through matmul
// (Linear.cpp).
Tensor Aten::Linear(Tensor x, const Tensor& weight, const Tensor& bias) {
  Tensor cast_bias = CastForProduct(bias);
  Tensor cast_weight = CastForProduct(weight);
  Tensor input = CastForProduct(x);
  const size_t rank = input.shape().rank();
  const int64_t in = input.shape().back(), rows = input.elements() / in;
  Dims shape = input.shape();
  shape[rank - 1] = weight.shape()[0];
  Tensor out;
  if (bias && rank == 2) {
    out = Addmm(cast_bias, input, Transpose(cast_weight, 0, 1));
  } else if (bias && IsContiguous(input)) {
    Tensor flat = View(input, {rows, in});
    out = View(Addmm(cast_bias, std::move(flat), Transpose(cast_weight, 0, 1)), shape);
  } else {
    Tensor transposed = Transpose(cast_weight, 0, 1);
    if (rank == 2) {
      out = Mm(input, std::move(transposed));
    } else {
      Tensor flat = Reshape(input, {rows, in});
      out = UnsafeView(Mm(std::move(flat), std::move(transposed)), shape);
    }
    if (bias) out = AddInPlace(std::move(out), cast_bias);
  }
  input = {};
  cast_weight = {};
  cast_bias = {};
  return out;
}

// runtime/zero/linear.py, LinearFunctionForZeroStage3: the input's gradient comes first. A weight
// is saved as the parameter that it is, except through the hooks of non-reentrant checkpointing:
// those keep its memory as it was gathered.
Tensor Aten::LinearOfPartitioned(Tensor x, const Tensor& weight, const Tensor& bias) {
  const int64_t in = x.shape().back(), rows = x.elements() / in, out_width = weight.shape()[0];
  Dims shape = x.shape();
  shape[shape.rank() - 1] = out_width;
  auto turned = [this](const Tensor& w) {
    return tape_.ViewOf(w, {w.shape()[1], w.shape()[0]}, {w.strides()[1], w.strides()[0]});
  };
  Node node = Record("LinearFunctionForZeroStage3Backward", {&x, &weight, &bias});
  Tensor flat = ReshapeNoGrad(x, {rows, in});
  Tensor out = New(x.dtype(), {rows, out_width});
  Product(flat, turned(weight), bias, out);
  Save(node, flat);  // a function written in Python saves when it has computed
  if (dropping_ || recomputing_) {
    Save(node, weight);
    if (bias) Save(node, bias);
  }
  Tensor result = tape_.ViewOf(out, shape, DenseStrides(shape));
  const Dims input_shape = x.shape();
  Finish(std::move(node), {&x, &weight, &bias}, result,
         [this, weight, input_shape, rows, out_width, turned](Backward& g) {
           Tensor grad = ReshapeNoGrad(g.grads[0], {rows, out_width});
           g.grads[0] = {};
           Tensors grads(3);
           if (g.needs(0)) {
             Tensor dx = InputGradient(grad, turned(g.saved.size() > 1 ? g.saved[1] : weight));
             grads[0] = tape_.ViewOf(dx, input_shape, DenseStrides(input_shape));
           }
           if (g.needs(1)) {
             Tensor transposed = WeightGradient(grad, g.saved[0]);
             grads[1] = tape_.ViewOf(transposed, weight.shape(), DenseStrides(weight.shape()));
           }
           if (g.needs(2)) grads[2] = SumTo(grad, {out_width});
           for (Tensor& local : g.saved) local = {};  // as Python's frame lets go of them
           return grads;
         });
  return result;
}

Tensor Aten::MatmulFolded(Tensor x, Tensor weight_t) {
  Tensor weight = CastForProduct(weight_t);
  Tensor input = CastForProduct(x);
  Dims shape = input.shape();
  const int64_t in = shape.back(), rows = input.elements() / in;
  shape[shape.rank() - 1] = weight.shape()[1];
  Tensor flat = Reshape(input, {rows, in});
  Tensor out = UnsafeView(Mm(std::move(flat), weight), shape);
  input = {};
  weight = {};
  x = {};
  weight_t = {};
  return out;
}

Tensor Aten::Bmm(Tensor a, Tensor b) {
  Node node = Record("BmmBackward0", {&a, &b});
  Save(node, node.needs(0) ? b : Tensor{});
  Save(node, node.needs(1) ? a : Tensor{});
  Tensor out = New(a.dtype(), {a.shape()[0], a.shape()[1], b.shape()[2]});
  Product(a, b, {}, out);
  Finish(std::move(node), {&a, &b}, out, [this](Backward& g) {
    const Tensor& grad = g.grads[0];
    auto transposed = [this](const Tensor& t) {
      return tape_.ViewOf(t, {t.shape()[0], t.shape()[2], t.shape()[1]},
                          {t.strides()[0], t.strides()[2], t.strides()[1]});
    };
    Tensors grads(2);
    if (g.needs(1)) {
      const Tensor& self = g.saved[1];
      grads[1] = New(grad.dtype(), {self.shape()[0], self.shape()[2], grad.shape()[2]});
      Product(transposed(self), grad, {}, grads[1]);
    }
    if (g.needs(0)) {
      const Tensor& other = g.saved[0];
      grads[0] = New(grad.dtype(), {grad.shape()[0], grad.shape()[1], other.shape()[1]});
      Product(grad, transposed(other), {}, grads[0]);
    }
    return grads;
  });
  return out;
}

Tensor Aten::Matmul(Tensor a, Tensor b) {
  Tensor cast_b = CastForProduct(b);
  Tensor cast_a = CastForProduct(a);
  const Dims from = cast_a.shape(), to = cast_b.shape();
  const int64_t batch = from[0] * from[1];
  Tensor left = Reshape(Expand(cast_a, from), {batch, from[2], from[3]});
  Tensor right =
      Reshape(Expand(cast_b, {from[0], from[1], to[2], to[3]}), {batch, to[2], to[3]});
  Tensor out = Bmm(left, right);
  right = {};
  left = {};
  out = UnsafeView(std::move(out), {from[0], from[1], from[2], to[3]});
  cast_a = {};
  cast_b = {};
  return out;
}

}  // namespace hbmtune::lowering
