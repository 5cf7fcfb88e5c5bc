#include "kernels/ops/copy/copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/walk.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("copy", args, {"x"}, {"y"});
  check.SameShape(check.out(0), check.in(0));
  if (check.in(0).dtype == check.out(0).dtype) return;
  check.AllFloating();
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 0); }

template <class Word>
void CopyWords(const TensorArg& x, const TensorArg& y, const RunOfElements& run) {
  const Word* from = x.as<Word>() + run.offset[0];
  Word* to = y.as<Word>() + run.offset[1];
  if (run.stride[0] == 1 && run.stride[1] == 1) {
    std::memmove(to, from, static_cast<size_t>(run.n) * sizeof(Word));
    return;
  }
  for (int64_t i = 0; i < run.n; ++i) to[i * run.stride[1]] = from[i * run.stride[0]];
}

void CopySameType(const TensorArg& x, const TensorArg& y, const RunOfElements& run) {
  switch (SizeOf(x.dtype)) {
    case 1: return CopyWords<uint8_t>(x, y, run);
    case 2: return CopyWords<uint16_t>(x, y, run);
    case 4: return CopyWords<uint32_t>(x, y, run);
    default: return CopyWords<uint64_t>(x, y, run);
  }
}

// Through blocks of the arithmetic type; a strided side takes one element at a time.
template <class C>
void CopyConverting(const TensorArg& x, const TensorArg& y, const RunOfElements& run) {
  const int64_t x_size = SizeOf(x.dtype), y_size = SizeOf(y.dtype);
  const char* from = x.as<char>() + run.offset[0] * x_size;
  char* to = y.as<char>() + run.offset[1] * y_size;
  C block[kElementBlock];
  for (int64_t i = 0; i < run.n; i += kElementBlock) {
    const int64_t n = std::min(kElementBlock, run.n - i);
    if (run.stride[0] == 1) {
      ReadElements(from + i * x_size, x.dtype, block, n);
    } else {
      for (int64_t j = 0; j < n; ++j) {
        ReadElements(from + (i + j) * run.stride[0] * x_size, x.dtype, block + j, 1);
      }
    }
    if (run.stride[1] == 1) {
      WriteElements(block, to + i * y_size, y.dtype, n);
    } else {
      for (int64_t j = 0; j < n; ++j) {
        WriteElements(block + j, to + (i + j) * run.stride[1] * y_size, y.dtype, 1);
      }
    }
  }
}

void Host(const OpArgs& args) {
  const TensorArg& x = args.in[0];
  const TensorArg& y = args.out[0];
  ForEachRun(x.shape, {&x.strides, &y.strides}, [&](const RunOfElements& run) {
    if (x.dtype == y.dtype) {
      CopySameType(x, y, run);
    } else if (AnyF64(args)) {
      CopyConverting<double>(x, y, run);
    } else {
      CopyConverting<float>(x, y, run);
    }
  });
}

}  // namespace

const OpKind kCopy = {"copy", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops
