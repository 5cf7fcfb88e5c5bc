#include "kernels/device/modelled/chain.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "kernels/device/modelled/step_trace.h"

namespace hbmtune::device {
namespace {

using Kind = TraceOp::Kind;

bool NamesStorage(const TraceOp& op) {
  return op.kind == Kind::kAllocate || op.kind == Kind::kFree || op.kind == Kind::kUseOn;
}

struct Resident {
  uint32_t id;
  int64_t bytes;
};

// What lives when the steady step begins, in the order of its allocation.
std::vector<Resident> ResidentsOf(const StepTrace& trace) {
  std::map<uint32_t, std::pair<size_t, int64_t>> live;
  for (size_t i = 0; i < trace.steady_step; ++i) {
    const TraceOp& op = trace.ops[i];
    if (op.kind == Kind::kAllocate) live[op.id] = {i, op.bytes};
    if (op.kind == Kind::kFree) live.erase(op.id);
  }
  std::vector<std::pair<size_t, Resident>> ordered;
  for (const auto& [id, at] : live) ordered.push_back({at.first, {id, at.second}});
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Resident> residents;
  for (const auto& [at, resident] : ordered) residents.push_back(resident);
  return residents;
}

// Adds the steady step of `next` to `chain`, whose residents are `ours`.
void Append(const StepTrace& next, const std::vector<Resident>& ours, StepTrace& chain) {
  const std::vector<Resident> theirs = ResidentsOf(next);
  if (theirs.size() != ours.size()) throw std::logic_error("steps that keep different tensors");
  std::map<uint32_t, uint32_t> ids;  // of residents
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].bytes != theirs[i].bytes) throw std::logic_error("a tensor that changes its size");
    ids[theirs[i].id] = ours[i].id;
  }
  for (size_t i = next.steady_step; i < next.ops.size(); ++i) {
    TraceOp op = next.ops[i];
    if (NamesStorage(op)) {
      const auto resident = ids.find(op.id);
      op.id = resident != ids.end() ? resident->second : op.id + chain.storage_count;
    } else if (op.kind == Kind::kRecord || op.kind == Kind::kWait) {
      op.id += chain.event_count;
    } else if (op.kind == Kind::kRun) {
      op.id += static_cast<uint32_t>(chain.work.size());
    }
    chain.ops.push_back(op);
  }
  chain.storage_count += next.storage_count;
  chain.event_count += next.event_count;
  chain.work.insert(chain.work.end(), next.work.begin(), next.work.end());
}

}  // namespace

FoldedTrace Chain(const std::vector<std::shared_ptr<const FoldedTrace>>& steps) {
  StepTrace chain = Unfold(*steps.at(0));
  const std::vector<Resident> residents = ResidentsOf(chain);
  chain.ops.resize(chain.steady_step);
  for (size_t i = 1; i < steps.size(); ++i) Append(Unfold(*steps[i]), residents, chain);
  return Folded(std::move(chain));
}

}  // namespace hbmtune::device
