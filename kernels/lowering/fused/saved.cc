#include "kernels/lowering/fused/saved.h"

#include <utility>

#include "kernels/lowering/fused/context.h"
#include "kernels/lowering/fused/on_stream.h"

namespace hbmtune::lowering {
namespace {

// Smaller tensors (statistics of a norm) stay: a copy of under 16 KiB costs its launch.
constexpr int64_t kLeastBytes = 16 * 1024;

}  // namespace

// --- Saved ------------------------------------------------------------------------------------

Saved::Saved(Context& context, const Tensor& tensor) {
  if (!context.tape.grad_enabled()) return;  // nothing will be recorded
  if (context.offload != nullptr) storage_ = context.offload->Claim(tensor);
  if (storage_ == nullptr) tensor_ = context.tape.Detach(tensor);
}

Tensor Saved::Take(Context& context) {
  if (storage_ == nullptr) return std::move(tensor_);
  auto storage = std::move(storage_);
  Tensor& device = storage->device;
  return context.tape.ViewOf(device, device.shape(), device.strides());
}

// --- ActivationMover --------------------------------------------------------------------------

ActivationMover::ActivationMover(Tape& tape, const OffloadConfig& config,
                                     std::vector<bool> layers)
    : tape_(tape),
      double_buffer_(config.double_buffer),
      in_flight_(config.double_buffer ? kLayersInFlight : 0),
      goes_(std::move(layers)),
      layers_(goes_.size()) {}

void ActivationMover::BeginLayer(int64_t layer) {
  layers_[layer] = Layer{};
  running_ = layer;
}

std::shared_ptr<SavedStorage> ActivationMover::Claim(const Tensor& tensor) {
  if (running_ < 0 || !goes_[running_] || !tensor.dense() || tensor.bytes() < kLeastBytes) {
    return nullptr;
  }
  auto& claim = layers_[running_].claims[tensor.storage()];
  if (claim == nullptr) {
    claim = std::make_shared<SavedStorage>();
    claim->device = tape_.Detach(tensor);
  }
  return claim;
}

void ActivationMover::EndLayer() {
  const int64_t layer = std::exchange(running_, -1);
  if (goes_[layer]) {
    SendAway(layers_[layer]);
    leaving_.push_back(layer);
  }
  while (!leaving_.empty() && leaving_.front() <= layer - in_flight_) ReleaseFirst();
}

void ActivationMover::EndForward() {
  while (!leaving_.empty()) ReleaseFirst();
}

void ActivationMover::ReleaseFirst() {
  Release(layers_[leaving_.front()]);
  leaving_.pop_front();
}

void ActivationMover::SendAway(Layer& layer) {
  const EventId computed = tape_.Record();
  OnStream copies(tape_, kCopyOutStream);
  tape_.Wait(computed);
  for (auto& [id, claim] : layer.claims) {
    claim->pinned = tape_.Empty(claim->device.dtype(), claim->device.shape(), Category::kStaging,
                                MemorySpace::kPinned);
    tape_.Copy(claim->device, claim->pinned);
    layer.away.push_back(claim);
  }
  layer.claims.clear();
  layer.copied = tape_.Record();
}

void ActivationMover::Release(Layer& layer) {
  tape_.Wait(layer.copied);
  for (auto& weak : layer.away) {
    if (auto claim = weak.lock()) claim->device = {};
  }
}

void ActivationMover::Fetch(Layer& layer) {
  std::vector<std::shared_ptr<SavedStorage>> claims;
  for (auto& weak : layer.away) {
    auto claim = weak.lock();
    if (claim == nullptr) continue;
    claim->device = tape_.Empty(claim->pinned.dtype(), claim->pinned.shape(),
                                Category::kActivations);
    claims.push_back(std::move(claim));
  }
  // The memory may just have been given up by the compute stream.
  const EventId free = tape_.Record();
  OnStream copies(tape_, kCopyInStream);
  tape_.Wait(free);
  for (auto& claim : claims) tape_.Copy(claim->pinned, claim->device);
  layer.fetched = tape_.Record();
  layer.fetching = true;
}

void ActivationMover::BeginBackward(int64_t layer) {
  if (goes_[layer]) {
    Layer& here = layers_[layer];
    if (!here.fetching) Fetch(here);
    tape_.Wait(here.fetched);
    for (auto& weak : here.away) {
      if (auto claim = weak.lock()) claim->pinned = {};
    }
  }
  const int64_t next = layer - 1;
  if (double_buffer_ && next >= 0 && goes_[next] && !layers_[next].fetching) Fetch(layers_[next]);
}

}  // namespace hbmtune::lowering
