#include "kernels/comm/sum.h"

#include <stdexcept>
#include <string>

#include "kernels/core/float16.h"

namespace hbmtune::comm {
namespace {

template <class T, class Load, class Store>
void Sum(const std::vector<const void*>& terms, int64_t elements, void* to, Load load,
         Store store) {
  T* out = static_cast<T*>(to);
  for (int64_t i = 0; i < elements; ++i) {
    auto sum = load(static_cast<const T*>(terms[0])[i]);
    for (size_t r = 1; r < terms.size(); ++r) sum += load(static_cast<const T*>(terms[r])[i]);
    out[i] = store(sum);
  }
}

}  // namespace

void SumInOrder(const std::vector<const void*>& terms, Dtype dtype, int64_t elements, void* to) {
  auto same = [](auto x) { return x; };
  switch (dtype) {
    case Dtype::kF32: return Sum<float>(terms, elements, to, same, same);
    case Dtype::kF64: return Sum<double>(terms, elements, to, same, same);
    case Dtype::kI64: return Sum<int64_t>(terms, elements, to, same, same);
    case Dtype::kBf16:
      return Sum<Bf16>(terms, elements, to, [](Bf16 x) { return Widen(x); }, NarrowToBf16);
    case Dtype::kF16:
      return Sum<F16>(terms, elements, to, [](F16 x) { return Widen(x); }, NarrowToF16);
    default: throw std::invalid_argument("ranks cannot sum " + std::string(Name(dtype)));
  }
}

}  // namespace hbmtune::comm
