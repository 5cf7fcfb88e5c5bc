#include "kernels/device/modelled/step_trace.h"

#include <map>
#include <stdexcept>

namespace hbmtune::device {
namespace {

TraceWork WorkOf(CostClass kind) {
  switch (kind) {
    case CostClass::kMatmul: return TraceWork::kMatmul;
    case CostClass::kAttention: return TraceWork::kAttention;
    case CostClass::kMemory: return TraceWork::kMemory;
    case CostClass::kOptimizer: return TraceWork::kOptimizer;
    case CostClass::kReduction: return TraceWork::kReduction;
  }
  return TraceWork::kMemory;
}

// Walks the instructions, Repeats written out, and keeps what is known of each storage.
class Tracer {
 public:
  explicit Tracer(const Program& program)
      : program_(program), storages_(program.storage_count), args_(8) {}

  StepTrace Trace() {
    trace_.storage_count = program_.storage_count;
    trace_.event_count = program_.event_count;
    for (position_ = 0; position_ < program_.code.size(); ++position_) {
      if (position_ == program_.first_step) trace_.first_step = trace_.ops.size();
      if (position_ == program_.steady_step) trace_.steady_step = trace_.ops.size();
      std::visit([this](const auto& instruction) { Take(instruction); },
                 program_.code[position_]);
    }
    return std::move(trace_);
  }

 private:
  using Kind = TraceOp::Kind;

  StorageId Advance(StorageId storage, int32_t stride) const {
    if (stride == 0 || loops_.empty()) return storage;
    return static_cast<StorageId>(storage + stride * loops_.back().iteration);
  }
  TraceOp& Push(Kind kind, StreamId stream, uint32_t id = 0) {
    trace_.ops.push_back({kind, stream, 0, false, id, 0});
    return trace_.ops.back();
  }

  void Take(const Allocate& a) {
    const StorageId storage = Advance(a.storage, a.storage_stride);
    TraceOp& op = Push(Kind::kAllocate, a.stream, storage);
    op.detail = static_cast<uint8_t>(a.category);
    op.pinned = a.space == MemorySpace::kPinned;
    op.bytes = a.bytes;
    storages_[storage] = {a.bytes, op.detail, op.pinned};
  }
  void Take(const Free& f) {
    const StorageId storage = Advance(f.storage, f.storage_stride);
    TraceOp& op = Push(Kind::kFree, 0, storage);
    op.detail = storages_[storage].category;
    op.pinned = storages_[storage].pinned;
    op.bytes = storages_[storage].bytes;
  }
  void Take(const Run& run);
  void Take(const Copy& copy) {
    const View& from = program_.views[copy.from];
    const bool out = !storages_[Advance(from.storage, from.storage_stride)].pinned;
    Push(out ? Kind::kCopyOut : Kind::kCopyIn, copy.stream).bytes = ByteCount(from);
  }
  void Take(const Collective& c) {
    TraceOp& op = Push(Kind::kCollective, c.stream);
    op.detail = static_cast<uint8_t>(c.kind);
    op.bytes = std::max(ByteCount(program_.views[c.from]), ByteCount(program_.views[c.to]));
  }
  void Take(const Record& r) { Push(Kind::kRecord, r.stream, r.event); }
  void Take(const Wait& w) { Push(Kind::kWait, w.stream, w.event); }
  void Take(const UseOn& u) {
    Push(Kind::kUseOn, u.stream, Advance(u.storage, u.storage_stride));
  }
  void Take(const ReadScalar&) { Push(Kind::kReadScalar, kComputeStream); }
  void Take(const Phase& p) {
    Push(Kind::kPhase, 0).detail = static_cast<uint8_t>(p.kind);
  }
  void Take(const Feed&) {}
  void Take(const Repeat& repeat) {
    if (repeat.count < 1) throw std::invalid_argument("a Repeat of nothing");
    loops_.push_back({position_, repeat.count, 0});
  }
  void Take(const End&) {
    Loop& loop = loops_.back();
    if (++loop.iteration < loop.count) {
      position_ = loop.begin;
    } else {
      loops_.pop_back();
    }
  }

  struct Loop {
    size_t begin;
    int64_t count;
    int64_t iteration;
  };

  struct StorageFacts {
    int64_t bytes = 0;
    uint8_t category = 0;
    bool pinned = false;
  };

  const Program& program_;
  std::vector<StorageFacts> storages_;  // by id: of the last allocation under it
  std::vector<TensorArg> args_;
  std::vector<Loop> loops_;
  // Kernels by op and argument shapes: a model has a few dozen.
  std::map<std::vector<int64_t>, uint32_t> kernels_;
  std::vector<int64_t> key_;
  size_t position_ = 0;
  StepTrace trace_;
};

void Tracer::Take(const Run& run) {
  const size_t count = size_t{run.inputs} + run.outputs;
  bool on_cpu = count > 0;
  key_.clear();
  key_.push_back(reinterpret_cast<intptr_t>(run.op));
  for (size_t i = 0; i < count; ++i) {
    const View& view = program_.views[program_.args[run.first_arg + i]];
    on_cpu = on_cpu && storages_[Advance(view.storage, view.storage_stride)].pinned;
    key_.push_back(static_cast<int64_t>(view.dtype) * 8 + static_cast<int64_t>(view.shape.rank()));
    key_.insert(key_.end(), view.shape.begin(), view.shape.end());
  }
  key_.push_back(on_cpu);
  auto [found, added] = kernels_.try_emplace(key_, static_cast<uint32_t>(trace_.work.size()));
  if (added) {
    if (args_.size() < count) args_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const View& view = program_.views[program_.args[run.first_arg + i]];
      args_[i] = TensorArg{nullptr, view.dtype, view.shape, view.strides};
    }
    const OpArgs args{std::span(args_.data(), run.inputs),
                      std::span(args_.data() + run.inputs, run.outputs),
                      program_.attrs[run.attrs]};
    const double elements = run.outputs > 0 ? args_[run.inputs].elements() : 0;
    trace_.work.push_back({run.op->name, run.op->cost(args),
                           count > 0 ? args_[0].dtype : Dtype::kF32, elements});
  }
  TraceOp& op = Push(Kind::kRun, run.stream, found->second);
  const CostClass kind = trace_.work[found->second].cost.kind;
  op.detail = static_cast<uint8_t>(on_cpu ? TraceWork::kCpu : WorkOf(kind));
}

}  // namespace

StepTrace TraceOf(const Program& program) { return Tracer(program).Trace(); }

}  // namespace hbmtune::device
