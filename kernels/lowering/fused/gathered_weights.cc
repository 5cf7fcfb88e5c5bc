#include "kernels/lowering/fused/gathered_weights.h"

#include <stdexcept>

#include "kernels/lowering/fused/on_stream.h"

namespace hbmtune::lowering {

GatheredWeights::GatheredWeights(Context& context, const Partition& partition, GatherOrder order)
    : context_(context),
      partition_(partition),
      order_(std::move(order)),
      next_use_(order_.size()),
      elements_used_(order_.size() + 1),
      wholes_(context.parameters.all().size()) {
  std::vector<size_t> next(wholes_.size(), order_.size());
  for (size_t i = order_.size(); i-- > 0;) next_use_[i] = std::exchange(next[order_[i]], i);
  for (size_t i = 0; i < order_.size(); ++i) {
    elements_used_[i + 1] = elements_used_[i] + context.parameters.all()[order_[i]].elements();
  }
}

void GatheredWeights::Begin() { needed_.clear(); }

size_t GatheredWeights::IndexOf(const Parameter& parameter) const {
  return static_cast<size_t>(&parameter - context_.parameters.all().data());
}

void GatheredWeights::Need(Parameter& parameter) {
  if (parameter.resident) return;
  const size_t index = IndexOf(parameter);
  const size_t position = needed_.size();
  if (!order_.empty() && (position >= order_.size() || order_[position] != index)) {
    throw std::logic_error("the dry run did not need " + parameter.name + " here");
  }
  needed_.push_back(index);
  if (!parameter.weight) {
    MakeRoom(parameter.elements());
    Fetch(index);
  }
  Await(index);
  wholes_[index].in_use = true;
  wholes_[index].next_use = order_.empty() ? 0 : next_use_[position];
  if (context_.config.zero.overlap_comm) FetchAhead();
}

void GatheredWeights::Release(Parameter& parameter) {
  if (parameter.resident || !parameter.weight) return;
  const ZeroConfig& zero = context_.config.zero;
  Whole& whole = wholes_[IndexOf(parameter)];
  whole.in_use = false;
  const bool stays = whole.next_use < order_.size() && live_elements_ <= zero.max_live_parameters &&
                     ElementsUsedUntil(whole.next_use) <= zero.max_reuse_distance;
  if (!stays) Drop(IndexOf(parameter));
}

void GatheredWeights::End() {
  for (size_t i = 0; i < wholes_.size(); ++i) {
    const Parameter& parameter = context_.parameters.all()[i];
    if (parameter.resident || !parameter.weight) continue;
    Await(i);
    Drop(i);
  }
}

int64_t GatheredWeights::ElementsUsedUntil(size_t position) const {
  return elements_used_[position] - elements_used_[needed_.size()];
}

void GatheredWeights::Fetch(size_t index) {
  Tape& tape = context_.tape;
  Parameter& parameter = context_.parameters.all()[index];
  Whole& whole = wholes_[index];
  Tensor all = tape.Empty(parameter.part.dtype(),
                          {partition_.ranks * parameter.part.elements()},
                          Category::kCommunication);
  whole = Whole{};
  if (context_.config.zero.overlap_comm) {
    // The memory may just have been given up by the compute stream. Collectives have one order, the
    // same in every rank: that of the communication stream.
    const EventId free = tape.Record();
    OnStream comm(tape, kCommStream);
    tape.Wait(free);
    tape.Collective(CollectiveKind::kAllGather, parameter.part, all);
    whole.arrived = tape.Record();
    whole.arriving = true;
  } else {
    tape.Collective(CollectiveKind::kAllGather, parameter.part, all);
  }
  parameter.weight = tape.ViewOf(all, parameter.shape, DenseStrides(parameter.shape));
  live_elements_ += parameter.elements();
}

void GatheredWeights::FetchAhead() {
  const ZeroConfig& zero = context_.config.zero;
  for (size_t i = needed_.size(); i < order_.size(); ++i) {
    const Parameter& parameter = context_.parameters.all()[order_[i]];
    if (parameter.weight) continue;
    const int64_t elements = parameter.elements();
    if (ahead_elements_ + elements > zero.prefetch_bucket_size ||
        live_elements_ + elements > zero.max_live_parameters) {
      return;
    }
    Fetch(order_[i]);
    wholes_[order_[i]].ahead = true;
    wholes_[order_[i]].next_use = i;
    ahead_elements_ += elements;
  }
}

void GatheredWeights::Await(size_t index) {
  Whole& whole = wholes_[index];
  if (std::exchange(whole.arriving, false)) context_.tape.Wait(whole.arrived);
  if (std::exchange(whole.ahead, false)) {
    ahead_elements_ -= context_.parameters.all()[index].elements();
  }
}

void GatheredWeights::Drop(size_t index) {
  Parameter& parameter = context_.parameters.all()[index];
  parameter.weight = {};
  live_elements_ -= parameter.elements();
}

void GatheredWeights::MakeRoom(int64_t elements) {
  while (live_elements_ + elements > context_.config.zero.max_live_parameters) {
    size_t last = wholes_.size();
    for (size_t i = 0; i < wholes_.size(); ++i) {
      const Whole& whole = wholes_[i];
      const Parameter& parameter = context_.parameters.all()[i];
      if (parameter.resident || !parameter.weight || whole.in_use || whole.arriving) continue;
      if (last == wholes_.size() || whole.next_use > wholes_[last].next_use) last = i;
    }
    if (last == wholes_.size()) return;
    Drop(last);
  }
}

}  // namespace hbmtune::lowering
