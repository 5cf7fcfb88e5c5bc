#include <algorithm>

#include "kernels/device/modelled/folded_trace.h"

// Two traces of the same program, one a layer longer, laid beside each other.
namespace hbmtune::device {
namespace {

using Kind = TraceOp::Kind;

// Ops compared behind an insertion to tell periods apart.
constexpr size_t kLookAhead = 64;

bool SameCost(const Cost& a, const Cost& b) {
  return a.kind == b.kind && a.flops == b.flops && a.bytes_read == b.bytes_read &&
         a.bytes_written == b.bytes_written && a.m == b.m && a.n == b.n && a.k == b.k &&
         a.kernels == b.kernels;
}

class Folder {
 public:
  Folder(const StepTrace& shorter, const StepTrace& longer, int64_t more)
      : a_(shorter), b_(longer), more_(more) {
    // Kernels get common numbers, by what they cost.
    for (const TraceKernel& kernel : shorter.work) work_a_.push_back(Intern(kernel));
    for (const TraceKernel& kernel : longer.work) work_b_.push_back(Intern(kernel));
  }

  std::optional<FoldedTrace> Run() {
    const size_t a[] = {0, a_.first_step, a_.steady_step, a_.ops.size()};
    const size_t b[] = {0, b_.first_step, b_.steady_step, b_.ops.size()};
    for (int s = 0; s < 3; ++s) {
      if (s == 1) out_.first_step = out_.runs.size();
      if (s == 2) out_.steady_step = out_.runs.size();
      if (!Section(a[s], a[s + 1], b[s], b[s + 1])) return std::nullopt;
    }
    out_.storage_count = Continue(a_.storage_count, b_.storage_count);
    out_.event_count = Continue(a_.event_count, b_.event_count);
    return std::move(out_);
  }

 private:
  uint32_t Continue(uint32_t a, uint32_t b) const {
    return static_cast<uint32_t>(a + more_ * (int64_t{b} - a));
  }
  uint32_t Intern(const TraceKernel& kernel) {
    for (size_t i = 0; i < out_.work.size(); ++i) {
      const TraceKernel& known = out_.work[i];
      if (known.op == kernel.op && known.dtype == kernel.dtype &&
          known.elements == kernel.elements && SameCost(known.cost, kernel.cost)) {
        return static_cast<uint32_t>(i);
      }
    }
    out_.work.push_back(kernel);
    return static_cast<uint32_t>(out_.work.size() - 1);
  }
  static bool Alike(const TraceOp& a, const TraceOp& b) {
    return a.kind == b.kind && a.stream == b.stream && a.detail == b.detail &&
           a.pinned == b.pinned;
  }
  bool Same(const TraceOp& a, const TraceOp& b) const {
    return Alike(a, b) && a.bytes == b.bytes &&
           (a.kind != Kind::kRun || work_a_[a.id] == work_b_[b.id]);
  }
  bool SameInLonger(const TraceOp& x, const TraceOp& y) const {
    return Alike(x, y) && x.bytes == y.bytes &&
           (x.kind != Kind::kRun || work_b_[x.id] == work_b_[y.id]);
  }

  bool Section(size_t a, size_t a_end, size_t b, size_t b_end) {
    uint32_t literal = static_cast<uint32_t>(out_.ops.size());
    size_t anchor = a;  // behind the last op that is not simply the same in both
    while (a < a_end || b < b_end) {
      if (a < a_end && b < b_end && Same(a_.ops[a], b_.ops[b])) {
        Literal(a_.ops[a++], b_.ops[b++]);
        continue;
      }
      const size_t extra = (b_end - b) - (a_end - a);
      const size_t period = b_end - b > a_end - a ? Period(a, a_end, b, b_end, extra) : 0;
      if (period > 0) {
        if (a - anchor < period || HasPhase(b, period)) return false;
        const size_t back = Back(a - anchor - period, b, period);
        a -= back, b -= back;
        out_.ops.resize(out_.ops.size() - back);
        out_.id_steps.resize(out_.ops.size());
        Flush(literal);
        Insert(a, b, period);
        anchor = a;
        b += period;
        literal = static_cast<uint32_t>(out_.ops.size());
      } else if (a < a_end && b < b_end && Alike(a_.ops[a], b_.ops[b])) {
        Linear(a_.ops[a++], b_.ops[b++]);
        anchor = a;
      } else {
        return false;
      }
    }
    Flush(literal);
    return true;
  }

  // How many of the ops from here on are the same, up to one that has nothing in common.
  size_t MatchFrom(size_t a, size_t a_end, size_t b, size_t b_end) const {
    if (a == a_end && b == b_end) return kLookAhead;
    size_t match = 0;
    for (size_t i = 0; i < kLookAhead && a + i < a_end && b + i < b_end; ++i) {
      if (!Alike(a_.ops[a + i], b_.ops[b + i])) break;
      match += Same(a_.ops[a + i], b_.ops[b + i]);
    }
    return match;
  }

  // The length of what the longer has at b and the shorter lacks at a: it repeats what stood
  // before it, and what follows it is what follows in the shorter. Of several the one that fits
  // longest; 0 for none.
  size_t Period(size_t a, size_t a_end, size_t b, size_t b_end, size_t extra) const {
    size_t best = 0, best_match = MatchFrom(a, a_end, b, b_end);
    for (size_t p = 1; p <= extra && p <= b; ++p) {
      if (!SameInLonger(b_.ops[b], b_.ops[b - p])) continue;
      size_t same = 1;
      while (same < p && SameInLonger(b_.ops[b + same], b_.ops[b - p + same])) ++same;
      if (same < p) continue;
      const size_t match = MatchFrom(a, a_end, b + p, b_end);
      if (match > best_match) best = p, best_match = match;
    }
    return best;
  }

  bool HasPhase(size_t b, size_t period) const {
    return std::any_of(b_.ops.begin() + b, b_.ops.begin() + b + period,
                       [](const TraceOp& op) { return op.kind == Kind::kPhase; });
  }

  // The stretch where periods repeat ends at b + period. The first and the last layer free and
  // use what no other does under the same sizes, so the insertion goes to its middle: so many ops
  // back, at most `room`.
  size_t Back(size_t room, size_t b, size_t period) const {
    size_t more = 0;
    while (more < 2 * room && b - period > more &&
           SameInLonger(b_.ops[b - period - 1 - more], b_.ops[b - 1 - more])) {
      ++more;
    }
    return std::min(room, more / 2);
  }

  void Push(const TraceOp& op, int32_t id_step) {
    out_.ops.push_back(op);
    out_.id_steps.push_back(id_step);
  }
  void Literal(const TraceOp& a, const TraceOp& b) {
    TraceOp op = a;
    op.id = op.kind == Kind::kRun ? work_a_[a.id] : Continue(a.id, b.id);
    Push(op, 0);
  }
  // Its size grows with the number of layers.
  void Linear(const TraceOp& a, const TraceOp& b) {
    TraceOp op = a;
    op.bytes = a.bytes + more_ * (b.bytes - a.bytes);
    op.id = op.kind == Kind::kRun ? Intern(Grown(a_.work[a.id], b_.work[b.id]))
                                  : Continue(a.id, b.id);
    Push(op, 0);
  }
  TraceKernel Grown(const TraceKernel& a, const TraceKernel& b) const {
    TraceKernel kernel = a;
    auto grow = [this](auto& value, auto from, auto to) { value = from + more_ * (to - from); };
    grow(kernel.cost.flops, a.cost.flops, b.cost.flops);
    grow(kernel.cost.bytes_read, a.cost.bytes_read, b.cost.bytes_read);
    grow(kernel.cost.bytes_written, a.cost.bytes_written, b.cost.bytes_written);
    grow(kernel.cost.m, a.cost.m, b.cost.m);
    grow(kernel.cost.n, a.cost.n, b.cost.n);
    grow(kernel.cost.k, a.cost.k, b.cost.k);
    grow(kernel.elements, a.elements, b.elements);
    return kernel;
  }
  // `period` ops of the longer at b, which repeat those before them, `more` times.
  void Insert(size_t a, size_t b, size_t period) {
    if (more_ == 0) return;
    const uint32_t begin = static_cast<uint32_t>(out_.ops.size());
    for (size_t q = 0; q < period; ++q) {
      const TraceOp& before = a_.ops[a - period + q];
      const TraceOp& same = b_.ops[b - period + q];
      const TraceOp& next = b_.ops[b + q];
      TraceOp op = before;
      int32_t step = 0;
      if (op.kind == Kind::kRun) {
        op.id = work_a_[before.id];
      } else {
        step = static_cast<int32_t>(int64_t{next.id} - same.id);
        op.id = Continue(before.id, same.id) + static_cast<uint32_t>(step);
      }
      Push(op, step);
    }
    out_.runs.push_back({begin, static_cast<uint32_t>(out_.ops.size()), more_});
  }
  void Flush(uint32_t begin) {
    for (uint32_t i = begin; i < out_.ops.size(); ++i) {
      if (i > begin && out_.ops[i].kind == Kind::kPhase) {
        out_.runs.push_back({begin, i, 1});
        begin = i;
      }
    }
    if (begin < out_.ops.size()) {
      out_.runs.push_back({begin, static_cast<uint32_t>(out_.ops.size()), 1});
    }
  }

  const StepTrace& a_;
  const StepTrace& b_;
  const int64_t more_;
  std::vector<uint32_t> work_a_, work_b_;
  FoldedTrace out_;
};

}  // namespace

std::optional<FoldedTrace> Fold(const StepTrace& shorter, const StepTrace& longer, int64_t more) {
  return Folder(shorter, longer, more).Run();
}

}  // namespace hbmtune::device
