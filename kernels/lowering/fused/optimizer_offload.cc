// The two ways in which the optimizer's state lives in pinned memory.

#include "kernels/lowering/fused/on_stream.h"
#include "kernels/lowering/fused/optimizer.h"
#include "kernels/ops/copy/copy.h"

namespace hbmtune::lowering {
namespace {

// Elements of weights in a group: enough for the link's full rate (64 MiB of fp32 moments), few
// enough that three groups are small beside the weights they save.
constexpr int64_t kGroupElements = int64_t{8} << 20;

// A copy to pinned memory that the compute stream waits for.
void CopyOut(Tape& tape, const Tensor& from, const Tensor& to) {
  const EventId made = tape.Record();
  EventId copied = 0;
  {
    OnStream copies(tape, kCopyOutStream);
    tape.Wait(made);
    tape.Copy(from, to);
    copied = tape.Record();
  }
  tape.Wait(copied);
}

}  // namespace

std::vector<OptimizerStep::Group> OptimizerStep::MakeGroups() const {
  std::vector<Group> groups;
  int64_t elements = kGroupElements;
  for (size_t i = 0; i < states_.size(); ++i) {
    const int64_t more = states_[i].weight.elements();
    if (elements + more > kGroupElements) {
      groups.push_back(Group{i, i, {}, {}, 0, 0});
      elements = 0;
    }
    elements += more;
    groups.back().end = i + 1;
  }
  return groups;
}

void OptimizerStep::CopyMasters() {
  Tape& tape = context_.tape;
  for (State& state : states_) {
    const Tensor& weight = state.weight;
    if (state.host_weight) {
      CopyOut(tape, weight, state.host_weight);
    }
    if (!state.master) continue;
    if (space() == MemorySpace::kDevice) {
      tape.Run(ops::kCopy, {weight}, {state.master});
    } else if (state.host_weight) {
      tape.Run(ops::kCopy, {state.host_weight}, {state.master});
    } else {
      Tensor wide = tape.Empty(Dtype::kF32, weight.shape(), Category::kStaging);
      tape.Run(ops::kCopy, {weight}, {wide});
      CopyOut(tape, wide, state.master);
    }
  }
}

// --- stream -----------------------------------------------------------------------------------

void OptimizerStep::FetchState(Group& group) {
  Tape& tape = context_.tape;
  for (size_t i = group.begin; i < group.end; ++i) {
    auto& staged = group.staged.emplace_back();
    for (Tensor* tensor : StateTensors(states_[i])) {
      staged.push_back(tape.Empty(tensor->dtype(), tensor->shape(), Category::kStaging));
    }
  }
  const EventId free = tape.Record();
  OnStream copies(tape, kCopyInStream);
  tape.Wait(free);
  for (size_t i = group.begin; i < group.end; ++i) {
    auto& staged = group.staged[i - group.begin];
    const auto tensors = StateTensors(states_[i]);
    for (size_t j = 0; j < tensors.size(); ++j) tape.Copy(*tensors[j], staged[j]);
  }
  group.arrived = tape.Record();
}

void OptimizerStep::StoreState(Group& group) {
  Tape& tape = context_.tape;
  const EventId computed = tape.Record();
  OnStream copies(tape, kCopyOutStream);
  tape.Wait(computed);
  for (size_t i = group.begin; i < group.end; ++i) {
    auto& staged = group.staged[i - group.begin];
    const auto tensors = StateTensors(states_[i]);
    for (size_t j = 0; j < tensors.size(); ++j) tape.Copy(staged[j], *tensors[j]);
  }
  group.left = tape.Record();
}

void OptimizerStep::UpdateStreamed() {
  if (states_.empty()) return;  // small adapters may leave a rank without a part of any
  Tape& tape = context_.tape;
  std::vector<Group> groups = MakeGroups();
  const bool overlap = context_.config.offload.double_buffer;
  auto release = [&](size_t g) {
    tape.Wait(groups[g].left);
    groups[g].staged.clear();
  };
  FetchState(groups[0]);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (overlap && g >= 2) release(g - 2);
    if (overlap && g + 1 < groups.size()) FetchState(groups[g + 1]);
    if (!overlap && g > 0) FetchState(groups[g]);
    tape.Wait(groups[g].arrived);
    for (size_t i = groups[g].begin; i < groups[g].end; ++i) {
      std::vector<Tensor> out{states_[i].weight};
      for (const Tensor& staged : groups[g].staged[i - groups[g].begin]) out.push_back(staged);
      Update(GradientOf(states_[i]), step_, control_, std::move(out));
      EndGradient(states_[i]);
    }
    StoreState(groups[g]);
    if (!overlap) release(g);
  }
  for (size_t g = groups.size() >= 2 ? groups.size() - 2 : 0; overlap && g < groups.size(); ++g) {
    release(g);
  }
}

// --- cpu_adam ---------------------------------------------------------------------------------

void OptimizerStep::SendGradients(Group& group) {
  Tape& tape = context_.tape;
  for (size_t i = group.begin; i < group.end; ++i) {
    const Tensor gradient = GradientOf(states_[i]);
    group.gradients.push_back(tape.Empty(gradient.dtype(), gradient.shape(), Category::kStaging,
                                         MemorySpace::kPinned));
  }
  const EventId computed = tape.Record();
  OnStream copies(tape, kCopyOutStream);
  tape.Wait(computed);
  for (size_t i = group.begin; i < group.end; ++i) {
    tape.Copy(GradientOf(states_[i]), group.gradients[i - group.begin]);
  }
  group.arrived = tape.Record();
}

void OptimizerStep::SendWeights(Group& group) {
  Tape& tape = context_.tape;
  const EventId updated = tape.Record();
  OnStream copies(tape, kCopyInStream);
  tape.Wait(updated);
  for (size_t i = group.begin; i < group.end; ++i) {
    tape.Copy(states_[i].host_weight, states_[i].weight);
  }
  group.left = tape.Record();
}

void OptimizerStep::UpdateOnCpu() {
  if (states_.empty()) return;
  Tape& tape = context_.tape;
  std::vector<Group> groups = MakeGroups();
  const bool overlap = context_.config.offload.double_buffer;
  const EventId counted = tape.Record();
  {
    OnStream copies(tape, kCopyOutStream);
    tape.Wait(counted);
    tape.Copy(step_, host_step_);
    tape.Copy(control_, host_control_);
  }
  SendGradients(groups[0]);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (overlap && g + 1 < groups.size()) SendGradients(groups[g + 1]);
    if (!overlap && g > 0) SendGradients(groups[g]);
    tape.Wait(groups[g].arrived);
    for (size_t i = groups[g].begin; i < groups[g].end; ++i) EndGradient(states_[i]);
    for (size_t i = groups[g].begin; i < groups[g].end; ++i) {
      std::vector<Tensor> out{states_[i].host_weight};
      for (Tensor* tensor : StateTensors(states_[i])) out.push_back(*tensor);
      Update(groups[g].gradients[i - groups[g].begin], host_step_, host_control_,
             std::move(out));
      groups[g].gradients[i - groups[g].begin] = {};
    }
    SendWeights(groups[g]);
    if (!overlap) tape.Wait(groups[g].left);
  }
  if (overlap) tape.Wait(groups.back().left);
}

}  // namespace hbmtune::lowering
