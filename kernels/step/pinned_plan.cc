#include "kernels/step/pinned_plan.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "kernels/memory/pinned_pool.h"

namespace hbmtune::step {
namespace {

// A walk over the Program that only takes and returns slices.
class Walk {
 public:
  explicit Walk(const Program& program) : program_(program), pool_(int64_t{1} << 60, nullptr) {}

  int64_t Run() {
    for (position_ = 0; position_ < program_.code.size(); ++position_) {
      std::visit([this](const auto& instruction) { On(instruction); }, program_.code[position_]);
    }
    return most_bytes_;
  }

 private:
  struct Loop {
    size_t begin;
    int64_t count, iteration;
  };

  StorageId Advance(StorageId storage, int32_t stride) const {
    if (stride == 0 || loops_.empty()) return storage;
    return static_cast<StorageId>(storage + stride * loops_.back().iteration);
  }
  void On(const Allocate& a) {
    if (a.space != MemorySpace::kPinned) return;
    const auto slice = pool_.Take(a.bytes);
    most_bytes_ = std::max(most_bytes_, slice.offset + slice.bytes);
    slices_[Advance(a.storage, a.storage_stride)] = slice;
  }
  void On(const Free& f) {
    auto found = slices_.find(Advance(f.storage, f.storage_stride));
    if (found == slices_.end()) return;
    pool_.Return(found->second);
    slices_.erase(found);
  }
  void On(const Repeat& r) { loops_.push_back({position_, r.count, 0}); }
  void On(const End&) {
    Loop& loop = loops_.back();
    if (++loop.iteration < loop.count) {
      position_ = loop.begin;
    } else {
      loops_.pop_back();
    }
  }
  template <class T>
  void On(const T&) {}

  const Program& program_;
  memory::PinnedPool pool_;
  std::unordered_map<StorageId, memory::PinnedPool::Slice> slices_;
  std::vector<Loop> loops_;
  size_t position_ = 0;
  int64_t most_bytes_ = 0;
};

}  // namespace

int64_t PinnedBytes(const Program& program) {
  const bool any = std::any_of(program.code.begin(), program.code.end(), [](const auto& i) {
    const auto* allocate = std::get_if<Allocate>(&i);
    return allocate != nullptr && allocate->space == MemorySpace::kPinned;
  });
  return any ? Walk(program).Run() : 0;
}

}  // namespace hbmtune::step
