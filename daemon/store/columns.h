#pragma once

#include <absl/status/status.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "daemon/store/database.h"
#include "kernels/core/json.h"
#include "kernels/core/visit.h"

// Typed columns of a visited struct, in the order of its fields: nested structs are flattened with
// underscores (config_zero_stage), enums are their names, absent optionals NULL. Lists have no
// column: whoever stores them has a table for them.
namespace hbmtune::daemon {

struct Column {
  std::string name;
  SqlValue value;
};

namespace columns_internal {

inline std::string Join(std::string_view prefix, std::string_view name) {
  std::string joined(prefix);
  joined += '_';
  joined += name;
  return joined;
}

template <class T>
SqlValue ToSql(const T& value) {
  if constexpr (NamedEnum<T>) {
    return std::string(Name(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return static_cast<int64_t>(value);
  } else {
    return value;
  }
}

struct Flattener {
  std::string prefix;
  std::vector<Column>& columns;
  template <class T>
  void operator()(const Field& field, const T& value) {
    if constexpr (IsOptional<T>::value) {
      columns.push_back({Join(prefix, field.name), value ? ToSql(*value) : SqlValue{}});
    } else if constexpr (Visited<T>) {
      T::Visit(value, Flattener{Join(prefix, field.name), columns});
    } else if constexpr (!internal::IsVector<T>::value) {
      columns.push_back({Join(prefix, field.name), ToSql(value)});
    }
  }
};

template <class T>
void FromSql(const Row& row, const std::string& name, T& value) {
  if (row.IsNull(name)) return;  // a column that is newer than the row: keep the default
  if constexpr (NamedEnum<T>) {
    if (auto parsed = ParseEnum<T>(row.Text(name))) value = *parsed;
  } else if constexpr (std::is_same_v<T, bool>) {
    value = row.Int(name) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    value = row.Int(name);
  } else if constexpr (std::is_floating_point_v<T>) {
    value = row.Real(name);
  } else {
    value = row.Text(name);
  }
}

struct Unflattener {
  std::string prefix;
  const Row& row;
  template <class T>
  void operator()(const Field& field, T& value) {
    std::string name = Join(prefix, field.name);
    if constexpr (IsOptional<T>::value) {
      if (!row.IsNull(name)) FromSql(row, name, value.emplace());
    } else if constexpr (Visited<T>) {
      T::Visit(value, Unflattener{name, row});
    } else if constexpr (!internal::IsVector<T>::value) {
      FromSql(row, name, value);
    }
  }
};

}  // namespace columns_internal

template <Visited T>
void AppendColumns(const T& value, std::string_view prefix, std::vector<Column>& columns) {
  T::Visit(value, columns_internal::Flattener{std::string(prefix), columns});
}

template <Visited T>
void ReadColumns(const Row& row, std::string_view prefix, T& value) {
  T::Visit(value, columns_internal::Unflattener{std::string(prefix), row});
}

// INSERT INTO table(columns) VALUES (values).
absl::Status Insert(Database& database, const std::string& table,
                    const std::vector<Column>& columns);
// UPDATE table SET columns WHERE condition; `keys` are the condition's values.
absl::Status Update(Database& database, const std::string& table,
                    const std::vector<Column>& columns, const std::string& condition,
                    const std::vector<SqlValue>& keys);

}  // namespace hbmtune::daemon
