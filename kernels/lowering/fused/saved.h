#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/program/tape.h"

namespace hbmtune::lowering {

struct Context;

// One storage that the backward pass needs, in device memory or away in pinned memory.
struct SavedStorage {
  Tensor device;  // empty while it is away
  Tensor pinned;  // empty unless it is away or on its way
};

// What a node saves of a large tensor: the tensor itself, or, in a layer whose activations are
// offloaded, a claim on its storage. A copy is another claim.
class Saved {
 public:
  Saved() = default;
  Saved(Context& context, const Tensor& tensor);

  explicit operator bool() const { return tensor_ || storage_ != nullptr; }
  // The tensor, at the end of this claim. In the backward pass of its layer.
  Tensor Take(Context& context);

 private:
  Tensor tensor_;
  std::shared_ptr<SavedStorage> storage_;
};

// Makes a tensor again in the backward pass, once, from what its node saved anyway.
using Remake = std::function<Tensor(Context&)>;

// Layers whose activations may be leaving at once. With 1 every copy that is late by anything
// stalls the compute stream; with 2 it has a layer's time to catch up. On the way back 1 is enough:
// the backward pass of a layer takes twice the time of its forward pass.
inline constexpr int64_t kLayersInFlight = 2;

// Moves what the layers of a micro-batch saved to pinned memory and back, on two streams of their
// own: away while the next kLayersInFlight layers compute, back while the one after it goes
// backward. With double_buffer off the compute stream waits for every copy instead.
class ActivationMover {
 public:
  // `layers`: which of them go away.
  ActivationMover(Tape& tape, const OffloadConfig& config, std::vector<bool> layers);

  // Between the two, nodes' Saved belong to that layer.
  void BeginLayer(int64_t layer);
  void EndLayer();
  // The last layer is over: what is still on its way is waited for.
  void EndForward();
  // The layer's backward pass begins (its recorded node calls it): its storages are there, and the
  // next ones are on their way.
  void BeginBackward(int64_t layer);

  // The claim of the running layer on a storage, or null where it stays.
  std::shared_ptr<SavedStorage> Claim(const Tensor& tensor);

 private:
  struct Layer {
    std::map<StorageId, std::shared_ptr<SavedStorage>> claims;  // while its forward pass runs
    std::vector<std::weak_ptr<SavedStorage>> away;
    EventId copied = 0;
    EventId fetched = 0;
    bool fetching = false;
  };

  void SendAway(Layer& layer);
  void Release(Layer& layer);
  void ReleaseFirst();
  void Fetch(Layer& layer);

  Tape& tape_;
  bool double_buffer_;
  int64_t in_flight_;
  std::vector<bool> goes_;
  std::vector<Layer> layers_;
  int64_t running_ = -1;
  std::deque<int64_t> leaving_;  // copied, their device memory not yet given up
};

}  // namespace hbmtune::lowering
