#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "kernels/core/regular_file.h"
#include "kernels/memory/replay.h"
#include "kernels/probe/calibrate.h"
#include "kernels/probe/protocol.h"
#include "kernels/probe/train.h"

namespace {

constexpr size_t kMostTraceBytes = size_t{1} << 30;

// libgomp's threads spin for 300,000 rounds at a barrier by default. Beside other work on the
// same cores they keep those that they wait for from running. Single runs at load 7, a rough
// ratio: 8.2 s a step, 0.34 s with OMP_WAIT_POLICY=passive; 1000 itself was not timed. It
// reads the variable when it is loaded, before main, so the program starts itself once more.
// https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
void SpinBriefly(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || setenv("GOMP_SPINCOUNT", "1000", 0) != 0) return;
  execv(self.c_str(), argv);  // returns where it cannot: then it is slower, no more
}

// Returns 0, 1 if allocations ran out of memory, 2 if there is no valid trace at `path`.
int Replay(const std::string& path) {
  std::ostringstream out;
  int code = 1;
  try {
    std::istringstream in(hbmtune::ReadRegularFile(path, kMostTraceBytes));
    code = hbmtune::memory::ReplayTrace(in, out);
  } catch (const std::invalid_argument& error) {
    std::cerr << "hbmtune-probe: " << error.what() << '\n';
    return 2;
  }
  if (code == 1) {
    std::cerr << "hbmtune-probe: " << path << " is " << out.str();
    return 2;
  }
  std::cout << out.str() << std::flush;
  if (!std::cout) {
    std::cerr << "hbmtune-probe: cannot write the statistics: " << std::strerror(errno) << '\n';
    return 1;
  }
  return code == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // A prober's probe starts once: its environment is the prober's to choose, and a second start
  // would cost 30 ms.
  if (argc > 1) SpinBriefly(argv);
  CLI::App app("Runs one trial. Without flags it serves a prober over stdin and stdout.",
               "hbmtune-probe");
  hbmtune::probe::TrainOptions train;
  std::string trace;
  std::string profile;
  double budget_seconds = 45;
  auto* file = app.add_option("--train", train.file, "train on the bytes of this text file");
  auto* replay =
      app.add_option("--replay", trace, "replay an allocator trace (JSON) and print statistics");
  auto* calibrate =
      app.add_option("--calibrate", profile, "measure this machine and write its profile (TOML)");
  app.add_option("--budget", budget_seconds, "seconds for the products of a calibration")
      ->check(CLI::Range(0.0, 3600.0))->capture_default_str();
  app.add_option("--model", train.model, "preset or path of a config.json")->capture_default_str();
  app.add_option("--steps", train.steps, "optimizer steps")
      ->check(CLI::Range(2, 1'000'000))->capture_default_str();
  app.add_option("--seq-len", train.seq_len, "tokens in a sequence")->capture_default_str();
  app.add_option("--micro-batch", train.micro_batch, "sequences at once")->capture_default_str();
  app.add_option("--grad-accum", train.grad_accum, "micro-batches a step")->capture_default_str();
  app.add_option("--precision", train.precision, "fp32, bf16-amp, fp16-amp or bf16")
      ->capture_default_str();
  app.add_option("--memory", train.memory, "budget of device memory")->capture_default_str();
  app.add_option("--lr", train.lr, "learning rate")->capture_default_str();
  app.add_option("--threads", train.threads, "threads, 0 for all cores")
      ->check(CLI::Range(0, 1024))->capture_default_str();
  app.add_option("--seed", train.seed, "seed of weights and windows")->capture_default_str();
  file->excludes(replay);
  calibrate->excludes(file)->excludes(replay);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (*file) return hbmtune::probe::Train(train, std::cout);
  if (*replay) return Replay(trace);
  if (*calibrate) {
    return hbmtune::probe::Calibrate(profile, static_cast<int>(train.threads), budget_seconds,
                                     std::cout);
  }
  return hbmtune::probe::Serve(STDIN_FILENO, STDOUT_FILENO);
}
