// How an executor goes from one Program to another between two steps.

#include <limits>
#include <map>
#include <stdexcept>

#include "kernels/core/error.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/step/slot.h"

namespace hbmtune::step {
namespace {

constexpr std::string_view kPromotion = "promotion";  // the op that asks for memory here

// A storage that lives when the steady step begins, and the view by which it is named.
struct Resident {
  const Allocate* allocate;
  const View* view = nullptr;
};

// By name; those without one by their order, as #0, #1, …, since equal Programs begin equally.
using Residents = std::map<std::string, Resident, std::less<>>;

Residents ResidentsOf(const Program& program) {
  std::map<StorageId, std::pair<size_t, const Allocate*>> live;
  for (size_t i = 0; i < program.steady_step; ++i) {
    if (const auto* a = std::get_if<Allocate>(&program.code[i])) live[a->storage] = {i, a};
    if (const auto* f = std::get_if<Free>(&program.code[i])) live.erase(f->storage);
  }
  Residents residents;
  for (const auto* list : {&program.parameters, &program.state}) {
    for (const NamedView& named : *list) {
      const View& view = program.views[named.view];
      if (auto node = live.extract(view.storage)) {
        residents[named.name] = {node.mapped().second, &view};
      }
    }
  }
  std::map<size_t, const Allocate*> nameless;
  for (const auto& [storage, allocated] : live) nameless.insert(allocated);
  size_t index = 0;
  for (const auto& [position, allocate] : nameless) {
    residents["#" + std::to_string(index++)] = {allocate};
  }
  return residents;
}

// Whether both have the same bytes in the same place, so that one can be handed to the other.
bool SameMemory(const Resident& a, const Resident& b) {
  if ((a.view == nullptr) != (b.view == nullptr)) return false;
  if (a.view != nullptr && a.view->dtype != b.view->dtype) return false;
  return a.allocate->bytes == b.allocate->bytes && a.allocate->space == b.allocate->space;
}

// The tensor that the one of that name is made of: itself, or of a master what it is master of.
const View& SourceOf(std::string name, const Program& before) {
  constexpr std::string_view kMaster = ".master";
  if (name.ends_with(kMaster)) name.replace(name.size() - kMaster.size(), kMaster.size(), ".part");
  for (const NamedView& named : before.state) {
    if (named.name == name) return before.views[named.view];
  }
  throw std::logic_error("there is no " + name + " to go on from");
}

}  // namespace

void Executor::Convert(const TensorArg& from, const Allocate& allocate, const View& view,
                       Slot& slot) {
  if (allocate.space != MemorySpace::kDevice) throw std::logic_error("pinned state is adopted");
  slot = Slot{};
  try {
    slot.block = allocator_.Allocate(allocate.bytes, allocate.category, allocate.stream);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.shortage(), std::string(Name(phase_)), std::string(kPromotion));
  }
  slot.bytes = allocate.bytes;
  slot.live = true;
  if (slot.block != nullptr) slot.data = device_.Pointer(slot.block->address);
  const int64_t peak = peaks_.allocated_bytes;
  NoteAllocation();
  if (peaks_.allocated_bytes > peak) peaks_.op = kPromotion;
  const TensorArg to{slot.data, view.dtype, from.shape, from.strides};
  device_.Submit(kComputeStream, ops::kCopy, {std::span(&from, 1), std::span(&to, 1), {}});
}

void Executor::Adopt(const Program& next) {
  device_.Synchronize();
  Peaks();  // names the op of the peak while the Program that has it is here
  phase_ = PhaseKind::kOptimizer;
  position_ = peak_position_ = std::numeric_limits<size_t>::max();  // nowhere in a Program
  const Residents before = ResidentsOf(*program_), after = ResidentsOf(next);
  for (const auto& [name, old] : before) {
    if (!after.contains(name)) Execute(hbmtune::Free{old.allocate->storage, 0});
  }
  std::vector<Slot> slots(next.storage_count);
  for (const auto& [name, resident] : after) {
    const auto old = before.find(name);
    Slot& slot = slots[resident.allocate->storage];
    if (old != before.end() && SameMemory(old->second, resident)) {
      slot = Live(old->second.allocate->storage, "adoption");
    }
  }
  for (const auto& [name, resident] : after) {
    Slot& slot = slots[resident.allocate->storage];
    if (slot.live) continue;
    TensorArg from;
    Bind(SourceOf(name, *program_), from);
    Convert(from, *resident.allocate, *resident.view, slot);
    const auto old = before.find(name);
    if (old != before.end()) Execute(hbmtune::Free{old->second.allocate->storage, 0});
  }
  device_.Synchronize();
  slots_ = std::move(slots);
  program_ = &next;
}

}  // namespace hbmtune::step
