// What the services accept and refuse.
#include <gmock/gmock.h>

#include <functional>

#include "daemon/services/status.h"
#include "tests/daemon/server_fixture.h"

namespace hbmtune::daemon {
namespace {

using ::testing::HasSubstr;

using ApiTest = ServerTest;

TEST_F(ApiTest, ARepeatedRequestIsOneStudy) {
  v1::CreateStudyRequest request = ModelRequest();
  request.set_client_request_id("6ba7b810");
  const std::string name = MustCreate(request);
  EXPECT_EQ(MustCreate(request), name);
  request.set_seed(1);
  v1::Study study;
  grpc::Status status = Create(request, &study);
  EXPECT_EQ(status.error_code(), grpc::ALREADY_EXISTS);
  EXPECT_EQ(InfoOf(status).reason(), "REQUEST_ID_REUSED");
  EXPECT_EQ(InfoOf(status).metadata().at("study"), name);
}

struct Mistake {
  const char* what;
  std::function<void(v1::CreateStudyRequest&)> make;
  grpc::StatusCode code;
  const char* field;     // of the BadRequest; "" for none
  const char* sentence;  // part of the message
};

TEST_F(ApiTest, EachMistakeInAStudyHasItsSentence) {
  using R = v1::CreateStudyRequest;
  const Mistake mistakes[] = {
      {"no JSON", [](R& r) { r.mutable_model()->set_config_json("{"); }, grpc::INVALID_ARGUMENT,
       "model.config_json", "JSON"},
      {"no hidden_size", [](R& r) {
         r.mutable_model()->set_config_json(R"({"architectures": ["LlamaForCausalLM"]})");
       }, grpc::INVALID_ARGUMENT, "model.config_json", "hidden_size"},
      {"unknown architecture", [](R& r) {
         r.mutable_model()->set_config_json(R"({"architectures": ["BertModel"]})");
       }, grpc::INVALID_ARGUMENT, "model.config_json", "Bert"},
      {"unknown preset", [](R& r) { r.mutable_model()->set_preset("lama2-13b"); },
       grpc::INVALID_ARGUMENT, "model.preset", "did you mean llama2-13b?"},
      {"no model", [](R& r) { r.clear_model(); }, grpc::INVALID_ARGUMENT, "model", "no model"},
      {"sequence too long", [](R& r) { r.mutable_workload()->set_seq_len(1 << 20); },
       grpc::INVALID_ARGUMENT, "workload", "1048576"},
      {"indivisible batch", [](R& r) {
         r.mutable_workload()->set_global_batch(7);
         r.mutable_workload()->set_world_size(2);
       }, grpc::INVALID_ARGUMENT, "workload", "7"},
      {"unknown device", [](R& r) { r.set_device("model:mi21"); }, grpc::NOT_FOUND, "",
       "did you mean model:mi210?"},
      {"no prefix", [](R& r) { r.set_device("mi210"); }, grpc::NOT_FOUND, "",
       "did you mean model:mi210?"},
      {"no device", [](R& r) { r.clear_device(); }, grpc::INVALID_ARGUMENT, "device", "no device"},
      {"budget of 0 on host", [](R& r) { r.set_device("host"); }, grpc::INVALID_ARGUMENT,
       "budget_seconds", "budget of 0"},
      {"negative budget", [](R& r) { r.set_budget_seconds(-1); }, grpc::INVALID_ARGUMENT,
       "budget_seconds", "budget"},
      {"too much memory", [](R& r) {
         r.set_device("host");
         r.set_budget_seconds(1);
         r.mutable_ceiling()->set_capacity_bytes(int64_t{1} << 50);
       }, grpc::INVALID_ARGUMENT, "ceiling.capacity_bytes", "1024.00 TiB"},
      {"unknown designer", [](R& r) { r.set_designer("oracle"); }, grpc::INVALID_ARGUMENT,
       "designer", "bracket"},
      {"unknown pin", [](R& r) { (*r.mutable_pins())["zero.stag"] = "1"; },
       grpc::INVALID_ARGUMENT, "pins", "zero.stag"},
      {"a tunable that the framework lacks", [](R& r) {
         r.mutable_workload()->set_framework(v1::FRAMEWORK_HF_SDPA);
         (*r.mutable_pins())["zero.stage"] = "2";
       }, grpc::INVALID_ARGUMENT, "pins", "zero.stage"},
      {"an enum of the future", [](R& r) {
         r.mutable_workload()->set_optimizer(static_cast<v1::Optimizer>(77));
       }, grpc::INVALID_ARGUMENT, "workload.optimizer", "77"},
  };
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.what);
    v1::CreateStudyRequest request = ModelRequest();
    mistake.make(request);
    v1::Study study;
    grpc::Status status = Create(request, &study);
    EXPECT_EQ(status.error_code(), mistake.code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(mistake.sentence));
    const google::rpc::BadRequest bad = BadRequestOf(status);
    if (*mistake.field != '\0') {
      ASSERT_EQ(bad.field_violations_size(), 1);
      EXPECT_THAT(bad.field_violations(0).field(), HasSubstr(mistake.field));
    }
  }
  grpc::ClientContext context;
  v1::ListStudiesResponse studies;
  ASSERT_TRUE(tuning_->ListStudies(&context, {}, &studies).ok());
  EXPECT_EQ(studies.studies_size(), 0) << "a refused request must leave nothing behind";
}

// A config.json or a name may hold what a terminal obeys: clears the screen, sets its title.
TEST_F(ApiTest, WhatAMessageQuotesIsSpeltOut) {
  v1::CreateStudyRequest request = ModelRequest();
  request.mutable_model()->set_config_json(
      R"({"architectures": ["Bert\u001b[2J\u009b\u007f"]})");
  v1::Study study;
  grpc::Status status = Create(request, &study);
  EXPECT_THAT(status.error_message(), HasSubstr("Bert\\x1b[2J\\x9b\\x7f"));
  ASSERT_EQ(BadRequestOf(status).field_violations_size(), 1);
  EXPECT_THAT(BadRequestOf(status).field_violations(0).description(), HasSubstr("Bert\\x1b[2J"));
  EXPECT_EQ(Spelt("naïve “x”\n"), "naïve “x”\\x0a");
  EXPECT_EQ(Spelt("\xc2"), "\xc2");
}

TEST_F(ApiTest, UnknownNamesAreNotFound) {
  grpc::ClientContext context;
  v1::GetStudyRequest request;
  request.set_name("studies/99");
  v1::Study study;
  grpc::Status status = tuning_->GetStudy(&context, request, &study);
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(InfoOf(status).reason(), "UNKNOWN_STUDY");
  EXPECT_EQ(InfoOf(status).domain(), "hbmtune");
  Watch("studies/99");
  EXPECT_EQ(last_watch_.error_code(), grpc::NOT_FOUND);
  Watch("nonsense");
  EXPECT_EQ(last_watch_.error_code(), grpc::INVALID_ARGUMENT);
}

TEST_F(ApiTest, ListsInPages) {
  for (int i = 0; i < 5; ++i) MustCreate(ModelRequest());
  std::vector<std::string> names;
  v1::ListStudiesRequest request;
  request.set_page_size(2);
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListStudiesResponse response;
    ASSERT_TRUE(tuning_->ListStudies(&context, request, &response).ok());
    for (const auto& study : response.studies()) names.push_back(study.name());
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, 3);
  EXPECT_THAT(names, ::testing::ElementsAre("studies/5", "studies/4", "studies/3", "studies/2",
                                            "studies/1"));
  request.set_page_token("nonsense");
  grpc::ClientContext context;
  v1::ListStudiesResponse response;
  EXPECT_EQ(tuning_->ListStudies(&context, request, &response).error_code(),
            grpc::INVALID_ARGUMENT);
}

TEST_F(ApiTest, EstimatesOneConfigAndFillsInTheRest) {
  v1::EstimateRequest request;
  *request.mutable_workload() = ModelRequest().workload();
  request.mutable_workload()->set_global_batch(32);
  *request.mutable_model() = ModelRequest().model();
  request.set_device("model:mi300x");
  request.mutable_train_config()->set_micro_batch(4);
  v1::EstimateResponse response;
  {
    grpc::ClientContext context;
    grpc::Status status = tuning_->Estimate(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(response.train_config().grad_accum(), 8);
  EXPECT_GT(response.estimate().peak_used_bytes(), 0);
  EXPECT_GT(response.estimate().breakdown_size(), 2);
  EXPECT_EQ(response.estimate().evidence(), v1::EVIDENCE_PREDICTED);
  request.mutable_train_config()->set_micro_batch(5);
  grpc::ClientContext context;
  grpc::Status status = tuning_->Estimate(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(BadRequestOf(status).field_violations(0).field(), "train_config");
}

TEST_F(ApiTest, ExportsWhatAStudyRecommends) {
  const std::string name = MustCreate(ModelRequest());
  Watch(name);
  v1::ExportRequest request;
  request.set_study(name);
  request.set_format(v1::EXPORT_FORMAT_DEEPSPEED);
  v1::ExportResponse response;
  {
    grpc::ClientContext context;
    grpc::Status status = tuning_->Export(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_THAT(response.text(), HasSubstr("zero_optimization"));
  EXPECT_EQ(response.file_name(), "ds_config.json");
  request.set_trial(name + "/trials/1");
  {
    grpc::ClientContext context;
    EXPECT_TRUE(tuning_->Export(&context, request, &response).ok());
  }
  request.set_format(v1::EXPORT_FORMAT_UNSPECIFIED);
  grpc::ClientContext context;
  EXPECT_EQ(tuning_->Export(&context, request, &response).error_code(), grpc::INVALID_ARGUMENT);
}

TEST_F(ApiTest, ListsDevicesWithHostFirst) {
  grpc::ClientContext context;
  v1::ListDevicesResponse response;
  ASSERT_TRUE(devices_->ListDevices(&context, {}, &response).ok());
  ASSERT_GT(response.devices_size(), 2);
  EXPECT_EQ(response.devices(0).name(), "host");
  EXPECT_EQ(response.devices(0).kind(), v1::DEVICE_KIND_HOST);
  EXPECT_GT(response.devices(0).memory_bytes(), 0);
  EXPECT_EQ(response.devices(1).kind(), v1::DEVICE_KIND_MODEL);
}

}  // namespace
}  // namespace hbmtune::daemon
