#pragma once

#include <string>
#include <vector>

#include "tests/kernels/ops/harness.h"

namespace hbmtune::testing {

// How the dtype of a tensor follows the dtype T that a case is run in.
enum class Role {
  kData,       // T
  kStatistic,  // fp32, fp64 if T is fp64
  kFixed,      // what it is
};

struct CaseTensor {
  Role role = Role::kData;
  HostTensor values;  // of an output: what is there before
};

// One call of an op, in fp64 and without a dtype yet.
struct OpCase {
  std::string name;
  const OpKind* op = nullptr;
  std::vector<CaseTensor> in;
  std::vector<CaseTensor> out;
  Attrs attrs;
  // In-place ops: out[i] is in[aliases[i]] where that is not negative.
  std::vector<int> aliases;
  // The tolerance is roundings · u(T) + chain · u(fp32), with u the unit roundoff: how many values
  // rounded to T stand between input and output, and how many fp32 operations in a row a sum or
  // a formula takes.
  double roundings = 1;
  double chain = 8;
};

// Every op at least once. `size` stretches the shapes: 1 for ragged small ones, 8 for some that
// spread over several threads and tiles.
const std::vector<OpCase>& AllCases(int64_t size);

// Runs the case with its data in `dtype`; inputs are first rounded to `rounding`. Returns the
// outputs.
std::vector<HostTensor> RunCase(const OpCase& op_case, Dtype dtype, Dtype rounding);

}  // namespace hbmtune::testing
