#include "tests/kernels/step/rank_processes.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "kernels/comm/gloo_communicator.h"
#include "tests/kernels/lowering/small_models.h"
#include "tests/kernels/lowering/step_run.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::testing {
namespace {

class DataOfRanks final : public step::DataSource {
 public:
  explicit DataOfRanks(const Job& job) {
    for (int64_t r = 0; r < job.data_of_ranks; ++r) {
      sources_.push_back(step::SyntheticTokens(1, r, job.workload.model.vocab));
    }
  }
  void Fill(int64_t* ids, int64_t* labels, int64_t rows, int64_t tokens) override {
    sources_[next_++ % sources_.size()]->Fill(ids, labels, rows, tokens);
  }

 private:
  std::vector<std::unique_ptr<step::DataSource>> sources_;
  size_t next_ = 0;
};

// One rank: trains and writes what it has to `path`.
void RunRank(const Job& job, int rank, const std::string& folder) {
  omp_set_num_threads(1);
  const int size = static_cast<int>(job.workload.world_size);
  std::unique_ptr<comm::GlooCommunicator> communicator;
  if (size > 1) {
    communicator = std::make_unique<comm::GlooCommunicator>(comm::GlooOptions{
        rank, size, folder + "/meet", std::chrono::milliseconds(30'000)});
  }
  lowering::FusedOptions options = job.options;
  options.rank = rank;
  StepRun run(lowering::LowerFused(job.workload, job.config, options), true,
              {.memory_bytes = 64 << 20, .communicator = communicator.get()});
  run.Start(job.workload, 1, rank);
  if (job.data_of_ranks > 1) run.set_data(std::make_unique<DataOfRanks>(job));
  std::ofstream out(folder + "/" + std::to_string(rank), std::ios::binary);
  for (int i = 0; i < 3; ++i) {
    const double loss = run.Step();
    out.write(reinterpret_cast<const char*>(&loss), sizeof loss);
    if (i > 0 || !options.keep_gradients) continue;
    for (const NamedView& named : run.program().parameters) {
      for (double x : run.Values(named.name + ".grad")) {
        out.write(reinterpret_cast<const char*>(&x), sizeof x);
      }
    }
  }
  const auto bits = run.Bits();
  for (const NamedView& named : run.program().parameters) out << bits.at(named.name);
}

constexpr size_t kLossBytes = 3 * sizeof(double);

}  // namespace

Job MakeJob(const std::string& model, int64_t ranks, int64_t grad_accum) {
  Job job;
  job.workload = SmallWorkload(model);
  job.workload.model.layers = 3;
  job.workload.world_size = ranks;
  job.config.micro_batch = 2;
  job.config.grad_accum = grad_accum;
  job.config.zero.param_persistence_threshold = 100;
  return job;
}

std::vector<std::string> RunRanks(const Job& job) {
  TempDir dir;
  std::vector<pid_t> children;
  for (int rank = 0; rank < job.workload.world_size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      try {
        RunRank(job, rank, dir.path());
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        std::_Exit(1);
      }
      std::_Exit(0);
    }
    children.push_back(pid);
  }
  std::vector<std::string> written;
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank;
    std::ifstream file(dir.path() + "/" + std::to_string(rank), std::ios::binary);
    written.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return written;
}

std::vector<double> Doubles(const std::string& bytes, size_t count) {
  std::vector<double> values(count);
  std::memcpy(values.data(), bytes.data(), count * sizeof(double));
  return values;
}

void ExpectSame(const std::vector<std::string>& a, const std::vector<std::string>& b,
                const std::string& what) {
  EXPECT_EQ(Doubles(a[0], 3), Doubles(b[0], 3)) << what;
  for (size_t rank = 0; rank < a.size(); ++rank) {
    EXPECT_EQ(a[rank].substr(0, kLossBytes), a[0].substr(0, kLossBytes)) << what;
    if (a[rank].size() != b[rank].size()) continue;
    EXPECT_TRUE(a[rank] == b[rank]) << what << rank;
  }
}

}  // namespace hbmtune::testing
