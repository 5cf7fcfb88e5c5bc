#include "tests/kernels/lowering/moved_free.h"

#include <algorithm>

namespace hbmtune::testing {
namespace {

// The views an instruction reads or writes; empty for what is no op.
struct ViewsOf {
  const Program& program;

  template <class T>
  std::vector<ViewId> operator()(const T&) const { return {}; }
  std::vector<ViewId> operator()(const hbmtune::Run& run) const {
    const auto first = program.args.begin() + run.first_arg;
    return {first, first + run.inputs + run.outputs};
  }
  std::vector<ViewId> operator()(const Copy& copy) const { return {copy.from, copy.to}; }
  std::vector<ViewId> operator()(const Collective& c) const { return {c.from, c.to}; }
  std::vector<ViewId> operator()(const ReadScalar& read) const { return {read.from}; }
  std::vector<ViewId> operator()(const Feed& feed) const { return {feed.token_ids, feed.labels}; }
};

}  // namespace

std::vector<size_t> SteadyFrees(const Program& program) {
  std::vector<size_t> frees;
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    if (std::holds_alternative<Free>(program.code[i])) frees.push_back(i);
  }
  return frees;
}

bool IsOp(const Instruction& instruction) {
  return std::holds_alternative<hbmtune::Run>(instruction) ||
         std::holds_alternative<Copy>(instruction) ||
         std::holds_alternative<ReadScalar>(instruction) ||
         std::holds_alternative<Feed>(instruction) ||
         std::holds_alternative<Collective>(instruction);
}

bool Uses(const Program& program, const Instruction& instruction, StorageId storage) {
  const std::vector<ViewId> views = std::visit(ViewsOf{program}, instruction);
  return std::any_of(views.begin(), views.end(), [&](ViewId view) {
    return program.views[view].storage == storage;
  });
}

size_t OpBefore(const Program& program, size_t i) {
  for (size_t p = i; p-- > program.steady_step;) {
    if (IsOp(program.code[p])) return p;
  }
  return i;
}

Program Moved(Program program, size_t from, size_t to) {
  const auto begin = program.code.begin();
  std::rotate(begin + static_cast<long>(to), begin + static_cast<long>(from),
              begin + static_cast<long>(from) + 1);
  return program;
}

}  // namespace hbmtune::testing
