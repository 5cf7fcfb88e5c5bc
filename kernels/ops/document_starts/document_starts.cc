#include "kernels/ops/document_starts/document_starts.h"

#include "kernels/ops/support/check.h"

namespace hbmtune::ops {
namespace {

void CheckArgs(const OpArgs& args) {
  const Check check("document_starts", args, {"labels"}, {"starts"});
  check.AllDense().Rank(check.in(0), 2).Dtype(check.in(0), Dtype::kI64);
  check.SameShape(check.out(0), check.in(0)).Dtype(check.out(0), Dtype::kI64);
}

Cost CostOf(const OpArgs& args) { return StreamCost(args, 1); }

void Host(const OpArgs& args) {
  const int64_t ignore = args.attrs.As<DocumentStartsAttrs>().ignore_index;
  const int64_t length = args.in[0].shape[1];
  const int64_t* labels = args.in[0].as<int64_t>();
  int64_t* starts = args.out[0].as<int64_t>();
  for (int64_t i = 0; i < args.in[0].elements(); ++i) {
    const int64_t s = i % length;
    starts[i] = s == 0 || labels[i] == ignore ? s : starts[i - 1];
  }
}

}  // namespace

const OpKind kDocumentStarts = {"document_starts", CheckArgs, CostOf, Host};

}  // namespace hbmtune::ops
