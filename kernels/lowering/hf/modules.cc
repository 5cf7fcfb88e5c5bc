#include "kernels/lowering/hf/modules.h"

#include "kernels/lowering/hf/weight_gatherer.h"
#include "kernels/model/parameters.h"

namespace hbmtune::lowering {

ModuleBuilder::ModuleBuilder(Aten& aten, const Workload& workload, Dtype dtype)
    : aten_(aten), workload_(workload), dtype_(dtype) {
  for (const ParameterEntry& entry : LoraTable(workload.model, workload.lora)) {
    const size_t suffix = entry.name.rfind(".lora_");
    lora_targets_[entry.name.substr(0, suffix)] = workload.lora.rank;
  }
}

Tensor ModuleBuilder::Add(const std::string& name, const Dims& shape, Dtype dtype, bool trained,
                          bool decayed) {
  const Category before = aten_.category();
  aten_.set_category(Category::kWeights);
  const bool shared = aten_.parameter_ranks() > 0 && dtype == dtype_;
  Tensor tensor = shared ? Share(shape, dtype) : aten_.New(dtype, shape);
  aten_.set_category(before);
  tensor.set_requires_grad(trained);
  aten_.tape().NameParameter(name, tensor);
  parameters_.push_back({name, tensor, trained, decayed});
  return tensor;
}

// deepspeed.zero.Init: made in fp32, converted, and cut down to this rank's share, over which the
// parameter keeps its shape.
Tensor ModuleBuilder::Share(const Dims& shape, Dtype dtype) {
  const int64_t ranks = aten_.parameter_ranks();
  Tensor wide = aten_.New(Dtype::kF32, shape);
  Tensor whole = aten_.New(dtype, shape);
  wide = {};
  Tensor share = aten_.New(dtype, {(ElementCount(shape) + ranks - 1) / ranks});
  whole = {};
  Dims none = shape;
  for (size_t d = 0; d < none.rank(); ++d) none[d] = 0;
  return aten_.tape().ViewOf(share, shape, none);
}

Tensor ModuleBuilder::Parameter(const std::string& name, const Dims& shape, bool decayed) {
  return Add(name, shape, dtype_, workload_.lora.rank == 0, decayed);
}

Tensor ModuleBuilder::Buffer(const Dims& shape) {
  const Category before = aten_.category();
  aten_.set_category(Category::kWeights);
  Tensor buffer = aten_.New(Dtype::kF32, shape);
  aten_.set_category(before);
  buffers_.push_back(buffer);
  return buffer;
}

LinearModule ModuleBuilder::Linear(const std::string& name, int64_t in, int64_t out, bool bias) {
  LinearModule module;
  module.weight = Parameter(name + ".weight", {out, in});
  if (bias) module.bias = Parameter(name + ".bias", {out}, false);
  AddLora(name, in, out, module);
  return module;
}

LinearModule ModuleBuilder::Conv1d(const std::string& name, int64_t in, int64_t out) {
  LinearModule module;
  module.conv = true;
  module.weight = Parameter(name + ".weight", {in, out});
  module.bias = Parameter(name + ".bias", {out}, false);
  AddLora(name, in, out, module);
  return module;
}

// PEFT keeps adapters in fp32 (autocast_adapter_dtype); DeepSpeed's engine makes all 16-bit, but
// leaves a model as it is that zero.Init has partitioned.
void ModuleBuilder::AddLora(const std::string& name, int64_t in, int64_t out,
                            LinearModule& module) {
  auto found = lora_targets_.find(name);
  if (found == lora_targets_.end()) return;
  const int64_t rank = found->second;
  const bool narrow = UsesDeepspeed(workload_.framework) && aten_.parameter_ranks() == 0;
  const Dtype dtype = narrow ? dtype_ : Dtype::kF32;
  module.lora_a = Add(name + ".lora_A.weight", {rank, in}, dtype, true, true);
  module.lora_b = Add(name + ".lora_B.weight", {out, rank}, dtype, true, true);
  module.lora_scaling = workload_.lora.alpha / rank;
  module.lora_dropout = workload_.lora.dropout;
}

NormModule ModuleBuilder::Norm(const std::string& name, int64_t width, bool bias) {
  NormModule module;
  module.weight = Parameter(name + ".weight", {width}, false);
  if (bias) module.bias = Parameter(name + ".bias", {width}, false);
  return module;
}

namespace {

// torch.nn.Linear, or DeepSpeed's under stage 3.
Tensor ApplyPlain(Aten& aten, Tensor x, const Tensor& weight, const Tensor& bias = {}) {
  ModuleHooks* hooks = aten.module_hooks();
  if (hooks == nullptr) return aten.Linear(std::move(x), weight, bias);
  HookedModule module{&weight, {weight}};
  if (bias) module.weights.push_back(bias);
  Tensor input = hooks->Enter(module, std::move(x));
  return hooks->Leave(module, aten.LinearOfPartitioned(std::move(input), weight, bias));
}

// FalconLinear: what it saves is a view of the weight, whose memory it holds.
Tensor FalconProduct(Aten& aten, const LinearModule& module, const Tensor& x) {
  Tensor transposed = aten.Transpose(module.weight, 0, 1);
  Tensor out = aten.MatmulFolded(x, std::move(transposed));
  if (!module.bias) return out;
  return aten.Add(std::move(out), module.bias);
}

Tensor ConvProduct(Aten& aten, const LinearModule& module, const Tensor& x) {
  const Dims shape = x.shape();
  Dims result = shape;
  result[shape.rank() - 1] = module.weight.shape()[1];
  Tensor flat = aten.View(x, {x.elements() / shape.back(), shape.back()});
  Tensor out = aten.AutocastAddmm(module.bias, std::move(flat), module.weight);
  return aten.View(std::move(out), result);
}

Tensor ApplyBase(Aten& aten, const LinearModule& module, const Tensor& x) {
  if (!module.falcon && !module.conv) return ApplyPlain(aten, x, module.weight, module.bias);
  const auto product = module.falcon ? FalconProduct : ConvProduct;
  ModuleHooks* hooks = aten.module_hooks();
  if (hooks == nullptr) return product(aten, module, x);
  HookedModule hooked{&module.weight, {module.weight}};
  if (module.bias) hooked.weights.push_back(module.bias);
  Tensor input = hooks->Enter(hooked, x);
  return hooks->Leave(hooked, product(aten, module, input));
}

}  // namespace

// peft/tuners/lora/layer.py, Linear.forward.
Tensor ApplyLinear(Aten& aten, const LinearModule& module, Tensor x) {
  ModuleHooks* hooks = module.lora_a ? aten.module_hooks() : nullptr;
  if (hooks) x = hooks->Enter({&module.lora, {}}, std::move(x));
  Tensor result = ApplyBase(aten, module, x);
  if (!module.lora_a) {
    x = {};
    return result;
  }
  const Dtype dtype = result.dtype();
  if (hooks) hooks->Read({&module.lora, {}}, module.lora_a);  // its dtype, to cast x
  // The caller's tuple of arguments holds x itself.
  Tensor wide = aten.To(x, module.lora_a.dtype());
  // Dropout is a module, too, and the identity for 0.
  Tensor kept = hooks ? hooks->Enter({&module.dropout, {}}, wide) : wide;
  Tensor dropped = aten.Dropout(std::move(kept), module.lora_dropout);
  if (hooks) dropped = hooks->Leave({&module.dropout, {}}, std::move(dropped));
  Tensor low = ApplyPlain(aten, std::move(dropped), module.lora_a);
  Tensor high = ApplyPlain(aten, std::move(low), module.lora_b);
  Tensor scaled = aten.MulScalar(std::move(high), module.lora_scaling);
  Tensor sum = aten.Add(result, std::move(scaled));
  result = std::move(sum);
  Tensor cast = aten.To(result, dtype);
  result = std::move(cast);
  wide = {};
  x = {};
  return hooks ? hooks->Leave({&module.lora, {}}, std::move(result)) : result;
}

namespace {

Tensor RmsNorm(Aten& aten, const Tensor& weight, double eps, const Tensor& x) {
  const Dtype dtype = x.dtype();
  Tensor hidden = aten.To(x, Dtype::kF32);
  Tensor variance = aten.MeanLast(aten.Pow(hidden, 2));
  Tensor scale = aten.Rsqrt(aten.AddScalar(variance, eps));
  Tensor normed = aten.Mul(hidden, std::move(scale));
  hidden = std::move(normed);
  Tensor cast = aten.To(hidden, dtype);
  Tensor out = aten.Mul(weight, std::move(cast));
  hidden = {};
  variance = {};
  return out;
}

}  // namespace

Tensor ApplyRmsNorm(Aten& aten, const Tensor& weight, double eps, const Tensor& x) {
  ModuleHooks* hooks = aten.module_hooks();
  if (hooks == nullptr) return RmsNorm(aten, weight, eps, x);
  const HookedModule module{&weight, {weight}};
  Tensor input = hooks->Enter(module, x);
  return hooks->Leave(module, RmsNorm(aten, weight, eps, input));
}

Tensor ApplyLayerNorm(Aten& aten, const NormModule& norm, double eps, const Tensor& x) {
  ModuleHooks* hooks = aten.module_hooks();
  if (hooks == nullptr) return aten.LayerNorm(x, norm.weight, norm.bias, eps);
  const HookedModule module{&norm.weight, {norm.weight, norm.bias}};
  Tensor input = hooks->Enter(module, x);
  return hooks->Leave(module, aten.LayerNorm(std::move(input), norm.weight, norm.bias, eps));
}

}  // namespace hbmtune::lowering
