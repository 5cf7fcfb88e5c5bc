// What the server shows over HTTP.
#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/server.h"
#include "daemon/services/messages.h"

namespace hbmtune::daemon {

absl::Status Server::StartHttp() {
  if (options_.http == "off") return absl::OkStatus();
  auto server = HttpServer::Start(
      options_.http,
      {{"/metrics", [this] {
          return HttpAnswer{200, "text/plain; version=0.0.4; charset=utf-8", metrics_.Text()};
        }},
       {"/healthz", [] { return HttpAnswer{200, "text/plain", "ok\n"}; }},
       {"/readyz", [this] { return Readiness(); }},
       {"/", [] {
          return HttpAnswer{200, "text/html; charset=utf-8", std::string(StatusPageHtml())};
        }},
       {"/status.json", [this] {
          return HttpAnswer{200, "application/json", StatusJson(Status())};
        }}});
  if (!server.ok()) return server.status();
  http_ = *std::move(server);
  return absl::OkStatus();
}

StatusView Server::Status() {
  constexpr int64_t kStudies = 10;
  constexpr int64_t kTrials = 1000;
  StatusView view;
  char hostname[256] = {};
  gethostname(hostname, sizeof hostname - 1);
  view.hostname = hostname;
  view.version = HBMTUNE_VERSION;
  view.degraded = database_->degraded();
  for (DeviceInfo& info : catalogue_.List()) {
    const StudyManager::Load load = studies_->LoadOf(info.name);
    // Modelled devices are always there: shown while one is used.
    if (info.kind == DeviceKind::kModel && load.running_study == 0) continue;
    StatusView::Device& device = view.devices.emplace_back();
    const DeviceArbiter::DeviceView known = arbiter_->View(info.name);
    const auto state = StateOf(known, load.running_study > 0);
    device.dirty = known.dirty;
    device.state = v1::DeviceState_Name(state).substr(std::string("DEVICE_STATE_").size());
    device.now_seconds = absl::ToDoubleSeconds(clock_.SinceBoot());
    for (const VramPoint& point : sampler_.History(info.name)) {
      device.history.emplace_back(point.seconds, point.used_bytes);
    }
    device.info = std::move(info);
  }
  view.findings = monitors_.FindingsSince(0);
  std::reverse(view.findings.begin(), view.findings.end());
  auto studies = studies_->List(0, kStudies);
  if (!studies.ok()) return view;
  for (StudyRecord& study : *studies) {
    auto trials = store_->ListTrials(study.id, 0, kTrials);
    if (trials.ok()) view.studies.push_back({std::move(study), *std::move(trials)});
  }
  return view;
}

HttpAnswer Server::Readiness() const {
  if (draining_) return {503, "text/plain", "draining\n"};
  const std::string degraded = database_->degraded();
  if (!degraded.empty()) return {503, "text/plain", absl::StrCat("degraded: ", degraded, "\n")};
  return {200, "text/plain", "ok\n"};
}

}  // namespace hbmtune::daemon
