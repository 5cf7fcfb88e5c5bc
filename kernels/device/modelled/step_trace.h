#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/core/category.h"
#include "kernels/program/program.h"

namespace hbmtune::device {

// What costs time on a device, as the search corrects it.
enum class TraceWork : uint8_t { kMatmul, kAttention, kMemory, kOptimizer, kReduction, kCpu };
inline constexpr size_t kTraceWorkCount = 6;

// One instruction of a Program without its tensors: all that a dry run has to know.
struct TraceOp {
  enum class Kind : uint8_t {
    kAllocate,
    kFree,
    kRun,
    kCopyOut,  // device to pinned memory
    kCopyIn,
    kCollective,
    kRecord,
    kWait,
    kUseOn,
    kReadScalar,
    kPhase,
  };
  Kind kind = Kind::kRun;
  StreamId stream = 0;
  uint8_t detail = 0;     // Category (kAllocate, kFree), TraceWork, CollectiveKind or PhaseKind
  bool pinned = false;    // kAllocate, kFree: host memory
  uint32_t id = 0;        // storage or event; of kRun an index in `work`
  int64_t bytes = 0;      // kAllocate and its kFree, copies and collectives

  bool operator==(const TraceOp&) const = default;
};

// A kernel's work; equal kernels share one.
struct TraceKernel {
  std::string_view op;
  Cost cost;
  Dtype dtype = Dtype::kF32;
  double elements = 0;  // of the first output: parameters that the CPU's optimizer steps
};

// A Program as the modelled device sees it, its Repeats written out. Thousands of configs are
// estimated from such traces, so a trace holds nothing that an estimate does not read.
struct StepTrace {
  std::vector<TraceOp> ops;
  size_t first_step = 0;
  size_t steady_step = 0;
  uint32_t storage_count = 0;
  uint32_t event_count = 0;
  std::vector<TraceKernel> work;
};

StepTrace TraceOf(const Program& program);

}  // namespace hbmtune::device
