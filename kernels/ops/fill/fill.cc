#include "kernels/ops/fill/fill.h"

#include <algorithm>
#include <cstring>

#include "kernels/ops/support/check.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"
#include "kernels/ops/support/walk.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) { const Check check("fill", args, {}, {"y"}); }

Cost CostOf(const OpArgs& args) { return StreamCost(args, 0); }

// The bytes of one element of the dtype.
void Encode(Dtype dtype, double value, char* bytes) {
  switch (dtype) {
    case Dtype::kI64: {
      const auto integer = static_cast<int64_t>(value);
      std::memcpy(bytes, &integer, sizeof integer);
      return;
    }
    case Dtype::kI32: {
      const auto integer = static_cast<int32_t>(value);
      std::memcpy(bytes, &integer, sizeof integer);
      return;
    }
    case Dtype::kU8: *bytes = static_cast<char>(static_cast<uint8_t>(value)); return;
    default: WriteElements(&value, bytes, dtype, 1);
  }
}

template <class Word>
void FillWords(const TensorArg& y, const char* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  ForEachRun(y.shape, {&y.strides}, [&](const RunOfElements& run) {
    Word* out = y.as<Word>() + run.offset[0];
    if (run.stride[0] == 1) {
      std::fill_n(out, run.n, word);
    } else {
      for (int64_t i = 0; i < run.n; ++i) out[i * run.stride[0]] = word;
    }
  });
}

void Host(const OpArgs& args) {
  const TensorArg& y = args.out[0];
  char bytes[8] = {};
  Encode(y.dtype, args.attrs.As<FillAttrs>().value, bytes);
  switch (SizeOf(y.dtype)) {
    case 1: return FillWords<uint8_t>(y, bytes);
    case 2: return FillWords<uint16_t>(y, bytes);
    case 4: return FillWords<uint32_t>(y, bytes);
    default: return FillWords<uint64_t>(y, bytes);
  }
}

}  // namespace

const OpKind kFill = {"fill", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops
