#pragma once

#include <cctype>
#include <optional>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "kernels/core/visit.h"

// Visited structs to protobuf messages and back, by field name through reflection. A message may
// have fields that the struct lacks: they are left alone. A struct's field that the message lacks,
// or that has another type there, is a mistake in the .proto: std::logic_error (a test walks every
// struct).
//
//   v1::TrainConfig message;
//   ToProto(config, message);
//   TrainConfig read = FromProto<TrainConfig>(message);
//
// An enumerator "hf-eager+ddp" of Framework is FRAMEWORK_HF_EAGER_DDP. Fields that are unset in the
// message (no presence: never) and enums that are UNSPECIFIED or unknown keep the struct's value.
namespace hbmtune {

// Writes every field of `value`; an absent optional clears its field.
template <Visited T>
void ToProto(const T& value, google::protobuf::Message& message);

// Overwrites what `message` holds.
template <Visited T>
void MergeFromProto(const google::protobuf::Message& message, T& value);

// T's defaults, overwritten with what `message` holds.
template <Visited T>
T FromProto(const google::protobuf::Message& message) {
  T value;
  MergeFromProto(message, value);
  return value;
}

// "hf-eager+ddp" of "Framework" as protobuf spells it: "FRAMEWORK_HF_EAGER_DDP".
std::string ProtoEnumName(const std::string& enum_name, std::string_view value_name);

}  // namespace hbmtune

#include "proto/convert_impl.h"
