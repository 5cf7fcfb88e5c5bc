#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/output_json.h"

// What a sweep came to, for programs and for people.
namespace hbmtune::client {

struct SweptConfigOutput {
  TrainConfig train_config;
  Estimate estimate;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"train_config", "the train config, every field filled in"}, self.train_config);
    v(Field{"estimate", "what the modelled device says"}, self.estimate);
  }
};

struct SweepOutput {
  std::string device;
  Workload workload;
  bool complete = false;
  int64_t total = 0;
  int64_t estimated = 0;
  int64_t fitting = 0;
  int64_t refused = 0;
  std::string refusal;
  double elapsed_seconds = 0;
  std::vector<SweptConfigOutput> front;
  std::optional<SweptConfigOutput> least;
  int64_t host_ceiling_bytes = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"device", "the device"}, self.device);
    v(Field{"workload", "what is trained"}, self.workload);
    v(Field{"complete", "nothing was left out by an interruption"}, self.complete);
    v(Field{"total", "configs in the grid or space"}, self.total);
    v(Field{"estimated", "of these, how many were estimated"}, self.estimated);
    v(Field{"fitting", "of the estimated, how many fit"}, self.fitting);
    v(Field{"refused", "combinations that are not legal, or that the model does not know"},
      self.refused);
    v(Field{"refusal", "why the first of them was refused"}, self.refusal);
    v(Field{"elapsed_seconds", "time taken"}, self.elapsed_seconds);
    v(Field{"front", "configs that fit and that no other beats in speed and memory"},
      self.front);
    v(Field{"least", "when none fits: the one that needs the least memory"}, self.least);
    v(Field{"host_ceiling_bytes", "host memory that may be used, 0 for no limit"},
      self.host_ceiling_bytes);
  }
};

}  // namespace hbmtune::client
