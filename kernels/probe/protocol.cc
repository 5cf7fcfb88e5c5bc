#include "kernels/probe/protocol.h"

#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <unistd.h>

#include <iostream>
#include <sstream>
#include <string>

#include "hbmtune/v1/probe.pb.h"
#include "kernels/probe/calibrate.h"
#include "kernels/probe/journal.h"
#include "kernels/probe/request.h"
#include "kernels/probe/stop.h"
#include "kernels/probe/visible_gpu.h"
#include "kernels/step/trial.h"
#include "proto/convert.h"

namespace hbmtune::probe {
namespace {

step::TrialRequest FromMessage(const v1::ProbeRequest& message) {
  step::TrialRequest request;
  MergeFromProto(message.workload(), request.workload);
  MergeFromProto(message.train_config(), request.config);
  request.memory_bytes = message.memory_bytes();
  request.warmup_steps = message.warmup_steps();
  request.min_steps = message.min_steps();
  request.max_steps = message.max_steps();
  request.step_budget_seconds = message.step_budget_seconds();
  request.seed = static_cast<uint64_t>(message.seed());
  request.threads = message.threads();
  request.rank = message.rank();
  request.rendezvous_path = message.rendezvous_path();
  return request;
}

// Writes events; once a write has failed, the trial is told to stop.
class EventWriter {
 public:
  explicit EventWriter(int output) : output_(output) {}

  void Write(const v1::ProbeEvent& event) {
    if (broken_) return;
    google::protobuf::io::FileOutputStream stream(output_);
    broken_ = !google::protobuf::util::SerializeDelimitedToZeroCopyStream(event, &stream) ||
              !stream.Flush();
    if (broken_) StopFlag().store(true);
  }
  bool broken() const { return broken_; }

 private:
  int output_;
  bool broken_ = false;
};

void WriteStep(EventWriter& writer, const step::StepReport& report) {
  if (report.overflow) std::cerr << "hbmtune-probe: skipped: " << report.overflow_in << '\n';
  v1::ProbeEvent event;
  v1::ProbeEvent::Step& step = *event.mutable_step();
  step.set_index(report.index);
  step.set_seconds(report.seconds);
  step.set_loss(report.loss);
  step.set_overflow(report.overflow);
  writer.Write(event);
  v1::ProbeEvent::Memory& memory = *event.mutable_memory();
  memory.set_step(report.index);
  memory.set_allocated_bytes(report.allocated_bytes);
  memory.set_reserved_bytes(report.reserved_bytes);
  memory.set_used_bytes(report.reserved_bytes);
  memory.set_peak_allocated_bytes(report.peak_allocated_bytes);
  memory.set_peak_reserved_bytes(report.peak_reserved_bytes);
  writer.Write(event);
}

void WriteStarted(EventWriter& writer, int64_t capacity_bytes) {
  v1::ProbeEvent event;
  event.mutable_started()->set_pid(getpid());
  event.mutable_started()->set_device("host");
  event.mutable_started()->set_capacity_bytes(capacity_bytes);
  writer.Write(event);
}

struct Stopped {};

Measurement RunCalibration(const v1::ProbeRequest& message, EventWriter& writer) {
  WriteStarted(writer, 0);
  Measurement measurement;
  try {
    v1::ProbeEvent event;
    *event.mutable_calibrated()->mutable_profile_toml() = MeasureHost(
        static_cast<int>(message.threads()), message.calibration().budget_seconds(),
        [&](double done_ratio, const std::string& what) {
          if (StopFlag()) throw Stopped();
          v1::ProbeEvent progress;
          progress.mutable_calibrating()->set_done_ratio(done_ratio);
          progress.mutable_calibrating()->set_what(what);
          writer.Write(progress);
        });
    writer.Write(event);
    measurement.outcome = Outcome::kOk;
  } catch (const Stopped&) {
    measurement.outcome = Outcome::kCancelled;
    measurement.message = "cancelled while it was calibrating";
  } catch (const std::exception& error) {
    measurement.outcome = Outcome::kInvalid;
    measurement.message = error.what();
  }
  return measurement;
}

Measurement Run(const v1::ProbeRequest& message, EventWriter& writer) {
  Measurement measurement;
  if (message.device() != "host") {
    measurement.outcome = Outcome::kInvalid;
    measurement.message = "device '" + message.device() + "' cannot be probed; only host can";
    return measurement;
  }
  if (message.has_calibration()) return RunCalibration(message, writer);
  step::TrialEvents events;
  events.cancel = &StopFlag();
  events.on_started = [&](int64_t capacity_bytes) { WriteStarted(writer, capacity_bytes); };
  events.on_step = [&](const step::StepReport& report) { WriteStep(writer, report); };
  return step::RunTrial(FromMessage(message), events);
}

// The journal and the result, at their paths or in the files that came with the request.
void Note(const Request& request, const std::string& line) {
  AppendLine(request.message.journal_path(), line);
  AppendLine(request.journal_file, line);
}

void KeepResult(const Request& request, const v1::ProbeEvent& finished) {
  std::ostringstream bytes;
  google::protobuf::util::SerializeDelimitedToOstream(finished, &bytes);
  WriteWhole(request.message.result_path(), bytes.str());
  WriteWhole(request.result_file, bytes.str());
}

}  // namespace

int Serve(int input, int output) {
  const std::optional<Request> request = ReadRequest(input);
  if (!request) {
    std::cerr << "hbmtune-probe: no request on stdin; it speaks to a prober. Try --help\n";
    return 1;
  }
  const v1::ProbeRequest& message = request->message;
  SeeOnlyGpu(message.gpu_unique_id());
  WatchSignals();
  WatchInput(input);
  Note(*request, "started " + message.trial() + " " + std::to_string(getpid()));
  EventWriter writer(output);
  const Measurement measurement = Run(message, writer);
  v1::ProbeEvent event;
  ToProto(measurement, *event.mutable_finished()->mutable_measurement());
  if (measurement.outcome != Outcome::kCancelled) KeepResult(*request, event);
  Note(*request, "finished " + message.trial() + " " + std::string(Name(measurement.outcome)));
  writer.Write(event);
  return writer.broken() ? 1 : 0;
}

}  // namespace hbmtune::probe
