#include <cmath>
#include <string>

#include "kernels/lowering/hf/model.h"
#include "kernels/lowering/hf/weight_gatherer.h"

// models/gpt2/modeling_gpt2.py
namespace hbmtune::lowering {
namespace {

struct Gpt2Layer {
  NormModule norm_1, norm_2;
  LinearModule attention, attention_out, up, down;
  ModuleTag self, attention_tag, attention_dropout, mlp, activation, mlp_dropout;
};

class Gpt2 final : public HfModel {
 public:
  Gpt2(Aten& aten, const Workload& workload, const TrainConfig& config)
      : HfModel(aten, workload, config) {
    const int64_t hidden = model_.hidden;
    tokens_ = builder_.Parameter("transformer.wte.weight", {model_.vocab, hidden});
    positions_ = builder_.Parameter("transformer.wpe.weight", {model_.max_positions, hidden});
    for (int64_t i = 0; i < model_.layers; ++i) {
      const std::string name = "transformer.h." + std::to_string(i) + ".";
      Gpt2Layer layer;
      layer.norm_1 = builder_.Norm(name + "ln_1", hidden, true);
      layer.attention = builder_.Conv1d(name + "attn.c_attn", hidden, 3 * hidden);
      layer.attention_out = builder_.Conv1d(name + "attn.c_proj", hidden, hidden);
      layer.norm_2 = builder_.Norm(name + "ln_2", hidden, true);
      layer.up = builder_.Conv1d(name + "mlp.c_fc", hidden, model_.ffn);
      layer.down = builder_.Conv1d(name + "mlp.c_proj", model_.ffn, hidden);
      layers_.push_back(std::move(layer));
    }
    norm_ = builder_.Norm("transformer.ln_f", hidden, true);
    head_.weight = model_.tied_embeddings
                       ? tokens_
                       : builder_.Parameter("lm_head.weight", {model_.vocab, hidden});
  }

 protected:
  Tensor Hidden(const Tensor& ids) override {
    const int64_t batch = ids.shape()[0], seq_len = ids.shape()[1];
    Enter(model_tag_, {});
    Tensor embeddings = Embed(ids, tokens_);
    auto inputs = std::make_shared<LayerInputs>();
    inputs->mask_by_position = true;
    inputs->position_ids = MakePositionIds(aten_, seq_len);
    Tensor position_embeddings = EmbedPositions(inputs->position_ids);
    Tensor hidden = aten_.Add(embeddings, position_embeddings);
    FindPackedSequences(aten_, batch, seq_len);
    if (eager()) inputs->mask = MakeEagerMask(aten_, embeddings.dtype(), batch, seq_len);
    hidden = Drop(embedding_dropout_, std::move(hidden));
    for (const Gpt2Layer& layer : layers_) {
      Tensor entered = Enter(layer.self, hidden);
      Tensor out = RunLayer(inputs, entered, [this, &layer](const LayerInputs& in,
                                                            const Tensor& x) {
        return Layer(layer, in, x);
      });
      entered = {};
      hidden = Leave(layer.self, std::move(out));
    }
    Tensor normed = ApplyNorm(norm_, hidden);
    hidden = std::move(normed);
    Tensor positions = inputs->position_ids, mask = inputs->mask;
    inputs.reset();
    positions = {};
    embeddings = {};
    position_embeddings = {};
    mask = {};
    return Leave(model_tag_, std::move(hidden));
  }

 private:
  Tensor ApplyNorm(const NormModule& norm, const Tensor& x) {
    return ApplyLayerNorm(aten_, norm, model_.norm_eps, x);
  }

  Tensor EmbedPositions(const Tensor& ids) {
    ModuleHooks* hooks = aten_.module_hooks();
    if (hooks == nullptr) return aten_.Embedding(ids, positions_);
    const HookedModule module{&positions_, {positions_}};
    hooks->Enter(module, {});
    return hooks->Leave(module, aten_.Embedding(ids, positions_));
  }

  // A module, and the identity for 0.
  Tensor Drop(const ModuleTag& module, Tensor x) {
    Tensor entered = Enter(module, std::move(x));
    if (dropout() == 0) return Leave(module, std::move(entered));
    return Leave(module, aten_.Dropout(entered, dropout()));
  }

  Tensor Heads(Tensor part) {
    const Dims s = part.shape();
    Tensor split = aten_.View(std::move(part), {s[0], s[1], model_.heads, model_.head_dim});
    return aten_.Transpose(std::move(split), 1, 2);
  }

  std::pair<Tensor, Tensor> SelfAttention(const Gpt2Layer& layer, const LayerInputs& in,
                                          const Tensor& input) {
    Tensor x = Enter(layer.attention_tag, input);
    std::array<Tensor, 3> parts = aten_.SplitLast3(ApplyLinear(aten_, layer.attention, x));
    Tensor k = Heads(std::move(parts[1]));
    Tensor v = Heads(std::move(parts[2]));
    Tensor q = Heads(std::move(parts[0]));
    AttentionCall call = Attention(1 / std::sqrt(static_cast<double>(model_.head_dim)));
    call.gpt2 = true;
    auto [out, weights] = ApplyAttention(aten_, call, q, k, v, in.mask);
    const Dims s = out.shape();
    out = aten_.Contiguous(aten_.Reshape(std::move(out), {s[0], s[1], s[2] * s[3]}));
    Tensor projected = ApplyLinear(aten_, layer.attention_out, out);
    out = std::move(projected);
    out = Drop(layer.attention_dropout, std::move(out));
    q = {};
    k = {};
    v = {};
    return {Leave(layer.attention_tag, std::move(out)), std::move(weights)};
  }

  // activations.py, NewGELUActivation, as it is written.
  Tensor NewGelu(const Tensor& x) {
    Tensor half = aten_.MulScalar(x, 0.5);
    Tensor cubic = aten_.MulScalar(aten_.Pow(x, 3), 0.044715);
    Tensor inner = aten_.MulScalar(aten_.Add(x, std::move(cubic)), std::sqrt(2 / M_PI));
    Tensor shifted = aten_.AddScalar(aten_.Tanh(std::move(inner)), 1);
    return aten_.Mul(std::move(half), std::move(shifted));
  }

  Tensor Mlp(const Gpt2Layer& layer, const Tensor& input) {
    Tensor x = Enter(layer.mlp, input);
    Tensor hidden = ApplyLinear(aten_, layer.up, x);
    Tensor entered = Enter(layer.activation, hidden);
    Tensor active = Leave(layer.activation, NewGelu(entered));
    entered = {};
    hidden = std::move(active);
    Tensor down = ApplyLinear(aten_, layer.down, hidden);
    hidden = std::move(down);
    hidden = Drop(layer.mlp_dropout, std::move(hidden));
    return Leave(layer.mlp, std::move(hidden));
  }

  Tensor Layer(const Gpt2Layer& layer, const LayerInputs& in, const Tensor& x) {
    Tensor weights, attended, residual;  // in reverse: so they go when a recomputation stops
    Tensor hidden = ApplyNorm(layer.norm_1, x);
    std::tie(attended, weights) = SelfAttention(layer, in, hidden);
    Tensor sum = aten_.Add(attended, x);
    hidden = std::move(sum);
    residual = hidden;
    Tensor normed = ApplyNorm(layer.norm_2, hidden);
    hidden = std::move(normed);
    Tensor fed = Mlp(layer, hidden);
    sum = aten_.Add(residual, fed);
    hidden = std::move(sum);
    residual = {};
    attended = {};
    weights = {};
    fed = {};
    return hidden;
  }

  Tensor tokens_, positions_;
  std::vector<Gpt2Layer> layers_;
  NormModule norm_;
  ModuleTag model_tag_, embedding_dropout_;
};

}  // namespace

std::unique_ptr<HfModel> MakeGpt2(Aten& aten, const Workload& workload,
                                  const TrainConfig& config) {
  return std::make_unique<Gpt2>(aten, workload, config);
}

}  // namespace hbmtune::lowering
