#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/output_json.h"

// What `ladder` prints.
namespace hbmtune::client {

// One rung: a config that adds to the one before. Savings are of used device memory, costs of
// time a token, both against the rung before.
struct RungOutput {
  std::string rung;
  std::string adds;
  Framework framework = Framework::kFused;
  TrainConfig train_config;
  Estimate estimate;
  int64_t missing_bytes = 0;
  int64_t saved_bytes = 0;
  double cost_ratio = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"rung", "none, checkpointing, mixed precision or everything"}, self.rung);
    v(Field{"adds", "what it adds, for people"}, self.adds);
    v(Field{"framework", "whose behaviour it is"}, self.framework);
    v(Field{"train_config", "the train config"}, self.train_config);
    v(Field{"estimate", "what the modelled device says"}, self.estimate);
    v(Field{"missing_bytes", "by how much it does not fit, 0 if it does"}, self.missing_bytes);
    v(Field{"saved_bytes", "device memory that it saves on the rung before"}, self.saved_bytes);
    v(Field{"cost_ratio", "more time a token than the rung before, as a share"},
      self.cost_ratio);
  }
};

struct ModelLadderOutput {
  std::string model;
  int64_t micro_batch = 0;
  std::vector<RungOutput> rungs;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"model", "name of the preset"}, self.model);
    v(Field{"micro_batch", "sequences in one forward pass of one rank"}, self.micro_batch);
    v(Field{"rungs", "from none to everything"}, self.rungs);
  }
};

struct LadderOutput {
  std::string device;
  int64_t seq_len = 0;
  int64_t world_size = 0;
  Optimizer optimizer = Optimizer::kAdamw;
  int64_t ceiling_bytes = 0;
  std::vector<ModelLadderOutput> models;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"device", "the device"}, self.device);
    v(Field{"seq_len", "tokens in a sequence"}, self.seq_len);
    v(Field{"world_size", "ranks that train together"}, self.world_size);
    v(Field{"optimizer", "the optimizer"}, self.optimizer);
    v(Field{"ceiling_bytes", "device memory that may be used"}, self.ceiling_bytes);
    v(Field{"models", "one ladder a model"}, self.models);
  }
};

}  // namespace hbmtune::client
