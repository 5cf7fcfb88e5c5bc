#include "kernels/program/print.h"

#include <ostream>

namespace hbmtune {
namespace {

// Writes one instruction; a storage is "s7", on a stream other than 0 the line ends in "@1".
class Describer {
 public:
  explicit Describer(const Program& program) : program_(program) {}

  std::string operator()(const Allocate& a) const {
    return "allocate " + Storage(a.storage, a.storage_stride) + " " + std::to_string(a.bytes) +
           " " + std::string(Name(a.category)) +
           (a.space == MemorySpace::kPinned ? " pinned" : "") + On(a.stream);
  }
  std::string operator()(const Free& f) const {
    return "free " + Storage(f.storage, f.storage_stride);
  }
  std::string operator()(const Run& r) const {
    std::string text = "run " + std::string(r.op->name);
    for (uint32_t i = 0; i < r.inputs; ++i) text += " " + Tensor(program_.args[r.first_arg + i]);
    text += " ->";
    for (uint32_t i = 0; i < r.outputs; ++i) {
      text += " " + Tensor(program_.args[r.first_arg + r.inputs + i]);
    }
    return text + On(r.stream);
  }
  std::string operator()(const Copy& c) const {
    return "copy " + Tensor(c.from) + " -> " + Tensor(c.to) + On(c.stream);
  }
  std::string operator()(const Collective& c) const {
    return std::string(Name(c.kind)) + " " + Tensor(c.from) + " -> " + Tensor(c.to) +
           On(c.stream);
  }
  std::string operator()(const Record& r) const {
    return "record e" + std::to_string(r.event) + On(r.stream);
  }
  std::string operator()(const Wait& w) const {
    const std::string who = w.stream == kHostThread ? " by the host" : On(w.stream);
    return "wait e" + std::to_string(w.event) + who;
  }
  std::string operator()(const UseOn& u) const {
    return "use " + Storage(u.storage, u.storage_stride) + On(u.stream);
  }
  std::string operator()(const ReadScalar& r) const {
    return "read " + Tensor(r.from) + " slot " + std::to_string(r.slot);
  }
  std::string operator()(const Phase& p) const { return "phase " + std::string(Name(p.kind)); }
  std::string operator()(const Feed& f) const {
    return "feed " + Tensor(f.token_ids) + " " + Tensor(f.labels);
  }
  std::string operator()(const Repeat& r) const { return "repeat " + std::to_string(r.count); }
  std::string operator()(const End&) const { return "end"; }

 private:
  static std::string Storage(StorageId id, int32_t stride) {
    std::string text = "s" + std::to_string(id);
    return stride == 0 ? text : text + "+" + std::to_string(stride) + "i";
  }
  static std::string On(StreamId stream) {
    return stream == kComputeStream ? "" : " @" + std::to_string(stream);
  }
  std::string Tensor(ViewId id) const {
    const View& view = program_.views[id];
    std::string text = Storage(view.storage, view.storage_stride);
    if (view.offset_bytes != 0) text += "+" + std::to_string(view.offset_bytes);
    text += ToString(view.shape);
    return view.dtype == Dtype::kF32 ? text : text + std::string(Name(view.dtype));
  }

  const Program& program_;
};

}  // namespace

std::string Describe(const Program& program, const Instruction& instruction) {
  return std::visit(Describer(program), instruction);
}

void Print(const Program& program, std::ostream& out) {
  size_t depth = 0;
  for (size_t i = 0; i < program.code.size(); ++i) {
    if (i == program.first_step) out << "-- first step\n";
    if (i == program.steady_step) out << "-- steady step\n";
    if (std::holds_alternative<End>(program.code[i])) --depth;
    out << i << "  " << std::string(2 * depth, ' ') << Describe(program, program.code[i]) << '\n';
    if (std::holds_alternative<Repeat>(program.code[i])) ++depth;
  }
}

}  // namespace hbmtune
