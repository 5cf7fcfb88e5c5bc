#include "proto/convert.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/telemetry/monitor.h"
#include "hbmtune/v1/config.pb.h"
#include "hbmtune/v1/devices.pb.h"
#include "hbmtune/v1/result.pb.h"
#include "kernels/core/json.h"
#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune {
namespace {

// A struct and the message that carries it.
template <class S, class M>
struct Pair {
  using Struct = S;
  using Message = M;
};

template <class P>
class ConvertEveryStruct : public ::testing::Test {};

using Pairs = ::testing::Types<
    Pair<ModelSpec, v1::ModelSpec>, Pair<SequenceSpec, v1::SequenceSpec>,
    Pair<LoraSpec, v1::LoraSpec>, Pair<Workload, v1::Workload>,
    Pair<CheckpointConfig, v1::CheckpointConfig>, Pair<Fp32Islands, v1::Fp32Islands>,
    Pair<LossScaleConfig, v1::LossScaleConfig>, Pair<PromotionConfig, v1::PromotionConfig>,
    Pair<OffloadConfig, v1::OffloadConfig>, Pair<ZeroConfig, v1::ZeroConfig>,
    Pair<DdpConfig, v1::DdpConfig>, Pair<AllocatorTunables, v1::AllocatorTunables>,
    Pair<TrainConfig, v1::TrainConfig>, Pair<CategoryBytes, v1::CategoryBytes>,
    Pair<Interval, v1::Interval>, Pair<Estimate, v1::Estimate>,
    Pair<Measurement, v1::Measurement>, Pair<AllocatorReport, v1::AllocatorReport>,
    Pair<Finding, v1::Finding>, Pair<MemoryState, v1::MemoryState>>;
TYPED_TEST_SUITE(ConvertEveryStruct, Pairs);

// Gives every field a value that it does not have by default, and no two numbers the same.
struct Perturb {
  int64_t& next;

  template <class T>
  void operator()(const Field&, T& value) {
    if constexpr (Visited<T>) {
      T::Visit(value, Perturb{next});
    } else if constexpr (NamedEnum<T>) {
      value = static_cast<T>((static_cast<size_t>(value) + 1) % EnumNames<T>::kNames.size());
    } else if constexpr (IsOptional<T>::value) {
      (*this)(Field{}, value.emplace());
    } else if constexpr (internal::IsVector<T>::value) {
      (*this)(Field{}, value.emplace_back());
      (*this)(Field{}, value.emplace_back());
    } else if constexpr (std::is_same_v<T, bool>) {
      value = !value;
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = "text " + std::to_string(next++);
    } else {
      value = static_cast<T>(1000 + next++);
    }
  }
};

template <class T>
T Perturbed() {
  T value;
  int64_t next = 1;
  T::Visit(value, Perturb{next});
  return value;
}

TYPED_TEST(ConvertEveryStruct, HasTheSameFieldsAsItsMessage) {
  internal::NameCollector names;
  typename TypeParam::Struct value;
  TypeParam::Struct::Visit(value, names);
  std::set<std::string> of_struct(names.names.begin(), names.names.end());
  std::set<std::string> of_message;
  const auto* descriptor = TypeParam::Message::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    of_message.insert(descriptor->field(i)->name());
  }
  EXPECT_EQ(of_struct, of_message);
}

TYPED_TEST(ConvertEveryStruct, ComesBackWithEveryFieldChanged) {
  auto value = Perturbed<typename TypeParam::Struct>();
  typename TypeParam::Message message;
  ToProto(value, message);
  std::string wire = message.SerializeAsString();
  typename TypeParam::Message received;
  ASSERT_TRUE(received.ParseFromString(wire));
  auto read = FromProto<typename TypeParam::Struct>(received);
  EXPECT_EQ(ToJson(read), ToJson(value));
  EXPECT_NE(ToJson(read), ToJson(typename TypeParam::Struct{}));
}

TYPED_TEST(ConvertEveryStruct, AnEmptyMessageIsTheDefault) {
  typename TypeParam::Message message;
  auto read = FromProto<typename TypeParam::Struct>(message);
  EXPECT_EQ(ToJson(read), ToJson(typename TypeParam::Struct{}));
}

// An enum of the structs has exactly the values of its message enum, less UNSPECIFIED.
template <class E>
void ExpectSameNames(const google::protobuf::EnumDescriptor* descriptor) {
  std::set<std::string> of_struct{ProtoEnumName(descriptor->name(), "UNSPECIFIED")};
  for (auto name : EnumNames<E>::kNames) {
    of_struct.insert(ProtoEnumName(descriptor->name(), name));
  }
  std::set<std::string> of_message;
  for (int i = 0; i < descriptor->value_count(); ++i) {
    of_message.insert(descriptor->value(i)->name());
  }
  EXPECT_EQ(of_struct, of_message);
}

TEST(Convert, EnumsHaveTheSameValuesOnBothSides) {
  ExpectSameNames<Architecture>(v1::Architecture_descriptor());
  ExpectSameNames<Dtype>(v1::Dtype_descriptor());
  ExpectSameNames<Framework>(v1::Framework_descriptor());
  ExpectSameNames<Optimizer>(v1::Optimizer_descriptor());
  ExpectSameNames<SequenceLayout>(v1::SequenceLayout_descriptor());
  ExpectSameNames<SequenceOrder>(v1::SequenceOrder_descriptor());
  ExpectSameNames<OptimizerOffload>(v1::OptimizerOffload_descriptor());
  ExpectSameNames<ActivationOffload>(v1::ActivationOffload_descriptor());
  ExpectSameNames<AttentionKind>(v1::AttentionKind_descriptor());
  ExpectSameNames<OptimizerLoop>(v1::OptimizerLoop_descriptor());
  ExpectSameNames<Evidence>(v1::Evidence_descriptor());
  ExpectSameNames<Outcome>(v1::Outcome_descriptor());
  ExpectSameNames<Category>(v1::Category_descriptor());
  ExpectSameNames<FindingKind>(v1::FindingKind_descriptor());
}

TEST(Convert, SpellsEnumeratorsAsProtobufDoes) {
  EXPECT_EQ(ProtoEnumName("Framework", "hf-eager+ddp"), "FRAMEWORK_HF_EAGER_DDP");
  EXPECT_EQ(ProtoEnumName("OptimizerOffload", "cpu_adam"), "OPTIMIZER_OFFLOAD_CPU_ADAM");
}

TEST(Convert, KeepsWhatTheMessageLeavesUnset) {
  TrainConfig config;
  config.micro_batch = 7;
  config.zero.stage = 3;
  v1::TrainConfig message;
  message.mutable_zero()->set_overlap_comm(true);
  message.set_param_dtype(v1::DTYPE_UNSPECIFIED);
  config.param_dtype = Dtype::kBf16;
  MergeFromProto(message, config);
  EXPECT_EQ(config.micro_batch, 7);
  EXPECT_EQ(config.zero.stage, 3);
  EXPECT_TRUE(config.zero.overlap_comm);
  EXPECT_EQ(config.param_dtype, Dtype::kBf16);
}

struct WithOptional {
  std::optional<int64_t> rank;
  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"rank", "a field that LoraSpec's message has too"}, self.rank);
  }
};

TEST(Convert, AnAbsentOptionalClearsItsField) {
  v1::LoraSpec message;
  message.set_rank(4);
  EXPECT_EQ(FromProto<WithOptional>(message).rank, 4);
  ToProto(WithOptional{}, message);
  EXPECT_FALSE(message.has_rank());
  EXPECT_EQ(FromProto<WithOptional>(message).rank, std::nullopt);
  ToProto(WithOptional{int64_t{0}}, message);
  EXPECT_TRUE(message.has_rank());
}

TEST(Convert, NamesAFieldThatTheMessageLacks) {
  v1::Interval message;
  try {
    ToProto(WithOptional{int64_t{1}}, message);
    FAIL() << "Interval has no rank";
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("hbmtune.v1.Interval.rank"));
  }
}

}  // namespace
}  // namespace hbmtune
