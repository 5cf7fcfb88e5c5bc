#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "kernels/comm/communicator.h"

namespace gloo {
class Context;
}

namespace hbmtune::comm {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  // A folder that all ranks share; made by whoever comes first. Used once.
  std::string rendezvous_path;
  // A rank that does not answer for so long is given up.
  std::chrono::milliseconds timeout{10'000};
};

// Ranks as processes on one machine, over Gloo's TCP transport on the loopback interface. Every
// collective exchanges with every other rank, so that a rank that died is named by all.
class GlooCommunicator final : public Communicator {
 public:
  // Meets the other ranks. Throws DeviceError if they do not come within the timeout.
  explicit GlooCommunicator(const GlooOptions& options);
  ~GlooCommunicator() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  void AllReduce(const TensorArg& from, const TensorArg& to) override;
  void ReduceScatter(const TensorArg& from, const TensorArg& to) override;
  void AllGather(const TensorArg& from, const TensorArg& to) override;
  void Broadcast(const TensorArg& from, const TensorArg& to, uint32_t root) override;

  void set_timeout(std::chrono::milliseconds timeout) { options_.timeout = timeout; }

 private:
  // Part `r` of a tensor that is cut between the ranks.
  struct Part {
    char* data;
    int64_t elements;
  };
  Part PartOf(const TensorArg& tensor, int r) const;
  // Sends sends[r] to rank r and fills receives[r] from it, for every other rank.
  void Exchange(const std::vector<Part>& sends, const std::vector<Part>& receives, Dtype dtype);
  // Σ over ranks, in rank order, of the part of each that belongs to this rank.
  void ReduceOwnPart(const TensorArg& from, const Part& to);

  GlooOptions options_;
  std::shared_ptr<gloo::Context> context_;
  uint64_t next_slot_ = 0;
};

}  // namespace hbmtune::comm
