#include "kernels/program/tape.h"

#include <stdexcept>
#include <string>

#include "kernels/program/tape_internal.h"
#include "kernels/program/too_large.h"

namespace hbmtune {

// --- Tensor -----------------------------------------------------------------------------------

const Dims& Tensor::shape() const { return impl_->view.shape; }
const Dims& Tensor::strides() const { return impl_->view.strides; }
Dtype Tensor::dtype() const { return impl_->view.dtype; }
int64_t Tensor::elements() const { return ElementCount(impl_->view.shape); }
int64_t Tensor::bytes() const { return ByteCount(impl_->view); }
bool Tensor::dense() const { return impl_->view.strides == DenseStrides(impl_->view.shape); }
StorageId Tensor::storage() const { return impl_->storage->id; }
bool Tensor::requires_grad() const { return impl_->trainable || impl_->node != nullptr; }
bool Tensor::is_leaf() const { return impl_->node == nullptr; }
bool Tensor::permuted_dense() const {
  // Sorted by stride, each stride is the product of the extents below it; extents of 1 are free.
  const View& view = impl_->view;
  int64_t expected = 1;
  const int64_t all = ElementCount(view.shape);
  for (size_t step = 0; step < view.shape.rank() && expected < all; ++step) {
    size_t d = 0;
    while (d < view.shape.rank() && (view.shape[d] == 1 || view.strides[d] != expected)) ++d;
    if (d == view.shape.rank()) return false;
    expected *= view.shape[d];
  }
  return expected == all;
}
long Tensor::handles() const { return impl_.use_count(); }
Tensor Tensor::grad() const { return impl_->grad; }
void Tensor::set_grad(Tensor grad) { impl_->grad = std::move(grad); }
void Tensor::set_requires_grad(bool value) { impl_->trainable = value; }

// --- storages ---------------------------------------------------------------------------------

Storage::~Storage() {
  if (emitter->program == nullptr) return;
  emitter->live[id] = false;
  emitter->program->code.push_back(Free{id, 0});
}

StorageId Emitter::NewId() {
  StorageId id = next_id++;
  if (id >= live.size()) live.resize(2 * id + 64);
  live[id] = true;
  if (next_id > program->storage_count) program->storage_count = next_id;
  return id;
}

void Emitter::Rewind() {
  while (next_id > 0 && !live[next_id - 1]) --next_id;
}

Tape::Tape(Program& program, const TapeOps& ops)
    : program_(&program), ops_(ops), emitter_(std::make_shared<Emitter>()) {
  emitter_->program = program_;
}

Tape::~Tape() { emitter_->program = nullptr; }

// --- tensors ----------------------------------------------------------------------------------

namespace {

// Over any device by far; what is larger has been asked for by mistake, and may not count in int64.
constexpr int64_t kMostTensorBytes = int64_t{1} << 48;
// A Program is unrolled: 2 million instructions are 100 MB and seconds of lowering. A step of
// Llama-3-70B with 64 micro-steps has 1 million.
constexpr size_t kMostInstructions = 2'000'000;

void CheckSize(Dtype dtype, const Dims& shape) {
  double bytes = static_cast<double>(SizeOf(dtype));
  for (int64_t extent : shape) bytes *= static_cast<double>(extent);
  if (bytes <= static_cast<double>(kMostTensorBytes)) return;
  throw TensorTooLarge("a tensor " + ToString(shape) + " of " + std::string(Name(dtype)) +
                       " is over 256 TiB: a smaller micro_batch or seq_len");
}

void CheckCount(const Program& program) {
  if (program.code.size() < kMostInstructions) return;
  throw std::invalid_argument(
      "a step of over 2000000 operations: a smaller micro_batch, grad_accum or number of layers, "
      "or a larger loss_chunk_tokens");
}

}  // namespace

Tensor Tape::Empty(Dtype dtype, const Dims& shape, Category category, MemorySpace space) {
  CheckSize(dtype, shape);
  auto impl = emitter_->Make<Tensor::Impl>();
  impl->storage = emitter_->Make<Storage>(emitter_, emitter_->NewId());
  impl->view = View{impl->storage->id, 0, dtype, 0, shape, DenseStrides(shape)};
  program_->code.push_back(Allocate{impl->storage->id, 0, ByteCount(impl->view), category, space,
                                    stream_});
  return Tensor(std::move(impl));
}

Tensor Tape::Full(Dtype dtype, const Dims& shape, double value, Category category) {
  Tensor tensor = Empty(dtype, shape, category);
  Run(*ops_.fill, {}, {tensor}, Attrs::Of(FillAttrs{value}));
  return tensor;
}

Tensor Tape::ViewOf(const Tensor& base, const Dims& shape, const Dims& strides,
                    int64_t offset_elements, std::optional<Dtype> dtype) {
  auto impl = emitter_->Make<Tensor::Impl>();
  impl->storage = base.impl_->storage;
  impl->view = View{impl->storage->id,
                    0,
                    dtype.value_or(base.dtype()),
                    base.impl_->view.offset_bytes + offset_elements * SizeOf(base.dtype()),
                    shape,
                    strides};
  return Tensor(std::move(impl));
}

Tensor Tape::Alias(const Tensor& base, const Dims& shape, const Dims& strides,
                   int64_t offset_elements) {
  Tensor view = ViewOf(base, shape, strides, offset_elements);
  view.impl_->base = base.impl_->base ? base.impl_->base : base.impl_;
  return view;
}

void Tape::Rebind(const Tensor& tensor, const Tensor& data) {
  tensor.impl_->view = data.impl_->view;
  tensor.impl_->view_id = Tensor::Impl::kNoView;
  tensor.impl_->storage = data.impl_->storage;
}

Tensor Tape::Detach(const Tensor& tensor) {
  return ViewOf(tensor, tensor.shape(), tensor.strides());
}

ViewId Tape::ViewIdOf(const Tensor& tensor) {
  Tensor::Impl& impl = *tensor.impl_;
  if (impl.view_id == Tensor::Impl::kNoView) {
    impl.view_id = static_cast<ViewId>(program_->views.size());
    program_->views.push_back(impl.view);
  }
  return impl.view_id;
}

// --- instructions -----------------------------------------------------------------------------

void Tape::Run(const OpKind& op, std::span<const Tensor> in, std::span<const Tensor> out,
               const Attrs& attrs) {
  CheckCount(*program_);
  hbmtune::Run run{&op,
                   static_cast<uint32_t>(program_->args.size()),
                   static_cast<uint16_t>(in.size()),
                   static_cast<uint16_t>(out.size()),
                   static_cast<uint32_t>(program_->attrs.size()),
                   stream_};
  for (const Tensor& tensor : in) program_->args.push_back(ViewIdOf(tensor));
  for (const Tensor& tensor : out) program_->args.push_back(ViewIdOf(tensor));
  program_->attrs.push_back(attrs);
  program_->code.push_back(run);
}

void Tape::Run(const OpKind& op, std::initializer_list<Tensor> in,
               std::initializer_list<Tensor> out, const Attrs& attrs) {
  Run(op, std::span(in.begin(), in.size()), std::span(out.begin(), out.size()), attrs);
}

void Tape::Copy(const Tensor& from, const Tensor& to) {
  program_->code.push_back(hbmtune::Copy{ViewIdOf(from), ViewIdOf(to), stream_});
}

void Tape::Collective(CollectiveKind kind, const Tensor& from, const Tensor& to, uint32_t root) {
  program_->code.push_back(
      hbmtune::Collective{kind, ViewIdOf(from), ViewIdOf(to), root, stream_});
}

EventId Tape::Record() {
  program_->code.push_back(hbmtune::Record{program_->event_count, stream_});
  return program_->event_count++;
}

void Tape::Wait(EventId event) { program_->code.push_back(hbmtune::Wait{event, stream_}); }

void Tape::HostWait(EventId event) {
  program_->code.push_back(hbmtune::Wait{event, kHostThread});
}

void Tape::UseOnCurrentStream(const Tensor& tensor) {
  program_->code.push_back(UseOn{tensor.storage(), 0, stream_});
}

void Tape::ReadScalar(const Tensor& from, ScalarSlot slot) {
  program_->code.push_back(hbmtune::ReadScalar{ViewIdOf(from), static_cast<uint32_t>(slot)});
}

void Tape::Feed(const Tensor& token_ids, const Tensor& labels) {
  program_->code.push_back(hbmtune::Feed{ViewIdOf(token_ids), ViewIdOf(labels)});
}

void Tape::Phase(PhaseKind kind) { program_->code.push_back(hbmtune::Phase{kind}); }

void Tape::NameParameter(const std::string& name, const Tensor& tensor) {
  program_->parameters.push_back({name, ViewIdOf(tensor)});
}

void Tape::NameState(const std::string& name, const Tensor& tensor) {
  program_->state.push_back({name, ViewIdOf(tensor)});
}

void Tape::BeginFirstStep() {
  program_->first_step = program_->code.size();
  RewindIds();
}

void Tape::BeginSteadyStep() {
  program_->steady_step = program_->code.size();
  RewindIds();
}

void Tape::RewindIds() { emitter_->Rewind(); }

}  // namespace hbmtune
