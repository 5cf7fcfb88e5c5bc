#pragma once

#include <cstdint>

#include "kernels/core/workload.h"

namespace hbmtune {

// A job that the host runs in milliseconds.
inline Workload SmallJob(int64_t ranks = 1) {
  Workload workload;
  ModelSpec& model = workload.model;
  model.name = "small";
  model.hidden = 64, model.layers = 3, model.heads = 4, model.kv_heads = 2;
  model.head_dim = 16, model.ffn = 176, model.vocab = 500, model.max_positions = 512;
  workload.seq_len = 48;
  workload.world_size = ranks;
  return workload;
}

}  // namespace hbmtune
