#include "kernels/lowering/fused/context.h"

#include "kernels/ops/copy/copy.h"
#include "kernels/ops/random_key/random_key.h"

namespace hbmtune::lowering {

Tensor Activation(Context& context, Dtype dtype, const Dims& shape) {
  return context.tape.Empty(dtype, shape, Category::kActivations);
}

Tensor Cast(Context& context, const Tensor& x, Dtype dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = Activation(context, dtype, x.shape());
  context.tape.Run(ops::kCopy, {x}, {y});
  return y;
}

Tensor RandomKey(Context& context) {
  Tensor key = Activation(context, Dtype::kI64, {2});
  context.tape.Run(ops::kRandomKey, {context.random}, {key, context.random});
  return key;
}

}  // namespace hbmtune::lowering
