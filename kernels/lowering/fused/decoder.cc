#include "kernels/lowering/fused/decoder.h"

#include <algorithm>

#include "kernels/lowering/fused/attention.h"
#include "kernels/lowering/fused/checkpoint.h"
#include "kernels/lowering/fused/data_parallel.h"
#include "kernels/lowering/fused/layer.h"
#include "kernels/lowering/fused/norm.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/positions/positions.h"
#include "kernels/ops/rotary/rotary.h"

namespace hbmtune::lowering {
namespace {

struct ModelNames {
  const char* embedding;
  const char* positions;  // null: rotary
  const char* layers;
  const char* final_norm;
};

ModelNames NamesOf(Architecture architecture) {
  switch (architecture) {
    case Architecture::kFalcon:
      return {"transformer.word_embeddings", nullptr, "transformer.h.", "transformer.ln_f"};
    case Architecture::kGpt2:
      return {"transformer.wte", "transformer.wpe", "transformer.h.", "transformer.ln_f"};
    default:
      return {"model.embed_tokens", nullptr, "model.layers.", "model.norm"};
  }
}

// The residual stream that enters the first layer.
Tensor Embed(Context& context, const ModelNames& names, Tensor token_ids) {
  Tape& tape = context.tape;
  Parameter& table = context.parameters.At(std::string(names.embedding) + ".weight");
  Parameter* positions =
      names.positions == nullptr
          ? nullptr
          : &context.parameters.At(std::string(names.positions) + ".weight");
  const int64_t hidden = context.model().hidden;
  Tensor x = Activation(context, context.compute, {context.rows(), hidden});
  const Dims sequence{context.batch, context.tokens, hidden};
  const Dims ids{context.rows()};
  Gather(context, table);
  tape.Run(ops::kEmbedding, {tape.ViewOf(token_ids, ids, {1}), table.weight}, {x});
  Release(context, table);
  std::vector<Tensor> inputs{table.leaf};
  context.parameters.Use(table);
  if (positions != nullptr) {
    Tensor view = tape.ViewOf(x, sequence, DenseStrides(sequence));
    Gather(context, *positions);
    std::vector<Tensor> in{view, positions->weight};
    if (context.starts) in.push_back(context.starts);
    tape.Run(ops::kPositions, in, std::vector<Tensor>{view});
    in.clear();
    Release(context, *positions);
    inputs.push_back(positions->leaf);
    context.parameters.Use(*positions);
  }
  auto backward = [&context, &table, positions, ids, sequence,
                   starts = positions == nullptr ? Tensor() : context.starts,
                   token_ids = std::move(token_ids)](std::vector<Tensor> grads) mutable {
    Tensor dx = std::move(grads[0]);
    Tape& tape = context.tape;
    if (positions != nullptr) {
      GradientSlot slot = context.parameters.Gradient(*positions);
      std::vector<Tensor> in{tape.ViewOf(dx, sequence, DenseStrides(sequence))};
      if (starts) in.push_back(std::move(starts));
      tape.Run(ops::kPositionsBackward, in, std::vector<Tensor>{slot.tensor},
               Attrs::Of(ops::PositionsBackwardAttrs{slot.accumulate}));
      context.parameters.Done(*positions);
    }
    GradientSlot slot = context.parameters.Gradient(table);
    tape.Run(ops::kEmbeddingBackward, {dx, tape.ViewOf(token_ids, ids, {1})}, {slot.tensor},
             Attrs::Of(ops::EmbeddingBackwardAttrs{slot.accumulate}));
    context.parameters.Done(table);
    return std::vector<Tensor>{};
  };
  std::vector<Tensor> outputs{std::move(x)};
  tape.Attach("embedding", inputs, outputs, std::move(backward));
  return Dropout(context, outputs[0], kEmbeddingDropout);
}

// One unit of activation offload (a layer or a segment) around what `run` does to x.
template <class Run>
Tensor Unit(Context& context, int64_t unit, Tensor x, Run run) {
  if (context.offload != nullptr) context.offload->BeginLayer(unit);
  Tensor y = run(std::move(x));
  if (context.unit_ends != nullptr) {
    context.unit_ends->push_back(context.tape.program().code.size());
  }
  if (context.offload == nullptr) return y;
  context.offload->EndLayer();
  Tensor marked = context.tape.Detach(y);
  context.tape.Attach("offload", {y}, marked,
                      [offload = context.offload, unit](std::vector<Tensor> grads) {
                        offload->BeginBackward(unit);
                        return grads;
                      });
  return marked;
}

// What `run` does to x with the layer's weights gathered, in both passes (ZeRO stage 3).
template <class Run>
Tensor WithWeights(Context& context, int64_t layer, Tensor x, Run run) {
  DataParallel* ranks = context.data_parallel;
  if (ranks == nullptr || ranks->partition().stage < 3) return run(std::move(x));
  auto mark = [&](Tensor y, auto at_backward) {
    Tensor marked = context.tape.Detach(y);
    context.tape.Attach("weights", {y}, marked, [at_backward](std::vector<Tensor> grads) {
      at_backward();
      return grads;
    });
    return marked;
  };
  x = mark(std::move(x), [ranks, layer] { ranks->ReleaseLayer(layer); });
  ranks->GatherLayer(layer);
  Tensor y = run(std::move(x));
  ranks->ReleaseLayer(layer);
  return mark(std::move(y), [ranks, layer] { ranks->GatherLayer(layer); });
}

// Layers [begin, end) as one segment; only the very last product of a recomputation is skipped.
Tensor Layers(Context& context, const ModelNames& names, Tensor x, int64_t begin, int64_t end) {
  const bool skip = context.skip_output;
  for (int64_t i = begin; i < end; ++i) {
    Scoped last(context.skip_output, skip && i + 1 == end);
    x = WithWeights(context, i, std::move(x), [&](Tensor input) {
      return Layer(context, names.layers + std::to_string(i), std::move(input));
    });
  }
  return x;
}

std::vector<Tensor> TrainableOf(Context& context, int64_t begin, int64_t end) {
  std::vector<Tensor> weights;
  for (const Parameter& parameter : context.parameters.all()) {
    if (parameter.trainable && parameter.layer >= begin && parameter.layer < end) {
      weights.push_back(parameter.leaf);
    }
  }
  return weights;
}

// Whole layers, `every` of them a segment.
Tensor LayerSegments(Context& context, const ModelNames& names, Tensor x, int64_t every) {
  const int64_t layers = context.model().layers;
  for (int64_t begin = 0; begin < layers; begin += every) {
    const int64_t end = std::min(begin + every, layers);
    auto run = [names, begin, end](Context& inner, const Tensor& input) {
      return Layers(inner, names, input, begin, end);
    };
    x = Unit(context, begin / every, std::move(x), [&](Tensor input) {
      return Checkpoint(context, input, {run, TrainableOf(context, begin, end)});
    });
  }
  return x;
}

// Attention and MLP blocks, each kind at an interval of its own.
Tensor BlockChain(Context& context, const ModelNames& names, Tensor x) {
  const CheckpointConfig& config = context.config.checkpoint;
  std::vector<ChainLink> links;
  auto add = [&](int64_t layer, int64_t interval, Tensor (*block)(Context&, const std::string&,
                                                                  Tensor)) {
    const std::string prefix = names.layers + std::to_string(layer);
    auto run = [prefix, block, layer](Context& inner, const Tensor& input) {
      return WithWeights(inner, layer, input, [&](Tensor x) {
        return block(inner, prefix, std::move(x));
      });
    };
    links.push_back({{run, TrainableOf(context, layer, layer + 1)},
                     interval > 0,
                     interval > 0 && (config.keep_inputs || layer % interval == 0)});
  };
  for (int64_t i = 0; i < context.model().layers; ++i) {
    add(i, config.attention, AttentionBlock);
    add(i, config.mlp, MlpBlock);
  }
  return CheckpointChain(context, std::move(x), std::move(links));
}

Tensor Stack(Context& context, const ModelNames& names, Tensor x) {
  const CheckpointConfig& config = context.config.checkpoint;
  if (config.every > 0) return LayerSegments(context, names, std::move(x), config.every);
  if (config.attention > 0 || config.mlp > 0) return BlockChain(context, names, std::move(x));
  for (int64_t i = 0; i < context.model().layers; ++i) {
    x = Unit(context, i, std::move(x), [&](Tensor input) {
      return Layers(context, names, std::move(input), i, i + 1);
    });
  }
  return x;
}

LinearLayer FindHead(Context& context, const ModelNames& names) {
  LinearLayer head;
  head.weight = context.parameters.Find("lm_head.weight");
  if (head.weight == nullptr) {
    head.weight = &context.parameters.At(std::string(names.embedding) + ".weight");
  }
  return head;
}

}  // namespace

Tensor Decoder(Context& context, Tensor token_ids, Targets targets, const Tensor& loss,
               bool first_micro_batch) {
  const ModelNames names = NamesOf(context.model().architecture);
  Tensor x = Stack(context, names, Embed(context, names, std::move(token_ids)));
  if (context.offload != nullptr) context.offload->EndForward();
  const Dtype dtype =
      context.config.fp32.final_norm ? context.statistics() : context.compute;
  Tensor normed = Norm(context, x, FindNorm(context, names.final_norm), dtype);
  x = {};
  context.tape.Phase(PhaseKind::kLoss);
  return HeadLoss(context, std::move(normed), FindHead(context, names), std::move(targets), loss,
                  first_micro_batch);
}

void MakeRotaryTables(Context& context) {
  const ModelSpec& model = context.model();
  if (model.architecture == Architecture::kGpt2) return;
  const Dims shape{context.workload.seq_len, model.head_dim / 2};
  context.cos = context.tape.Empty(context.statistics(), shape, Category::kWeights);
  context.sin = context.tape.Empty(context.statistics(), shape, Category::kWeights);
  context.tape.Run(ops::kRotaryTable, {}, {context.cos, context.sin},
                   Attrs::Of(ops::RotaryTableAttrs{model.rope_theta, 0}));
}

}  // namespace hbmtune::lowering
