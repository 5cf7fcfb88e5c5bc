#include "kernels/core/error.h"

#include "kernels/core/units.h"

namespace hbmtune {
namespace {

std::string Sentence(const MemoryShortage& s, const std::string& phase, const std::string& op) {
  std::string text = "out of memory: asked for " + FormatBytes(s.requested_bytes);
  if (s.segment_bytes > s.requested_bytes) {
    text += " (a segment of " + FormatBytes(s.segment_bytes) + ")";
  }
  if (!op.empty()) text += " for " + op;
  if (!phase.empty()) text += " in " + phase;
  if (s.capacity_bytes == 0) return text;  // of memory that is not the device's
  text += "; " + FormatBytes(s.free_bytes) + " free of " + FormatBytes(s.capacity_bytes) + ", " +
          FormatBytes(s.reserved_bytes) + " reserved, " + FormatBytes(s.allocated_bytes) +
          " allocated";
  return text;
}

}  // namespace

OutOfMemory::OutOfMemory(const MemoryShortage& shortage, std::string phase, std::string op)
    : std::runtime_error(Sentence(shortage, phase, op)),
      shortage_(shortage),
      phase_(std::move(phase)),
      op_(std::move(op)) {}

}  // namespace hbmtune
