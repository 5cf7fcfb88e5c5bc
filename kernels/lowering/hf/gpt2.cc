#include "kernels/lowering/hf/model.h"
#include <stdexcept>
namespace hbmtune::lowering {
std::unique_ptr<HfModel> MakeGpt2(Aten&, const Workload&, const TrainConfig&) {
  throw std::invalid_argument("gpt2 is not modelled for hf frameworks");
}
}  // namespace hbmtune::lowering
