#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

// One definition, many uses: a config struct lists its fields once,
//
//   template <class Self, class V>
//   static void Visit(Self& self, V&& v) {
//     v(Field{"micro_batch", "sequences in one forward pass of one rank"}, self.micro_batch);
//   }
//
// and JSON, flags, help, tables, the canonical hash and the protobuf message all come from that
// list. A visitor is a callable that takes (Field, T&) for every T among bool, int64_t, double,
// std::string, a named enum, std::optional<T>, std::vector<T> and another visited struct.
namespace hbmtune {

struct Field {
  std::string_view name;  // snake_case; the flag is the same with dashes
  std::string_view help;  // one clause, no full stop
};

// Specialised for every enum that a config holds: kNames, in the order of the enumerators,
// which count from 0.
template <class E>
struct EnumNames;

template <class E>
concept NamedEnum = std::is_enum_v<E> && requires { EnumNames<E>::kNames; };

template <NamedEnum E>
constexpr std::string_view Name(E value) {
  return EnumNames<E>::kNames[static_cast<size_t>(value)];
}

// The enumerator of that name, or nothing.
template <NamedEnum E>
constexpr std::optional<E> ParseEnum(std::string_view name) {
  for (size_t i = 0; i < EnumNames<E>::kNames.size(); ++i) {
    if (EnumNames<E>::kNames[i] == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

// "a, b or c": for sentences that say what is supported.
template <NamedEnum E>
std::string ListOf() {
  std::string text;
  constexpr size_t count = EnumNames<E>::kNames.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += i + 1 == count ? " or " : ", ";
    text += EnumNames<E>::kNames[i];
  }
  return text;
}

namespace internal {
struct AnyVisitor {
  template <class T>
  void operator()(const Field&, T&) const {}
};
}  // namespace internal

template <class T>
concept Visited = requires(T& value) {
  std::remove_const_t<T>::Visit(value, internal::AnyVisitor{});
};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

}  // namespace hbmtune
