#include "kernels/program/program.h"

namespace hbmtune {

int64_t ByteCount(const View& view) { return ElementCount(view.shape) * SizeOf(view.dtype); }

}  // namespace hbmtune
