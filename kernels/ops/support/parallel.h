#pragma once

#include <algorithm>
#include <cstdint>

namespace hbmtune::ops {

// Work on fewer elements than this stays in the calling thread: about what it takes to wake the
// others (some microseconds; far more on a machine that has other work).
inline constexpr int64_t kSerialElements = 16384;

// Calls fn(i) for i in [0, count) on OpenMP's threads; each i works on about `elements` elements.
// `fn` must not throw. Work is cut into the same pieces for any number of threads: results may
// depend on i, never on who ran it.
template <class Fn>
void ParallelFor(int64_t count, int64_t elements, Fn&& fn) {
#pragma omp parallel for schedule(static) if (count > 1 && count * elements >= kSerialElements)
  for (int64_t i = 0; i < count; ++i) fn(i);
}

// The same for pieces of unequal cost, each well worth a thread.
template <class Fn>
void ParallelForDynamic(int64_t count, Fn&& fn) {
#pragma omp parallel for schedule(dynamic, 1) if (count > 1)
  for (int64_t i = 0; i < count; ++i) fn(i);
}

// Calls fn(begin, end) for consecutive blocks of `block` items out of `count`; each item is about
// `elements` elements.
template <class Fn>
void ParallelBlocks(int64_t count, int64_t block, int64_t elements, Fn&& fn) {
  ParallelFor((count + block - 1) / block, block * elements, [&](int64_t i) {
    fn(i * block, std::min((i + 1) * block, count));
  });
}

}  // namespace hbmtune::ops
