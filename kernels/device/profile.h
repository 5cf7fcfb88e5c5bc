#pragma once

#include <absl/status/statusor.h>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/category.h"
#include "kernels/core/dtype.h"
#include "kernels/core/visit.h"
#include "kernels/program/op_kind.h"

namespace hbmtune::device {

// Where a figure comes from. An unknown one counts as 0 and waits for `hbmtune calibrate`.
enum class FigureKind : uint8_t { kUnknown, kDatasheet, kMeasured, kDerived };

}  // namespace hbmtune::device

template <>
struct hbmtune::EnumNames<hbmtune::device::FigureKind> {
  static constexpr std::array<std::string_view, 4> kNames = {"unknown", "datasheet", "measured",
                                                             "derived"};
};

namespace hbmtune::device {

struct Figure {
  double value = 0;
  FigureKind kind = FigureKind::kUnknown;
  std::string source;

  bool known() const { return kind != FigureKind::kUnknown; }

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"value", "the figure, in the unit of its name"}, self.value);
    v(Field{"kind", "unknown, datasheet, measured or derived"}, self.kind);
    v(Field{"source", "where it was read, or why it is not known"}, self.source);
  }
};

// One measured call of an op. Of a product [m, k] × [k, n]; of attention over m keys of n width k.
struct OpPoint {
  std::string op;  // its name in kernels/ops
  Dtype dtype = Dtype::kF32;
  int64_t m = 0, n = 0, k = 0;
  double work = 0;
  double seconds = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"op", "name of the op"}, self.op);
    v(Field{"dtype", "element type of its first argument"}, self.dtype);
    v(Field{"m", "rows of a product, tokens of attention, else 0"}, self.m);
    v(Field{"n", "columns of a product, tokens of attention, else 0"}, self.n);
    v(Field{"k", "length of a product's sums, width of a head, else 0"}, self.k);
    v(Field{"work", "flops of products and attention, bytes read and written of other ops"},
      self.work);
    v(Field{"seconds", "time of the call"}, self.seconds);
  }
};

// What the modelled device knows of one GPU, or of the host. One TOML file each in
// kernels/device/profiles/, embedded in the binary.
struct DeviceProfile {
  std::string name;          // "mi210"
  std::string title;         // "AMD Instinct MI210"
  std::string architecture;  // "gfx90a"; "cpu" for the host

  Figure capacity_bytes;
  Figure compute_units;
  Figure fp32_flops_per_second;
  Figure half_flops_per_second;
  Figure matmul_efficiency_ratio;
  Figure attention_efficiency_ratio;
  Figure memory_bytes_per_second;
  Figure memory_efficiency_ratio;
  Figure issue_seconds;
  Figure kernel_seconds;
  Figure segment_seconds;
  Figure host_to_device_bytes_per_second;
  Figure device_to_host_bytes_per_second;
  Figure copy_seconds;
  Figure collective_bytes_per_second;
  Figure collective_seconds;
  Figure cpu_adam_parameters_per_second;
  Figure context_bytes;
  Figure code_object_bytes;
  Figure scratch_bytes;
  Figure blas_workspace_bytes;
  Figure blaslt_workspace_bytes;
  Figure communicator_bytes;
  Figure rccl_channels;
  Figure rccl_channel_bytes;
  std::vector<OpPoint> op_points;  // measured; empty for a profile from datasheets

  bool is_host() const { return architecture == "cpu"; }
  // Taken by the allocator at the first product of each thread and stream, and kept.
  int64_t workspace_bytes() const;
  // Beside the allocator, in a process whose job has `world_size` ranks. Unknown parts count 0.
  int64_t library_bytes(int64_t world_size) const;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"name", "name of the profile"}, self.name);
    v(Field{"title", "name of the device, for people"}, self.title);
    v(Field{"architecture", "code name of the instruction set"}, self.architecture);
    VisitFigures(self, v);
    v(Field{"op_points", "measured calls of ops"}, self.op_points);
  }

  // The figures alone, in the order in which people read them.
  template <class Self, class V>
  static void VisitFigures(Self& self, V&& v) {
    v(Field{"capacity_bytes", "memory that a process can see"}, self.capacity_bytes);
    v(Field{"compute_units", "compute units, or cores"}, self.compute_units);
    v(Field{"fp32_flops_per_second", "peak of fp32 products"}, self.fp32_flops_per_second);
    v(Field{"half_flops_per_second", "peak of fp16 and bf16 products"},
      self.half_flops_per_second);
    v(Field{"matmul_efficiency_ratio", "share of the peak that large products reach"},
      self.matmul_efficiency_ratio);
    v(Field{"attention_efficiency_ratio", "share of the peak that attention reaches"},
      self.attention_efficiency_ratio);
    v(Field{"memory_bytes_per_second", "peak memory bandwidth"}, self.memory_bytes_per_second);
    v(Field{"memory_efficiency_ratio", "share of the bandwidth that kernels reach"},
      self.memory_efficiency_ratio);
    v(Field{"issue_seconds", "host time to issue one operation"}, self.issue_seconds);
    v(Field{"kernel_seconds", "least time of a kernel"}, self.kernel_seconds);
    v(Field{"segment_seconds", "one allocation by the driver"}, self.segment_seconds);
    v(Field{"host_to_device_bytes_per_second", "copies from pinned memory"},
      self.host_to_device_bytes_per_second);
    v(Field{"device_to_host_bytes_per_second", "copies to pinned memory"},
      self.device_to_host_bytes_per_second);
    v(Field{"copy_seconds", "least time of a copy"}, self.copy_seconds);
    v(Field{"collective_bytes_per_second", "bus bandwidth of an all-reduce"},
      self.collective_bytes_per_second);
    v(Field{"collective_seconds", "least time of a collective"}, self.collective_seconds);
    v(Field{"cpu_adam_parameters_per_second", "AdamW on the CPU"},
      self.cpu_adam_parameters_per_second);
    v(Field{"context_bytes", "context and runtime"}, self.context_bytes);
    v(Field{"code_object_bytes", "loaded kernels"}, self.code_object_bytes);
    v(Field{"scratch_bytes", "scratch memory of the queues"}, self.scratch_bytes);
    v(Field{"blas_workspace_bytes", "workspace of a BLAS handle"}, self.blas_workspace_bytes);
    v(Field{"blaslt_workspace_bytes", "workspace of hipBLASLt, where PyTorch prefers it"},
      self.blaslt_workspace_bytes);
    v(Field{"communicator_bytes", "buffers of the first communicator"}, self.communicator_bytes);
    v(Field{"rccl_channels", "channels of a communicator"}, self.rccl_channels);
    v(Field{"rccl_channel_bytes", "buffers of one channel"}, self.rccl_channel_bytes);
  }
};

// How many figures there are of each kind, measured calls included.
struct FigureCounts {
  int64_t unknown = 0;
  int64_t datasheet = 0;
  int64_t measured = 0;
  int64_t derived = 0;
};
FigureCounts CountFigures(const DeviceProfile& profile);

// Embedded profiles, "host" first.
std::vector<std::string> ProfileNames();
// NOT_FOUND with the nearest name for a device that has no profile. A file <name>.toml in
// `directory`, as `hbmtune calibrate` writes it, goes before the embedded one.
absl::StatusOr<DeviceProfile> FindProfile(std::string_view name, const std::string& directory = "");
// INVALID_ARGUMENT with the field and what it may be.
absl::StatusOr<DeviceProfile> ParseProfile(std::string_view toml_text);

// Seconds that a kernel of this cost takes alone on the device. Where the op was measured, at the
// rate of the calls that are most like it. Else products fill the compute units in waves of tiles,
// so a shape that leaves the last wave nearly empty is slow; everything else takes the longer of
// arithmetic and memory traffic. `op` may be empty.
double KernelSeconds(const DeviceProfile& profile, std::string_view op, const Cost& cost,
                     Dtype dtype);

}  // namespace hbmtune::device
