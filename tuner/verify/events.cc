#include "tuner/verify/events.h"

#include <map>
#include <utility>
#include <variant>

namespace hbmtune::tuner {
namespace {

std::string PhaseName(PhaseKind kind) {
  switch (kind) {
    case PhaseKind::kLoss: return "forward";
    case PhaseKind::kZeroGrad: return "zero_grad";
    case PhaseKind::kEvaluate: return "eval";
    default: return std::string(Name(kind));
  }
}

// Walks a Program, repeats written out, and numbers its allocations.
class EventWalk {
 public:
  explicit EventWalk(const Program& program) : program_(program) {}

  std::vector<PhaseEvents> Walk() {
    for (at_ = 0; at_ < program_.code.size(); ++at_) {
      if (at_ == program_.first_step || at_ == program_.steady_step) ++step_;
      std::visit([this](const auto& instruction) { Take(instruction); }, program_.code[at_]);
    }
    return std::move(phases_);
  }

 private:
  struct Loop {
    size_t begin;
    int64_t count;
    int64_t iteration;
  };

  StorageId Advance(StorageId storage, int32_t stride) const {
    if (stride == 0 || loops_.empty()) return storage;
    return static_cast<StorageId>(storage + stride * loops_.back().iteration);
  }

  template <class T>
  void Take(const T&) {}
  void Take(const Phase& phase) {
    if (phase.kind == PhaseKind::kLoss) return;
    phases_.push_back({PhaseName(phase.kind), step_, {}});
  }
  void Take(const Run& run) {
    if (phases_.empty()) return;
    // What was just allocated is filled by this op.
    std::vector<MemoryEvent>& events = phases_.back().events;
    for (size_t i = events.size(); i-- > 0 && events[i].op.empty();) events[i].op = run.op->name;
  }
  void Take(const Allocate& a) {
    if (a.space == MemorySpace::kPinned || phases_.empty()) return;
    live_[Advance(a.storage, a.storage_stride)] = {next_, a.bytes};
    phases_.back().events.push_back({a.bytes, next_++, ""});
  }
  void Take(const Free& f) {
    auto found = live_.find(Advance(f.storage, f.storage_stride));
    if (found == live_.end()) return;
    phases_.back().events.push_back({-found->second.second, found->second.first, "free"});
    live_.erase(found);
  }
  void Take(const Repeat& repeat) { loops_.push_back({at_, repeat.count, 0}); }
  void Take(const End&) {
    Loop& loop = loops_.back();
    if (++loop.iteration < loop.count) {
      at_ = loop.begin;
    } else {
      loops_.pop_back();
    }
  }

  const Program& program_;
  size_t at_ = 0;
  int64_t step_ = 0;
  int64_t next_ = 0;
  std::vector<Loop> loops_;
  std::map<StorageId, std::pair<int64_t, int64_t>> live_;  // to number and bytes
  std::vector<PhaseEvents> phases_;
};

}  // namespace

std::vector<PhaseEvents> EventsOf(const Program& program) { return EventWalk(program).Walk(); }

}  // namespace hbmtune::tuner
