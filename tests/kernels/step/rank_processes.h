#pragma once

#include <string>
#include <vector>

#include "kernels/lowering/fused.h"

namespace hbmtune::testing {

// What every rank of a world trains: three steps.
struct Job {
  Workload workload;
  TrainConfig config;
  lowering::FusedOptions options;
  int64_t data_of_ranks = 1;  // micro-batches come from so many ranks' data in turn
};

// A small model of three layers on so many ranks.
Job MakeJob(const std::string& model, int64_t ranks, int64_t grad_accum = 1);

// Runs every rank in a process of its own over Gloo; the bytes that each wrote: three losses, the
// first step's gradients where they are kept, then the weights. A rank that fails is a failure.
std::vector<std::string> RunRanks(const Job& job);

std::vector<double> Doubles(const std::string& bytes, size_t count);

// Expects the same losses of all steps, and the same weights where the rank holds them whole.
void ExpectSame(const std::vector<std::string>& a, const std::vector<std::string>& b,
                const std::string& what);

}  // namespace hbmtune::testing
