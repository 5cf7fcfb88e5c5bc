#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "kernels/memory/replay.h"
#include "kernels/probe/protocol.h"
#include "kernels/probe/train.h"

int main(int argc, char** argv) {
  CLI::App app("Runs one trial. Without flags it serves a prober over stdin and stdout.",
               "hbmtune-probe");
  hbmtune::probe::TrainOptions train;
  std::string trace;
  auto* file = app.add_option("--train", train.file, "train on the bytes of this text file");
  auto* replay =
      app.add_option("--replay", trace, "replay an allocator trace (JSON) and print statistics");
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
  app.add_option("--threads", train.threads, "threads, 0 for all cores")->capture_default_str();
  app.add_option("--seed", train.seed, "seed of weights and windows")->capture_default_str();
  file->excludes(replay);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (*file) return hbmtune::probe::Train(train, std::cout);
  if (*replay) {
    std::ifstream stream(trace);
    if (!stream) {
      std::cerr << "hbmtune-probe: cannot read " << trace << '\n';
      return 2;
    }
    return hbmtune::memory::ReplayTrace(stream, std::cout);
  }
  return hbmtune::probe::Serve(STDIN_FILENO, STDOUT_FILENO);
}
