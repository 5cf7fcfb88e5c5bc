#include "daemon/http/metrics.h"

#include <absl/strings/ascii.h>
#include <prometheus/text_serializer.h>

namespace hbmtune::daemon {
namespace {

// A probe takes a second to some minutes.
const prometheus::Histogram::BucketBoundaries kProbeSeconds = {0.5, 1,  2,   5,   10,
                                                               20,  60, 120, 300, 600};

std::string Lower(std::string_view text) { return absl::AsciiStrToLower(std::string(text)); }

// On a modelled device the estimate is the result.
std::string OutcomeOf(const TrialRecord& trial) {
  if (trial.measurement) return Lower(Name(trial.measurement->outcome));
  return trial.estimate && trial.estimate->fits ? "ok" : "out_of_memory";
}

}  // namespace

Metrics::Metrics()
    : trials_(prometheus::BuildCounter()
                  .Name("hbmtune_trials_total")
                  .Help("Trials that ended, by how they ended")
                  .Register(registry_)),
      probe_seconds_(prometheus::BuildHistogram()
                         .Name("hbmtune_probe_duration_seconds")
                         .Help("Wall time of one probe, start of its process included")
                         .Register(registry_)
                         .Add({}, kProbeSeconds)) {
  prometheus::BuildGauge()
      .Name("hbmtune_build_info")
      .Help("Always 1; the version is the label")
      .Register(registry_)
      .Add({{"version", HBMTUNE_VERSION}})
      .Set(1);
}

void Metrics::CountTrial(const TrialRecord& trial, DeviceKind kind) {
  trials_.Add({{"outcome", OutcomeOf(trial)}, {"device_kind", Lower(Name(kind))}}).Increment();
  if (trial.measurement) probe_seconds_.Observe(trial.seconds);
}

void Metrics::AddGauge(const std::string& name, const std::string& help,
                       std::function<double()> read) {
  auto& gauge = prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add({});
  asked_.push_back({gauge, std::move(read)});
}

void Metrics::AddSource(std::shared_ptr<prometheus::Collectable> source) {
  sources_.push_back(std::move(source));
}

std::string Metrics::Text() {
  for (Asked& asked : asked_) asked.gauge.Set(asked.read());
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  for (const auto& source : sources_) {
    for (auto& family : source->Collect()) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace hbmtune::daemon
