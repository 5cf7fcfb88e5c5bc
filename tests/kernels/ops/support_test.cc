// What the rooms share: 16-bit conversions, vector mathematics, Philox, the table.

#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>

#include "kernels/core/float16.h"
#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/philox.h"
#include "kernels/ops/support/vector_math.h"
#include "kernels/ops/table.h"
#include "tests/kernels/ops/harness.h"

namespace hbmtune::ops {
namespace {

using ::testing::ElementsAre;

// The value of an fp16 bit pattern by its definition.
double ValueOfF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) return mantissa ? std::nan("") : sign * HUGE_VAL;
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Float16, WidensAndNarrowsEveryFp16) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const F16 half = {static_cast<uint16_t>(bits)};
    const double expected = ValueOfF16(half.bits);
    const float wide = Widen(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_TRUE(std::isnan(Widen(NarrowToF16(wide)))) << bits;
    } else {
      ASSERT_EQ(wide, expected) << bits;
      ASSERT_EQ(NarrowToF16(wide).bits, half.bits) << bits;
    }
  }
}

TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const double below = ValueOfF16(bits), above = ValueOfF16(bits + 1);
    const float middle = static_cast<float>((below + above) / 2);  // 12 bits: exact
    EXPECT_EQ(NarrowToF16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(NarrowToF16(std::nextafter(middle, 1e9f)).bits, bits + 1);
    EXPECT_EQ(NarrowToF16(std::nextafter(middle, -1e9f)).bits, bits);
  }
  EXPECT_EQ(NarrowToF16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(NarrowToF16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(NarrowToF16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(NarrowToF16(1e-8f).bits, 0);
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const float middle = std::bit_cast<float>((bits << 16) | 0x8000);
    EXPECT_EQ(NarrowToBf16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(NarrowToBf16(std::nextafter(middle, HUGE_VALF)).bits, bits + 1);
    EXPECT_EQ(NarrowToBf16(std::nextafter(middle, -HUGE_VALF)).bits, bits);
  }
  EXPECT_TRUE(std::isnan(Widen(NarrowToBf16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(Widen(NarrowToBf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(Widen(NarrowToBf16(-HUGE_VALF)), -HUGE_VALF);
}

TEST(VectorMath, ExpIsWithinTwoUlp) {
  double worst = 0;
  for (float x = -85.9f; x < 88.6f; x += 0.0037f) {
    float y = 0;
    ExpRow(&x, 1.0f, 0.0f, &y, 1);
    worst = std::max(worst, std::fabs(y / std::exp(static_cast<double>(x)) - 1));
  }
  EXPECT_LE(worst, 2 * 0x1p-23);
}

TEST(VectorMath, ExpHasTheRightEnds) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-HUGE_VALF), 0.0f);
  EXPECT_EQ(Exp(HUGE_VALF), HUGE_VALF);
  EXPECT_EQ(Exp(89.0f), HUGE_VALF);
  EXPECT_TRUE(std::isnan(Exp(std::nanf(""))));
}

TEST(VectorMath, ErfAndTanhAreWithinTheirBounds) {
  double worst_erf = 0, worst_tanh = 0;
  for (float x = -9.0f; x < 9.0f; x += 0.0013f) {
    const double exact = x;
    worst_erf = std::max(worst_erf, std::fabs(Erf(x) - std::erf(exact)));
    worst_tanh = std::max(worst_tanh, std::fabs(Tanh(x) - std::tanh(exact)));
  }
  EXPECT_LE(worst_erf, 5e-7);
  EXPECT_LE(worst_tanh, 2e-7);
}

std::array<uint32_t, 4> Words(PhiloxWords counter, uint32_t key_low, uint32_t key_high) {
  const PhiloxWords x = Philox(counter, key_low, key_high);
  return {x.a, x.b, x.c, x.d};
}

// Known answers published with the generator (Random123, kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_THAT(Words({0, 0, 0, 0}, 0, 0),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Words({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Philox, MultipliersDoNotDependOnWhereABlockBegins) {
  const int64_t key[2] = {42, 7};
  const DropoutMask mask = DropoutMask::Of(key, 3, 0.25);
  std::vector<float> all(1000), part(1000);
  FillDropoutMultipliers(mask, 0, all.data(), 1000);
  for (const int64_t begin : {1, 2, 3, 4, 77, 998}) {
    FillDropoutMultipliers(mask, static_cast<uint64_t>(begin), part.data(), 1000 - begin);
    for (int64_t i = begin; i < 1000; ++i) {
      ASSERT_EQ(part[static_cast<size_t>(i - begin)], all[static_cast<size_t>(i)]);
      const PhiloxWords x = mask.Words(static_cast<uint64_t>(i) / 4);
      const uint32_t word = std::array{x.a, x.b, x.c, x.d}[static_cast<size_t>(i % 4)];
      ASSERT_EQ(word >= mask.threshold, all[static_cast<size_t>(i)] > 0);
    }
  }
}

// A room is a folder; its ops are called like it, or like it with something after.
TEST(Table, HasTheOpsOfEveryRoomAndNoOthers) {
  std::set<std::string> rooms;
  const std::filesystem::path folder = HBMTUNE_OPS_FOLDER;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_directory()) rooms.insert(entry.path().filename());
  }
  rooms.erase("support");
  std::set<std::string> lived_in;
  std::set<std::string_view> names;
  std::vector<const OpKind*> ops(AllOps().begin(), AllOps().end());
  ops.insert(ops.end(), AtenOps().begin(), AtenOps().end());
  for (const OpKind* op : ops) {
    const std::string name(op->name);
    EXPECT_TRUE(names.insert(op->name).second) << name << " is in the table twice";
    EXPECT_EQ(FindOp(name), op);
    EXPECT_TRUE(op->check && op->cost && op->host) << name;
    std::string home;
    for (const std::string& room : rooms) {
      if (name.rfind(room, 0) == 0 && room.size() > home.size()) home = room;
    }
    EXPECT_FALSE(home.empty()) << name << " has no folder";
    lived_in.insert(home);
  }
  EXPECT_EQ(lived_in, rooms);
  EXPECT_EQ(FindOp("no such op"), nullptr);
}

}  // namespace
}  // namespace hbmtune::ops
