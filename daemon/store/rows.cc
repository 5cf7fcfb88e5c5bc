#include "daemon/store/rows.h"

#include "kernels/core/hash.h"

namespace hbmtune::daemon {
namespace {

// Microseconds since 1970; NULL for a time that has not come.
SqlValue TimeValue(absl::Time time) {
  if (time == absl::InfinitePast()) return std::monostate{};
  return absl::ToUnixMicros(time);
}

absl::Time TimeFrom(const Row& row, std::string_view name) {
  return row.IsNull(name) ? absl::InfinitePast() : absl::FromUnixMicros(row.Int(name));
}

void Append(std::vector<Column>& columns, std::vector<Column> more) {
  for (Column& column : more) columns.push_back(std::move(column));
}

template <class E>
void ReadEnum(const Row& row, std::string_view name, E& value) {
  if (auto parsed = ParseEnum<E>(row.Text(name))) value = *parsed;
}

}  // namespace

std::vector<Column> StudyStateColumns(const StudyRecord& record) {
  std::vector<Column> columns = {{"state", std::string(Name(record.state))},
                                 {"message", record.message},
                                 {"space_legal", record.space_legal},
                                 {"space_settings", record.space_settings},
                                 {"start_time_us", TimeValue(record.start_time)},
                                 {"end_time_us", TimeValue(record.end_time)}};
  AppendColumns(record.progress, "progress", columns);
  return columns;
}

std::vector<Column> StudyColumns(const StudyRecord& record) {
  std::vector<Column> columns = {{"owner_uid", record.owner_uid},
                                 {"request_hash", record.request_hash},
                                 {"workload_hash", WorkloadKey(record.spec.workload)},
                                 {"create_time_us", TimeValue(record.create_time)}};
  SqlValue request_id;
  if (!record.client_request_id.empty()) request_id = record.client_request_id;
  columns.push_back({"client_request_id", request_id});
  std::vector<Column> spec;
  AppendColumns(record.spec, "", spec);
  for (Column& column : spec) column.name.erase(0, 1);  // the prefix is empty: no underscore
  Append(columns, std::move(spec));
  Append(columns, StudyStateColumns(record));
  return columns;
}

StudyRecord StudyFromRow(const Row& row) {
  StudyRecord record;
  record.id = row.Int("id");
  record.owner_uid = row.Int("owner_uid");
  record.client_request_id = row.Text("client_request_id");
  record.request_hash = row.Text("request_hash");
  StudySpec::Visit(record.spec, [&](const Field& field, auto& value) {
    using T = std::remove_reference_t<decltype(value)>;
    if constexpr (Visited<T>) {
      ReadColumns(row, field.name, value);
    } else {
      columns_internal::FromSql(row, std::string(field.name), value);
    }
  });
  ReadEnum(row, "state", record.state);
  record.message = row.Text("message");
  record.cancel_reason = row.Text("cancel_reason");
  ReadColumns(row, "progress", record.progress);
  record.space_legal = row.Int("space_legal");
  record.space_settings = row.Int("space_settings");
  record.create_time = TimeFrom(row, "create_time_us");
  record.start_time = TimeFrom(row, "start_time_us");
  record.end_time = TimeFrom(row, "end_time_us");
  return record;
}

std::vector<Column> TrialStateColumns(const TrialRecord& trial) {
  return {{"state", std::string(Name(trial.state))},
          {"attempts", trial.attempts},
          {"seconds", trial.seconds},
          {"start_time_us", TimeValue(trial.start_time)},
          {"end_time_us", TimeValue(trial.end_time)}};
}

std::vector<Column> TrialColumns(const TrialRecord& trial) {
  std::vector<Column> columns = {{"study_id", trial.study_id},
                                 {"number", trial.number},
                                 {"config_hash", CanonicalHash(trial.config)},
                                 {"why", trial.why}};
  AppendColumns(trial.config, "config", columns);
  if (trial.estimate) AppendColumns(*trial.estimate, "estimate", columns);
  Append(columns, TrialStateColumns(trial));
  return columns;
}

std::vector<Column> MeasurementColumns(const Measurement& measurement) {
  std::vector<Column> columns;
  AppendColumns(measurement, "measurement", columns);
  return columns;
}

TrialRecord TrialFromRow(const Row& row) {
  TrialRecord trial;
  trial.study_id = row.Int("study_id");
  trial.number = row.Int("number");
  ReadEnum(row, "state", trial.state);
  trial.attempts = row.Int("attempts");
  trial.why = row.Text("why");
  trial.seconds = row.Real("seconds");
  trial.start_time = TimeFrom(row, "start_time_us");
  trial.end_time = TimeFrom(row, "end_time_us");
  ReadColumns(row, "config", trial.config);
  if (!row.IsNull("estimate_evidence")) {
    ReadColumns(row, "estimate", trial.estimate.emplace());
  }
  if (!row.IsNull("measurement_outcome")) {
    ReadColumns(row, "measurement", trial.measurement.emplace());
  }
  return trial;
}

}  // namespace hbmtune::daemon
