#include "kernels/lowering/hf/model.h"
#include <stdexcept>
namespace hbmtune::lowering {
std::unique_ptr<HfModel> MakeFalcon(Aten&, const Workload&, const TrainConfig&) {
  throw std::invalid_argument("falcon is not modelled for hf frameworks");
}
}  // namespace hbmtune::lowering
