#pragma once

#include <grpcpp/channel.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hbmtune/v1/tuning.pb.h"

namespace hbmtune::bench {

// What a client sees of Recommend calls, `outstanding` at a time.
struct Load {
  double seconds = 0;
  int64_t requests = 0;
  int64_t failures = 0;
  std::vector<double> latencies_seconds;

  double rate() const { return static_cast<double>(requests) / seconds; }
  double Percentile(double share);  // sorts
};

// Sends the questions in a random order until so many seconds or requests have passed.
Load SendRecommend(const std::shared_ptr<grpc::Channel>& channel,
                   const std::vector<v1::RecommendRequest>& questions, int outstanding,
                   double seconds, int64_t most_requests = INT64_MAX);

// Serves until killed: every Recommend is answered with the message in `answer_file`. The floor
// that gRPC itself sets, for the same bytes.
int ServeEcho(const std::string& socket, const std::string& answer_file);

// 200 studies of as many workloads, 50 finished trials each, in a state directory that no daemon
// has used yet. Returns the question for each workload.
std::vector<v1::RecommendRequest> FillStore(const std::string& state_dir, int studies,
                                            int trials_each);

// User and system time of a process so far.
double CpuSeconds(int pid);
int64_t ResidentBytes(int pid);

}  // namespace hbmtune::bench
