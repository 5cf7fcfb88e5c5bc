#include "kernels/ops/support/gemm_bf16.h"

#include <array>
#include <dnnl.hpp>
#include <map>

namespace hbmtune::ops {
namespace {

using DnnlDtype = dnnl::memory::data_type;

DnnlDtype DtypeOf(const Matrix& matrix) {
  return matrix.dtype == Dtype::kBf16 ? DnnlDtype::bf16 : DnnlDtype::f32;
}

dnnl::memory::desc Describe(const Matrix& matrix, int64_t rows, int64_t columns) {
  return {{rows, columns}, DtypeOf(matrix), {matrix.row_stride, matrix.column_stride}};
}

struct Layouts {
  dnnl::memory::desc a, b, c;
};

// alpha · (a·b + beta/alpha · c): in this order oneDNN has fast code for both.
dnnl::primitive_attr AfterProduct(const Product& p) {
  dnnl::post_ops operations;
  if (p.beta != 0) operations.append_sum(static_cast<float>(p.beta / p.alpha));
  if (p.alpha != 1) {
    const auto alpha = static_cast<float>(p.alpha);
#if DNNL_VERSION_MAJOR >= 3
    operations.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0.0f);
#else
    operations.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, alpha, 0.0f);
#endif
  }
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(operations);
  return attributes;
}

dnnl::matmul Create(const Layouts& layouts, const dnnl::primitive_attr& attributes,
                    const dnnl::engine& engine) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul(dnnl::matmul::primitive_desc(engine, layouts.a, layouts.b, layouts.c,
                                                   attributes));
#else
  return dnnl::matmul(dnnl::matmul::primitive_desc(
      dnnl::matmul::desc(layouts.a, layouts.b, layouts.c), attributes, engine));
#endif
}

struct CachedProduct {
  Layouts layouts;
  dnnl::matmul primitive;
};

// One thread's products: making one takes 0.2 ms, a training step has some thirty.
class Products {
 public:
  void Run(const Product& p) {
    const CachedProduct& cached = Find(p);
    dnnl::memory a(cached.layouts.a, engine_, p.a.data);
    dnnl::memory b(cached.layouts.b, engine_, p.b.data);
    dnnl::memory c(cached.layouts.c, engine_, p.c.data);
    cached.primitive.execute(stream_,
                             {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream_.wait();
  }

 private:
  using Key = std::array<double, 11>;

  const CachedProduct& Find(const Product& p) {
    const auto number = [](int64_t value) { return static_cast<double>(value); };
    const Key key = {number(p.m), number(p.n), number(p.k), p.alpha, p.beta,
                     number(p.a.row_stride), number(p.a.column_stride), number(p.b.row_stride),
                     number(p.b.column_stride), number(p.c.row_stride),
                     number(static_cast<int64_t>(p.c.dtype))};
    const auto found = cache_.find(key);
    if (found != cache_.end()) return found->second;
    if (cache_.size() >= kMostProducts) cache_.clear();
    const Layouts layouts = {Describe(p.a, p.m, p.k), Describe(p.b, p.k, p.n),
                             Describe(p.c, p.m, p.n)};
    return cache_.emplace(key, CachedProduct{layouts, Create(layouts, AfterProduct(p), engine_)})
        .first->second;
  }

  static constexpr size_t kMostProducts = 1024;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, CachedProduct> cache_;
};

bool HasBf16() {
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  static const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & kNeeded) == kNeeded;  // later sets have the bits of earlier ones
}

}  // namespace

bool MultipliesBf16(const Product& p) {
  return p.a.dtype == Dtype::kBf16 && p.b.dtype == Dtype::kBf16 && p.alpha != 0 &&
         (p.c.dtype == Dtype::kBf16 || p.c.dtype == Dtype::kF32) && HasBf16();
}

void MultiplyBf16(const Product& product) {
  static thread_local Products products;
  products.Run(product);
}

}  // namespace hbmtune::ops
