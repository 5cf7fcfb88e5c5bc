#pragma once

#include <CLI/App.hpp>

#include <string>

namespace hbmtune::client {

// --job ID: a scheduler's name of a job, as its leases have it.
struct JobFlag {
  std::string job;

  void AddTo(CLI::App& app, const std::string& help, const std::string& group);
  // The flag, or else the job that we run in: $SLURM_JOB_ID, $FLUX_JOB_ID, $PBS_JOBID, $LSB_JOBID.
  // Empty: none.
  std::string OrEnvironment() const;
};

}  // namespace hbmtune::client
