#include "kernels/model/parameters.h"

#include <stdexcept>

namespace hbmtune {
namespace {

using Role = ParameterRole;

// Appends entries of one model in the order in which Transformers' modules declare them.
class TableBuilder {
 public:
  explicit TableBuilder(const ModelSpec& spec) : spec_(spec) {}

  std::vector<ParameterEntry> Build() {
    switch (spec_.architecture) {
      case Architecture::kFalcon: BuildFalcon(); break;
      case Architecture::kGpt2: BuildGpt2(); break;
      default: BuildLlamaFamily(); break;
    }
    if (!spec_.tied_embeddings) Add("lm_head.weight", {spec_.vocab, spec_.hidden}, Role::kHead);
    return std::move(table_);
  }

 private:
  void Add(const std::string& name, Dims shape, Role role) {
    table_.push_back({prefix_ + name, shape, role, layer_});
  }

  void EnterLayer(const std::string& parent, int64_t layer) {
    prefix_ = parent + std::to_string(layer) + ".";
    layer_ = layer;
  }

  void LeaveLayers() {
    prefix_.clear();
    layer_ = -1;
  }

  // torch.nn.Linear: [out, in].
  void Linear(const std::string& name, int64_t in, int64_t out, bool bias, Role role) {
    Add(name + ".weight", {out, in}, role);
    if (bias) Add(name + ".bias", {out}, Role::kBias);
  }

  // GPT-2's Conv1D: [in, out].
  void Conv1d(const std::string& name, int64_t in, int64_t out, Role role) {
    Add(name + ".weight", {in, out}, role);
    Add(name + ".bias", {out}, Role::kBias);
  }

  void LayerNorm(const std::string& name) {
    Add(name + ".weight", {spec_.hidden}, Role::kNormWeight);
    Add(name + ".bias", {spec_.hidden}, Role::kNormBias);
  }

  void BuildLlamaFamily() {
    const int64_t hidden = spec_.hidden;
    const int64_t query = spec_.heads * spec_.head_dim;
    const int64_t key = spec_.kv_heads * spec_.head_dim;
    const bool bias = spec_.attention_bias;
    // Qwen2 has no bias on the output product.
    const bool output_bias = bias && spec_.architecture != Architecture::kQwen2;
    Add("model.embed_tokens.weight", {spec_.vocab, hidden}, Role::kEmbedding);
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      EnterLayer("model.layers.", layer);
      Linear("self_attn.q_proj", hidden, query, bias, Role::kQuery);
      Linear("self_attn.k_proj", hidden, key, bias, Role::kKey);
      Linear("self_attn.v_proj", hidden, key, bias, Role::kValue);
      Linear("self_attn.o_proj", query, hidden, output_bias, Role::kAttentionOutput);
      Linear("mlp.gate_proj", hidden, spec_.ffn, spec_.mlp_bias, Role::kGate);
      Linear("mlp.up_proj", hidden, spec_.ffn, spec_.mlp_bias, Role::kUp);
      Linear("mlp.down_proj", spec_.ffn, hidden, spec_.mlp_bias, Role::kDown);
      Add("input_layernorm.weight", {hidden}, Role::kNormWeight);
      Add("post_attention_layernorm.weight", {hidden}, Role::kNormWeight);
    }
    LeaveLayers();
    Add("model.norm.weight", {hidden}, Role::kNormWeight);
  }

  void BuildFalcon() {
    const int64_t hidden = spec_.hidden;
    const int64_t qkv = (spec_.heads + 2 * spec_.kv_heads) * spec_.head_dim;
    const bool bias = spec_.attention_bias;
    Add("transformer.word_embeddings.weight", {spec_.vocab, hidden}, Role::kEmbedding);
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      EnterLayer("transformer.h.", layer);
      Linear("self_attention.query_key_value", hidden, qkv, bias, Role::kQkv);
      Linear("self_attention.dense", hidden, hidden, bias, Role::kAttentionOutput);
      Linear("mlp.dense_h_to_4h", hidden, spec_.ffn, spec_.mlp_bias, Role::kUp);
      Linear("mlp.dense_4h_to_h", spec_.ffn, hidden, spec_.mlp_bias, Role::kDown);
      if (!spec_.parallel_block) LayerNorm("post_attention_layernorm");
      LayerNorm(spec_.separate_norms ? "ln_attn" : "input_layernorm");
      if (spec_.separate_norms) LayerNorm("ln_mlp");
    }
    LeaveLayers();
    LayerNorm("transformer.ln_f");
  }

  void BuildGpt2() {
    const int64_t hidden = spec_.hidden;
    Add("transformer.wte.weight", {spec_.vocab, hidden}, Role::kEmbedding);
    Add("transformer.wpe.weight", {spec_.max_positions, hidden}, Role::kPositionEmbedding);
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      EnterLayer("transformer.h.", layer);
      LayerNorm("ln_1");
      Conv1d("attn.c_attn", hidden, 3 * hidden, Role::kQkv);
      Conv1d("attn.c_proj", hidden, hidden, Role::kAttentionOutput);
      LayerNorm("ln_2");
      Conv1d("mlp.c_fc", hidden, spec_.ffn, Role::kUp);
      Conv1d("mlp.c_proj", spec_.ffn, hidden, Role::kDown);
    }
    LeaveLayers();
    LayerNorm("transformer.ln_f");
  }

  const ModelSpec& spec_;
  std::vector<ParameterEntry> table_;
  std::string prefix_;
  int64_t layer_ = -1;
};

bool IsLinear(Role role) {
  switch (role) {
    case Role::kQuery:
    case Role::kKey:
    case Role::kValue:
    case Role::kQkv:
    case Role::kAttentionOutput:
    case Role::kGate:
    case Role::kUp:
    case Role::kDown: return true;
    default: return false;
  }
}

bool IsAttentionTarget(Role role) {
  return role == Role::kQuery || role == Role::kValue || role == Role::kQkv;
}

}  // namespace

std::vector<ParameterEntry> ParameterTable(const ModelSpec& spec) {
  return TableBuilder(spec).Build();
}

int64_t ElementCount(const std::vector<ParameterEntry>& table) {
  int64_t count = 0;
  for (const ParameterEntry& entry : table) count += ElementCount(entry.shape);
  return count;
}

int64_t ParameterCount(const ModelSpec& spec) { return ElementCount(ParameterTable(spec)); }

std::vector<ParameterEntry> LoraTable(const ModelSpec& spec, const LoraSpec& lora) {
  if (lora.rank < 0) {
    throw std::invalid_argument("lora.rank " + std::to_string(lora.rank) +
                                " is negative: 0 is full fine-tuning");
  }
  bool all = lora.targets == "all-linear";
  if (!all && lora.targets != "attention") {
    throw std::invalid_argument("lora.targets '" + lora.targets +
                                "' is not attention or all-linear");
  }
  std::vector<ParameterEntry> table;
  if (lora.rank == 0) return table;
  for (const ParameterEntry& entry : ParameterTable(spec)) {
    if (all ? !IsLinear(entry.role) : !IsAttentionTarget(entry.role)) continue;
    bool transposed = spec.architecture == Architecture::kGpt2;
    int64_t in = entry.shape[transposed ? 0 : 1];
    int64_t out = entry.shape[transposed ? 1 : 0];
    std::string module = entry.name.substr(0, entry.name.rfind(".weight"));
    table.push_back({module + ".lora_A.weight", {lora.rank, in}, Role::kLoraA, entry.layer});
    table.push_back({module + ".lora_B.weight", {out, lora.rank}, Role::kLoraB, entry.layer});
  }
  return table;
}

}  // namespace hbmtune
