#include "kernels/program/close_step.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <vector>

namespace hbmtune {
namespace {

struct Life {
  size_t begin;  // position of its Allocate
  int64_t bytes;
};
using Live = std::map<StorageId, Life>;

void Follow(const Program& program, size_t begin, size_t end, Live& live) {
  for (size_t i = begin; i < end; ++i) {
    if (const auto* a = std::get_if<Allocate>(&program.code[i])) live[a->storage] = {i, a->bytes};
    if (const auto* f = std::get_if<Free>(&program.code[i])) live.erase(f->storage);
  }
}

// Those of `a` that are not the same storage in `b`, in the order of their allocation.
std::vector<std::pair<StorageId, Life>> OnlyIn(const Live& a, const Live& b) {
  std::vector<std::pair<StorageId, Life>> only;
  for (const auto& [id, life] : a) {
    const auto other = b.find(id);
    if (other == b.end() || other->second.begin != life.begin) only.emplace_back(id, life);
  }
  std::sort(only.begin(), only.end(),
            [](const auto& x, const auto& y) { return x.second.begin < y.second.begin; });
  return only;
}

// Gives storages other ids from their Allocate on.
class Renamer {
 public:
  explicit Renamer(Program& program) : program_(program) {}

  void Add(StorageId from, size_t begin, StorageId to) { names_[from] = {begin, to}; }

  void Run() {
    for (position_ = program_.steady_step; position_ < program_.code.size(); ++position_) {
      std::visit([this](auto& instruction) { Rename(instruction); }, program_.code[position_]);
    }
  }

 private:
  struct Name {
    size_t begin;
    StorageId to;
  };

  StorageId New(StorageId storage) const {
    const auto name = names_.find(storage);
    return name == names_.end() || position_ < name->second.begin ? storage : name->second.to;
  }
  // A view may be shared with the first step, where its id means another tensor.
  ViewId NewView(ViewId view) {
    const StorageId storage = New(program_.views[view].storage);
    if (storage == program_.views[view].storage) return view;
    const auto [found, added] =
        views_.try_emplace(view, static_cast<ViewId>(program_.views.size()));
    if (added) {
      View renamed = program_.views[view];
      renamed.storage = storage;
      program_.views.push_back(renamed);
    }
    return found->second;
  }

  void Rename(Allocate& a) { a.storage = New(a.storage); }
  void Rename(Free& f) { f.storage = New(f.storage); }
  void Rename(UseOn& u) { u.storage = New(u.storage); }
  void Rename(hbmtune::Run& run) {
    const size_t count = size_t{run.inputs} + run.outputs;
    for (size_t i = 0; i < count; ++i) {
      ViewId& view = program_.args[run.first_arg + i];
      view = NewView(view);
    }
  }
  void Rename(Copy& copy) { copy.from = NewView(copy.from), copy.to = NewView(copy.to); }
  void Rename(Collective& c) { c.from = NewView(c.from), c.to = NewView(c.to); }
  void Rename(ReadScalar& read) { read.from = NewView(read.from); }
  void Rename(Feed& feed) {
    feed.token_ids = NewView(feed.token_ids), feed.labels = NewView(feed.labels);
  }
  void Rename(Repeat&) { throw std::logic_error("a step with a Repeat is not closed"); }
  template <class T>
  void Rename(T&) {}

  Program& program_;
  std::map<StorageId, Name> names_;
  std::map<ViewId, ViewId> views_;
  size_t position_ = 0;
};

}  // namespace

void CloseSteadyStep(Program& program) {
  Live before;
  Follow(program, 0, program.steady_step, before);
  Live after = before;
  Follow(program, program.steady_step, program.code.size(), after);
  const auto gone = OnlyIn(before, after), made = OnlyIn(after, before);
  if (gone.size() != made.size()) throw std::logic_error("a step that keeps more than it found");
  std::map<StorageId, size_t> ends;  // of what is gone
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    const auto* f = std::get_if<Free>(&program.code[i]);
    if (f != nullptr) ends.try_emplace(f->storage, i);
  }
  Renamer renamer(program);
  for (size_t i = 0; i < gone.size(); ++i) {
    const auto& [old_id, old_life] = gone[i];
    const auto& [new_id, new_life] = made[i];
    if (old_life.bytes != new_life.bytes || ends.at(old_id) > new_life.begin) {
      throw std::logic_error("storage " + std::to_string(new_id) + " does not replace storage " +
                             std::to_string(old_id));
    }
    renamer.Add(new_id, new_life.begin, old_id);
  }
  renamer.Run();
}

}  // namespace hbmtune
