#include "kernels/lowering/hf.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/lowering/hf/ddp.h"
#include "kernels/lowering/hf/refuse.h"
#include "kernels/lowering/hf/trainer.h"
#include "kernels/lowering/hf/zero.h"
#include "kernels/lowering/hf/zero0.h"
#include "kernels/lowering/hf/zero3.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/program/close_step.h"

namespace hbmtune::lowering {
namespace {

std::unique_ptr<HfModel> MakeModel(Aten& aten, const Workload& workload,
                                   const TrainConfig& config) {
  switch (workload.model.architecture) {
    case Architecture::kGpt2: return MakeGpt2(aten, workload, config);
    case Architecture::kFalcon: return MakeFalcon(aten, workload, config);
    default: return MakeLlama(aten, workload, config);
  }
}

// Gradients that meet may lie in memory in different orders.
constexpr TapeOps kTapeOps{&ops::kAtenAdd, &ops::kAtenAdd, &ops::kFill, &ops::kCopy};

// The loop around the model: one optimizer step of config.grad_accum micro-batches.
class HfTrainer {
 public:
  HfTrainer(Program& program, const Workload& workload, const TrainConfig& config,
            const HfOptions& options)
      : tape_(std::make_unique<Tape>(program, kTapeOps)),
        aten_(*tape_, options.gpu),
        workload_(workload),
        config_(config),
        options_(options),
        autocast_(config.compute_dtype != config.param_dtype),
        scaler_(aten_) {}

  void Build() {
    tape_->Phase(PhaseKind::kSetup);
    if (UsesDeepspeed(workload_.framework) && config_.zero.stage == 3 && options_.zero_init) {
      aten_.set_parameter_ranks(std::max<int64_t>(1, workload_.world_size));
    }
    model_ = MakeModel(aten_, workload_, config_);
    MakeOptimizer();
    tape_->BeginFirstStep();
    Step();
    if (ddp_ && options_.settle_buckets) Step();
    tape_->BeginSteadyStep();
    Step();
    if (options_.evaluate) Evaluate();
    if (options_.save && zero_ && config_.zero.stage == 3) {
      tape_->Phase(PhaseKind::kSave);
      zero_->Save();
    }
    tape_.reset();  // what is alive now stays alive: no free is written for it
  }

 private:
  void MakeOptimizer() {
    if (UsesDdp(workload_.framework)) {
      ddp_ = std::make_unique<Ddp>(aten_, config_.ddp, options_, model_->parameters(),
                                   model_->buffers());
      tape_->set_on_leaf_grad([this](Tensor& leaf) { ddp_->OnGradient(leaf); });
    }
    if (!UsesDeepspeed(workload_.framework)) {
      optimizer_ = std::make_unique<HfAdamw>(aten_, config_, options_, model_->parameters());
      return;
    }
    if (config_.zero.stage == 3) {
      zero_ = std::make_unique<Zero3Optimizer>(aten_, workload_, config_, options_,
                                               model_->parameters());
    } else if (config_.zero.stage == 0) {
      zero_ = std::make_unique<ReplicatedOptimizer>(aten_, workload_, config_, options_,
                                                    model_->parameters());
    } else {
      zero_ = std::make_unique<ZeroOptimizer>(aten_, workload_, config_, options_,
                                              model_->parameters());
    }
    tape_->set_on_leaf_grad([this](Tensor& leaf) { zero_->OnGradient(leaf); });
  }

  bool scales_loss() const { return autocast_ && config_.compute_dtype == Dtype::kF16; }

  // Forward pass over the next micro-batch; inputs and outputs are gone when it returns.
  Tensor Forward(bool last) {
    aten_.set_category(Category::kInputs);
    const Dims shape{config_.micro_batch, workload_.seq_len};
    Tensor ids = aten_.New(Dtype::kI64, shape);
    Tensor labels = aten_.New(Dtype::kI64, shape);
    aten_.set_category(Category::kActivations);
    tape_->Feed(ids, labels);
    if (ddp_) ddp_->BeginForward(last);
    if (zero_) zero_->BeginForward();
    Tensor loss = model_->Loss(ids, labels, options_.outputs_fp32.value_or(autocast_));
    ids = {};
    labels = {};
    if (config_.grad_accum > 1) {
      Tensor mean = aten_.DivScalar(loss, static_cast<double>(config_.grad_accum));
      loss = std::move(mean);
    }
    return loss;
  }

  void MicroStep(bool last) {
    tape_->Phase(PhaseKind::kForward);
    Tensor loss = Forward(last);
    tape_->Phase(PhaseKind::kBackward);
    Tensor root = scales_loss() ? scaler_.Scale(loss) : loss;
    Tensor seed = aten_.Full(Dtype::kF32, {}, 1);
    if (zero_) zero_->BeginBackward(last);
    tape_->Backward({root}, {seed});
    seed = {};
    if (zero_) zero_->EndBackward();
    if (ddp_) ddp_->EndBackward();
    root = {};
    tape_->ReadScalar(loss, ScalarSlot::kLoss);  // Trainer's logging_nan_inf_filter
    model_->ReleaseGraph();
  }

  void Step() {
    for (int64_t micro = 0; micro < config_.grad_accum; ++micro) {
      MicroStep(micro + 1 == config_.grad_accum);
    }
    if (zero_) {
      StepZero();
      return;
    }
    if (workload_.grad_clip > 0) {
      tape_->Phase(PhaseKind::kClip);
      if (scales_loss()) scaler_.Unscale(optimizer_->order());
      ClipGradNorm(aten_, optimizer_->declared(), workload_.grad_clip);
    }
    tape_->Phase(PhaseKind::kOptimizer);
    if (scales_loss() && config_.optimizer_loop == OptimizerLoop::kFused) {
      scaler_.PrepareFused(optimizer_->order());
    } else if (scales_loss() && !scaler_.unscaled()) {
      scaler_.Unscale(optimizer_->order());
    }
    optimizer_->Step();
    scaler_.Update();
    tape_->Phase(PhaseKind::kZeroGrad);
    optimizer_->ZeroGrad();
  }

  void StepZero() {
    tape_->Phase(PhaseKind::kOptimizer);
    zero_->Step();
    zero_->ZeroGrad();  // nothing is left of them
  }

  void Evaluate() {
    model_->set_training(false);
    tape_->Phase(PhaseKind::kEvaluate);
    NoGrad guard(*tape_);
    Tensor loss = Forward(true);
    tape_->ReadScalar(loss, ScalarSlot::kLoss);
    model_->set_training(true);
  }

  std::unique_ptr<Tape> tape_;
  Aten aten_;
  const Workload& workload_;
  const TrainConfig& config_;
  const HfOptions& options_;
  const bool autocast_;
  HfGradScaler scaler_;
  std::unique_ptr<HfModel> model_;
  std::unique_ptr<HfAdamw> optimizer_;
  std::unique_ptr<DeepspeedOptimizer> zero_;
  std::unique_ptr<Ddp> ddp_;
};

}  // namespace

Program LowerHf(const Workload& workload, const TrainConfig& config, const HfOptions& options) {
  Program program;
  LowerHf(workload, config, options, program);
  return program;
}

void LowerHf(const Workload& workload, const TrainConfig& config, const HfOptions& options,
             Program& program) {
  RefuseHf(workload, config);
  program.Clear();
  HfTrainer(program, workload, config, options).Build();
  if (UsesDeepspeed(workload.framework) && config.zero.stage == 3) CloseSteadyStep(program);
}

}  // namespace hbmtune::lowering
