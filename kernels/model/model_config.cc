#include "kernels/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "kernels/core/nearest.h"
#include "kernels/model/config_reader.h"

// Defaults are those of the config classes of Transformers 5.24, unless a size has no sensible
// one: then the key must be there.
namespace hbmtune {
namespace {

struct ModelType {
  std::string_view type;          // config.json's model_type
  std::string_view model_class;   // its architectures[0]
  Architecture architecture;
};

// RefinedWeb is what Falcon was called before Transformers had it; the files still circulate.
constexpr ModelType kModelTypes[] = {
    {"llama", "LlamaForCausalLM", Architecture::kLlama},
    {"mistral", "MistralForCausalLM", Architecture::kMistral},
    {"qwen2", "Qwen2ForCausalLM", Architecture::kQwen2},
    {"falcon", "FalconForCausalLM", Architecture::kFalcon},
    {"RefinedWebModel", "RWForCausalLM", Architecture::kFalcon},
    {"RefinedWeb", "RWForCausalLM", Architecture::kFalcon},
    {"gpt2", "GPT2LMHeadModel", Architecture::kGpt2}};

Architecture FindArchitecture(const ConfigReader& config) {
  std::optional<std::string> type = config.FindString("model_type");
  std::optional<std::string> model_class = config.FirstArchitecture();
  if (!type && !model_class) {
    config.Fail("has neither `model_type` nor `architectures`: supported are " +
                ListOf<Architecture>());
  }
  for (const ModelType& known : kModelTypes) {
    if (type ? known.type == *type : known.model_class == *model_class) {
      return known.architecture;
    }
  }
  std::string name = type ? *type : *model_class;
  const auto& names = EnumNames<Architecture>::kNames;
  std::vector<std::string> supported(names.begin(), names.end());
  config.Fail("is of the unsupported architecture '" + name + "': supported are " +
              ListOf<Architecture>() + DidYouMean(name, supported));
}

void RequireActivation(const ConfigReader& config, const char* key, std::string_view otherwise,
                       std::initializer_list<std::string_view> modelled) {
  std::string activation = config.FindString(key).value_or(std::string(otherwise));
  if (std::find(modelled.begin(), modelled.end(), activation) == modelled.end()) {
    config.Fail("has " + std::string(key) + " '" + activation + "', which is not modelled: only '" +
                std::string(*modelled.begin()) + "' is");
  }
}

// Query and key/value heads and their width, as Llama, Mistral and Qwen2 share them. An absent
// num_key_value_heads takes the class's default, a null one is as many as query heads.
void ReadHeads(const ConfigReader& config, ModelSpec& spec) {
  spec.heads = config.Integer({"num_attention_heads"});
  int64_t otherwise = spec.architecture == Architecture::kMistral ? 8
                      : spec.architecture == Architecture::kQwen2 ? 32
                                                                  : spec.heads;
  if (config.IsNull("num_key_value_heads")) otherwise = spec.heads;
  spec.kv_heads = config.FindInteger({"num_key_value_heads"}).value_or(otherwise);
  std::optional<int64_t> head_dim = config.FindInteger({"head_dim"});
  bool divides = spec.heads > 0 && spec.hidden % spec.heads == 0;
  if (!divides && (!head_dim || spec.architecture == Architecture::kLlama)) {
    config.Fail("has hidden_size " + std::to_string(spec.hidden) + ", which its " +
                std::to_string(spec.heads) + " num_attention_heads do not divide");
  }
  spec.head_dim = head_dim ? *head_dim : spec.hidden / spec.heads;
}

// Layers that slide, as Qwen2 counts them: those from max_window_layers on.
int64_t Qwen2Window(const ConfigReader& config, int64_t layers) {
  if (!config.Bool({"use_sliding_window"}, false)) return 0;
  int64_t window = config.FindInteger({"sliding_window"}).value_or(4096);
  int64_t full = config.FindInteger({"max_window_layers"}).value_or(28);
  int64_t sliding = config.CountInList("layer_types", "sliding_attention")
                        .value_or(std::max<int64_t>(0, layers - full));
  if (sliding > 0 && sliding < layers) {
    config.Fail("has sliding_window in " + std::to_string(sliding) + " of its " +
                std::to_string(layers) + " layers, which is not modelled: it must be all or none");
  }
  return sliding > 0 ? window : 0;
}

void ReadLlamaFamily(const ConfigReader& config, ModelSpec& spec) {
  bool mistral = spec.architecture == Architecture::kMistral;
  bool qwen2 = spec.architecture == Architecture::kQwen2;
  spec.hidden = config.Integer({"hidden_size"});
  spec.layers = config.Integer({"num_hidden_layers"});
  spec.ffn = config.Integer({"intermediate_size"});
  spec.vocab = config.Integer({"vocab_size"});
  ReadHeads(config, spec);
  int64_t positions = mistral ? 131072 : qwen2 ? 32768 : 2048;
  spec.max_positions = config.FindInteger({"max_position_embeddings"}).value_or(positions);
  spec.norm_eps = config.Number({"rms_norm_eps"}, 1e-6);
  spec.rope_theta = config.RopeTheta();
  spec.tied_embeddings = config.Bool({"tie_word_embeddings"}, false);
  if (spec.architecture == Architecture::kLlama) {
    spec.attention_bias = config.Bool({"attention_bias"}, false);
    spec.mlp_bias = config.Bool({"mlp_bias"}, false);
  }
  spec.attention_bias = spec.attention_bias || qwen2;
  if (qwen2) spec.sliding_window = Qwen2Window(config, spec.layers);
  if (mistral && !config.IsNull("sliding_window")) {
    spec.sliding_window = config.FindInteger({"sliding_window"}).value_or(4096);
  }
  spec.attention_dropout = config.Number({"attention_dropout"}, 0);
  RequireActivation(config, "hidden_act", "silu", {"silu", "swish"});
}

int64_t FalconKvHeads(const ConfigReader& config, bool new_decoder, int64_t heads) {
  if (new_decoder) return config.FindInteger({"num_kv_heads", "n_head_kv"}).value_or(heads);
  return config.Bool({"multi_query"}, true) ? 1 : heads;
}

void ReadFalcon(const ConfigReader& config, ModelSpec& spec) {
  if (config.Bool({"alibi"}, false)) config.Fail("has alibi = true, which is not modelled");
  // The 40B files of before Transformers had Falcon say RefinedWeb and give n_head_kv.
  bool new_decoder = config.Bool({"new_decoder_architecture"}, config.Has("n_head_kv"));
  spec.hidden = config.Integer({"hidden_size", "n_embed"});
  spec.layers = config.Integer({"num_hidden_layers", "n_layer"});
  spec.heads = config.Integer({"num_attention_heads", "n_head"});
  spec.vocab = config.Integer({"vocab_size"});
  if (spec.heads <= 0 || spec.hidden % spec.heads != 0) {
    config.Fail("has hidden_size " + std::to_string(spec.hidden) + ", which its " +
                std::to_string(spec.heads) + " num_attention_heads do not divide");
  }
  spec.head_dim = spec.hidden / spec.heads;
  spec.kv_heads = FalconKvHeads(config, new_decoder, spec.heads);
  spec.ffn = config.FindInteger({"ffn_hidden_size"}).value_or(4 * spec.hidden);
  spec.max_positions = config.FindInteger({"max_position_embeddings"}).value_or(2048);
  spec.norm_eps = config.Number({"layer_norm_epsilon"}, 1e-5);
  spec.rope_theta = config.RopeTheta();
  spec.tied_embeddings = config.Bool({"tie_word_embeddings"}, true);
  spec.attention_bias = config.Bool({"bias"}, false);
  spec.mlp_bias = spec.attention_bias;
  spec.parallel_block = config.Bool({"parallel_attn"}, true) || new_decoder;
  int64_t norms = config.FindInteger({"num_ln_in_parallel_attn"}).value_or(new_decoder ? 2 : 1);
  spec.separate_norms = spec.parallel_block && norms == 2;
  spec.dropout = config.Number({"hidden_dropout"}, 0);
  spec.attention_dropout = config.Number({"attention_dropout"}, 0);
  RequireActivation(config, "activation", "gelu", {"gelu"});
}

void ReadGpt2(const ConfigReader& config, ModelSpec& spec) {
  spec.hidden = config.Integer({"n_embd", "hidden_size"});
  spec.layers = config.Integer({"n_layer", "num_hidden_layers"});
  spec.heads = config.Integer({"n_head", "num_attention_heads"});
  spec.vocab = config.Integer({"vocab_size"});
  if (spec.heads <= 0 || spec.hidden % spec.heads != 0) {
    config.Fail("has n_embd " + std::to_string(spec.hidden) + ", which its " +
                std::to_string(spec.heads) + " n_head do not divide");
  }
  spec.head_dim = spec.hidden / spec.heads;
  spec.kv_heads = spec.heads;
  spec.ffn = config.FindInteger({"n_inner"}).value_or(4 * spec.hidden);
  spec.max_positions =
      config.FindInteger({"n_positions", "n_ctx", "max_position_embeddings"}).value_or(1024);
  spec.norm_eps = config.Number({"layer_norm_epsilon"}, 1e-5);
  spec.tied_embeddings = config.Bool({"tie_word_embeddings"}, true);
  spec.attention_bias = true;
  spec.mlp_bias = true;
  spec.dropout = config.Number({"resid_pdrop"}, 0.1);
  spec.attention_dropout = config.Number({"attn_pdrop"}, 0.1);
  if (config.Number({"embd_pdrop"}, 0.1) != spec.dropout) {
    config.Fail("has an embd_pdrop that differs from resid_pdrop, which is not modelled");
  }
  if (config.Bool({"add_cross_attention"}, false)) {
    config.Fail("has add_cross_attention = true, which is not modelled");
  }
  RequireActivation(config, "activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
}

void CheckSize(const ModelSpec& spec, const char* name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return;
  throw std::invalid_argument("model config '" + spec.name + "' has " + name + " = " +
                              std::to_string(value) + ", which must lie between 1 and " +
                              std::to_string(most));
}

void CheckProbability(const ModelSpec& spec, const char* name, double value) {
  if (value >= 0 && value < 1) return;
  throw std::invalid_argument("model config '" + spec.name + "' has " + name + " = " +
                              std::to_string(value) + ", which must be at least 0 and under 1");
}

void CheckReals(const ModelSpec& spec) {
  auto fail = [&](const char* name, double value, const char* rule) {
    std::ostringstream text;
    text << "model config '" << spec.name << "' has " << name << " = " << value << ", which must "
         << rule;
    throw std::invalid_argument(text.str());
  };
  // Models have 1e-12 to 1e-3; from 0.1 on the epsilon, not the input, would set a norm's scale.
  if (!(spec.norm_eps > 0 && spec.norm_eps < 0.1)) {
    fail("a norm epsilon", spec.norm_eps, "be over 0 and under 0.1");
  }
  if (!(spec.rope_theta > 0 && std::isfinite(spec.rope_theta))) {
    fail("rope_theta", spec.rope_theta, "be over 0 and finite");
  }
}

// Experts change every size of the MLP; a dense model has none of these keys, or one expert.
void RefuseExperts(const ConfigReader& config) {
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    int64_t experts = config.FindInteger({key}).value_or(1);
    if (experts <= 1) continue;
    config.Fail("has " + std::string(key) + " = " + std::to_string(experts) +
                ": mixture of experts is not supported");
  }
}

}  // namespace

void CheckModelSpec(const ModelSpec& spec) {
  // Far over any model that exists, and small enough that no product of three overflows.
  CheckSize(spec, "hidden_size", spec.hidden, 1 << 18);
  CheckSize(spec, "num_hidden_layers", spec.layers, 1 << 12);
  CheckSize(spec, "num_attention_heads", spec.heads, 1 << 12);
  CheckSize(spec, "num_key_value_heads", spec.kv_heads, 1 << 12);
  CheckSize(spec, "head_dim", spec.head_dim, 1 << 12);
  CheckSize(spec, "intermediate_size", spec.ffn, 1 << 20);
  CheckSize(spec, "vocab_size", spec.vocab, 1 << 24);
  CheckSize(spec, "max_position_embeddings", spec.max_positions, 1 << 27);
  CheckProbability(spec, "dropout", spec.dropout);
  CheckProbability(spec, "attention_dropout", spec.attention_dropout);
  CheckReals(spec);
  if (spec.heads % spec.kv_heads != 0) {
    throw std::invalid_argument("model config '" + spec.name + "' has " +
                                std::to_string(spec.heads) + " attention heads, which its " +
                                std::to_string(spec.kv_heads) +
                                " key and value heads do not divide");
  }
  bool rotary = spec.architecture != Architecture::kGpt2;
  if (rotary && spec.head_dim % 2 != 0) {
    throw std::invalid_argument("model config '" + spec.name + "' has heads " +
                                std::to_string(spec.head_dim) +
                                " wide: rotary positions need an even width");
  }
  if (spec.sliding_window < 0) {
    throw std::invalid_argument("model config '" + spec.name + "' has sliding_window = " +
                                std::to_string(spec.sliding_window) + ", which is negative");
  }
}

ModelSpec ParseModelConfig(const std::string& json_text, const std::string& name) {
  ConfigReader config(json_text, name);
  ModelSpec spec;
  spec.name = name;
  spec.architecture = FindArchitecture(config);
  if (config.Has("quantization_config")) {
    config.Fail("has quantization_config: training on quantised weights is not modelled");
  }
  RefuseExperts(config);
  switch (spec.architecture) {
    case Architecture::kFalcon: ReadFalcon(config, spec); break;
    case Architecture::kGpt2: ReadGpt2(config, spec); break;
    default: ReadLlamaFamily(config, spec); break;
  }
  CheckModelSpec(spec);
  return spec;
}

}  // namespace hbmtune
