#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernels/core/category.h"
#include "kernels/core/dtype.h"
#include "kernels/core/shape.h"
#include "kernels/program/op_kind.h"

// The training step as data. A lowering builds a Program; an executor runs it on a host, HIP or
// modelled device: the same allocations in the same order on each.
namespace hbmtune {

using StorageId = uint32_t;
using ViewId = uint32_t;
using StreamId = uint8_t;
using EventId = uint32_t;

// Streams by convention; a lowering may use more.
inline constexpr StreamId kComputeStream = 0;
inline constexpr StreamId kCopyOutStream = 1;
inline constexpr StreamId kCopyInStream = 2;
inline constexpr StreamId kCommStream = 3;
inline constexpr StreamId kGatherStream = 4;  // DeepSpeed's weights; reductions: kCommStream
// Not a stream: in a Wait, the host itself waits.
inline constexpr StreamId kHostThread = 255;

enum class MemorySpace : uint8_t { kDevice, kPinned };

// How a tensor lies in a storage. Inside a Repeat the storage of iteration i is
// storage + i × storage_stride (saved activations of layer i, its weights, …).
struct View {
  StorageId storage = 0;
  int32_t storage_stride = 0;
  Dtype dtype = Dtype::kF32;
  int64_t offset_bytes = 0;
  Dims shape;
  Dims strides;

  bool operator==(const View&) const = default;
};

enum class PhaseKind : uint8_t {
  kSetup,      // weights, optimizer state that exists before the first step
  kForward,
  kLoss,
  kBackward,
  kReduce,     // collectives after the backward pass
  kClip,
  kOptimizer,
  kZeroGrad,
  kEvaluate,
  kSave,       // weights that are partitioned are gathered to be written
};
template <>
struct EnumNames<PhaseKind> {
  static constexpr std::array<std::string_view, 10> kNames = {
      "setup", "forward", "loss", "backward", "reduce", "clip", "optimizer", "zero-grad",
      "evaluate", "save"};
};

enum class CollectiveKind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
template <>
struct EnumNames<CollectiveKind> {
  static constexpr std::array<std::string_view, 4> kNames = {"all-reduce", "reduce-scatter",
                                                             "all-gather", "broadcast"};
};

// --- Instructions ---------------------------------------------------------------------------

struct Allocate {
  StorageId storage;
  int32_t storage_stride;
  int64_t bytes;
  Category category;
  MemorySpace space;
  StreamId stream;
};
struct Free {
  StorageId storage;
  int32_t storage_stride;
};
// Args are views program.args[first_arg … first_arg + inputs + outputs), inputs first.
struct Run {
  const OpKind* op;
  uint32_t first_arg;
  uint16_t inputs;
  uint16_t outputs;
  uint32_t attrs;  // index in program.attrs
  StreamId stream;
};
// Between device and pinned memory, either way; same dtype and element count, both dense.
struct Copy {
  ViewId from;
  ViewId to;
  StreamId stream;
};
struct Collective {
  CollectiveKind kind;
  ViewId from;
  ViewId to;      // == from: in place
  uint32_t root;  // broadcast only
  StreamId stream;
};
struct Record {
  EventId event;
  StreamId stream;
};
// The stream waits for the event, or the host does; stream and event of the same Program.
struct Wait {
  EventId event;
  StreamId stream;
};
// The block is also used on `stream`: freed memory is reusable only when that work is done.
struct UseOn {
  StorageId storage;
  int32_t storage_stride;
  StreamId stream;
};
// The host needs a number (loss scale, overflow, norm): a synchronisation with a cost. On the
// modelled device the value comes from a stated scenario.
struct ReadScalar {
  ViewId from;
  uint32_t slot;
};
struct Phase {
  PhaseKind kind;
};
// The next micro-batch: token ids and labels, both [micro_batch, seq_len] int64, are filled.
struct Feed {
  ViewId token_ids;
  ViewId labels;
};
// Runs up to the matching End `count` times. Repeats nest at most two deep: micro-steps (whose
// storages are the same ids each time) around layers (whose ids advance by their strides).
struct Repeat {
  int64_t count;
};
struct End {};

using Instruction = std::variant<Allocate, Free, Run, Copy, Collective, Record, Wait, UseOn,
                                 ReadScalar, Phase, Feed, Repeat, End>;

// What a number read from the device means to the controller of the step.
enum class ScalarSlot : uint32_t { kLoss = 0, kGradNorm = 1, kFoundInf = 2 };

// A tensor that exists before and after every step, by name: "model.layers.0.mlp.up_proj.weight",
// with a suffix for what belongs to it (".grad", ".exp_avg", ".master").
struct NamedView {
  std::string name;
  ViewId view;
};

// Instructions in three sections: setup [0, first_step), the first optimizer step
// [first_step, steady_step), and the steady step [steady_step, end), which leaves exactly the
// live storages that it found, so that it can run any number of times.
struct Program {
  std::vector<Instruction> code;
  size_t first_step = 0;
  size_t steady_step = 0;

  std::vector<View> views;
  std::vector<ViewId> args;
  std::vector<Attrs> attrs;
  uint32_t storage_count = 0;
  uint32_t event_count = 0;

  std::vector<NamedView> parameters;  // in the model's order
  std::vector<NamedView> state;       // gradients, moments, masters, buffers

  // Empty, with its memory kept for the next Program.
  void Clear();
};

// Bytes that a dense view covers.
int64_t ByteCount(const View& view);

}  // namespace hbmtune
