// The two kinds of attention against each other and against the definition, over several tiles and
// at lengths that fit nothing.

#include <cmath>

#include "kernels/ops/attention_materialised/attention_materialised.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/support/philox.h"
#include "tests/kernels/ops/harness.h"

namespace hbmtune::ops {
namespace {

using testing::Close;
using testing::HostTensor;
using testing::RunOp;

struct Mask {
  const char* name;
  int64_t length;
  AttentionAttrs attrs;
};

class AttentionKinds : public ::testing::TestWithParam<Mask> {
 protected:
  static constexpr int64_t kHeads = 4, kKvHeads = 2, kWidth = 5;
  int64_t length_ = GetParam().length;
  Dims q_shape_ = {1, length_, kHeads, kWidth}, k_shape_ = {1, length_, kKvHeads, kWidth};
  Dims square_ = {1, kHeads, length_, length_}, rows_ = {1, kHeads, length_};
  HostTensor q_ = HostTensor::Random(Dtype::kF64, q_shape_, 1);
  HostTensor k_ = HostTensor::Random(Dtype::kF64, k_shape_, 2);
  HostTensor v_ = HostTensor::Random(Dtype::kF64, k_shape_, 3);
  HostTensor grad_ = HostTensor::Random(Dtype::kF64, q_shape_, 4);
  HostTensor key_ = HostTensor::Ints({2}, {5, 6});
  HostTensor starts_ = Starts(length_);

  // Documents that end within a tile, with a tile, and beyond the next.
  static HostTensor Starts(int64_t length) {
    std::vector<int64_t> starts;
    for (int64_t s = 0; s < length; ++s) starts.push_back(s < 17 ? 0 : s < 64 ? 17 : 64);
    for (int64_t s = 299; s < length; ++s) starts[static_cast<size_t>(s)] = 299;
    return HostTensor::Ints({1, length}, starts);
  }
  Attrs attrs_ = Attrs::Of(GetParam().attrs);

  std::vector<TensorArg> WithKey(std::vector<TensorArg> in) const {
    if (GetParam().attrs.dropout > 0) in.push_back(key_.arg());
    if (GetParam().attrs.documents != 0) in.push_back(starts_.arg());
    return in;
  }

  // Row s of head h by the definition.
  std::vector<double> Row(int64_t h, int64_t s) const {
    const AttentionAttrs& attrs = GetParam().attrs;
    std::vector<double> weights(static_cast<size_t>(length_)), out(kWidth);
    double sum = 0;
    for (int64_t t = 0; t < length_; ++t) {
      if ((attrs.causal && t > s) || (attrs.window > 0 && s - t >= attrs.window)) continue;
      if (attrs.documents != 0 && starts_.At(t) != starts_.At(s)) continue;
      double score = 0;
      for (int64_t i = 0; i < kWidth; ++i) score += Q(h, s, i) * Kv(k_, h, t, i);
      weights[static_cast<size_t>(t)] = std::exp(attrs.scale * score);
      sum += weights[static_cast<size_t>(t)];
    }
    const int64_t row = (h * length_ + s) * ((length_ + 3) / 4 * 4);
    std::vector<double> kept(static_cast<size_t>(length_), 1.0);
    if (attrs.dropout > 0) {
      FillDropoutMultipliers(
          DropoutMask::Of(key_.arg().as<int64_t>(), attrs.site, attrs.dropout),
          static_cast<uint64_t>(row), kept.data(), length_);
    }
    for (int64_t t = 0; t < length_; ++t) {
      const double p = weights[static_cast<size_t>(t)] / sum * kept[static_cast<size_t>(t)];
      for (int64_t i = 0; i < kWidth; ++i) out[static_cast<size_t>(i)] += p * Kv(v_, h, t, i);
    }
    return out;
  }
  double Q(int64_t h, int64_t s, int64_t i) const {
    return q_.At((s * kHeads + h) * kWidth + i);
  }
  double Kv(const HostTensor& tensor, int64_t h, int64_t t, int64_t i) const {
    return tensor.At((t * kKvHeads + h / 2) * kWidth + i);
  }
};

TEST_P(AttentionKinds, AreTheDefinition) {
  HostTensor o(Dtype::kF64, q_shape_), lse(Dtype::kF64, rows_);
  RunOp(kAttentionTiled, WithKey({q_.arg(), k_.arg(), v_.arg()}), {o.arg(), lse.arg()}, attrs_);
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t s = 0; s < length_; s += 7) {
      std::vector<double> actual;
      for (int64_t i = 0; i < kWidth; ++i) actual.push_back(o.At((s * kHeads + h) * kWidth + i));
      EXPECT_TRUE(Close(actual, Row(h, s), 1e-12)) << "head " << h << ", query " << s;
    }
  }
}

void Append(std::vector<double>& values, const HostTensor& tensor) {
  for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(tensor.At(i));
}

TEST_P(AttentionKinds, AreOneFunction) {
  HostTensor o(Dtype::kF64, q_shape_), dq = o, dk(Dtype::kF64, k_shape_), dv = dk;
  HostTensor lse(Dtype::kF64, rows_), delta = lse;
  RunOp(kAttentionTiled, WithKey({q_.arg(), k_.arg(), v_.arg()}), {o.arg(), lse.arg()}, attrs_);
  RunOp(kAttentionTiledBackward,
        WithKey({grad_.arg(), q_.arg(), k_.arg(), v_.arg(), o.arg(), lse.arg()}),
        {dq.arg(), dk.arg(), dv.arg(), delta.arg()}, attrs_);
  HostTensor o2 = o, dq2 = dq, dk2 = dk, dv2 = dv, p(Dtype::kF64, square_), ds = p;
  RunOp(kAttentionMaterialised, WithKey({q_.arg(), k_.arg(), v_.arg()}), {o2.arg(), p.arg()},
        attrs_);
  RunOp(kAttentionMaterialisedBackward,
        WithKey({grad_.arg(), q_.arg(), k_.arg(), v_.arg(), p.arg()}),
        {dq2.arg(), dk2.arg(), dv2.arg(), ds.arg()}, attrs_);
  EXPECT_TRUE(Close(o.Values(), o2.Values(), 1e-12));
  // Together: where a query sees one key only, dq and dk are zero but for rounding.
  std::vector<double> gradients, gradients2;
  for (const HostTensor* tensor : {&dq, &dk, &dv}) Append(gradients, *tensor);
  for (const HostTensor* tensor : {&dq2, &dk2, &dv2}) Append(gradients2, *tensor);
  EXPECT_TRUE(Close(gradients, gradients2, 1e-12));
}

INSTANTIATE_TEST_SUITE_P(
    Masks, AttentionKinds,
    ::testing::Values(Mask{"causal", 301, {.scale = 0.5}},
                      Mask{"full", 301, {.scale = 0.5, .causal = 0}},
                      Mask{"window", 301, {.scale = 0.5, .window = 77}},
                      Mask{"window_of_one", 70, {.scale = 0.5, .window = 1}},
                      Mask{"one_token", 1, {.scale = 0.5}},
                      Mask{"dropout", 301, {.scale = 0.5, .dropout = 0.3, .site = 1}},
                      Mask{"dropout_in_a_window", 301,
                           {.scale = 0.5, .window = 77, .dropout = 0.3}},
                      Mask{"documents", 301, {.scale = 0.5, .documents = 1}},
                      Mask{"documents_dropout", 301,
                           {.scale = 0.5, .window = 77, .dropout = 0.3, .documents = 1}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hbmtune::ops
