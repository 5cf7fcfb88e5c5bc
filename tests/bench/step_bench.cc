// The fused training step of one Llama shape, and the step's own matrix products run bare through
// oneDNN, as one line of JSON. compare_step.py runs it beside the PyTorch peer.

#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <dnnl.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/device/host/host_device.h"
#include "kernels/lowering/fused.h"
#include "kernels/step/data.h"
#include "kernels/step/executor.h"
#include "kernels/step/weights.h"

namespace hbmtune {
namespace {

struct Options {
  int64_t hidden = 512, layers = 8, heads = 8, ffn = 1376, vocab = 8192, seq_len = 256, batch = 4;
  int64_t loss_chunk = 512;  // half of the rows: their logits are 17 of 34 MB
  int threads = 2, warmup = 2, steps = 5;
  std::string dtype = "fp32";
};

Workload MakeWorkload(const Options& options) {
  Workload workload;
  ModelSpec& model = workload.model;
  model.hidden = options.hidden;
  model.layers = options.layers;
  model.heads = model.kv_heads = options.heads;
  model.head_dim = options.hidden / options.heads;
  model.ffn = options.ffn;
  model.vocab = options.vocab;
  model.max_positions = options.seq_len;
  workload.seq_len = options.seq_len;
  workload.grad_clip = 0;  // the peer does not clip
  return workload;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Now() { return omp_get_wtime(); }

// One product C[m, n] = A[m, k] · B[k, n]; a transposed factor is stored the other way round.
struct Product {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  Dtype dtype, out;
  auto operator<=>(const Product&) const = default;
};

// The products of a steady step, by how often each occurs.
std::map<Product, int> Products(const Program& program) {
  std::map<Product, int> products;
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    const auto* run = std::get_if<Run>(&program.code[i]);
    if (run == nullptr) continue;
    auto view = [&](size_t j) -> const View& {
      return program.views[program.args[run->first_arg + j]];
    };
    const Dtype out = view(run->inputs).dtype;
    if (run->op->name == "linear") {
      const int64_t k = view(0).shape.back(), n = view(1).shape[0];
      ++products[{ElementCount(view(0).shape) / k, n, k, false, true, view(0).dtype, out}];
    } else if (run->op->name == "linear_backward_input") {
      const int64_t k = view(0).shape.back(), n = view(1).shape[1];
      ++products[{ElementCount(view(0).shape) / k, n, k, false, false, view(0).dtype, out}];
    } else if (run->op->name == "linear_backward_weight") {
      const int64_t m = view(0).shape.back(), n = view(1).shape.back();
      ++products[{m, n, ElementCount(view(0).shape) / m, true, false, view(0).dtype, out}];
    }
  }
  return products;
}

double Flops(const std::map<Product, int>& products) {
  double flops = 0;
  for (const auto& [p, count] : products) flops += 2.0 * p.m * p.n * p.k * count;
  return flops;
}

dnnl::memory::data_type TypeOf(Dtype dtype) {
  return dtype == Dtype::kBf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// Seconds of one product, warm, the median of five.
double BareSeconds(const Product& p) {
  using Desc = dnnl::memory::desc;
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::dims a_strides =
      p.a_transposed ? dnnl::memory::dims{1, p.m} : dnnl::memory::dims{p.k, 1};
  const dnnl::memory::dims b_strides =
      p.b_transposed ? dnnl::memory::dims{1, p.k} : dnnl::memory::dims{p.n, 1};
  const Desc a_desc({p.m, p.k}, TypeOf(p.dtype), a_strides);
  const Desc b_desc({p.k, p.n}, TypeOf(p.dtype), b_strides);
  const Desc c_desc({p.m, p.n}, TypeOf(p.out), dnnl::memory::dims{p.n, 1});
#if DNNL_VERSION_MAJOR >= 3
  dnnl::matmul::primitive_desc made(engine, a_desc, b_desc, c_desc);
#else
  dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a_desc, b_desc, c_desc), engine);
#endif
  dnnl::matmul matmul(made);
  dnnl::memory a(a_desc, engine), b(b_desc, engine), c(c_desc, engine);
  std::fill_n(static_cast<char*>(a.get_data_handle()), a_desc.get_size(), 0);
  std::fill_n(static_cast<char*>(b.get_data_handle()), b_desc.get_size(), 0);
  std::vector<double> seconds;
  for (int i = 0; i < 6; ++i) {
    const double begin = Now();
    matmul.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream.wait();
    if (i > 0) seconds.push_back(Now() - begin);
  }
  return Median(seconds);
}

TrainConfig MakeConfig(const Options& options) {
  TrainConfig config;
  config.micro_batch = options.batch;
  config.loss_chunk_tokens = options.loss_chunk;
  if (options.dtype != "fp32") config.compute_dtype = Dtype::kBf16;
  if (options.dtype == "bf16") {
    config.param_dtype = Dtype::kBf16;
    config.master_weights = true;
  }
  return config;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Times the fused training step");
  app.add_option("--hidden", options.hidden);
  app.add_option("--layers", options.layers);
  app.add_option("--heads", options.heads);
  app.add_option("--ffn", options.ffn);
  app.add_option("--vocab", options.vocab);
  app.add_option("--seq-len", options.seq_len);
  app.add_option("--batch", options.batch);
  app.add_option("--loss-chunk", options.loss_chunk);
  app.add_option("--threads", options.threads);
  app.add_option("--warmup", options.warmup);
  app.add_option("--steps", options.steps);
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"fp32", "bf16-amp", "bf16"}));
  CLI11_PARSE(app, argc, argv);
  omp_set_num_threads(options.threads);
  const Workload workload = MakeWorkload(options);
  const Program program = lowering::LowerFused(workload, MakeConfig(options));
  device::HostDevice device({.memory_bytes = int64_t{8} << 30});
  step::Executor executor(program, device, {});
  auto data = step::SyntheticTokens(0, 0, options.vocab);
  executor.set_feed([&](int64_t* ids, int64_t* labels, int64_t rows, int64_t tokens) {
    data->Fill(ids, labels, rows, tokens);
  });
  executor.RunSetup();
  step::InitialiseWeights(executor, program, workload, 0);
  executor.RunFirstStep();
  for (int i = 1; i < options.warmup; ++i) executor.RunSteadyStep();
  std::vector<double> seconds;
  for (int i = 0; i < options.steps; ++i) {
    const double begin = Now();
    executor.RunSteadyStep();
    seconds.push_back(Now() - begin);
  }
  const auto products = Products(program);
  double bare = 0;
  for (const auto& [product, count] : products) bare += BareSeconds(product) * count;
  const double median = Median(seconds);
  Json json;
  json["tokens_per_second"] = options.batch * options.seq_len / median;
  json["median_step_seconds"] = median;
  json["step_seconds"] = seconds;
  json["product_flops"] = Flops(products);
  json["product_flops_per_second"] = Flops(products) / median;
  json["bare_product_seconds"] = bare;
  json["bare_share"] = bare / median;
  const step::MemoryPeaks& peaks = executor.Peaks();
  json["peak_allocated_bytes"] = peaks.allocated_bytes;
  json["peak_phase"] = Name(peaks.phase);
  json["peak_op"] = peaks.op;
  for (const CategoryBytes& owner : peaks.breakdown) {
    json["peak_breakdown"][std::string(Name(owner.category))] = owner.bytes;
  }
  json["last_loss"] = executor.scalar(ScalarSlot::kLoss).value_or(0);
  json["dtype"] = options.dtype;
  std::printf("%s\n", json.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace hbmtune

int main(int argc, char** argv) { return hbmtune::Main(argc, argv); }
