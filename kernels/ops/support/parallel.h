#pragma once

#include <cstdint>

namespace hbmtune::ops {

// Calls fn(i) for i in [0, count) on OpenMP's threads. `fn` must not throw. Work is cut into the
// same pieces for any number of threads: results may depend on i, never on who ran it.
template <class Fn>
void ParallelFor(int64_t count, Fn&& fn) {
  if (count == 1) {
    fn(int64_t{0});
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) fn(i);
}

// The same in an order of availability, for pieces of unequal cost.
template <class Fn>
void ParallelForDynamic(int64_t count, Fn&& fn) {
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < count; ++i) fn(i);
}

// Calls fn(begin, end) for consecutive blocks of `block` items out of `count`.
template <class Fn>
void ParallelBlocks(int64_t count, int64_t block, Fn&& fn) {
  ParallelFor((count + block - 1) / block, [&](int64_t i) {
    const int64_t begin = i * block;
    fn(begin, begin + block < count ? begin + block : count);
  });
}

}  // namespace hbmtune::ops
