#include <algorithm>

#include "kernels/lowering/hf/aten.h"
#include "kernels/ops/aten_dropout/aten_dropout.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/copy/copy.h"

namespace hbmtune::lowering {
namespace {

using ops::AtenPointwiseAttrs;

// PyTorch's promotion among fp32 and 16-bit types.
Dtype Promote(Dtype a, Dtype b) {
  if (a == b) return a;
  if (a == Dtype::kF64 || b == Dtype::kF64) return Dtype::kF64;
  const auto floating = [](Dtype d) { return d == Dtype::kF32 || IsHalf(d); };
  if (!floating(a)) return b;
  if (!floating(b)) return a;
  return Dtype::kF32;
}

}  // namespace

// A product of an operator with one or two tensors: shape, strides and dtype as TensorIterator's.
Tensor Aten::Pointwise(const OpKind& op, const Tensor& a, const Tensor& b, Dtype dtype,
                       double scalar) {
  const Dims shape = b ? BroadcastShape(a.shape(), b.shape()) : a.shape();
  Tensor out = NewStrided(dtype, shape, ResultStrides(shape, a, b ? &b : nullptr));
  const Attrs attrs = Attrs::Of(AtenPointwiseAttrs{scalar});
  if (b) {
    tape_.Run(op, {a, b}, {out}, attrs);
  } else {
    tape_.Run(op, {a}, {out}, attrs);
  }
  return out;
}

Tensor Aten::Map(const OpKind& op, Tensor a) {
  Tensor out = Pointwise(op, a, {}, a.dtype());
  a = {};
  return out;
}

Tensor Aten::Add(Tensor a, Tensor b) {
  Node node = Record("AddBackward0", {&a, &b});
  Tensor out = Pointwise(ops::kAtenAdd, a, b, Promote(a.dtype(), b.dtype()));
  Finish(std::move(node), {&a, &b}, out, [](Backward& g) {
    return Tensors{g.needs(0) ? g.grads[0] : Tensor{}, g.needs(1) ? g.grads[0] : Tensor{}};
  });
  a = {};
  b = {};
  return out;
}

Tensor Aten::AddInPlace(Tensor a, Tensor b) {
  Node node = Record("AddBackward0", {&a, &b});
  Tensor out = tape_.Detach(a);
  tape_.Run(ops::kAtenAdd, {a, b}, {out}, Attrs::Of(AtenPointwiseAttrs{}));
  Finish(std::move(node), {&a, &b}, out, [](Backward& g) {
    return Tensors{g.needs(0) ? g.grads[0] : Tensor{}, g.needs(1) ? g.grads[0] : Tensor{}};
  });
  a = {};
  b = {};
  return out;
}

Tensor Aten::Mul(Tensor a, Tensor b) {
  Node node = Record("MulBackward0", {&a, &b});
  Save(node, node.needs(0) ? b : Tensor{});
  Save(node, node.needs(1) ? a : Tensor{});
  Tensor out = Pointwise(ops::kAtenMul, a, b, Promote(a.dtype(), b.dtype()));
  Finish(std::move(node), {&a, &b}, out, [this](Backward& g) {
    const Tensor& other = g.saved[0];
    const Tensor& self = g.saved[1];
    Tensors grads(2);
    auto times = [&](const Tensor& factor) {
      return Pointwise(ops::kAtenMul, g.grads[0], factor,
                       Promote(g.grads[0].dtype(), factor.dtype()));
    };
    if (g.needs(1)) grads[1] = times(self);
    if (g.needs(0)) grads[0] = times(other);
    return grads;
  });
  a = {};
  b = {};
  return out;
}

Tensor Aten::AddScalar(Tensor a, double value) {
  Node node = Record("AddBackward0", {&a});
  Tensor out = Pointwise(ops::kAtenAddScalar, a, {}, a.dtype(), value);
  Finish(std::move(node), {&a}, out, [](Backward& g) { return Tensors{g.grads[0]}; });
  a = {};
  return out;
}

Tensor Aten::MulScalar(Tensor a, double value) {
  Node node = Record("MulBackward0", {&a});
  Tensor out = Pointwise(ops::kAtenMulScalar, a, {}, a.dtype(), value);
  Finish(std::move(node), {&a}, out, [this, value](Backward& g) {
    return Tensors{Pointwise(ops::kAtenMulScalar, g.grads[0], {}, g.grads[0].dtype(), value)};
  });
  a = {};
  return out;
}

Tensor Aten::DivScalar(Tensor a, double value) { return MulScalar(std::move(a), 1 / value); }

Tensor Aten::DivInPlace(Tensor a, double value) {
  Node node = Record("DivBackward0", {&a});
  Tensor out = tape_.Detach(a);
  tape_.Run(ops::kAtenMulScalar, {a}, {out}, Attrs::Of(AtenPointwiseAttrs{1 / value}));
  Finish(std::move(node), {&a}, out, [this, value](Backward& g) {
    return Tensors{Pointwise(ops::kAtenMulScalar, g.grads[0], {}, g.grads[0].dtype(), 1 / value)};
  });
  a = {};
  return out;
}

Tensor Aten::Neg(Tensor a) {
  Node node = Record("NegBackward0", {&a});
  Tensor out = Pointwise(ops::kAtenNeg, a, {}, a.dtype());
  Finish(std::move(node), {&a}, out, [this](Backward& g) {
    return Tensors{Pointwise(ops::kAtenNeg, g.grads[0], {}, g.grads[0].dtype())};
  });
  a = {};
  return out;
}

// grad · (exponent · self^(exponent − 1))
Tensor Aten::Pow(Tensor a, double exponent) {
  a = CastToFp32(std::move(a));
  Node node = Record("PowBackward0", {&a});
  Save(node, a);
  Tensor out = Pointwise(ops::kAtenPow, a, {}, a.dtype(), exponent);
  Finish(std::move(node), {&a}, out, [this, exponent](Backward& g) {
    const Tensor& self = g.saved[0];
    Tensor power = Pointwise(ops::kAtenPow, self, {}, self.dtype(), exponent - 1);
    Tensor slope = Pointwise(ops::kAtenMulScalar, power, {}, power.dtype(), exponent);
    Tensor grad = Pointwise(ops::kAtenMul, g.grads[0], slope, slope.dtype());
    slope = {};
    power = {};
    return Tensors{std::move(grad)};
  });
  a = {};
  return out;
}

// −0.5 · grad · result³
Tensor Aten::Rsqrt(Tensor a) {
  a = CastToFp32(std::move(a));
  Node node = Record("RsqrtBackward0", {&a});
  Tensor out = Pointwise(ops::kAtenRsqrt, a, {}, a.dtype());
  Save(node, out);
  Finish(std::move(node), {&a}, out, [this](Backward& g) {
    const Tensor& result = g.saved[0];
    Tensor cube = Pointwise(ops::kAtenPow, result, {}, result.dtype(), 3);
    Tensor half = Pointwise(ops::kAtenMulScalar, g.grads[0], {}, g.grads[0].dtype(), -0.5);
    Tensor grad = Pointwise(ops::kAtenMul, half, cube, cube.dtype());
    half = {};
    cube = {};
    return Tensors{std::move(grad)};
  });
  a = {};
  return out;
}

Tensor Aten::Tanh(Tensor a) {
  Node node = Record("TanhBackward0", {&a});
  Tensor out = Pointwise(ops::kAtenTanh, a, {}, a.dtype());
  Save(node, out);
  Finish(std::move(node), {&a}, out, [this](Backward& g) {
    return Tensors{Pointwise(ops::kAtenTanhBackward, g.grads[0], g.saved[0], g.grads[0].dtype())};
  });
  a = {};
  return out;
}

Tensor Aten::Silu(Tensor a) {
  Node node = Record("SiluBackward0", {&a});
  Save(node, a);
  Tensor out = Pointwise(ops::kAtenSilu, a, {}, a.dtype());
  Finish(std::move(node), {&a}, out, [this](Backward& g) {
    return Tensors{Pointwise(ops::kAtenSiluBackward, g.grads[0], g.saved[0], g.grads[0].dtype())};
  });
  a = {};
  return out;
}

Tensor Aten::Gelu(Tensor a) {
  Node node = Record("GeluBackward0", {&a});
  Save(node, a);
  Tensor out = Pointwise(ops::kAtenGelu, a, {}, a.dtype());
  Finish(std::move(node), {&a}, out, [this](Backward& g) {
    return Tensors{Pointwise(ops::kAtenGeluBackward, g.grads[0], g.saved[0], g.grads[0].dtype())};
  });
  a = {};
  return out;
}

// A copy keeps the layout of what it copies; its gradient is cast back.
Tensor Aten::To(Tensor a, Dtype dtype) {
  if (a.dtype() == dtype) return a;
  Node node = Record("ToCopyBackward0", {&a});
  Tensor out = NewStrided(dtype, a.shape(), ResultStrides(a.shape(), a, nullptr));
  tape_.Run(ops::kCopy, {a}, {out});
  const Category category = a.is_leaf() ? Category::kGradients : category_;
  Finish(std::move(node), {&a}, out, [this, from = a.dtype(), category](Backward& g) {
    const Category before = std::exchange(category_, category);
    const Tensor& grad = g.grads[0];
    Tensor back = NewStrided(from, grad.shape(), ResultStrides(grad.shape(), grad, nullptr));
    tape_.Run(ops::kCopy, {grad}, {back});
    category_ = before;
    return Tensors{std::move(back)};
  });
  a = {};
  return out;
}

// native_dropout: one kernel writes a mask of one byte an element and the result.
Tensor Aten::Dropout(Tensor a, double probability) {
  if (probability <= 0 || !training_) return a;
  Node node = Record("NativeDropoutBackward0", {&a});
  const Dims strides = ResultStrides(a.shape(), a, nullptr);
  Tensor mask = NewStrided(Dtype::kU8, a.shape(), strides);
  Tensor out = NewStrided(a.dtype(), a.shape(), strides);
  const Attrs attrs = Attrs::Of(ops::AtenDropoutAttrs{probability, NextSeed()});
  tape_.Run(ops::kAtenDropout, {a}, {out, mask}, attrs);
  Save(node, mask);
  Finish(std::move(node), {&a}, out, [this, attrs](Backward& g) {
    const Tensor& grad = g.grads[0];
    Tensor back = NewStrided(grad.dtype(), grad.shape(),
                             ResultStrides(grad.shape(), grad, nullptr));
    tape_.Run(ops::kAtenDropoutBackward, {grad, g.saved[0]}, {back}, attrs);
    return Tensors{std::move(back)};
  });
  mask = {};
  a = {};
  return out;
}

}  // namespace hbmtune::lowering
