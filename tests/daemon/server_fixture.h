#pragma once

#include <absl/time/clock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/server.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "hbmtune/v1/devices.grpc.pb.h"
#include "hbmtune/v1/tuning.grpc.pb.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::daemon {

// A daemon in this process, in a folder of its own, with the fake probe; and a client of it.
class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(); }

  void Start() {
    Options options;
    options.state_dir = dir_.path();
    options.socket = dir_.path() + "/s";
    options.http = "127.0.0.1:0";
    options.probe_path = FAKE_PROBE;
    options.probe_journal = dir_.path() + "/journal";
    options.sysfs_root = dir_.path() + "/sys";
    Configure(options);
    FillDefaults(options);
    auto lock = LockFile::Acquire(dir_.path() + "/lock");
    ASSERT_TRUE(lock.ok()) << lock.status();
    auto server = Server::Start(options, *std::move(lock), clock_, log_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    // A channel of its own: gRPC would share one with an earlier server's backoff.
    grpc::ChannelArguments arguments;
    arguments.SetInt("test.run", ++runs_);
    auto channel = grpc::CreateCustomChannel("unix:" + options.socket,
                                             grpc::InsecureChannelCredentials(), arguments);
    tuning_ = v1::Tuning::NewStub(channel);
    devices_ = v1::Devices::NewStub(channel);
  }
  virtual void Configure(Options&) {}  // what a test wants otherwise
  void Stop() { server_.reset(); }
  std::string HttpAddress() const {
    return "127.0.0.1:" + std::to_string(server_->http_port());
  }

  // A Llama of a few thousand parameters, called `name`: it tells the fake probe what to do.
  static std::string TinyConfig() {
    return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
               "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
               "vocab_size": 256, "max_position_embeddings": 512})";
  }
  static v1::CreateStudyRequest HostRequest(const std::string& name) {
    v1::CreateStudyRequest request;
    request.mutable_workload()->set_seq_len(64);
    request.mutable_model()->set_config_json(TinyConfig());
    request.mutable_model()->set_name(name);
    // One that fits: the fake probe must get as far as misbehaving.
    if (name != "plain") (*request.mutable_pins())["micro_batch"] = "4";
    request.set_device("host");
    request.mutable_ceiling()->set_capacity_bytes(64 << 20);
    request.set_budget_seconds(30);
    request.set_max_trials(8);
    return request;
  }
  static v1::CreateStudyRequest ModelRequest() {
    v1::CreateStudyRequest request;
    request.mutable_workload()->set_framework(v1::FRAMEWORK_HF_SDPA_DEEPSPEED);
    request.mutable_model()->set_preset("llama2-13b");
    request.set_device("model:mi210");
    return request;
  }

  grpc::Status Create(const v1::CreateStudyRequest& request, v1::Study* study) {
    grpc::ClientContext context;
    return tuning_->CreateStudy(&context, request, study);
  }
  std::string MustCreate(const v1::CreateStudyRequest& request) {
    v1::Study study;
    grpc::Status status = Create(request, &study);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return study.name();
  }
  v1::Study Get(const std::string& name) {
    grpc::ClientContext context;
    v1::GetStudyRequest request;
    request.set_name(name);
    v1::Study study;
    grpc::Status status = tuning_->GetStudy(&context, request, &study);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return study;
  }
  // Follows a study to its end; returns its events.
  std::vector<v1::StudyEvent> Watch(const std::string& name) {
    grpc::ClientContext context;
    v1::WatchStudyRequest request;
    request.set_name(name);
    auto stream = tuning_->WatchStudy(&context, request);
    std::vector<v1::StudyEvent> events;
    v1::StudyEvent event;
    while (stream->Read(&event)) events.push_back(event);
    last_watch_ = stream->Finish();
    return events;
  }
  v1::Study Cancel(const std::string& name) {
    grpc::ClientContext context;
    v1::CancelStudyRequest request;
    request.set_name(name);
    v1::Study study;
    grpc::Status status = tuning_->CancelStudy(&context, request, &study);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return study;
  }
  std::vector<v1::Trial> Trials(const std::string& study) {
    grpc::ClientContext context;
    v1::ListTrialsRequest request;
    request.set_parent(study);
    v1::ListTrialsResponse response;
    EXPECT_TRUE(tuning_->ListTrials(&context, request, &response).ok());
    return {response.trials().begin(), response.trials().end()};
  }
  // What the probes themselves wrote: lines that begin with `word`.
  std::vector<std::string> JournalLines(const std::string& word) {
    std::ifstream file(dir_.path() + "/journal");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(word)) lines.push_back(line);
    }
    return lines;
  }
  static google::rpc::ErrorInfo InfoOf(const grpc::Status& status) {
    google::rpc::Status details;
    details.ParseFromString(status.error_details());
    google::rpc::ErrorInfo info;
    for (const auto& detail : details.details()) detail.UnpackTo(&info);
    return info;
  }
  static google::rpc::BadRequest BadRequestOf(const grpc::Status& status) {
    google::rpc::Status details;
    details.ParseFromString(status.error_details());
    google::rpc::BadRequest bad;
    for (const auto& detail : details.details()) detail.UnpackTo(&bad);
    return bad;
  }

  testing::TempDir dir_;
  SystemClock clock_;
  Log log_{LogFormat::kLogfmt, LogLevel::kDebug, dir_.path() + "/log"};
  int runs_ = 0;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::Tuning::Stub> tuning_;
  std::unique_ptr<v1::Devices::Stub> devices_;
  grpc::Status last_watch_;
};

}  // namespace hbmtune::daemon
