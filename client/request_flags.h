#pragma once

#include <CLI/App.hpp>
#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <vector>

#include "client/flags.h"
#include "hbmtune/v1/tuning.pb.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

// The flags that say what is trained, how, and where: what several verbs send.
namespace hbmtune::client {

// The flag --device of a verb that takes one: a second one is refused.
CLI::Option* AddDevice(CLI::App& app, const std::string& help, std::string& device);

// The flag --model: a preset's name or a path.
CLI::Option* AddModel(CLI::App& app, std::string& model);

// --model and every field of Workload, --device.
struct WorkloadFlags {
  std::string model;
  std::string device;
  GivenFields given;

  void AddTo(CLI::App& app);
  // All but --device.
  void AddModelTo(CLI::App& app);
  // Whether any of the workload's own flags was given.
  bool Any() const { return !model.empty() || !given.empty(); }
  // `base` with what was given on top; `base.model` is dropped when --model was given. Flags of
  // sequences that its layout does not read are refused.
  absl::StatusOr<Workload> Apply(Workload base) const;
};

// --memory, --ceiling, --host-memory.
struct CeilingFlags {
  std::string memory;
  std::string ceiling;
  std::string host_memory;

  void AddTo(CLI::App& app);
  // Overwrites what was given; INVALID_ARGUMENT for what is no size, or not over 0.
  absl::Status Apply(v1::Ceiling& sizes) const;
};

// Every field of TrainConfig and --precision, each one value.
struct TrainConfigFlags {
  std::string precision;
  GivenFields given;

  void AddTo(CLI::App& app);
  // What was given, --precision spelt out for the framework; a field's own flag wins over it.
  GivenFields Fields(Framework framework) const;
};

// Every field of TrainConfig, --precision and --pin, each a pin: one value, a list ("0,1,4") or a
// range ("1:16", either end may be left out).
struct PinFlags {
  std::string precision;
  GivenFields given;              // the text of each pin
  std::vector<std::string> pins;  // FIELD=PIN
  std::vector<std::string> grid;  // the same, from --grid: so it is called where it is wrong

  void AddTo(CLI::App& app);
  // Field path (or "precision") to the pin's text, numbers spelt out ("5e8" → "500000000").
  // INVALID_ARGUMENT for an unknown field (says the nearest) or a value that it cannot have.
  // "offload=none" pins what a struct's enums all call none; --precision beside a field that it
  // sets is spelt out for the framework. A flag and a --pin that disagree are refused.
  absl::StatusOr<std::map<std::string, std::string>> Pins(Framework framework) const;
};

// Sets `config`'s fields; INVALID_ARGUMENT names the first that cannot be.
absl::Status ApplyFields(const GivenFields& fields, TrainConfig& config);

// `config` as a message that holds only these fields.
void ToSparseProto(const TrainConfig& config, const GivenFields& fields, v1::TrainConfig& message);

// "60s", "5m" as seconds; INVALID_ARGUMENT for what is no duration, or not over 0.
absl::StatusOr<double> ParseBudget(const std::string& text);

}  // namespace hbmtune::client
