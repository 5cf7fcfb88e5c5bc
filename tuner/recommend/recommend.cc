#include "tuner/recommend/recommend.h"

#include <algorithm>
#include <map>

#include "kernels/core/json.h"
#include "kernels/core/units.h"
#include "tuner/recommend/describe.h"
#include "tuner/search/arm.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

constexpr size_t kRunnersUp = 5;

Candidate ToCandidate(const Workload& workload, const Trial& trial) {
  Candidate candidate;
  candidate.train_config = trial.config;
  candidate.estimate = trial.estimate;
  candidate.measurement = trial.measurement;
  candidate.tokens_per_second = TokensPerSecond(trial);
  candidate.peak_used_bytes = PeakUsedBytes(trial);
  candidate.evidence = EvidenceOf(workload.framework, trial.estimate, trial.measurement);
  if (trial.measurement) {
    candidate.step_seconds = trial.measurement->step_seconds;
  } else {
    candidate.step_seconds = trial.estimate->step_seconds;
  }
  return candidate;
}

// Of a config tried twice the later trial counts.
std::vector<Candidate> Ranked(const Workload& workload, const History& history) {
  std::map<std::string, const Trial*> latest;
  for (const Trial& trial : history) {
    if (Fitted(trial)) latest[ToJson(trial.config).dump()] = &trial;
  }
  std::vector<const Trial*> ranked;
  for (const Trial& trial : history) {
    if (Fitted(trial) && latest[ToJson(trial.config).dump()] == &trial) ranked.push_back(&trial);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](const Trial* a, const Trial* b) {
    return Ahead(workload.framework, *a, *b);
  });
  std::vector<Candidate> candidates;
  for (const Trial* trial : ranked) candidates.push_back(ToCandidate(workload, *trial));
  return candidates;
}

// "weights 12.55 GiB, logits 3.91 GiB": the two largest, or "" if nothing is known.
std::string LargestOwners(const Candidate& candidate) {
  std::vector<CategoryBytes> owners;
  if (candidate.measurement) owners = candidate.measurement->breakdown;
  if (owners.empty() && candidate.estimate) owners = candidate.estimate->breakdown;
  auto more = [](const CategoryBytes& a, const CategoryBytes& b) { return a.bytes > b.bytes; };
  std::stable_sort(owners.begin(), owners.end(), more);
  std::string text;
  for (size_t i = 0; i < owners.size() && i < 2 && owners[i].bytes > 0; ++i) {
    text += Text(i > 0 ? ", " : "", Name(owners[i].category), " ", FormatBytes(owners[i].bytes));
  }
  return text;
}

struct Limit {
  std::string word;
  std::string sentence;
};

Limit MemoryLimit(const Candidate& best, const Bracket& bracket) {
  std::string owners = LargestOwners(best);
  return {"memory", Text("micro-batch ", *bracket.fails, " runs out of memory",
                         owners.empty() ? "" : "; most is held by " + owners)};
}

// Something larger fits and is no faster: what the time goes to is the limit.
Limit SpeedLimit(const Candidate& best, const Bracket& bracket) {
  std::string word = "compute";
  if (best.estimate && !best.estimate->limited_by.empty() &&
      best.estimate->limited_by != "memory") {
    word = best.estimate->limited_by;
  }
  return {word, Text("micro-batch ", bracket.fits, " fits too but is no faster")};
}

Limit BatchLimit(const Workload& workload, const std::vector<int64_t>& micro_batches) {
  if (workload.global_batch > 0) {
    return {"batch", Text("a global batch of ", workload.global_batch, " on ",
                          workload.world_size, workload.world_size == 1 ? " rank" : " ranks",
                          " allows no larger micro-batch")};
  }
  return {"batch", Text("no micro-batch over ", micro_batches.back(), " is searched")};
}

Limit FindLimit(const Space& space, const History& history, const Candidate& best) {
  EstimateCache none{Estimator{}};
  Arm arm = MakeArm(space, best.train_config, none);
  std::vector<std::string> keys;
  for (const Trial& trial : history) keys.push_back(SettingKey(space, trial.config));
  Bracket bracket = FindBracket(space, arm, history, keys);
  int64_t m = best.train_config.micro_batch;
  int64_t target = LimitTarget(space.micro_batches(), m);
  if (target == 0) return BatchLimit(space.workload(), space.micro_batches());
  if (bracket.fits > m) return SpeedLimit(best, bracket);
  if (bracket.fails && *bracket.fails <= target) return MemoryLimit(best, bracket);
  return {"budget", Text("no larger micro-batch than ", m, " was tried before the search ended")};
}

}  // namespace

absl::StatusOr<Recommendation> Choose(const Space& space, const History& history) {
  std::vector<Candidate> ranked = Ranked(space.workload(), history);
  if (ranked.empty()) return absl::NotFoundError("no trial has fitted in memory yet");
  Recommendation recommendation;
  for (const Trial& trial : history) {
    recommendation.trials += trial.finished;
    recommendation.out_of_memory_trials += RanOutOfMemory(trial);
  }
  recommendation.best = ranked.front();
  for (size_t i = 1; i < ranked.size() && i <= kRunnersUp; ++i) {
    ranked[i].differs_in = Differences(ranked.front().train_config, ranked[i].train_config);
    recommendation.runners_up.push_back(std::move(ranked[i]));
  }
  Limit limit = FindLimit(space, history, recommendation.best);
  recommendation.limited_by = limit.word;
  recommendation.why = limit.sentence;
  return recommendation;
}

}  // namespace hbmtune::tuner
