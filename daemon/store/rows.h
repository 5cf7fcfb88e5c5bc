#pragma once

#include <vector>

#include "daemon/store/columns.h"
#include "daemon/studies/study.h"

// Records as columns and back; the only place that knows the tables' column names.
namespace hbmtune::daemon {

std::vector<Column> StudyColumns(const StudyRecord& record);       // without id
std::vector<Column> StudyStateColumns(const StudyRecord& record);  // what changes as it runs
StudyRecord StudyFromRow(const Row& row);                          // without pins

std::vector<Column> TrialColumns(const TrialRecord& trial);       // measurement left NULL
std::vector<Column> TrialStateColumns(const TrialRecord& trial);  // what changes as it runs
std::vector<Column> MeasurementColumns(const Measurement& measurement);
TrialRecord TrialFromRow(const Row& row);  // without breakdowns

}  // namespace hbmtune::daemon
