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
#include <iterator>
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

// Rows of a micro-batch by widths of a small model: round numbers and others, whose last tiles are
// not full and cost up to a tenth.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (int64_t m : {64, 300, 1024}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{128, 128}, {256, 256}, {1024, 256},
                               {256, 1024}, {640, 640}, {1792, 640}, {640, 1792}, {8192, 256},
                               {8192, 640}}) {
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
    profile_.op_points.clear();
    Memory();
    Links();
    Products();
    Attention();
    Rows();
    Updates();
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
    progress_(0.05, "copies and all-reduce");
    constexpr size_t kLarge = 64 << 20;
    const double rate = kLarge / MeasureCopy(kLarge);
    Set(profile_.host_to_device_bytes_per_second, rate, "memcpy of 64 MiB");
    Set(profile_.device_to_host_bytes_per_second, rate, "memcpy of 64 MiB");
    Set(profile_.copy_seconds, MeasureCopy(4096), "memcpy of 4 KiB");
    const AllReduceCost cost = MeasureAllReduce();
    Set(profile_.collective_seconds, cost.least_seconds, "two ranks, 64 bytes");
    Set(profile_.collective_bytes_per_second, cost.bytes_per_second, "two ranks, 8 MiB");
  }

  // Returns the best rate among the points.
  double Keep(const std::vector<OpPoint>& points) {
    double best = 0;
    for (const OpPoint& point : points) {
      profile_.op_points.push_back(point);
      best = std::max(best, point.work / point.seconds);
    }
    return best;
  }

  bool Spent() const {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    return spent.count() > options_.budget_seconds;
  }

  // By shape first: when time runs out every element type has the same shapes. The first shape is
  // measured in any case: without a rate there is no peak.
  void Products() {
    const std::vector<Shape> shapes = Shapes();
    double best[2] = {0, 0};  // fp32, 16 bit
    for (size_t i = 0; i < shapes.size() && (i == 0 || !Spent()); ++i) {
      const auto [m, n, k] = shapes[i];
      for (Dtype dtype : kDtypes) {
        progress_(0.1 + 0.5 * double(i) / double(shapes.size()),
                  "products of " + std::string(Name(dtype)));
        double& highest = best[IsHalf(dtype)];
        highest = std::max(highest, Keep(MeasureProducts(dtype, m, n, k)));
      }
    }
    Set(profile_.fp32_flops_per_second, best[0], "the fastest product");
    Set(profile_.half_flops_per_second, best[1], "the fastest product");
    Set(profile_.matmul_efficiency_ratio, 1, "the peak is what products reached");
  }

  void Attention() {
    std::vector<double> ratios;
    const int64_t lengths[] = {64, 144, 256, 600, 1024};
    for (size_t i = 0; i < std::size(lengths) && (i == 0 || !Spent()); ++i) {
      for (Dtype dtype : kDtypes) {
        for (int64_t width : {32, 40, 64, 128}) {
          progress_(0.6 + 0.03 * double(i), "attention of " + std::string(Name(dtype)));
          const double peak = IsHalf(dtype) ? profile_.half_flops_per_second.value
                                            : profile_.fp32_flops_per_second.value;
          ratios.push_back(Keep(MeasureAttention(dtype, 2, lengths[i], 4, width)) / peak);
        }
      }
    }
    Set(profile_.attention_efficiency_ratio, std::min(1.0, GeometricMean(ratios)),
        "causal, the fastest of both kinds and passes");
  }

  void Rows() {
    std::vector<double> rates;
    const std::pair<int64_t, int64_t> shapes[] = {{512, 512}, {16, 64},     {128, 128},
                                                  {256, 256}, {1024, 1024}, {2048, 2048}};
    for (size_t i = 0; i < std::size(shapes) && (i == 0 || !Spent()); ++i) {
      for (Dtype dtype : kDtypes) {
        progress_(0.75 + 0.02 * double(i), "norms, gates, losses of " + std::string(Name(dtype)));
        const auto [rows, width] = shapes[i];
        for (const OpPoint& point : MeasureRows(dtype, rows, width)) {
          Keep({point});
          if (i == 0) rates.push_back(point.work / point.seconds);
        }
      }
    }
    Set(profile_.memory_efficiency_ratio,
        GeometricMean(rates) / profile_.memory_bytes_per_second.value,
        "norms, gates, positions, residuals and losses of 512 rows of 512, which caches hold");
  }

  void Updates() {
    const int64_t counts[] = {4 << 20, 512 << 10, 32 << 10, 1024};
    for (size_t i = 0; i < std::size(counts) && (i == 0 || !Spent()); ++i) {
      for (Dtype dtype : kDtypes) {
        progress_(0.9 + 0.02 * double(i), "optimizers of " + std::string(Name(dtype)));
        const std::vector<OpPoint> points = MeasureUpdate(dtype, counts[i]);
        Keep(points);
        if (i > 0 || dtype != Dtype::kF32) continue;
        Set(profile_.cpu_adam_parameters_per_second, double(counts[i]) / points.back().seconds,
            "AdamW in fp32, 4 Mi parameters");
      }
    }
  }

  static constexpr Dtype kDtypes[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
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
