#include "client/trials.h"

#include "client/progress.h"

namespace hbmtune::client {

absl::StatusOr<std::vector<v1::Trial>> ListTrials(const Connection& connection,
                                                  const std::string& study) {
  std::vector<v1::Trial> trials;
  v1::ListTrialsRequest request;
  request.set_parent(study);
  request.set_page_size(1000);
  do {
    auto page = Call(connection.tuning(), &v1::Tuning::StubInterface::ListTrials, request);
    if (!page.ok()) return page.status();
    trials.insert(trials.end(), page->trials().begin(), page->trials().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return trials;
}

absl::StatusOr<v1::Trial> FindTrial(const Connection& connection, const std::string& study,
                                    const std::string& number) {
  auto trials = ListTrials(connection, study);
  if (!trials.ok()) return trials.status();
  for (const v1::Trial& trial : *trials) {
    if (NumberOf(trial.name()) == number) return trial;
  }
  std::string text = "study " + NumberOf(study) + " has no trial " + number;
  if (trials->empty()) return absl::NotFoundError(text + ": it has none yet");
  return absl::NotFoundError(text + ": it has " + NumberOf(trials->front().name()) + " to " +
                             NumberOf(trials->back().name()));
}

}  // namespace hbmtune::client
