#include "kernels/ops/random_key/random_key.h"

#include "kernels/ops/support/check.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("random_key", args, {"state"}, {"key", "state"});
  const TensorArg& state = check.in(0);
  check.Dtype(state, Dtype::kI64).Shape(state, {2}, state);
  for (const TensorArg& out : args.out) check.Dtype(out, Dtype::kI64).SameShape(out, state);
  check.That(state.data == check.out(1).data, "the second output is not the state");
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 0); }

void Host(const OpArgs& args) {
  int64_t* state = args.out[1].as<int64_t>();
  int64_t* key = args.out[0].as<int64_t>();
  key[0] = state[0];
  key[1] = state[1]++;
}

}  // namespace

const OpKind kRandomKey = {"random_key", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops
