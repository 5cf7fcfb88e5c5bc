// How much of its copies activation offload hides, on the modelled device's clock: the same on any
// machine, however loaded. tests/bench/overlap_bench asks a real one.

#include <gtest/gtest.h>

#include "kernels/device/modelled/dry_run.h"
#include "kernels/device/profile.h"
#include "kernels/lowering/fused.h"

namespace hbmtune::device {
namespace {

Workload TwelveLayers() {
  Workload workload;
  ModelSpec& model = workload.model;
  model.hidden = 512;
  model.layers = 12;
  model.heads = model.kv_heads = 8;
  model.head_dim = 64;
  model.ffn = 1376;
  model.vocab = 1024;
  model.max_positions = workload.seq_len = 256;
  return workload;
}

// The host's profile with a link of this rate each way.
double StepSeconds(const Program& program, double copy_bytes_per_second) {
  DeviceProfile profile = *FindProfile("host");
  profile.host_to_device_bytes_per_second.value = copy_bytes_per_second;
  profile.device_to_host_bytes_per_second.value = copy_bytes_per_second;
  profile.copy_seconds.value = 0;
  return DryRunClock(TraceOf(program), profile, 1).step_seconds;
}

// The steady step up to its first backward pass.
Program ForwardOnly(Program program) {
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    const auto* phase = std::get_if<Phase>(&program.code[i]);
    if (phase == nullptr || phase->kind != PhaseKind::kBackward) continue;
    program.code.resize(i);
    break;
  }
  return program;
}

double BytesOut(const Program& program) {
  double bytes = 0;
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    const auto* copy = std::get_if<Copy>(&program.code[i]);
    if (copy == nullptr || copy->stream != kCopyOutStream) continue;
    bytes += static_cast<double>(ByteCount(program.views[copy->from]));
  }
  return bytes;
}

TEST(Overlap, HidesCopiesThatTakeFourFifthsOfTheForwardPass) {
  constexpr double kFast = 1e15;
  TrainConfig config;
  config.micro_batch = 8;
  const Program without = lowering::LowerFused(TwelveLayers(), config);
  const double none = StepSeconds(without, kFast);
  const double forward = StepSeconds(ForwardOnly(without), kFast);
  config.offload.activations = ActivationOffload::kLayers;
  const Program overlapped = lowering::LowerFused(TwelveLayers(), config);
  const double rate = BytesOut(overlapped) / (0.8 * forward);
  EXPECT_LE(StepSeconds(overlapped, rate) / none - 1, 0.10);
  config.offload.double_buffer = false;
  EXPECT_GE(StepSeconds(lowering::LowerFused(TwelveLayers(), config), rate) / none - 1, 0.50);
}

}  // namespace
}  // namespace hbmtune::device
