#include "client/follow_many.h"

#include <grpcpp/completion_queue.h>

#include <chrono>
#include <memory>
#include <thread>

#include "client/interrupt.h"
#include "client/progress.h"

namespace hbmtune::client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick{100};
constexpr milliseconds kSendingTime{300};  // as in follow.cc: what a cancel takes to be sent
constexpr seconds kLookTime{5};
constexpr seconds kMostAbsence{10};

// The cancels under way, which the daemon answers only when a study's trial has stopped.
class Cancels {
 public:
  explicit Cancels(const Connection& connection) : connection_(connection) {}
  ~Cancels();

  void Send(const std::vector<v1::Study>& studies);
  // Until all are answered, or the time is over.
  void Await(milliseconds time);

  bool sent() const { return sent_; }

 private:
  struct Cancel {
    grpc::ClientContext context;
    v1::Study study;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReaderInterface<v1::Study>> reader;
  };

  const Connection& connection_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Cancel>> cancels_;
  size_t answered_ = 0;
  bool sent_ = false;
};

Cancels::~Cancels() {
  for (auto& cancel : cancels_) cancel->context.TryCancel();
  queue_.Shutdown();
  void* tag = nullptr;
  for (bool ok = false; queue_.Next(&tag, &ok);) {
  }
}

void Cancels::Send(const std::vector<v1::Study>& studies) {
  sent_ = true;
  for (const v1::Study& study : studies) {
    if (HasEnded(study)) continue;
    auto& cancel = cancels_.emplace_back(std::make_unique<Cancel>());
    v1::CancelStudyRequest request;
    request.set_name(study.name());
    cancel->reader = connection_.tuning().AsyncCancelStudy(&cancel->context, request, &queue_);
    cancel->reader->Finish(&cancel->study, &cancel->status, cancel.get());
  }
}

void Cancels::Await(milliseconds time) {
  const auto end = std::chrono::system_clock::now() + time;
  void* tag = nullptr;
  for (bool ok = false; answered_ < cancels_.size(); ++answered_) {
    if (queue_.AsyncNext(&tag, &ok, end) != grpc::CompletionQueue::GOT_EVENT) return;
  }
}

// What is known of each study that has not ended is brought up to date.
absl::Status Look(const Connection& connection, std::vector<v1::Study>& studies) {
  for (v1::Study& study : studies) {
    if (HasEnded(study)) continue;
    v1::GetStudyRequest request;
    request.set_name(study.name());
    auto now = Call(connection.tuning(), &v1::Tuning::StubInterface::GetStudy, request, kLookTime);
    // A daemon that is only slow is not gone: the next look asks again.
    if (absl::IsDeadlineExceeded(now.status())) continue;
    if (!now.ok()) return now.status();
    study = *std::move(now);
  }
  return absl::OkStatus();
}

bool AllEnded(const std::vector<v1::Study>& studies) {
  for (const v1::Study& study : studies) {
    if (!HasEnded(study)) return false;
  }
  return true;
}

}  // namespace

void CancelStudies(const Connection& connection, const std::vector<v1::Study>& studies,
                   milliseconds time) {
  Cancels cancels(connection);
  cancels.Send(studies);
  cancels.Await(time);
}

absl::StatusOr<std::vector<v1::Study>> FollowStudies(
    const Connection& connection, std::vector<v1::Study> studies,
    const std::function<void(const std::vector<v1::Study>&)>& look) {
  Cancels cancels(connection);
  auto heard = Clock::now();
  while (!AllEnded(studies)) {
    absl::Status status = Look(connection, studies);
    const bool gone = absl::IsUnavailable(status);
    if (!status.ok() && !gone) return status;
    if (!gone) heard = Clock::now();
    if (gone && Interrupted()) {
      return absl::AbortedError("interrupted, and the daemon is away: the studies may go on when "
                                "it is back; hbmtune cancel ends them then");
    }
    if (gone && Clock::now() - heard > kMostAbsence) {
      return absl::UnavailableError(std::string(status.message()) +
                                    "; the studies go on when it is back");
    }
    look(studies);
    if (Interrupted() && !cancels.sent()) cancels.Send(studies);
    if (InterruptedTwice()) {
      cancels.Await(kSendingTime);
      return absl::AbortedError("interrupted; the studies are being cancelled");
    }
    if (!AllEnded(studies)) std::this_thread::sleep_for(kTick);
  }
  return studies;
}

}  // namespace hbmtune::client
