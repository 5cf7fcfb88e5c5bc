#include "tests/kernels/lowering/step_run.h"

#include <omp.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "kernels/model/model_config.h"
#include "kernels/core/float16.h"
#include "kernels/step/weights.h"

namespace hbmtune::testing {

Recorded::Recorded(const std::string& name)
    : file(std::string(HBMTUNE_TEST_DATA) + "/torch/" + name + ".safetensors") {
  workload.model = ParseModelConfig(file.Metadata("config.json"), name);
  const std::vector<int64_t> shape = file.Shape("input/tokens");
  config.micro_batch = shape[0];
  workload.seq_len = shape[1];
  workload.grad_clip = 0;
  const auto lora = nlohmann::json::parse(file.Metadata("lora"));
  if (!lora.is_null()) {
    workload.lora.rank = lora.at("r");
    workload.lora.alpha = lora.at("lora_alpha");
  }
  options.optimizer = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                       .weight_decay = 0.01, .momentum = 0};
  options.keep_gradients = true;
  options.keep_logits = true;
}

StepRun::StepRun(Program program, bool poison, device::HostDeviceOptions device)
    : program_(std::move(program)),
      device_(device),
      executor_(std::make_unique<step::Executor>(program_, device_, memory::AllocatorConfig{},
                                                 step::ExecutorOptions{.poison = poison})) {
  omp_set_num_threads(1);  // models this small would only wait for each other's threads
  executor_->set_feed([this](int64_t* ids, int64_t* labels, int64_t rows, int64_t tokens) {
    data_->Fill(ids, labels, rows, tokens);
  });
}

void StepRun::Start(const Recorded& recorded) {
  executor_->RunSetup();
  for (const NamedView& named : program_.parameters) {
    SetValues(named.name, recorded.file.Values("param/" + named.name));
  }
  data_ = step::FixedTokens(recorded.file.Integers("input/tokens"),
                            recorded.file.Integers("input/labels"));
}

void StepRun::Start(const Workload& workload, uint64_t seed, int64_t rank) {
  executor_->RunSetup();
  step::InitialiseWeights(*executor_, program_, workload, seed, rank);
  const int64_t vocab = workload.model.vocab;
  data_ = workload.sequences.layout == SequenceLayout::kPacked
              ? step::PackedTokens(workload.sequences, seed, rank, vocab)
              : step::SyntheticTokens(seed, rank, vocab);
}

double StepRun::Step() {
  first_ ? executor_->RunFirstStep() : executor_->RunSteadyStep();
  first_ = false;
  device_.Synchronize();
  return executor_->scalar(ScalarSlot::kLoss).value();
}

bool StepRun::Has(const std::string& name) const {
  for (const auto* list : {&program_.parameters, &program_.state}) {
    for (const NamedView& named : *list) {
      if (named.name == name) return true;
    }
  }
  return false;
}

std::vector<double> StepRun::Values(const std::string& name) {
  const TensorArg tensor = executor_->Find(name);
  std::vector<double> values(tensor.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    switch (tensor.dtype) {
      case Dtype::kF32: values[i] = tensor.as<float>()[i]; break;
      case Dtype::kF64: values[i] = tensor.as<double>()[i]; break;
      case Dtype::kBf16: values[i] = Widen(tensor.as<Bf16>()[i]); break;
      case Dtype::kF16: values[i] = Widen(tensor.as<F16>()[i]); break;
      case Dtype::kI64: values[i] = static_cast<double>(tensor.as<int64_t>()[i]); break;
      default: throw std::logic_error("no values of " + name);
    }
  }
  return values;
}

void StepRun::SetValues(const std::string& name, const std::vector<double>& values) {
  const TensorArg tensor = executor_->Find(name);
  if (tensor.elements() != static_cast<int64_t>(values.size())) {
    throw std::logic_error(name + " has another size");
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto narrow = static_cast<float>(values[i]);
    switch (tensor.dtype) {
      case Dtype::kF32: tensor.as<float>()[i] = narrow; break;
      case Dtype::kF64: tensor.as<double>()[i] = values[i]; break;
      case Dtype::kBf16: tensor.as<Bf16>()[i] = NarrowToBf16(narrow); break;
      case Dtype::kF16: tensor.as<F16>()[i] = NarrowToF16(narrow); break;
      default: throw std::logic_error("no values for " + name);
    }
  }
}

std::map<std::string, std::string> StepRun::Bits() {
  std::map<std::string, std::string> bits;
  for (const auto* list : {&program_.parameters, &program_.state}) {
    for (const NamedView& named : *list) {
      const TensorArg tensor = executor_->Find(named.name);
      bits[named.name].assign(tensor.as<char>(), tensor.bytes());
    }
  }
  return bits;
}

std::optional<std::map<std::string, std::string>> TwoSteps(const Program& program,
                                                           const Workload& workload) {
  StepRun run(program, true, {.memory_bytes = 64 << 20});
  run.Start(workload);
  try {
    run.Step();
    run.Step();
  } catch (const std::logic_error&) {
    return std::nullopt;
  }
  return run.Bits();
}

double RelativeError(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) throw std::logic_error("sizes differ");
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (std::isnan(difference)) return difference;
  return std::sqrt(difference / std::max(norm, 1e-300));
}

}  // namespace hbmtune::testing
