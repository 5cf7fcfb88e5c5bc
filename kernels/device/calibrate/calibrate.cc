#include "kernels/device/calibrate/calibrate.h"

#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "kernels/comm/gloo_communicator.h"
#include "kernels/core/error.h"
#include "kernels/core/units.h"
#include "kernels/device/calibrate/measure_ops.h"
#include "kernels/device/calibrate/stopwatch.h"

namespace hbmtune::device {
namespace {

struct Shape {
  int64_t m, n, k;
};

// Rows of a micro-batch by widths of a small model; powers of two, so that shapes that models
// have fall between them.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (int64_t m : {64, 256, 1024}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{128, 128}, {256, 256}, {1024, 256},
                               {256, 1024}, {512, 512}, {2048, 512}, {512, 2048}, {8192, 256},
                               {8192, 512}}) {
      shapes.push_back({m, n, k});
    }
  }
  return shapes;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "CPU";
}

double GeometricMean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

struct AllReduceCost {
  double least_seconds = 0;
  double bytes_per_second = 0;  // bus bandwidth: of two ranks, the message itself
};

// Two ranks as two threads. What one of them throws is thrown here.
AllReduceCost MeasureAllReduce() {
  std::string folder = (std::filesystem::temp_directory_path() / "hbmtune-cal-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw DeviceError("cannot make a folder for two ranks");
  constexpr int64_t kFloats = 2 << 20;
  constexpr int kSmall = 200, kLarge = 5;
  AllReduceCost cost;
  std::exception_ptr failure[2];
  const auto run = [&](int rank) {
    try {
      comm::GlooCommunicator ranks({rank, 2, folder, std::chrono::milliseconds(20'000)});
      std::vector<float> data(kFloats, 1);
      const auto reduce = [&](int64_t floats, int times) {
        TensorArg tensor{data.data(), Dtype::kF32, {floats}, {1}};
        ranks.AllReduce(tensor, tensor);
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < times; ++i) ranks.AllReduce(tensor, tensor);
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
        return spent.count() / times;
      };
      const double small = reduce(16, kSmall), large = reduce(kFloats, kLarge);
      if (rank == 0) {
        cost = {small, kFloats * sizeof(float) / std::max(large - small, 1e-9)};
      }
    } catch (...) {
      failure[rank] = std::current_exception();
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  for (const std::exception_ptr& error : failure) {
    if (error) std::rethrow_exception(error);
  }
  return cost;
}

// A segment of 20 MiB from the kernel and back, its pages touched once.
double MeasureSegment() {
  constexpr size_t kBytes = 20 << 20;
  return MedianSeconds([] {
    void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw DeviceError("no 20 MiB to be had");
    std::memset(data, 1, kBytes);
    munmap(data, kBytes);
  }, 0.2);
}

double MeasureCopy(size_t bytes) {
  std::vector<char> from(bytes, 1), to(bytes, 2);
  return MedianSeconds([&] { std::memcpy(to.data(), from.data(), bytes); }, 0.1);
}

class Calibration {
 public:
  Calibration(const DeviceProfile& base, const CalibrationOptions& options,
              const CalibrationProgress& progress)
      : profile_(base), options_(options), progress_(progress) {
    if (options.threads > 0) omp_set_num_threads(options.threads);
    threads_ = omp_get_max_threads();
    profile_.title = CpuName();
    source_ = "measured " + options.date + " on " + profile_.title + ", " +
              std::to_string(threads_) + (threads_ == 1 ? " thread" : " threads");
  }

  DeviceProfile Run() {
    const auto start = std::chrono::steady_clock::now();
    Memory();
    Links();
    Products(start);
    Kernels();
    progress_(1, "done");
    return profile_;
  }

 private:
  void Set(Figure& figure, double value, const std::string& note = "") {
    figure = {value, FigureKind::kMeasured, source_ + (note.empty() ? "" : ": " + note)};
  }

  void Memory() {
    progress_(0, "memory bandwidth");
    Set(profile_.compute_units, threads_, "threads of the process");
    Set(profile_.memory_bytes_per_second, MeasureBandwidth(), "triad over 288 MiB");
    const double least = MeasureLeastOp();
    Set(profile_.kernel_seconds, least, "an add of 16 numbers");
    Set(profile_.issue_seconds, least / 10, "a tenth of the least op: issue is a call");
    Set(profile_.segment_seconds, MeasureSegment(), "20 MiB mapped and touched");
  }

  void Links() {
    progress_(0.08, "copies and all-reduce");
    constexpr size_t kLarge = 64 << 20;
    const double rate = kLarge / MeasureCopy(kLarge);
    Set(profile_.host_to_device_bytes_per_second, rate, "memcpy of 64 MiB");
    Set(profile_.device_to_host_bytes_per_second, rate, "memcpy of 64 MiB");
    Set(profile_.copy_seconds, MeasureCopy(4096), "memcpy of 4 KiB");
    const AllReduceCost cost = MeasureAllReduce();
    Set(profile_.collective_seconds, cost.least_seconds, "two ranks, 64 bytes");
    Set(profile_.collective_bytes_per_second, cost.bytes_per_second, "two ranks, 8 MiB");
  }

  void Products(std::chrono::steady_clock::time_point start) {
    profile_.matmul_points.clear();
    const std::vector<Shape> shapes = Shapes();
    const std::vector<Dtype> dtypes = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};
    double best[2] = {0, 0};  // fp32, 16 bit
    size_t done = 0;
    // By shape first: when time runs out every element type has the same shapes.
    for (const Shape& shape : shapes) {
      for (Dtype dtype : dtypes) {
        const double done_ratio = double(done++) / double(shapes.size() * dtypes.size());
        progress_(0.15 + 0.7 * done_ratio, "products of " + std::string(Name(dtype)));
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
        const bool needed = done <= dtypes.size();  // without a rate there is no peak
        if (spent.count() > options_.budget_seconds && !needed) continue;
        const double rate = MeasureProduct(dtype, shape.m, shape.n, shape.k);
        profile_.matmul_points.push_back({dtype, shape.m, shape.n, shape.k, rate});
        double& highest = best[IsHalf(dtype)];
        highest = std::max(highest, rate);
      }
    }
    Set(profile_.fp32_flops_per_second, best[0], "the fastest product");
    Set(profile_.half_flops_per_second, best[1], "the fastest product");
    Set(profile_.matmul_efficiency_ratio, 1, "the peak is what products reached");
  }

  void Kernels() {
    progress_(0.88, "attention, norms, optimizer");
    std::vector<double> attention, streams;
    for (Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      const double peak = IsHalf(dtype) ? profile_.half_flops_per_second.value
                                        : profile_.fp32_flops_per_second.value;
      attention.push_back(MeasureAttention(dtype, 2, 128, 4, 64) / peak);
      attention.push_back(MeasureAttention(dtype, 2, 512, 4, 64) / peak);
      streams.push_back(MeasureStreams(dtype, 512, 512));
      streams.push_back(MeasureStreams(dtype, 2048, 1024));
    }
    const OptimizerRate adamw = MeasureAdamw(4 << 20);
    streams.push_back(adamw.bytes_per_second);
    Set(profile_.attention_efficiency_ratio, std::min(1.0, GeometricMean(attention)),
        "causal, 128 and 512 tokens, forward and backward");
    Set(profile_.memory_efficiency_ratio,
        GeometricMean(streams) / profile_.memory_bytes_per_second.value,
        "norm, gate, residual, loss and AdamW, whose bytes may come from the caches");
    Set(profile_.cpu_adam_parameters_per_second, adamw.parameters_per_second, "AdamW in fp32");
  }

  DeviceProfile profile_;
  const CalibrationOptions options_;
  const CalibrationProgress& progress_;
  std::string source_;
  int threads_ = 1;
};

}  // namespace

DeviceProfile CalibrateHost(const DeviceProfile& base, const CalibrationOptions& options,
                            const CalibrationProgress& progress) {
  return Calibration(base, options, progress).Run();
}

}  // namespace hbmtune::device
