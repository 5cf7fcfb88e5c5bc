// Every op in fp32, bf16 and fp16 against itself in fp64 (which torch_test and gradient_test
// prove), and with one thread against several.

#include <gmock/gmock.h>

#include <set>

#include "kernels/ops/table.h"
#include "tests/kernels/ops/cases.h"

namespace hbmtune::ops {
namespace {

using testing::AllCases;
using testing::Close;
using testing::HostTensor;
using testing::OpCase;
using testing::Role;
using testing::RunCase;

class EveryOp : public ::testing::TestWithParam<Dtype> {};

void ExpectCloseToF64(const OpCase& op_case, Dtype dtype) {
  const auto actual = RunCase(op_case, dtype, dtype);
  const auto expected = RunCase(op_case, Dtype::kF64, dtype);
  for (size_t i = 0; i < actual.size(); ++i) {
    // A statistic is fp32, but is made of values that may have been rounded to the dtype.
    const double tolerance = op_case.roundings * testing::Roundoff(dtype) +
                             op_case.chain * testing::Roundoff(Dtype::kF32);
    EXPECT_TRUE(Close(actual[i].Values(), expected[i].Values(), tolerance))
        << op_case.name << " in " << Name(dtype) << ", output " << i;
  }
}

TEST_P(EveryOp, IsWithinItsRoundingOfFp64) {
  for (const OpCase& op_case : AllCases(1)) ExpectCloseToF64(op_case, GetParam());
}

TEST_P(EveryOp, IsWithinItsRoundingOfFp64OverSeveralTiles) {
  for (const OpCase& op_case : AllCases(8)) ExpectCloseToF64(op_case, GetParam());
}

TEST_P(EveryOp, IsBitwiseEqualForAnyNumberOfThreads) {
  for (const OpCase& op_case : AllCases(8)) {
    std::vector<HostTensor> expected;
    {
      const testing::Threads one(1);
      expected = RunCase(op_case, GetParam(), GetParam());
    }
    for (const int threads : {2, 3}) {
      const testing::Threads several(threads);
      const auto actual = RunCase(op_case, GetParam(), GetParam());
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_TRUE(actual[i].BitwiseEqual(expected[i]))
            << op_case.name << ", output " << i << ", " << threads << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, EveryOp,
                         ::testing::Values(Dtype::kF32, Dtype::kBf16, Dtype::kF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(EveryOp, HasACase) {
  std::set<std::string_view> covered;
  for (const OpCase& op_case : AllCases(1)) covered.insert(op_case.op->name);
  for (const OpKind* op : AllOps()) {
    if (op->name.starts_with("aten_")) continue;  // PyTorch's own operators have their own test
    EXPECT_TRUE(covered.contains(op->name)) << op->name;
  }
}

// The shape with its last extent one larger, on the same data.
TensorArg Wider(TensorArg arg) {
  arg.shape[arg.shape.rank() - 1] += 1;
  arg.strides = DenseStrides(arg.shape);
  return arg;
}

// Tensors of which another shape is as good.
bool AnyShape(const OpCase& op_case, size_t tensor) {
  static const std::set<std::string> kAnyInput = {"cross_entropy_mean", "finite", "grad_norm",
                                                  "grad_norm_squares"};
  return op_case.name == "fill" || (tensor == 0 && kAnyInput.contains(op_case.name));
}

TEST(EveryOp, SaysWhichTensorIsTooWide) {
  for (const OpCase& op_case : AllCases(1)) {
    std::vector<TensorArg> args;
    for (const auto& tensor : op_case.in) args.push_back(tensor.values.arg());
    for (const auto& tensor : op_case.out) args.push_back(tensor.values.arg());
    for (size_t i = 0; i < op_case.aliases.size(); ++i) {
      if (op_case.aliases[i] < 0) continue;
      args[op_case.in.size() + i].data = args[static_cast<size_t>(op_case.aliases[i])].data;
    }
    const auto complaint = [&] {
      const auto middle = args.begin() + static_cast<int64_t>(op_case.in.size());
      return testing::Complaint(*op_case.op, {args.begin(), middle}, {middle, args.end()},
                                op_case.attrs);
    };
    EXPECT_EQ(complaint(), "") << op_case.name;
    for (size_t i = 0; i < args.size(); ++i) {
      if (AnyShape(op_case, i)) continue;
      const TensorArg right = args[i];
      args[i] = Wider(right);
      const std::string said = complaint();
      EXPECT_TRUE(said.starts_with(op_case.op->name)) << op_case.name << ": " << said;
      // The tensor by name, its shape and the one that it does not fit.
      EXPECT_THAT(said, ::testing::ContainsRegex(": [a-z_0-9]+ .*\\[.*\\].*\\[.*\\]"))
          << op_case.name << ", tensor " << i;
      EXPECT_NE(said.find(ToString(args[i].shape)), std::string::npos)
          << op_case.name << ", tensor " << i << " " << ToString(args[i].shape) << ": " << said;
      args[i] = right;
    }
  }
}

TEST(EveryOp, CostsSomething) {
  for (const OpCase& op_case : AllCases(1)) {
    std::vector<TensorArg> in, out;
    for (const auto& tensor : op_case.in) in.push_back(tensor.values.arg());
    for (const auto& tensor : op_case.out) out.push_back(tensor.values.arg());
    const Cost cost = op_case.op->cost({in, out, op_case.attrs});
    EXPECT_GT(cost.bytes_written, 0) << op_case.name;
    EXPECT_GE(cost.flops, 0) << op_case.name;
  }
}

}  // namespace
}  // namespace hbmtune::ops
