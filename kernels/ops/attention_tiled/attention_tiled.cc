#include "kernels/ops/attention_tiled/attention_tiled.h"

#include "kernels/ops/attention_tiled/tile_kernels.h"
#include "kernels/ops/support/attention_tile.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {
namespace {

void CheckRowStatistic(const Check& check, const TensorArg& statistic, const TensorArg& q) {
  check.Dense(statistic).Statistic(statistic);
  check.Shape(statistic, {q.shape[0], q.shape[2], q.shape[1]}, q);
}

void CheckForward(const OpArgs& args) {
  const Check check("attention_tiled", args,
                    {"q", "k", "v", FirstOptionalName(args), "starts?"}, {"o", "lse"});
  CheckHeads(check, check.in(0), check.in(1), check.in(2));
  CheckAttentionAttrs(check, args, 3);
  check.Floating(check.out(0)).SameShape(check.out(0), check.in(0)).LastStrideOne(check.out(0));
  CheckRowStatistic(check, check.out(1), check.in(0));
}

void CheckBackward(const OpArgs& args) {
  const Check check(
      "attention_tiled_backward", args,
      {"do", "q", "k", "v", "o", "lse", FirstOptionalName(args), "starts?"},
      {"dq", "dk", "dv", "delta"});
  CheckHeads(check, check.in(1), check.in(2), check.in(3));
  CheckHeadGradients(check, args, 1);
  CheckAttentionAttrs(check, args, 6);
  for (size_t i : {0, 4}) {
    check.Floating(check.in(i)).SameShape(check.in(i), check.in(1)).LastStrideOne(check.in(i));
  }
  CheckRowStatistic(check, check.in(5), check.in(1));
  CheckRowStatistic(check, check.out(3), check.in(1));
}

Cost CostForward(const OpArgs& args) { return AttentionCost(args, args.in[0], 2); }
Cost CostBackward(const OpArgs& args) { return AttentionCost(args, args.in[1], 5); }

void HostForward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { TiledForward<decltype(c)>(args); });
}
void HostBackward(const OpArgs& args) {
  WithArithmetic(args, [&](auto c) { TiledBackward<decltype(c)>(args); });
}

}  // namespace

const OpKind kAttentionTiled = {"attention_tiled", CheckForward, CostForward, HostForward};
const OpKind kAttentionTiledBackward = {"attention_tiled_backward", CheckBackward, CostBackward,
                                        HostBackward};

}  // namespace hbmtune::ops
