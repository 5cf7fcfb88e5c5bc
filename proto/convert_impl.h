#pragma once

// The templates behind proto/convert.h; include that.

#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include "proto/convert.h"

namespace hbmtune {

inline std::string ProtoEnumName(const std::string& enum_name, std::string_view value_name) {
  std::string text;
  for (size_t i = 0; i < enum_name.size(); ++i) {
    if (i > 0 && std::isupper(static_cast<unsigned char>(enum_name[i]))) text += '_';
    text += static_cast<char>(std::toupper(static_cast<unsigned char>(enum_name[i])));
  }
  text += '_';
  for (unsigned char c : value_name) {
    text += std::isalnum(c) ? static_cast<char>(std::toupper(c)) : '_';
  }
  return text;
}

namespace convert_internal {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

template <class T>
struct VectorItem;
template <class T>
struct VectorItem<std::vector<T>> {
  using type = T;
};
template <class T>
concept Vector = requires { typename VectorItem<std::remove_const_t<T>>::type; };

// The protobuf type that holds a T.
template <class T>
constexpr FieldDescriptor::CppType CppTypeOf() {
  if constexpr (std::is_same_v<T, bool>) {
    return FieldDescriptor::CPPTYPE_BOOL;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return FieldDescriptor::CPPTYPE_INT64;
  } else if constexpr (std::is_same_v<T, double>) {
    return FieldDescriptor::CPPTYPE_DOUBLE;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return FieldDescriptor::CPPTYPE_STRING;
  } else if constexpr (NamedEnum<T>) {
    return FieldDescriptor::CPPTYPE_ENUM;
  } else {
    static_assert(Visited<T>, "not a type that a config may hold");
    return FieldDescriptor::CPPTYPE_MESSAGE;
  }
}

inline const FieldDescriptor& Find(const Message& message, std::string_view name,
                                   FieldDescriptor::CppType type, bool repeated) {
  const auto* field = message.GetDescriptor()->FindFieldByName(std::string(name));
  const std::string where = message.GetDescriptor()->full_name() + "." + std::string(name);
  if (field == nullptr) throw std::logic_error(where + ": the message has no such field");
  if (field->cpp_type() != type || field->is_repeated() != repeated) {
    throw std::logic_error(where + ": the message's field has another type");
  }
  return *field;
}

template <NamedEnum E>
const EnumValueDescriptor& EnumValue(const EnumDescriptor& descriptor, E value) {
  std::string name = ProtoEnumName(descriptor.name(), Name(value));
  const auto* found = descriptor.FindValueByName(name);
  if (found == nullptr) {
    throw std::logic_error(descriptor.full_name() + ": no value " + name);
  }
  return *found;
}

// Nothing for UNSPECIFIED and for values of a newer peer.
template <NamedEnum E>
std::optional<E> EnumFrom(const EnumDescriptor& descriptor, int number) {
  const auto* found = descriptor.FindValueByNumber(number);
  if (found == nullptr) return std::nullopt;
  for (size_t i = 0; i < EnumNames<E>::kNames.size(); ++i) {
    auto value = static_cast<E>(i);
    if (ProtoEnumName(descriptor.name(), Name(value)) == found->name()) return value;
  }
  return std::nullopt;
}

struct Writer {
  Message& message;

  template <class T>
  void operator()(const Field& field, const T& value) {
    if constexpr (IsOptional<T>::value) {
      using Item = typename T::value_type;
      if (value) return Write(field, *value);
      const auto& slot = Find(message, field.name, CppTypeOf<Item>(), false);
      message.GetReflection()->ClearField(&message, &slot);
    } else {
      Write(field, value);
    }
  }

 private:
  template <class T>
  void Write(const Field& field, const T& value) {
    const Reflection& reflection = *message.GetReflection();
    if constexpr (Vector<T>) {
      using Item = typename VectorItem<T>::type;
      const auto& slot = Find(message, field.name, CppTypeOf<Item>(), true);
      reflection.ClearField(&message, &slot);
      for (const Item& item : value) Add(reflection, slot, item);
    } else {
      Set(reflection, Find(message, field.name, CppTypeOf<T>(), false), value);
    }
  }

  template <class T>
  void Set(const Reflection& reflection, const FieldDescriptor& slot, const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      reflection.SetBool(&message, &slot, value);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      reflection.SetInt64(&message, &slot, value);
    } else if constexpr (std::is_same_v<T, double>) {
      reflection.SetDouble(&message, &slot, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      reflection.SetString(&message, &slot, value);
    } else if constexpr (NamedEnum<T>) {
      reflection.SetEnum(&message, &slot, &EnumValue(*slot.enum_type(), value));
    } else {
      ToProto(value, *reflection.MutableMessage(&message, &slot));
    }
  }

  template <class T>
  void Add(const Reflection& reflection, const FieldDescriptor& slot, const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      reflection.AddBool(&message, &slot, value);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      reflection.AddInt64(&message, &slot, value);
    } else if constexpr (std::is_same_v<T, double>) {
      reflection.AddDouble(&message, &slot, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      reflection.AddString(&message, &slot, value);
    } else if constexpr (NamedEnum<T>) {
      reflection.AddEnum(&message, &slot, &EnumValue(*slot.enum_type(), value));
    } else {
      ToProto(value, *reflection.AddMessage(&message, &slot));
    }
  }
};

struct Reader {
  const Message& message;

  template <class T>
  void operator()(const Field& field, T& value) {
    const Reflection& reflection = *message.GetReflection();
    if constexpr (Vector<T>) {
      using Item = typename VectorItem<T>::type;
      const auto& slot = Find(message, field.name, CppTypeOf<Item>(), true);
      value.clear();
      for (int i = 0; i < reflection.FieldSize(message, &slot); ++i) {
        Item item{};
        GetRepeated(reflection, slot, i, item);
        value.push_back(std::move(item));
      }
    } else if constexpr (IsOptional<T>::value) {
      using Item = typename T::value_type;
      const auto& slot = Find(message, field.name, CppTypeOf<Item>(), false);
      value.reset();
      if (reflection.HasField(message, &slot)) Get(reflection, slot, value.emplace());
    } else {
      const auto& slot = Find(message, field.name, CppTypeOf<T>(), false);
      if (slot.has_presence() && !reflection.HasField(message, &slot)) return;
      Get(reflection, slot, value);
    }
  }

 private:
  template <class T>
  void Get(const Reflection& reflection, const FieldDescriptor& slot, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = reflection.GetBool(message, &slot);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      value = reflection.GetInt64(message, &slot);
    } else if constexpr (std::is_same_v<T, double>) {
      value = reflection.GetDouble(message, &slot);
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = reflection.GetString(message, &slot);
    } else if constexpr (NamedEnum<T>) {
      auto read = EnumFrom<T>(*slot.enum_type(), reflection.GetEnumValue(message, &slot));
      if (read) value = *read;
    } else {
      MergeFromProto(reflection.GetMessage(message, &slot), value);
    }
  }

  template <class T>
  void GetRepeated(const Reflection& reflection, const FieldDescriptor& slot, int i, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = reflection.GetRepeatedBool(message, &slot, i);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      value = reflection.GetRepeatedInt64(message, &slot, i);
    } else if constexpr (std::is_same_v<T, double>) {
      value = reflection.GetRepeatedDouble(message, &slot, i);
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = reflection.GetRepeatedString(message, &slot, i);
    } else if constexpr (NamedEnum<T>) {
      const int number = reflection.GetRepeatedEnumValue(message, &slot, i);
      auto read = EnumFrom<T>(*slot.enum_type(), number);
      if (read) value = *read;
    } else {
      MergeFromProto(reflection.GetRepeatedMessage(message, &slot, i), value);
    }
  }
};

}  // namespace convert_internal

template <Visited T>
void ToProto(const T& value, google::protobuf::Message& message) {
  T::Visit(value, convert_internal::Writer{message});
}

template <Visited T>
void MergeFromProto(const google::protobuf::Message& message, T& value) {
  T::Visit(value, convert_internal::Reader{message});
}

}  // namespace hbmtune
