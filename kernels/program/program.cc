#include "kernels/program/program.h"

namespace hbmtune {

void Program::Clear() {
  code.clear();
  views.clear();
  args.clear();
  attrs.clear();
  parameters.clear();
  state.clear();
  first_step = steady_step = 0;
  storage_count = event_count = 0;
}

int64_t ByteCount(const View& view) { return ElementCount(view.shape) * SizeOf(view.dtype); }

}  // namespace hbmtune
