#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/grad_norm/grad_norm.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {

// What an optimizer reads of grad_norm's output, if it is given.
struct StepControl {
  double coefficient = 1;
  bool skip = false;
};

inline StepControl ControlOf(const OpArgs& args, size_t index) {
  if (index >= args.in.size()) return {};
  return {LoadScalar(args.in[index], kControlCoefficient),
          LoadScalar(args.in[index], kControlFoundInf) != 0};
}

// Factors of one AdamW step, with the bias corrections folded in.
template <class C>
struct AdamwFactors {
  C grad, beta1, beta2;
  C share1, share2;  // 1 − beta, rounded once: as 1 − 0.999f it would be off by 1e-5
  C decay, step_size, inv_sqrt_correction2, eps;

  static AdamwFactors Of(const AdamwAttrs& attrs, double coefficient, double step) {
    const double correction1 = 1 - std::pow(attrs.beta1, step);
    const double correction2 = 1 - std::pow(attrs.beta2, step);
    return {static_cast<C>(coefficient),
            static_cast<C>(attrs.beta1),
            static_cast<C>(attrs.beta2),
            static_cast<C>(1 - attrs.beta1),
            static_cast<C>(1 - attrs.beta2),
            static_cast<C>(1 - attrs.lr * attrs.weight_decay),
            static_cast<C>(attrs.lr / correction1),
            static_cast<C>(1 / std::sqrt(correction2)),
            static_cast<C>(attrs.eps)};
  }
};

}  // namespace hbmtune::ops
