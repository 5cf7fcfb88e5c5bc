#include "kernels/memory/pickle.h"

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace hbmtune::memory {
namespace {

using Json = nlohmann::ordered_json;

// Opcodes, as in Python's pickletools.
constexpr char kProto = '\x80';
constexpr char kMark = '(';
constexpr char kStop = '.';
constexpr char kNone = 'N';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kBinInt = 'J';
constexpr char kLong1 = '\x8a';
constexpr char kBinFloat = 'G';
constexpr char kBinUnicode = 'X';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kEmptyDict = '}';
constexpr char kSetItems = 'u';

// Python's own pickler cuts lists into runs of this length; the viewer passes a run as arguments
// of one call, which must not be too many.
constexpr size_t kRun = 1000;

class Pickler {
 public:
  std::string Run(const Json& value) {
    out_ = {kProto, '\x02'};
    Write(value);
    out_ += kStop;
    return std::move(out_);
  }

 private:
  void LittleEndian(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
  }
  void Integer(int64_t value) {
    if (value == static_cast<int32_t>(value)) {
      out_ += kBinInt;
      LittleEndian(static_cast<uint64_t>(value), 4);
    } else {
      out_ += {kLong1, 8};
      LittleEndian(static_cast<uint64_t>(value), 8);
    }
  }
  void Float(double value) {
    out_ += kBinFloat;
    auto bits = std::bit_cast<uint64_t>(value);
    for (int i = 7; i >= 0; --i) out_ += static_cast<char>(bits >> (8 * i));
  }
  void String(const std::string& text) {
    out_ += kBinUnicode;
    LittleEndian(text.size(), 4);
    out_ += text;
  }
  void List(const Json& list) {
    out_ += kEmptyList;
    for (size_t start = 0; start < list.size(); start += kRun) {
      out_ += kMark;
      for (size_t i = start; i < std::min(list.size(), start + kRun); ++i) Write(list[i]);
      out_ += kAppends;
    }
  }
  void Dict(const Json& dict) {
    out_ += {kEmptyDict, kMark};
    for (const auto& [key, value] : dict.items()) {
      String(key);
      Write(value);
    }
    out_ += kSetItems;
  }
  void Write(const Json& value) {
    if (value.is_object()) {
      Dict(value);
    } else if (value.is_array()) {
      List(value);
    } else if (value.is_string()) {
      String(value.get_ref<const std::string&>());
    } else if (value.is_boolean()) {
      out_ += value.get<bool>() ? kNewTrue : kNewFalse;
    } else if (value.is_number_float()) {
      Float(value.get<double>());
    } else if (value.is_number()) {
      Integer(value.get<int64_t>());
    } else {
      out_ += kNone;
    }
  }

  std::string out_;
};

}  // namespace

std::string ToPickle(const Json& value) { return Pickler().Run(value); }

}  // namespace hbmtune::memory
