#include "tests/kernels/lowering/small_models.h"

namespace hbmtune::testing {
namespace {

ModelSpec Llama() {
  ModelSpec model;
  model.architecture = Architecture::kLlama;
  model.hidden = 32;
  model.layers = 8;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.ffn = 48;
  model.vocab = 64;
  model.max_positions = 64;
  return model;
}

ModelSpec Falcon() {
  ModelSpec model = Llama();
  model.architecture = Architecture::kFalcon;
  model.kv_heads = 1;
  model.parallel_block = true;
  model.tied_embeddings = true;
  return model;
}

ModelSpec Gpt2(double dropout) {
  ModelSpec model = Llama();
  model.architecture = Architecture::kGpt2;
  model.kv_heads = model.heads;
  model.attention_bias = model.mlp_bias = true;
  model.tied_embeddings = true;
  model.dropout = model.attention_dropout = dropout;
  return model;
}

}  // namespace

Workload SmallWorkload(const std::string& full_name) {
  constexpr std::string_view kPacked = "_packed";
  Workload workload;
  std::string name = full_name;
  if (name.ends_with(kPacked)) {
    name.resize(name.size() - kPacked.size());
    workload.sequences = {SequenceLayout::kPacked, 1, 0.3};
  }
  workload.seq_len = 16;
  if (name == "falcon") {
    workload.model = Falcon();
  } else if (name == "gpt2" || name == "gpt2_dropout") {
    workload.model = Gpt2(name == "gpt2" ? 0 : 0.1);
  } else {
    workload.model = Llama();
  }
  if (name == "llama_lora") {
    workload.lora.rank = 4;
    workload.lora.dropout = 0.1;
    workload.lora.targets = "all-linear";
  }
  workload.model.name = full_name;
  return workload;
}

}  // namespace hbmtune::testing
