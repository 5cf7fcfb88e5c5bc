#include "kernels/probe/protocol.h"

#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "hbmtune/v1/probe.pb.h"
#include "kernels/probe/journal.h"
#include "kernels/probe/stop.h"
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

Measurement Run(const v1::ProbeRequest& message, EventWriter& writer) {
  Measurement measurement;
  if (message.device() != "host") {
    measurement.outcome = Outcome::kInvalid;
    measurement.message = "device '" + message.device() + "' cannot be probed; only host can";
    return measurement;
  }
  step::TrialEvents events;
  events.cancel = &StopFlag();
  events.on_started = [&](int64_t capacity_bytes) {
    v1::ProbeEvent event;
    event.mutable_started()->set_pid(getpid());
    event.mutable_started()->set_device("host");
    event.mutable_started()->set_capacity_bytes(capacity_bytes);
    writer.Write(event);
  };
  events.on_step = [&](const step::StepReport& report) { WriteStep(writer, report); };
  return step::RunTrial(FromMessage(message), events);
}

}  // namespace

int Serve(int input, int output) {
  v1::ProbeRequest message;
  {
    google::protobuf::io::FileInputStream stream(input);
    bool clean_end = false;
    if (!google::protobuf::util::ParseDelimitedFromZeroCopyStream(&message, &stream,
                                                                  &clean_end)) {
      std::cerr << "hbmtune-probe: no request on stdin; it speaks to a prober. Try --help\n";
      return 1;
    }
  }
  WatchSignals();
  WatchInput(input);
  AppendLine(message.journal_path(),
             "started " + message.trial() + " " + std::to_string(getpid()));
  EventWriter writer(output);
  const Measurement measurement = Run(message, writer);
  v1::ProbeEvent event;
  ToProto(measurement, *event.mutable_finished()->mutable_measurement());
  if (measurement.outcome != Outcome::kCancelled) {
    WriteWhole(message.result_path(), event.finished().SerializeAsString());
  }
  AppendLine(message.journal_path(),
             "finished " + message.trial() + " " + std::string(Name(measurement.outcome)));
  writer.Write(event);
  return writer.broken() ? 1 : 0;
}

}  // namespace hbmtune::probe
