// Estimates beside published training runs, by source. It reports and judges nothing.
//
//   published_runs [tests/data/published/runs.csv]
//
// No framework of these runs has a lowering here, so none is counted as predicted. Runs of plain
// PyTorch on one GPU, of a model that is known, are shown beside `hf-sdpa`, the nearest lowering:
// another modelling code, so another peak. All other rows are "outside", with the first reason.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/core/units.h"
#include "kernels/model/presets.h"
#include "tuner/predict/predict.h"

namespace hbmtune {
namespace {

using Row = std::map<std::string, std::string>;

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

std::vector<Row> ReadRows(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("cannot read " + path);
  const std::vector<std::string> titles = Cells(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = Cells(line);
    Row& row = rows.emplace_back();
    for (size_t i = 0; i < titles.size(); ++i) row[titles[i]] = i < cells.size() ? cells[i] : "";
  }
  return rows;
}

bool Has(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

std::optional<ModelSpec> ModelOf(const Row& row) {
  static const std::map<std::string, std::string> presets = {
      {"llama-2-7b", "llama2-7b"},   {"llama-2-13b", "llama2-13b"},
      {"falcon-7b", "falcon-7b"},    {"llama-3-8b", "llama3-8b"},
      {"llama-3.2-3b", "llama3.2-3b"}, {"tinyllama-1.1b", "tinyllama-1.1b"}};
  const auto found = presets.find(row.at("model"));
  return found == presets.end() ? std::nullopt : FindPreset(found->second);
}

// Weights in 4 bits. A note is a list; that it mentions QLoRA ("devices is 1 for lora/qlora") says
// nothing of the run.
bool IsQlora(const Row& row) {
  if (Has(row.at("lora"), "nf4")) return true;
  const std::string notes = "; " + row.at("notes") + ";";
  for (const char* item : {"; quant=bnb", "; qlora;", "; QLoRA;"}) {
    if (Has(notes, item)) return true;
  }
  return false;
}

// Why the row cannot stand beside an estimate; empty if it can.
std::string Outside(const Row& row) {
  const std::string& sharding = row.at("zero_or_fsdp_stage");
  const std::string& compiled = row.at("compile/flash_attention");
  if (Has(sharding, "tp=") || Has(sharding, "pp=")) return "Megatron or InternEvo";
  if (Has(sharding, "fsdp") || Has(sharding, "FULL_SHARD")) return "FSDP";
  if (Has(compiled, "compile") || Has(compiled, "thunder")) return "compiled";
  if (IsQlora(row)) return "QLoRA";
  if (Has(row.at("lora"), "adapter")) return "adapters that are not LoRA";
  if (!row.at("offload").empty() && row.at("offload") != "none") return "its offload";
  if (Has(row.at("precision"), "fp8")) return "fp8";
  if (!ModelOf(row)) return "a model without a preset";
  if (row.at("optimizer") != "adamw") return "its optimizer, or none named";
  if (row.at("n_gpus") != "1") return "several GPUs without a lowering";
  if (row.at("seq_len").empty() || row.at("micro_batch").empty()) return "batch not printed";
  if (row.at("peak_mem_gib").empty()) return "no peak printed";
  if (Has(row.at("lora"), "not printed") || Has(row.at("lora"), "from recipe") ||
      row.at("lora").empty()) return "LoRA's rank not printed";
  return "";
}

Estimate EstimateOf(const Row& row) {
  Workload workload;
  workload.model = *ModelOf(row);
  workload.model.max_positions = std::max<int64_t>(workload.model.max_positions, 4096);
  workload.framework = Framework::kHfSdpa;
  workload.seq_len = std::atoll(row.at("seq_len").c_str());
  workload.grad_clip = 0;
  const std::string& lora = row.at("lora");
  const size_t digit = lora.find_first_of("0123456789");
  if (!Has(lora, "none") && digit != std::string::npos) {
    workload.lora.rank = std::atoll(lora.c_str() + digit);
    workload.lora.targets = Has(lora, "all linear") ? "all-linear" : "attention";
  }
  TrainConfig config;
  config.param_dtype = config.compute_dtype = config.optimizer_state_dtype = Dtype::kBf16;
  config.micro_batch = std::atoll(row.at("micro_batch").c_str());
  config.checkpoint.every = Has(row.at("act_ckpt"), "full") ? 1 : 0;
  const auto estimate = Predict(workload, config, *device::FindProfile("a100-80g"), {});
  if (!estimate.ok()) throw std::runtime_error(std::string(estimate.status().message()));
  return *estimate;
}

struct Source {
  int rows = 0, beside = 0;
  double error = 0;
  std::map<std::string, int> outside;
};

int Run(const std::string& path) {
  std::map<std::string, Source> sources;
  int rows = 0, beside = 0;
  for (const Row& row : ReadRows(path)) {
    Source& source = sources[row.at("source")];
    ++source.rows, ++rows;
    if (const std::string why = Outside(row); !why.empty()) {
      ++source.outside[why];
      continue;
    }
    try {
      const Estimate estimate = EstimateOf(row);
      const double printed = std::atof(row.at("peak_mem_gib").c_str());
      const double ours = double(estimate.peak_reserved_bytes) / double(kGiB);
      std::printf("%-14s %-12s seq %-5s batch %-2s %-14s published %6.2f GiB, hf-sdpa %6.2f GiB "
                  "(%+.0f %%)\n", row.at("id").c_str(), row.at("model").c_str(),
                  row.at("seq_len").c_str(), row.at("micro_batch").c_str(),
                  row.at("lora").c_str(), printed, ours, 100 * (ours / printed - 1));
      ++source.beside, ++beside;
      source.error += std::abs(ours / printed - 1);
    } catch (const std::runtime_error& error) {
      ++source.outside[error.what()];
    }
  }
  std::printf("\n");
  for (const auto& [name, source] : sources) {
    std::printf("%s: %d rows", name.c_str(), source.rows);
    if (source.beside > 0) {
      std::printf(", %d beside hf-sdpa (off by %.0f %% on average)", source.beside,
                  100 * source.error / source.beside);
    }
    std::printf(", %d outside\n", source.rows - source.beside);
    for (const auto& [why, count] : source.outside) {
      std::printf("    %3d  %s\n", count, why.c_str());
    }
  }
  std::printf("\n%d rows: 0 of a framework with a lowering, %d beside the nearest one, %d "
              "outside\n", rows, beside, rows - beside);
  return 0;
}

}  // namespace
}  // namespace hbmtune

int main(int argc, char** argv) {
  const std::string data = HBMTUNE_TEST_DATA;
  return hbmtune::Run(argc > 1 ? argv[1] : data + "/published/runs.csv");
}
