#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace hbmtune::probe {

// A small training run on a text file, for people: does the step learn?
struct TrainOptions {
  std::string file;
  std::string model = "tiny-llama";  // a preset, or the path of a config.json
  int64_t steps = 100;
  int64_t seq_len = 128;
  int64_t micro_batch = 4;
  int64_t grad_accum = 1;
  std::string precision = "fp32";  // fp32, bf16-amp, fp16-amp or bf16
  std::string memory = "1GiB";
  double lr = 1e-3;
  int64_t threads = 0;
  int64_t seed = 0;
};

// Trains on the bytes of the file and prints the loss of every step. Returns the exit status.
int Train(const TrainOptions& options, std::ostream& out);

}  // namespace hbmtune::probe
