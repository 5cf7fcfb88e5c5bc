#pragma once

#include <grpcpp/server.h>

#include <functional>
#include <memory>
#include <string>

#include "hbmtune/v1/devices.grpc.pb.h"
#include "hbmtune/v1/tuning.grpc.pb.h"

namespace hbmtune::client {

// A daemon on a real socket that answers as the test says; what is not set is UNIMPLEMENTED.
class FakeDaemon : public v1::Tuning::Service, public v1::Devices::Service {
 public:
  using Writer = grpc::ServerWriter<v1::StudyEvent>;

  explicit FakeDaemon(const std::string& socket);
  ~FakeDaemon() override;

  std::function<grpc::Status(grpc::ServerContext&, Writer&)> watch;
  std::function<grpc::Status(v1::Study&)> cancel;
  std::function<grpc::Status(const v1::GetStudyRequest&, v1::Study&)> get_study;

  grpc::Status WatchStudy(grpc::ServerContext* context, const v1::WatchStudyRequest*,
                          Writer* writer) override {
    return watch ? watch(*context, *writer) : Unset();
  }
  grpc::Status CancelStudy(grpc::ServerContext*, const v1::CancelStudyRequest*,
                           v1::Study* study) override {
    return cancel ? cancel(*study) : Unset();
  }
  grpc::Status GetStudy(grpc::ServerContext*, const v1::GetStudyRequest* request,
                        v1::Study* study) override {
    return get_study ? get_study(*request, *study) : Unset();
  }

 private:
  static grpc::Status Unset() { return {grpc::StatusCode::UNIMPLEMENTED, "not in this test"}; }

  std::unique_ptr<grpc::Server> server_;
};

}  // namespace hbmtune::client
