// The daemon's small rooms: options, log lines, events, sockets, HTTP.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/base/log.h"
#include "daemon/http/http_server.h"
#include "daemon/http/metrics.h"
#include "daemon/net/peers.h"
#include "daemon/net/unix_socket.h"
#include "daemon/options.h"
#include "daemon/services/kept_answers.h"
#include "daemon/studies/event_hub.h"
#include "hbmtune/v1/devices.pb.h"
#include "hbmtune/v1/tuning.pb.h"
#include "proto/convert.h"
#include "tests/support/temp_dir.h"
#include "tuner/export/export.h"

namespace hbmtune::daemon {
namespace {

using ::testing::HasSubstr;

TEST(Options, AFlagGoesBeforeTheFile) {
  testing::TempDir dir;
  const std::string file = dir.path() + "/c.toml";
  {
    std::ofstream out(file);
    out << "http = \"off\"\nlog_format = \"json\"\nstate_dir = \"/from/file\"\n";
  }
  const char* argv[] = {"hbmtuned", "--config", file.c_str(), "--state-dir", "/from/flag"};
  auto options = ParseOptions(5, argv);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->state_dir, "/from/flag");
  EXPECT_EQ(options->http, "off");
  EXPECT_EQ(options->log_format, LogFormat::kJson);
}

TEST(Options, NameThePlaceAndTheKeyThatAreWrong) {
  const auto error = [](const std::string& text) {
    Options options;
    Origins origins;
    absl::Status status = ApplyToml(text, "f.toml", options, origins);
    if (status.ok()) status = CheckOptions(options, origins);
    return std::string(status.message());
  };
  EXPECT_EQ(error("sokcet = \"x\""), "f.toml:1: sokcet: unknown field");
  EXPECT_EQ(error("# a\nlog_level = \"loud\""),
            "f.toml:2: log_level: 'loud' is not debug, info, warning or error");
  EXPECT_EQ(error("http = 9464"), "f.toml:1: http: must be a string");
  EXPECT_EQ(error("\n\nmax_connections = \"8\""),
            "f.toml:3: max_connections: must be a whole number");
  EXPECT_EQ(error("keep_memory_days = [1]"), "f.toml:1: keep_memory_days: must be a number");
  EXPECT_EQ(error("keep_studies_days = 2147483648"),
            "f.toml:1: keep_studies_days = 2.14748e+09: must be a time from 0 to 1e9");
  EXPECT_EQ(error("\nmax_connections = 0"),
            "f.toml:2: max_connections = 0: must be from 1 to 40000");
  EXPECT_EQ(error("profile_dir = \"/nope\""),
            "f.toml:1: profile_dir = \"/nope\": there is no such folder");
  EXPECT_THAT(error("a = \n"), HasSubstr("f.toml:1:"));
  EXPECT_EQ(error("max_connections = 8"), "");
}

TEST(Options, AFileThatCannotBeReadIsNotAnEmptyOne) {
  const char* argv[] = {"hbmtuned", "--config", "/proc/self/mem"};  // no page at its beginning
  EXPECT_EQ(ParseOptions(3, argv).status().message(),
            "cannot read the config /proc/self/mem: reading it failed");
}

TEST(Log, QuotesWhatNeedsIt) {
  EXPECT_EQ(FormatLogLine(LogFormat::kLogfmt, "probe ends", {{"trial", "studies/1"}, {"n", 3}}),
            "msg=\"probe ends\" trial=studies/1 n=3");
  EXPECT_EQ(FormatLogLine(LogFormat::kLogfmt, "x", {{"why", "a \"b\"\n"}, {"none", ""}}),
            "msg=\"x\" why=\"a \\\"b\\\"\\n\" none=\"\"");
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, "x", {{"why", "\xff"}}),
            "\"msg\":\"x\",\"why\":\"\xef\xbf\xbd\"");
}

TEST(EventHub, ASlowReaderIsToldWhatItMissedAndStillSeesTheEnd) {
  EventHub hub;
  auto reader = hub.Subscribe(1);
  const size_t sent = Subscription::kCapacity + 10;
  for (size_t i = 0; i < sent; ++i) hub.Publish(1, TrialProgress{});
  StudyRecord ended;
  ended.id = 1;
  ended.state = StudyState::kSucceeded;
  hub.End(ended);
  int64_t seen = 0;
  int64_t missed = 0;
  std::shared_ptr<const StudyEvent> last;
  while (auto item = reader->Pop()) {
    ++seen;
    missed += item->missed;
    last = item->event;
  }
  EXPECT_EQ(seen + missed, static_cast<int64_t>(sent) + 1);
  EXPECT_TRUE(std::holds_alternative<StudyRecord>(*last));
  EXPECT_TRUE(reader->exhausted());
}

TEST(EventHub, TellsOnlyTheReadersOfThatStudy) {
  EventHub hub;
  auto one = hub.Subscribe(1);
  auto two = hub.Subscribe(2);
  int told = 0;
  two->SetNotify([&] { ++told; });
  hub.Publish(1, TrialProgress{});
  EXPECT_EQ(told, 1);  // at once, when it was set
  EXPECT_TRUE(one->Pop().has_value());
  EXPECT_FALSE(two->Pop().has_value());
  hub.EndAll();
  EXPECT_EQ(told, 2);
  EXPECT_TRUE(two->exhausted());
}

TEST(KeptAnswers, AreThoseOfTheSameQuestionUntilItChanges) {
  testing::TempDir dir;
  auto database = Database::Open(dir.path() + "/db");
  ASSERT_TRUE(database.ok()) << database.status();
  StudyStore store(**database);
  StudySpec spec;
  spec.device = "host";
  KeptAnswers kept(store);
  const grpc::Slice bytes("answer");
  const grpc::ByteBuffer answer(&bytes, 1);
  const std::string question = StudyStore::QuestionOf(spec);
  kept.Keep("asked", question, store.changes(), absl::Seconds(1), answer);
  EXPECT_TRUE(kept.Find("asked", absl::Seconds(11)).has_value());
  EXPECT_FALSE(kept.Find("asked", absl::Seconds(12)).has_value());
  EXPECT_FALSE(kept.Find("other", absl::Seconds(1)).has_value());
  store.NoteChange(spec);
  EXPECT_FALSE(kept.Find("asked", absl::Seconds(1)).has_value());
}

TEST(KeptAnswers, AreNotKeptForLongRequests) {
  testing::TempDir dir;
  auto database = Database::Open(dir.path() + "/db");
  ASSERT_TRUE(database.ok()) << database.status();
  StudyStore store(**database);
  KeptAnswers kept(store);
  const std::string longest(16 << 10, 'x');
  kept.Keep(longest, "question", 0, absl::ZeroDuration(), {});
  kept.Keep(longest + "x", "question", 0, absl::ZeroDuration(), {});
  EXPECT_TRUE(kept.Find(longest, absl::ZeroDuration()).has_value());
  EXPECT_FALSE(kept.Find(longest + "x", absl::ZeroDuration()).has_value());
}

TEST(UnixSocket, RefusesALiveOneAndReplacesADeadOne) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/s";
  {
    auto first = UnixSocket::Listen(path, 0600);
    ASSERT_TRUE(first.ok()) << first.status();
    auto second = UnixSocket::Listen(path, 0600);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("another hbmtuned (process "));
    EXPECT_TRUE(ConnectUnix(path).ok());
  }
  EXPECT_FALSE(ConnectUnix(path).ok());
  ASSERT_EQ(mknod(path.c_str(), S_IFSOCK | 0600, 0), 0);  // what a dead daemon left
  EXPECT_TRUE(UnixSocket::Listen(path, 0600).ok());
}

TEST(UnixSocket, NeverReplacesAFileThatIsNoSocket) {
  testing::TempDir dir;
  const std::string path = dir.path() + "/precious.json";
  std::ofstream(path) << "{}";
  EXPECT_THAT(std::string(UnixSocket::Listen(path, 0600).status().message()),
              HasSubstr("is no socket"));
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

TEST(UnixSocket, TakesAPathThatIsTooLongForAnAddress) {
  testing::TempDir dir;
  const std::string deep = dir.path() + "/" + std::string(120, 'd');
  ASSERT_EQ(mkdir(deep.c_str(), 0700), 0);
  auto socket = UnixSocket::Listen(deep + "/s", 0600);
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_TRUE(ConnectUnix(deep + "/s").ok());
  auto impossible = UnixSocket::Listen(deep + "/" + std::string(100, 's'), 0600);
  EXPECT_TRUE(absl::IsInvalidArgument(impossible.status())) << impossible.status();
}

TEST(Peers, KnowsOnlyLiveConnections) {
  Peers peers;
  peers.Add(300, {1000, 100, 42});
  ASSERT_TRUE(peers.Find("fd:300").has_value());
  EXPECT_EQ(peers.Find("fd:300")->uid, 1000);
  EXPECT_EQ(peers.CountOf(1000), 1U);
  EXPECT_FALSE(peers.Find("unix:").has_value());
  EXPECT_FALSE(peers.Find("fd:3000").has_value());
  peers.Remove(300);
  EXPECT_FALSE(peers.Find("fd:300").has_value());
}

TEST(HttpServer, ListensOnLoopbackOnly) {
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start("0.0.0.0:0", {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start("9464", {}).status()));
  EXPECT_TRUE(IsLoopbackHost("127.0.0.1:1"));
  EXPECT_TRUE(IsLoopbackHost("localhost"));
  EXPECT_FALSE(IsLoopbackHost("localhost.evil.example"));
  EXPECT_FALSE(IsLoopbackHost("evil.example:80"));
}

// services/messages.cc turns these enums into messages by their order.
template <class E>
void ExpectSameOrder(const google::protobuf::EnumDescriptor* descriptor) {
  ASSERT_EQ(descriptor->value_count(), static_cast<int>(EnumNames<E>::kNames.size()) + 1);
  for (size_t i = 0; i < EnumNames<E>::kNames.size(); ++i) {
    EXPECT_EQ(descriptor->FindValueByNumber(static_cast<int>(i) + 1)->name(),
              ProtoEnumName(descriptor->name(), EnumNames<E>::kNames[i]));
  }
}

TEST(Messages, EnumsHaveTheOrderOfTheirMessages) {
  ExpectSameOrder<StudyState>(v1::StudyState_descriptor());
  ExpectSameOrder<TrialState>(v1::TrialState_descriptor());
  ExpectSameOrder<DeviceKind>(v1::DeviceKind_descriptor());
  ExpectSameOrder<ExportFormat>(v1::ExportFormat_descriptor());
}

TEST(Metrics, CountTrialsByOutcome) {
  Metrics metrics;
  TrialRecord trial;
  trial.measurement.emplace().outcome = Outcome::kOutOfMemory;
  trial.seconds = 3;
  metrics.CountTrial(trial, DeviceKind::kHost);
  metrics.AddGauge("hbmtune_connections", "Clients", [] { return 2.0; });
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("hbmtune_trials_total{device_kind=\"host\","
                              "outcome=\"out_of_memory\"} 1"));
  EXPECT_THAT(text, HasSubstr("hbmtune_probe_duration_seconds_sum 3"));
  EXPECT_THAT(text, HasSubstr("hbmtune_connections 2"));
}

}  // namespace
}  // namespace hbmtune::daemon
