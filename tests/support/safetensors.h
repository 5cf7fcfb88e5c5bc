#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace hbmtune::testing {

// A .safetensors file in memory: 8 bytes of little-endian header length, a JSON header, row-major
// data (tests/reference/README.md). Little-endian hosts only.
class SafetensorsFile {
 public:
  // Throws std::runtime_error if the file is missing or cut short.
  explicit SafetensorsFile(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error("cannot open " + path);
    uint64_t header_bytes = 0;
    in.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string header(header_bytes, '\0');
    in.read(header.data(), static_cast<std::streamsize>(header_bytes));
    if (!in) throw std::runtime_error(path + " ends inside its header");
    header_ = nlohmann::json::parse(header);
    data_.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    for (const auto& [name, entry] : header_.items()) {
      if (name == "__metadata__") continue;
      if (entry.at("data_offsets").at(1).get<size_t>() > data_.size()) {
        throw std::runtime_error(path + " ends inside " + name);
      }
    }
  }

  bool Has(const std::string& name) const { return header_.contains(name); }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : header_.items()) {
      if (name != "__metadata__") names.push_back(name);
    }
    return names;
  }

  std::vector<int64_t> Shape(const std::string& name) const {
    return header_.at(name).at("shape").get<std::vector<int64_t>>();
  }

  // F64 or F32 tensors, widened.
  std::vector<double> Values(const std::string& name) const {
    const std::string dtype = header_.at(name).at("dtype");
    if (dtype == "F64") return Raw<double>(name);
    if (dtype != "F32") throw std::runtime_error(name + " is " + dtype + ", not floating");
    const std::vector<float> narrow = Raw<float>(name);
    return {narrow.begin(), narrow.end()};
  }

  std::vector<int64_t> Integers(const std::string& name) const {
    if (header_.at(name).at("dtype") != "I64") throw std::runtime_error(name + " is not I64");
    return Raw<int64_t>(name);
  }

  // A string of __metadata__; throws if it is not there.
  std::string Metadata(const std::string& key) const {
    return header_.at("__metadata__").at(key).get<std::string>();
  }

 private:
  template <class T>
  std::vector<T> Raw(const std::string& name) const {
    const auto& offsets = header_.at(name).at("data_offsets");
    const size_t begin = offsets.at(0), end = offsets.at(1);
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), data_.data() + begin, end - begin);
    return values;
  }

  nlohmann::json header_;
  std::string data_;
};

}  // namespace hbmtune::testing
