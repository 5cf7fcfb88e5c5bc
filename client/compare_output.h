#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/output_json.h"

// What `compare` prints.
namespace hbmtune::client {

// The best that a study found on one device; without a train_config nothing fits there, or nothing
// is known: `message` says which.
struct ComparedDeviceOutput {
  std::string device;
  std::string product;
  std::string study;
  std::string state;
  std::string message;
  std::optional<TrainConfig> train_config;
  std::vector<std::string> description;
  std::optional<Estimate> estimate;
  std::optional<Evidence> evidence;
  double tokens_per_second = 0;
  double relative_ratio = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t peak_used_bytes = 0;
  int64_t capacity_bytes = 0;
  int64_t ceiling_bytes = 0;
  int64_t margin_bytes = 0;
  std::optional<double> dollars_per_hour;
  std::optional<double> dollars_per_million_tokens;
  std::string limited_by;
  std::string why;
  int64_t trials = 0;
  int64_t out_of_memory_trials = 0;
  std::optional<ShortfallOutput> shortfall;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"device", "the device"}, self.device);
    v(Field{"product", "what it is, for people"}, self.product);
    v(Field{"study", "name of its study; empty if none could be made"}, self.study);
    v(Field{"state", "how the study ended: succeeded, cancelled or failed"}, self.state);
    v(Field{"message", "why there is no config, for people; empty if there is one"},
      self.message);
    v(Field{"train_config", "the best config; absent when nothing fits"}, self.train_config);
    v(Field{"description", "the train config, for people, in lines"}, self.description);
    v(Field{"estimate", "what the model says about it"}, self.estimate);
    v(Field{"evidence", "what the figures rest on"}, self.evidence);
    v(Field{"tokens_per_second", "predicted, over all ranks; 0 when nothing fits"},
      self.tokens_per_second);
    v(Field{"relative_ratio", "tokens_per_second as a share of the fastest device's"},
      self.relative_ratio);
    v(Field{"peak_reserved_bytes", "most bytes held by the allocator"}, self.peak_reserved_bytes);
    v(Field{"peak_used_bytes", "most bytes taken, what lies outside the allocator included"},
      self.peak_used_bytes);
    v(Field{"capacity_bytes", "memory of the device"}, self.capacity_bytes);
    v(Field{"ceiling_bytes", "memory that may be used"}, self.ceiling_bytes);
    v(Field{"margin_bytes", "capacity_bytes less peak_used_bytes"}, self.margin_bytes);
    v(Field{"dollars_per_hour", "price of one such device, as given by --price"},
      self.dollars_per_hour);
    v(Field{"dollars_per_million_tokens", "what all ranks cost while they train so many"},
      self.dollars_per_million_tokens);
    v(Field{"limited_by", "what keeps the config from being faster or larger"}, self.limited_by);
    v(Field{"why", "the reason, in a sentence"}, self.why);
    v(Field{"trials", "finished trials that the answer rests on"}, self.trials);
    v(Field{"out_of_memory_trials", "of these, how many did not fit"},
      self.out_of_memory_trials);
    v(Field{"shortfall", "when nothing fits: why, and what would help"}, self.shortfall);
  }
};

struct CompareOutput {
  Workload workload;
  std::vector<ComparedDeviceOutput> devices;
  std::string fastest;
  std::string cheapest;
  bool complete = true;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"workload", "what is trained"}, self.workload);
    v(Field{"devices", "the best first: by dollars where prices are given, then by speed"},
      self.devices);
    v(Field{"fastest", "the device that trains most tokens a second; empty for none"},
      self.fastest);
    v(Field{"cheapest", "the priced device that trains a token for least; empty for none"},
      self.cheapest);
    v(Field{"complete", "false when it was interrupted: what had been tried by then"},
      self.complete);
  }
};

}  // namespace hbmtune::client
