#include "kernels/comm/gloo_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::testing {
namespace {

using ::testing::HasSubstr;

// Runs `body` in one process a rank; returns the exit codes (0: body returned true).
std::vector<int> RunRanks(int size, const std::function<bool(comm::GlooCommunicator&)>& body,
                          std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  TempDir dir;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      bool good = false;
      try {
        comm::GlooCommunicator communicator({rank, size, dir.path() + "/meet", timeout});
        good = body(communicator);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      std::_Exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  std::vector<int> codes;
  for (pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128);
  }
  return codes;
}

TensorArg Arg(std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  return {values.data(), Dtype::kF32, {count}, {1}};
}

// Values whose sum depends on the order in which they are added.
float Value(int rank, int64_t i) { return (rank % 2 ? 1e-3f : 1e4f) * static_cast<float>(i + 1); }

float SumOfRanks(int size, int64_t i) {
  float sum = Value(0, i);
  for (int r = 1; r < size; ++r) sum += Value(r, i);
  return sum;
}

TEST(Gloo, AllReduceSumsInRankOrderWhateverTheBucket) {
  for (int size : {2, 3, 4}) {
    const auto codes = RunRanks(size, [](comm::GlooCommunicator& c) {
      for (int64_t count : {1, 2, 7, 64, 1001}) {
        std::vector<float> values(count);
        for (int64_t i = 0; i < count; ++i) values[i] = Value(c.rank(), i);
        c.AllReduce(Arg(values), Arg(values));
        for (int64_t i = 0; i < count; ++i) {
          if (values[i] != SumOfRanks(c.size(), i)) return false;
        }
      }
      return true;
    });
    EXPECT_EQ(codes, std::vector<int>(size, 0));
  }
}

TEST(Gloo, ReduceScatterAllGatherAndBroadcast) {
  const auto codes = RunRanks(4, [](comm::GlooCommunicator& c) {
    const int64_t each = 5;
    std::vector<float> all(4 * each), part(each), gathered(4 * each);
    for (int64_t i = 0; i < 4 * each; ++i) all[i] = Value(c.rank(), i);
    c.ReduceScatter(Arg(all), Arg(part));
    for (int64_t i = 0; i < each; ++i) {
      if (part[i] != SumOfRanks(4, c.rank() * each + i)) return false;
    }
    c.AllGather(Arg(part), Arg(gathered));
    for (int64_t i = 0; i < 4 * each; ++i) {
      if (gathered[i] != SumOfRanks(4, i)) return false;
    }
    std::vector<float> sent(3, static_cast<float>(c.rank()));
    c.Broadcast(Arg(sent), Arg(sent), 2);
    return sent == std::vector<float>(3, 2.0f);
  });
  EXPECT_EQ(codes, std::vector<int>(4, 0));
}

TEST(Gloo, EveryRankNamesTheOneThatDied) {
  const auto codes = RunRanks(3, [](comm::GlooCommunicator& c) {
    std::vector<float> values(1000, 1.0f);
    try {
      c.AllReduce(Arg(values), Arg(values));
      if (c.rank() == 1) std::_Exit(0);
      for (int i = 0; i < 10; ++i) c.AllReduce(Arg(values), Arg(values));
    } catch (const DeviceError& error) {
      std::fprintf(stderr, "rank %d: %s\n", c.rank(), error.what());
      return std::string(error.what()).find("rank 1 has ended") != std::string::npos;
    }
    return false;
  });
  EXPECT_EQ(codes, std::vector<int>(3, 0));
}

TEST(Gloo, ARankThatStallsIsGivenUp) {
  const auto codes = RunRanks(
      2,
      [](comm::GlooCommunicator& c) {
        std::vector<float> values(10, 1.0f);
        c.AllReduce(Arg(values), Arg(values));
        if (c.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::seconds(3));
          return true;
        }
        c.set_timeout(std::chrono::milliseconds(300));
        try {
          c.AllReduce(Arg(values), Arg(values));
        } catch (const DeviceError& error) {
          return std::string(error.what()) == "rank 1 does not answer any more";
        }
        return false;
      });
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

}  // namespace
}  // namespace hbmtune::testing
