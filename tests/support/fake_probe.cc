// Speaks the probe protocol without training anything. What it does is the model's name:
//   crash     dies of SIGABRT after one step, with last words on stderr
//   mute      exits with status 3 without a result
//   garbage   writes what is no event, then waits until it is told to stop
//   deaf      ignores SIGINT, SIGTERM and the end of its input
//   slow      steps of 50 ms until it is told to stop
//   linger    reports its result, then waits until it is told to stop
//   astray    sees another device than it was given
// and anything else: a device that holds 20 micro-batches in its memory and takes 1 ms for each.

#include <google/protobuf/util/delimited_message_util.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <fcntl.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "hbmtune/v1/probe.pb.h"
#include "kernels/probe/request.h"
#include "kernels/probe/visible_gpu.h"

namespace {

using hbmtune::v1::ProbeEvent;
using hbmtune::v1::ProbeRequest;

constexpr int64_t kMicroBatchesThatFit = 20;

volatile sig_atomic_t interrupted = 0;

int journal = -1;  // open for appending, or none
int result = -1;   // open for writing, or none

void Put(int file, const std::string& text) {
  if (file >= 0 && write(file, text.data(), text.size()) < 0) _exit(1);
}

void Send(const ProbeEvent& event, int to = STDOUT_FILENO) {
  std::ostringstream text;
  google::protobuf::util::SerializeDelimitedToOstream(event, &text);
  Put(to, text.str());
}

void Note(const std::string& line) { Put(journal, line + "\n"); }

// Sleeps; true if told to stop meanwhile.
bool ToldToStop(int milliseconds) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, milliseconds) != 0) return true;  // end of file, or a signal
  return interrupted != 0;
}

void SendStep(int64_t index, double seconds) {
  ProbeEvent event;
  event.mutable_step()->set_index(index);
  event.mutable_step()->set_seconds(seconds);
  event.mutable_step()->set_loss(2.0 / static_cast<double>(index + 1));
  Send(event);
}

int Finish(const ProbeRequest& request, ProbeEvent& event) {
  const auto outcome = event.finished().measurement().outcome();
  const std::string name = hbmtune::v1::Outcome_Name(outcome).substr(8);  // without OUTCOME_
  if (outcome != hbmtune::v1::OUTCOME_CANCELLED) Send(event, result);
  Note("finished " + request.trial() + " " + name);
  Send(event);
  return 0;
}

int RunSteps(const ProbeRequest& request, bool endless) {
  const int64_t micro_batch = request.train_config().micro_batch();
  const double seconds = endless ? 0.05 : 0.001 * static_cast<double>(micro_batch);
  ProbeEvent end;
  auto& measurement = *end.mutable_finished()->mutable_measurement();
  measurement.set_capacity_bytes(request.memory_bytes());
  if (micro_batch > kMicroBatchesThatFit) {
    measurement.set_outcome(hbmtune::v1::OUTCOME_OUT_OF_MEMORY);
    measurement.set_message("out of memory in backward, linear");
    measurement.set_requested_bytes(request.memory_bytes());
    measurement.set_phase("backward");
    measurement.set_op("linear");
    return Finish(request, end);
  }
  for (int64_t step = 0; endless || step < 3; ++step) {
    if (ToldToStop(static_cast<int>(seconds * 1000))) {
      measurement.set_outcome(hbmtune::v1::OUTCOME_CANCELLED);
      return Finish(request, end);
    }
    SendStep(step, seconds);
  }
  const int64_t peak = request.memory_bytes() / kMicroBatchesThatFit * micro_batch;
  measurement.set_outcome(hbmtune::v1::OUTCOME_OK);
  measurement.set_steps(2);
  measurement.set_step_seconds(seconds);
  measurement.set_tokens_per_second(1000.0 + static_cast<double>(micro_batch));
  measurement.set_peak_allocated_bytes(peak);
  measurement.set_peak_reserved_bytes(peak);
  measurement.set_peak_used_bytes(peak);
  auto& owner = *measurement.add_breakdown();
  owner.set_category(hbmtune::v1::CATEGORY_ACTIVATIONS);
  owner.set_bytes(peak);
  return Finish(request, end);
}

int Misbehave(const std::string& how) {
  if (how == "garbage") {
    std::cout << "\xff\xff\xff\xff\xff\xff\xff\xff" << std::flush;
    ToldToStop(-1);
    return 1;
  }
  if (how == "mute") return 3;
  if (how == "deaf") {
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    for (;;) sleep(1);
  }
  SendStep(0, 0.01);
  std::cerr << "first words\nassertion failed: last words" << std::endl;
  abort();
}

// Paths in the request, or files that came with it.
void OpenFiles(const hbmtune::probe::Request& request) {
  journal = request.journal_file;
  result = request.result_file;
  const std::string& journal_path = request.message.journal_path();
  const std::string& result_path = request.message.result_path();
  if (!journal_path.empty()) {
    journal = open(journal_path.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644);
  }
  if (!result_path.empty()) {
    result = open(result_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  }
}

}  // namespace

int main() {
  const auto told = hbmtune::probe::ReadRequest(STDIN_FILENO);
  if (!told) return 1;
  const ProbeRequest& request = told->message;
  OpenFiles(*told);
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  const std::string& how = request.workload().model().name();
  hbmtune::probe::SeeOnlyGpu(request.gpu_unique_id());
  for (const char* name : {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
    if (const char* seen = getenv(name)) Note("sees " + request.trial() + " " + seen);
  }
  Note("started " + request.trial() + " " + std::to_string(getpid()));
  ProbeEvent started;
  started.mutable_started()->set_pid(getpid());
  started.mutable_started()->set_device(how == "astray" ? "0000:ff:00.0" : request.device());
  Send(started);
  if (how == "astray") return RunSteps(request, true);
  if (how == "crash" || how == "mute" || how == "garbage" || how == "deaf") return Misbehave(how);
  int status = RunSteps(request, how == "slow");
  if (how == "linger") ToldToStop(-1);
  return status;
}
