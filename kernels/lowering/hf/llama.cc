#include <cmath>
#include <string>

#include "kernels/lowering/hf/model.h"
#include "kernels/ops/aten_range/aten_range.h"

// models/llama/modeling_llama.py; Mistral and Qwen2 are the same code with other biases.
namespace hbmtune::lowering {
namespace {

struct LlamaLayer {
  LinearModule q, k, v, o, gate, up, down;
  NormModule input_norm, post_norm;
  ModuleTag self, attention, mlp, activation;
};

class Llama final : public HfModel {
 public:
  Llama(Aten& aten, const Workload& workload, const TrainConfig& config)
      : HfModel(aten, workload, config) {
    const int64_t hidden = model_.hidden, width = model_.heads * model_.head_dim;
    embedding_ = builder_.Parameter("model.embed_tokens.weight", {model_.vocab, hidden});
    for (int64_t i = 0; i < model_.layers; ++i) AddLayer(i, width);
    norm_ = builder_.Norm("model.norm", hidden, false);
    for (Tensor& frequencies : inverse_frequencies_) {
      frequencies = builder_.Buffer({model_.head_dim / 2});
      aten_.tape().Run(ops::kAtenInverseFrequencies, {}, {frequencies},
                       Attrs::Of(ops::AtenRangeAttrs{model_.rope_theta}));
    }
    if (model_.tied_embeddings) {
      head_.weight = embedding_;
    } else {
      head_.weight = builder_.Parameter("lm_head.weight", {model_.vocab, hidden});
    }
  }

 protected:
  Tensor Hidden(const Tensor& ids) override {
    const int64_t batch = ids.shape()[0], seq_len = ids.shape()[1];
    Enter(model_tag_, {});
    Tensor embeddings = Embed(ids, embedding_);
    auto inputs = std::make_shared<LayerInputs>();
    inputs->positions_first = model_.architecture == Architecture::kMistral;
    inputs->position_ids = MakePositionIds(aten_, seq_len);
    FindPackedSequences(aten_, batch, seq_len);
    if (eager()) inputs->mask = MakeEagerMask(aten_, embeddings.dtype(), batch, seq_len);
    Tensor hidden = embeddings;
    Enter(rotary_tag_, hidden);
    std::tie(inputs->cos, inputs->sin) =
        MakeRotary(aten_, inverse_frequencies_[0], seq_len, hidden.dtype());
    for (const LlamaLayer& layer : layers_) {
      // Transformers checkpoints a layer's forward(): its hooks stay outside.
      Tensor entered = Enter(layer.self, hidden);
      Tensor out = RunLayer(inputs, entered, [this, &layer](const LayerInputs& in,
                                                            const Tensor& x) {
        return Layer(layer, in, x);
      });
      entered = {};
      hidden = Leave(layer.self, std::move(out));
    }
    Tensor normed = ApplyRmsNorm(aten_, norm_.weight, model_.norm_eps, hidden);
    hidden = std::move(normed);
    Tensor ids_held = inputs->position_ids, mask = inputs->mask;
    Tensor cos = inputs->cos, sin = inputs->sin;
    inputs.reset();
    if (model_.architecture == Architecture::kQwen2) {  // its dict of masks goes first
      mask = {};
      embeddings = {};
    }
    ids_held = {};
    embeddings = {};
    mask = {};
    sin = {};
    cos = {};
    return Leave(model_tag_, std::move(hidden));
  }

 private:
  void AddLayer(int64_t index, int64_t width) {
    const std::string name = "model.layers." + std::to_string(index) + ".";
    const int64_t hidden = model_.hidden, kv = model_.kv_heads * model_.head_dim;
    const bool bias = model_.attention_bias;
    const bool output_bias = bias && model_.architecture != Architecture::kQwen2;
    LlamaLayer layer;
    layer.q = builder_.Linear(name + "self_attn.q_proj", hidden, width, bias);
    layer.k = builder_.Linear(name + "self_attn.k_proj", hidden, kv, bias);
    layer.v = builder_.Linear(name + "self_attn.v_proj", hidden, kv, bias);
    layer.o = builder_.Linear(name + "self_attn.o_proj", width, hidden, output_bias);
    layer.gate = builder_.Linear(name + "mlp.gate_proj", hidden, model_.ffn, model_.mlp_bias);
    layer.up = builder_.Linear(name + "mlp.up_proj", hidden, model_.ffn, model_.mlp_bias);
    layer.down = builder_.Linear(name + "mlp.down_proj", model_.ffn, hidden, model_.mlp_bias);
    layer.input_norm = builder_.Norm(name + "input_layernorm", hidden, false);
    layer.post_norm = builder_.Norm(name + "post_attention_layernorm", hidden, false);
    layers_.push_back(std::move(layer));
  }

  // [B, S, heads · D] → [B, heads, S, D]
  Tensor Heads(const LinearModule& projection, const Tensor& x) {
    Tensor flat = ApplyLinear(aten_, projection, x);
    const Dims s = flat.shape();
    Tensor split = aten_.View(std::move(flat),
                              {s[0], s[1], s[2] / model_.head_dim, model_.head_dim});
    return aten_.Transpose(std::move(split), 1, 2);
  }

  std::pair<Tensor, Tensor> SelfAttention(const LlamaLayer& layer, const LayerInputs& in,
                                          const Tensor& x) {
    Enter(layer.attention, {});  // its input comes by keyword
    Tensor q = Heads(layer.q, x);
    Tensor k = Heads(layer.k, x);
    Tensor v = Heads(layer.v, x);
    auto [q_turned, k_turned] = ApplyRotary(aten_, q, k, in.cos, in.sin);
    q = std::move(q_turned);
    k = std::move(k_turned);
    auto [out, weights] = ApplyAttention(
        aten_, Attention(1 / std::sqrt(static_cast<double>(model_.head_dim))), q, k, v, in.mask);
    const Dims s = out.shape();
    out = aten_.Contiguous(aten_.Reshape(std::move(out), {s[0], s[1], s[2] * s[3]}));
    Tensor projected = ApplyLinear(aten_, layer.o, out);
    out = std::move(projected);
    q = {};
    k = {};
    v = {};
    return {Leave(layer.attention, std::move(out)), std::move(weights)};
  }

  Tensor Mlp(const LlamaLayer& layer, Tensor x) {
    x = Enter(layer.mlp, std::move(x));
    Tensor gate = Enter(layer.activation, ApplyLinear(aten_, layer.gate, x));
    gate = Leave(layer.activation, aten_.Silu(std::move(gate)));
    Tensor up = ApplyLinear(aten_, layer.up, x);
    return Leave(layer.mlp,
                 ApplyLinear(aten_, layer.down, aten_.Mul(std::move(gate), std::move(up))));
  }

  Tensor Layer(const LlamaLayer& layer, const LayerInputs& in, const Tensor& x) {
    Tensor weights, residual = x;  // in reverse: so they go when a recomputation stops
    Tensor hidden = ApplyRmsNorm(aten_, layer.input_norm.weight, model_.norm_eps, x);
    std::tie(hidden, weights) = SelfAttention(layer, in, hidden);
    Tensor sum = aten_.Add(residual, hidden);
    hidden = std::move(sum);
    residual = hidden;
    Tensor normed = ApplyRmsNorm(aten_, layer.post_norm.weight, model_.norm_eps, hidden);
    hidden = std::move(normed);
    Tensor down = Mlp(layer, hidden);
    hidden = std::move(down);
    sum = aten_.Add(residual, hidden);
    hidden = std::move(sum);
    residual = {};
    return hidden;
  }

  Tensor embedding_;
  std::vector<LlamaLayer> layers_;
  NormModule norm_;
  std::array<Tensor, 2> inverse_frequencies_;
  ModuleTag model_tag_, rotary_tag_;
};

}  // namespace

std::unique_ptr<HfModel> MakeLlama(Aten& aten, const Workload& workload,
                                   const TrainConfig& config) {
  return std::make_unique<Llama>(aten, workload, config);
}

}  // namespace hbmtune::lowering
