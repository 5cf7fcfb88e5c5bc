#include "daemon/store/study_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "daemon/store/migrations.h"
#include "daemon/store/open.h"
#include "daemon/store/rows.h"
#include "kernels/core/json.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Database> OpenIn(const std::string& directory) {
    auto database = OpenStore(directory, clock_, log_);
    EXPECT_TRUE(database.ok()) << database.status();
    return database.ok() ? *std::move(database) : nullptr;
  }
  StudyRecord Study() {
    StudyRecord study;
    study.owner_uid = 1000;
    study.spec.workload.model.name = "tiny";
    study.spec.workload.model.hidden = 64;
    study.spec.workload.framework = Framework::kHfSdpaDeepspeed;
    study.spec.device = "host";
    study.spec.budget_seconds = 12.5;
    study.spec.pins = {{"zero.stage", "2"}, {"micro_batch", "1:16"}};
    study.create_time = absl::FromUnixMicros(1'700'000'000'123'456);
    return study;
  }
  TrialRecord Trial(const StudyRecord& study, int64_t number) {
    TrialRecord trial;
    trial.study_id = study.id;
    trial.number = number;
    trial.config.micro_batch = 3 * number;
    trial.config.zero.stage = 2;
    trial.config.param_dtype = Dtype::kBf16;
    trial.why = "because";
    trial.estimate.emplace().peak_used_bytes = 77;
    trial.estimate->breakdown = {{Category::kWeights, 5}, {Category::kLogits, 9}};
    trial.start_time = study.create_time + absl::Seconds(1);
    return trial;
  }
  static void Finish(TrialRecord& trial) {
    trial.state = TrialState::kFinished;
    trial.seconds = 2.25;
    trial.end_time = trial.start_time + absl::Seconds(2.25);
    trial.measurement.emplace().outcome = Outcome::kOutOfMemory;
    trial.measurement->message = "out of memory in backward";
    trial.measurement->breakdown = {{Category::kOptimizer, 11}};
  }

  testing::TempDir dir_;
  SystemClock clock_;
  Log log_{LogFormat::kLogfmt, LogLevel::kError, dir_.path() + "/log"};
};

TEST_F(StoreTest, GivesBackAStudyAsItWasStored) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  StudyRecord study = Study();
  ASSERT_TRUE(store.CreateStudy(study).ok());
  EXPECT_EQ(study.id, 1);
  study.state = StudyState::kRunning;
  study.progress.best_tokens_per_second = 1234.5;
  study.space_legal = 99;
  study.start_time = study.create_time + absl::Seconds(3);
  ASSERT_TRUE(store.UpdateStudy(study).ok());
  auto read = store.GetStudy(1);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(read->spec), ToJson(study.spec));
  EXPECT_EQ(read->spec.pins, study.spec.pins);
  EXPECT_EQ(read->state, StudyState::kRunning);
  EXPECT_EQ(ToJson(read->progress), ToJson(study.progress));
  EXPECT_EQ(read->create_time, study.create_time);
  EXPECT_EQ(read->start_time, study.start_time);
  EXPECT_EQ(read->end_time, absl::InfinitePast());
}

TEST_F(StoreTest, GivesBackATrialAsItWasStored) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  StudyRecord study = Study();
  ASSERT_TRUE(store.CreateStudy(study).ok());
  TrialRecord trial = Trial(study, 1);
  ASSERT_TRUE(store.StartTrial(trial).ok());
  auto started = store.GetTrial(1, 1);
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ(started->state, TrialState::kRunning);
  EXPECT_FALSE(started->measurement.has_value());
  Finish(trial);
  ASSERT_TRUE(store.FinishTrial(trial, study).ok());
  auto read = store.GetTrial(1, 1);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(read->config), ToJson(trial.config));
  EXPECT_EQ(ToJson(*read->estimate), ToJson(*trial.estimate));
  EXPECT_EQ(ToJson(*read->measurement), ToJson(*trial.measurement));
  EXPECT_EQ(read->why, "because");
  EXPECT_EQ(read->seconds, 2.25);
  EXPECT_EQ(read->end_time, trial.end_time);
  EXPECT_TRUE(absl::IsNotFound(store.GetTrial(1, 2).status()));
}

TEST_F(StoreTest, ListsPagesInOrder) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  for (int i = 0; i < 5; ++i) {
    StudyRecord study = Study();
    ASSERT_TRUE(store.CreateStudy(study).ok());
  }
  auto page = store.ListStudies(4, 2);
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(page->size(), 2U);
  EXPECT_EQ((*page)[0].id, 3);
  EXPECT_EQ((*page)[1].id, 2);
  StudyRecord study = *store.GetStudy(1);
  for (int64_t number = 1; number <= 4; ++number) {
    ASSERT_TRUE(store.StartTrial(Trial(study, number)).ok());
  }
  auto trials = store.ListTrials(1, 1, 2);
  ASSERT_TRUE(trials.ok());
  ASSERT_EQ(trials->size(), 2U);
  EXPECT_EQ((*trials)[0].number, 2);
  EXPECT_EQ((*trials)[1].estimate->breakdown.size(), 2U);
}

TEST_F(StoreTest, RemembersWhichStudyARequestMade) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  StudyRecord study = Study();
  study.client_request_id = "abc";
  study.request_hash = "hash";
  ASSERT_TRUE(store.CreateStudy(study).ok());
  auto known = store.FindRequest(1000, "abc");
  ASSERT_TRUE(known.ok() && known->has_value());
  EXPECT_EQ((*known)->study_id, 1);
  EXPECT_EQ((*known)->request_hash, "hash");
  EXPECT_FALSE(store.FindRequest(1001, "abc")->has_value());
  EXPECT_TRUE(absl::IsAlreadyExists(store.CreateStudy(study)));
}

TEST_F(StoreTest, FindsStudiesByTheirQuestionWhateverTheModelIsCalled) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  StudyRecord study = Study();
  study.progress.fitting_trials = 1;
  ASSERT_TRUE(store.CreateStudy(study).ok());
  Workload same = study.spec.workload;
  same.model.name = "another name";
  EXPECT_THAT(*store.StudiesOf(same, "host"), ::testing::ElementsAre(1));
  EXPECT_TRUE(store.StudiesOf(same, "model:mi210")->empty());
  same.seq_len += 1;
  EXPECT_TRUE(store.StudiesOf(same, "host")->empty());
}

TEST_F(StoreTest, ACancelKeepsItsFirstReasonWhateverElseIsWritten) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  StudyRecord study = Study();
  ASSERT_TRUE(store.CreateStudy(study).ok());
  EXPECT_EQ(store.GetStudy(1)->cancel_reason, "");
  ASSERT_TRUE(store.NoteCancel(1, "first").ok());
  ASSERT_TRUE(store.NoteCancel(1, "second").ok());
  // Its session knows nothing of the cancel, and goes on writing.
  study.state = StudyState::kRunning;
  ASSERT_TRUE(store.UpdateStudy(study).ok());
  TrialRecord trial = Trial(study, 1);
  Finish(trial);
  ASSERT_TRUE(store.FinishTrial(trial, study).ok());
  EXPECT_EQ(store.GetStudy(1)->cancel_reason, "first");
  EXPECT_EQ(store.UnfinishedStudies()->front().cancel_reason, "first");

  StudyRecord ended = Study();
  ended.state = StudyState::kSucceeded;
  ASSERT_TRUE(store.CreateStudy(ended).ok());
  ASSERT_TRUE(store.NoteCancel(ended.id, "too late").ok());
  EXPECT_EQ(store.GetStudy(ended.id)->cancel_reason, "");
}

TEST_F(StoreTest, AStudyThatHasEndedHasNoTrialThatRuns) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  for (int i = 0; i < 2; ++i) {
    StudyRecord study = Study();
    ASSERT_TRUE(store.CreateStudy(study).ok());
    TrialRecord finished = Trial(study, 1);
    Finish(finished);
    ASSERT_TRUE(store.FinishTrial(finished, study).ok());
    ASSERT_TRUE(store.StartTrial(Trial(study, 2)).ok());
  }
  StudyRecord study = *store.GetStudy(1);
  study.state = StudyState::kRunning;
  ASSERT_TRUE(store.UpdateStudy(study).ok());
  EXPECT_EQ(store.GetTrial(1, 2)->state, TrialState::kRunning);
  study.state = StudyState::kCancelled;
  ASSERT_TRUE(store.UpdateStudy(study).ok());
  EXPECT_EQ(store.GetTrial(1, 1)->state, TrialState::kFinished);
  EXPECT_EQ(store.GetTrial(1, 2)->state, TrialState::kAbandoned);
  EXPECT_EQ(store.GetTrial(2, 2)->state, TrialState::kRunning);
}

TEST_F(StoreTest, KeepsTheStudiesOfAnEarlierVersion) {
  {
    auto before = Database::Open(dir_.path() + "/hbmtune.db");
    ASSERT_TRUE(before.ok()) << before.status();
    ASSERT_TRUE(Migrate(**before, EmbeddedMigrations().first(3)).ok());
    StudyRecord study = Study();
    ASSERT_TRUE(StudyStore(**before).CreateStudy(study).ok());
  }
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  auto study = store.GetStudy(1);
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_EQ(ToJson(study->spec), ToJson(Study().spec));
  EXPECT_EQ(study->cancel_reason, "");
  ASSERT_TRUE(store.NoteCancel(1, "why").ok());
  EXPECT_EQ(store.GetStudy(1)->cancel_reason, "why");
}

// Every stored field has a column: what the structs say and what the migrations made.
TEST_F(StoreTest, HasAColumnForEveryField) {
  auto database = OpenIn(dir_.path());
  auto columns_of = [&](const std::string& table) {
    std::set<std::string> names;
    auto rows = database->Query("SELECT name FROM pragma_table_info(?)", {table});
    for (const Row& row : *rows) names.insert(row.Text("name"));
    return names;
  };
  TrialRecord trial;
  trial.estimate.emplace();
  std::vector<Column> of_trial = TrialColumns(trial);
  for (Column& column : MeasurementColumns({})) of_trial.push_back(std::move(column));
  const std::set<std::string> trials = columns_of("trials");
  for (const Column& column : of_trial) EXPECT_TRUE(trials.contains(column.name)) << column.name;
  const std::set<std::string> studies = columns_of("studies");
  for (const Column& column : StudyColumns({})) {
    EXPECT_TRUE(studies.contains(column.name)) << column.name;
  }
}

TEST_F(StoreTest, RefusesASchemaOfTheFuture) {
  {
    auto database = OpenIn(dir_.path());
    ASSERT_TRUE(database->ExecuteScript("PRAGMA user_version=999").ok());
  }
  auto again = OpenStore(dir_.path(), clock_, log_);
  ASSERT_TRUE(absl::IsFailedPrecondition(again.status())) << again.status();
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("schema version 999"));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/hbmtune.db"));
}

struct Edit {
  const char* sql;
  const char* told;
};

class EditedSchema : public StoreTest, public ::testing::WithParamInterface<Edit> {};

TEST_P(EditedSchema, IsToldBeforeAStatementFails) {
  const std::string path = dir_.path() + "/hbmtune.db";
  {
    auto database = OpenIn(dir_.path());
    ASSERT_TRUE(database->ExecuteScript(GetParam().sql).ok());
  }
  absl::Status again = OpenStore(dir_.path(), clock_, log_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(again)) << again;
  EXPECT_THAT(std::string(again.message()), StartsWith(path + ": it says schema version "));
  EXPECT_THAT(std::string(again.message()), HasSubstr(GetParam().told));
  EXPECT_THAT(std::string(again.message()), HasSubstr("to begin anew, move it"));
  EXPECT_TRUE(std::filesystem::exists(path));
}

INSTANTIATE_TEST_SUITE_P(
    Schemas, EditedSchema,
    ::testing::Values(
        Edit{"DROP TABLE gpu_baselines", "lacks table gpu_baselines: a build between"},
        Edit{"ALTER TABLE studies DROP COLUMN job_id",
             "lacks column studies.job_id TEXT NOT NULL"},
        Edit{"ALTER TABLE leases ADD COLUMN colour TEXT", "has column leases.colour TEXT, which"},
        Edit{"DROP INDEX studies_by_state", "lacks index studies_by_state"},
        Edit{"PRAGMA user_version=1", "version 1 but has table "}));

TEST_F(StoreTest, WhatSqliteKeepsForItselfIsNoOtherSchema) {
  ASSERT_TRUE(OpenIn(dir_.path())->ExecuteScript("ANALYZE; VACUUM").ok());
  EXPECT_NE(OpenIn(dir_.path()), nullptr);
}

TEST_F(StoreTest, AMigrationThatFailsLeavesNothingBehind) {
  auto database = Database::Open(dir_.path() + "/other.db");
  ASSERT_TRUE(database.ok());
  const Migration bad[] = {{1, "0001_bad.sql", "CREATE TABLE a(x); CREATE TABLE a(x);"}};
  absl::Status status = Migrate(**database, bad);
  EXPECT_THAT(std::string(status.message()), HasSubstr("0001_bad.sql"));
  auto tables = (*database)->Query("SELECT name FROM sqlite_schema");
  EXPECT_TRUE(tables->empty());
  EXPECT_EQ((*database)->Query("PRAGMA user_version")->front().Int("user_version"), 0);
}

TEST_F(StoreTest, MovesACorruptFileAside) {
  std::ofstream(dir_.path() + "/hbmtune.db") << std::string(8192, 'x');
  auto database = OpenIn(dir_.path());
  ASSERT_NE(database, nullptr);
  int aside = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("hbmtune.db.corrupt-")) continue;
    ++aside;
    EXPECT_EQ(std::filesystem::file_size(entry.path()), 8192U);
  }
  EXPECT_EQ(aside, 1);
  StudyStore store(*database);
  StudyRecord study = Study();
  EXPECT_TRUE(store.CreateStudy(study).ok());
}

TEST_F(StoreTest, IsDegradedWhileTheDiskIsFullAndRecovers) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  // SQLite's own limit stands in for the disk's: the same error.
  auto pages = database->Query("PRAGMA page_count")->front().Int("page_count");
  ASSERT_TRUE(
      database->ExecuteScript("PRAGMA max_page_count=" + std::to_string(pages)).ok());
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    StudyRecord study = Study();
    status = store.CreateStudy(study);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(store.degraded(), HasSubstr("full"));
  EXPECT_TRUE(store.ListStudies(0, 10).ok());
  EXPECT_NE(store.degraded(), "");
  ASSERT_TRUE(database->ExecuteScript("PRAGMA max_page_count=1000000").ok());
  database->TryToRecover();
  EXPECT_EQ(store.degraded(), "");
  StudyRecord study = Study();
  EXPECT_TRUE(store.CreateStudy(study).ok());
  EXPECT_EQ(store.degraded(), "");
}

TEST_F(StoreTest, IsDegradedWhileItsFileIsAway) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  const std::string path = dir_.path() + "/hbmtune.db";
  std::filesystem::rename(path, path + ".away");
  StudyRecord study = Study();
  EXPECT_TRUE(absl::IsResourceExhausted(store.CreateStudy(study)));
  EXPECT_THAT(store.degraded(), HasSubstr(path + " was taken away"));
  EXPECT_TRUE(store.ListStudies(0, 10).ok());
  std::ofstream(path) << "another file";
  database->TryToRecover();
  EXPECT_THAT(store.degraded(), HasSubstr("was replaced"));
  std::filesystem::rename(path + ".away", path);
  database->TryToRecover();
  EXPECT_EQ(store.degraded(), "");
  EXPECT_TRUE(store.CreateStudy(study).ok());
}

TEST_F(StoreTest, IsDegradedWhileSomebodyKeepsItLocked) {
  auto database = OpenIn(dir_.path());
  StudyStore store(*database);
  auto other = Database::Open(dir_.path() + "/hbmtune.db");
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE((*other)->ExecuteScript("BEGIN IMMEDIATE").ok());
  StudyRecord study = Study();
  EXPECT_TRUE(absl::IsResourceExhausted(store.CreateStudy(study)));
  EXPECT_THAT(store.degraded(), HasSubstr("database is locked"));
  ASSERT_TRUE((*other)->ExecuteScript("COMMIT").ok());
  EXPECT_TRUE(store.CreateStudy(study).ok());
  EXPECT_EQ(store.degraded(), "");
}

TEST(Names, AreParsedInOnePlace) {
  EXPECT_EQ(ParseStudyName("studies/7"), 7);
  EXPECT_EQ(ParseStudyName("7"), 7);
  for (const char* wrong : {"", "studies/", "studies/0", "studies/7x", "7/", "-7", "trials/7"}) {
    EXPECT_EQ(ParseStudyName(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(ParseTrialName("studies/7/trials/3"), std::pair(int64_t{7}, int64_t{3}));
  EXPECT_EQ(ParseTrialName("studies/7/trials/"), std::nullopt);
  EXPECT_EQ(ParseTrialName("studies/7/trial/3"), std::nullopt);
}

}  // namespace
}  // namespace hbmtune::daemon
