"""Records every device allocation and free of DeepSpeed's ZeRO 0 to 3, rank by rank.

    python tests/reference/record_deepspeed.py               writes tests/data/deepspeed/zero*.json
    python tests/reference/record_deepspeed.py --only 'stage=3' --explain

The stand-in for the CUDA runtime carries one rank; PyTorch's "fake" process group says that
there are two and completes each collective at once. See README.md beside this script.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import sys
import types

import stand_in

stand_in.ensure()
os.environ.update(DS_ACCELERATOR="cuda", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500",
                  LOCAL_RANK="0", WORLD_SIZE="2", RANK="0")

import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed  # noqa: E402
from deepspeed.ops.adam import fused_adam  # noqa: E402
from deepspeed.runtime import utils as runtime_utils  # noqa: E402
from deepspeed.runtime.fp16 import fused_optimizer  # noqa: E402
from deepspeed.runtime.zero import stage3, stage_1_and_2, utils  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

import hf_spec  # noqa: E402
import record_hf  # noqa: E402
from recording import Recording, Unobserved, device_flag, named_cache_clear  # noqa: E402

LLAMAS = ("llama", "mistral", "qwen2")
STEPS = 3  # stage 3 learns the order of parameters in step 1 and prefetches by it from step 2


@dataclasses.dataclass(frozen=True)
class ZeroSpec:
    model: hf_spec.Spec
    stage: int = 2
    rank: int = 0
    world: int = 2
    dtype: str = "bf16"             # bf16 fp16
    zero_init: bool = False         # stage 3: parameters are partitioned as they are created
    offload: str = "none"           # none optimizer optimizer+param: to host memory
    overlap_comm: bool | None = None
    contiguous_gradients: bool = True
    reduce_scatter: bool = True
    reduce_bucket_size: int = 200_000
    prefetch_bucket_size: int = 100_000
    persistence_threshold: int = 1_000
    max_live_parameters: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    sub_group_size: int = 1_000_000_000

    @property
    def name(self):
        parts = [f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self)
                 if f.name in ("stage", "rank") or getattr(self, f.name) != f.default
                 and f.name != "model"]
        return " ".join([*parts, self.model.name])

    def config(self):
        """The DeepSpeed configuration, keys as DeepSpeed spells them."""
        zero = {"stage": self.stage, "contiguous_gradients": self.contiguous_gradients,
                "reduce_scatter": self.reduce_scatter,
                "reduce_bucket_size": self.reduce_bucket_size,
                "sub_group_size": self.sub_group_size}
        if self.overlap_comm is not None:
            zero["overlap_comm"] = self.overlap_comm
        if self.stage == 3:
            zero.update(stage3_prefetch_bucket_size=self.prefetch_bucket_size,
                        stage3_param_persistence_threshold=self.persistence_threshold,
                        stage3_max_live_parameters=self.max_live_parameters,
                        stage3_max_reuse_distance=self.max_reuse_distance)
        if "optimizer" in self.offload:
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if "param" in self.offload:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
        return {"train_micro_batch_size_per_gpu": self.model.batch,
                "gradient_accumulation_steps": self.model.accumulation,
                "gradient_clipping": self.model.clip,
                self.dtype: {"enabled": True}, "zero_optimization": zero,
                "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}


class Trainer:
    """DeepSpeed's loop: forward, engine.backward, engine.step, then evaluation and saving."""

    def __init__(self, spec, recording):
        self.spec, self.recording = spec, recording
        with recording.phase("setup", 0):
            self.model = self._build_model()
            optimizer = build_optimizer(spec, self.model)
            self.engine, self.optimizer, _, _ = deepspeed.initialize(
                model=self.model, optimizer=optimizer, config=spec.config(),
                dist_init_required=False)
        self._own()

    def _build_model(self):
        """On the host, as from_pretrained leaves it; with zero_init in shards on the device."""
        spec = self.spec
        config, model_class = hf_spec.hf_config(spec.model)
        dtype = torch.bfloat16 if spec.dtype == "bf16" else torch.float16
        if spec.zero_init:
            with deepspeed.zero.Init(config_dict_or_path=spec.config(), dtype=dtype):
                model = model_class(config)
        else:
            model = model_class._from_config(config, dtype=dtype)
        model, self.config = record_hf.adapt(spec.model, model), config
        return model

    def _own(self):
        """Categories, from where DeepSpeed keeps things."""
        zero, own = self.optimizer, self.recording.own
        parameters = list(self.model.parameters())
        own("parameter", on_device(getattr(p, "ds_tensor", p) for p in parameters))
        own("buffer", on_device(self.model.buffers()))
        if self.spec.stage == 0:
            masters, gradients = zero.fp32_groups_flat, []
        elif self.spec.stage == 3:
            masters = zero.fp32_partitioned_groups_flat
            gradients = [zero.grad_partitions_flat_buffer]
        else:
            masters = zero.single_partition_of_fp32_groups
            gradients = [g for group in zero.averaged_gradients.values() for g in group or ()]
        own("master", on_device(masters))
        own("gradient", on_device([*gradients, *(p.grad for p in parameters)]))
        own("optimizer", on_device(v for state in zero.optimizer.state.values()
                                   for v in state.values()))

    def loss(self):
        model = self.spec.model
        host = torch.zeros(model.batch, model.seq, dtype=torch.int64)
        inputs = {"input_ids": host.to("cuda"), "labels": host.to("cuda")}
        device_flag(True)
        loss = self.engine(**inputs)["loss"]
        device_flag(False)
        return loss

    def step(self, number):
        phase, accumulation = self.recording.phase, self.spec.model.accumulation
        self.engine.train()
        for micro in range(accumulation):
            with phase("forward", number, micro):
                loss = self.loss()
            with phase("backward", number, micro):
                self.engine.backward(loss)
                del loss
            self._own()
            name = "optimizer" if micro + 1 == accumulation else "micro_step"
            with phase(name, number, micro):
                self.engine.step()
            self._own()

    def evaluate_and_save(self):
        self.engine.eval()
        with self.recording.phase("eval", STEPS + 1), torch.no_grad():
            self.loss()
        if self.spec.stage == 3:
            with self.recording.phase("save", STEPS + 2):
                self.engine._zero3_consolidated_16bit_state_dict()


def on_device(tensors):
    return [t for t in tensors if torch.is_tensor(t) and t.is_cuda and t.numel()]


def agree_with_rank0():
    """Lets stage 3's comparisons with rank 0 run, and pass: a fake broadcast brings nothing."""
    compare_length, fetch = utils.assert_lst_len_same_as_other_ranks, utils.get_lst_from_rank0

    def same_length(values):
        with contextlib.suppress(RuntimeError):
            compare_length(values)

    def same_values(values):
        fetch(values)
        return values

    utils.assert_lst_len_same_as_other_ranks = same_length
    utils.get_lst_from_rank0 = same_values


def finds_nothing(check):
    """The check runs, and says no."""
    def found_nothing(*args, **kwargs):
        check(*args, **kwargs)
        return False
    return found_nothing


def never_overflows():
    """What checks of gradients find in memory is whatever was there before."""
    for owner in (stage3.DeepSpeedZeroOptimizer_Stage3, stage_1_and_2.DeepSpeedZeroOptimizer,
                  runtime_utils.CheckOverflow):
        owner.has_overflow = finds_nothing(owner.has_overflow)
    for module in (stage3, stage_1_and_2, fused_optimizer, runtime_utils):
        module.is_invalid_grad_norm = finds_nothing(module.is_invalid_grad_norm)


class NoKernel:
    """In place of DeepSpeed's fused Adam kernel, which wants a compiler for the device and
    allocates nothing; the optimizer around it is DeepSpeed's own."""

    def load(self):
        return types.SimpleNamespace(multi_tensor_adam=lambda *_: None)


def build_optimizer(spec, model):
    """PyTorch's AdamW, handed in; without ZeRO the FusedAdam that DeepSpeed builds itself, because
    the wrapper around it goes by that."""
    optimizer = record_hf.build_optimizer(spec.model, model)
    if spec.stage > 0:
        return optimizer
    fused_adam.FusedAdamBuilder = NoKernel
    groups = [{key: group[key] for key in ("params", "weight_decay")}
              for group in optimizer.param_groups]
    return fused_adam.FusedAdam(groups, lr=1e-4)


def train(spec, recording):
    never_overflows()
    if spec.rank:
        agree_with_rank0()
    os.environ["RANK"] = str(spec.rank)
    torch.manual_seed(0)
    torch.cuda.init()
    torch.distributed.init_process_group("fake", rank=spec.rank, world_size=spec.world,
                                         store=FakeStore())
    with recording:
        trainer = Trainer(spec, recording)
        for number in range(1, STEPS + 1):
            trainer.step(number)
        trainer.evaluate_and_save()
    return trainer


def record(spec):
    with named_cache_clear():
        recording = Recording()
        trainer = train(spec, recording)
    spec_fields = dataclasses.asdict(spec)
    spec_fields["model"] = dataclasses.asdict(spec.model)
    return {"name": spec.name, "spec": spec_fields, "deepspeed_config": spec.config(),
            "config": trainer.config.to_dict(), **recording.result()}


def unobserved(spec):
    """As record_hf.unobserved; DeepSpeed's own resetting of the peak counters is held off."""
    accelerator = deepspeed.get_accelerator()
    accelerator.reset_peak_memory_stats = accelerator.reset_max_memory_allocated = lambda *_: None
    recording = Unobserved()
    train(spec, recording)
    return recording.figures


def runs():
    """Each on rank 0 and rank 1: partitions are padded, so the last rank's differ. Stage 0 has
    none."""
    model = hf_spec.Spec(kv_heads=2, optimizer="adamw_fused")
    vary = dataclasses.replace
    big = dict(reduce_bucket_size=1_000_000)
    specs = []
    for stage in (1, 2):
        specs += [ZeroSpec(model, stage=stage), ZeroSpec(model, stage=stage, overlap_comm=True),
                  ZeroSpec(model, stage=stage, dtype="fp16", contiguous_gradients=False),
                  ZeroSpec(model, stage=stage, reduce_scatter=False, **big),
                  ZeroSpec(vary(model, accumulation=2, clip=1.0), stage=stage),
                  ZeroSpec(vary(model, clip=1.0), stage=stage, offload="optimizer")]
    specs += [ZeroSpec(vary(model, checkpoint="non_reentrant", optimizer="adamw_foreach"), stage=2),
              ZeroSpec(vary(model, lora="all"), stage=2)]
    three = [ZeroSpec(model, stage=3), ZeroSpec(model, stage=3, overlap_comm=False),
             ZeroSpec(model, stage=3, zero_init=True, persistence_threshold=0),
             ZeroSpec(vary(model, accumulation=2, clip=1.0), stage=3, dtype="fp16"),
             ZeroSpec(model, stage=3, reduce_scatter=False, **big),
             ZeroSpec(model, stage=3, prefetch_bucket_size=0, max_live_parameters=200_000),
             ZeroSpec(model, stage=3, max_reuse_distance=0),
             ZeroSpec(model, stage=3, max_reuse_distance=0, prefetch_bucket_size=0),
             ZeroSpec(model, stage=3, max_reuse_distance=0, reduce_bucket_size=128 * 128,
                      prefetch_bucket_size=128 * 128 * 9 // 10, persistence_threshold=1280),
             ZeroSpec(vary(model, checkpoint="non_reentrant"), stage=3, max_reuse_distance=0,
                      max_live_parameters=200_000, persistence_threshold=0),
             ZeroSpec(model, stage=3, sub_group_size=150_000),
             ZeroSpec(vary(model, clip=1.0), stage=3, offload="optimizer"),
             ZeroSpec(model, stage=3, offload="optimizer+param"),
             ZeroSpec(vary(model, lora="qv"), stage=3)]
    gpt2 = vary(model, arch="gpt2", kv_heads=4, ffn=512)
    falcon, falcon_new = vary(model, arch="falcon", kv_heads=1, ffn=512), vary(
        model, arch="falcon_new", ffn=512)
    at_once = dict(max_reuse_distance=0, prefetch_bucket_size=0, persistence_threshold=0)
    for other in (gpt2, falcon, falcon_new, vary(model, tied=True)):
        three += [ZeroSpec(other, stage=3), ZeroSpec(other, stage=3, overlap_comm=False, **at_once)]
    three += [ZeroSpec(vary(falcon, checkpoint="reentrant", attention="eager"), stage=3, **at_once),
              ZeroSpec(vary(gpt2, checkpoint="non_reentrant", lora="all"), stage=3, zero_init=True),
              ZeroSpec(vary(model, checkpoint="non_reentrant", checkpoint_offload=True), stage=3)]
    zero = [ZeroSpec(model, stage=0), ZeroSpec(gpt2, stage=0, dtype="fp16"),
            ZeroSpec(vary(falcon, accumulation=2, clip=1.0), stage=0),
            ZeroSpec(vary(model, lora="qv", groups="one", checkpoint="reentrant"), stage=0)]
    heavy = vary(model, hidden=256, layers=3, ffn=688, batch=1, seq=64)  # weights, not activations
    specs += [ZeroSpec(heavy, stage=stage, max_reuse_distance=500_000, **big)
              for stage in (1, 2, 3)]
    specs += [ZeroSpec(vary(heavy, clip=1.0, optimizer="adamw_foreach"), stage=stage,
                       overlap_comm=True, dtype="fp16", max_reuse_distance=0, **big)
              for stage in (2, 3)]
    specs += [ZeroSpec(heavy, stage=3, max_reuse_distance=0, prefetch_bucket_size=0, **big)]
    return zero + [vary(s, rank=rank) for s in specs + three for rank in (0, 1)]


def draw(seed, everywhere=True):
    """A random run; the same seed gives the same. Not `everywhere`: stage 3 of Llama's kin only,
    with a head of its own."""
    random_ = random.Random(seed)
    pick = random_.choice
    stage = pick((0, 1, 2, 3, 3, 3) if everywhere else (1, 2, 3, 3))
    model = hf_spec.draw(seed)
    arch, tied = model.arch, model.tied
    if stage == 3 and not everywhere:
        arch, tied = arch if arch in LLAMAS else pick(LLAMAS), False
    optimizer = "adamw_foreach" if model.optimizer == "adamw_loop" else model.optimizer
    if stage == 0:  # with the optimizer that DeepSpeed builds
        optimizer = "adamw_fused"
    model = dataclasses.replace(model, arch=arch, tied=tied, precision="bf16",
                                outputs_fp32=False, optimizer=optimizer)
    return ZeroSpec(model, stage=stage, rank=pick((0, 1)), dtype=pick(("bf16", "fp16")),
                    zero_init=stage == 3 and pick((False, True)),
                    overlap_comm=pick((None, True, False)),
                    contiguous_gradients=pick((True, True, True, False)),
                    offload=pick(("none", "none", "optimizer" if stage else "none")),
                    reduce_scatter=pick((True, True, False)),
                    reduce_bucket_size=pick((50_000, 200_000, 1_000_000)),
                    prefetch_bucket_size=pick((0, 50_000, 300_000)),
                    persistence_threshold=pick((0, 1_000, 20_000)),
                    max_live_parameters=pick((200_000, 1_000_000_000)),
                    max_reuse_distance=pick((0, 200_000, 1_000_000_000)),
                    sub_group_size=pick((150_000, 1_000_000_000)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = pathlib.Path(__file__).resolve().parent.parent / "data" / "deepspeed"
    parser.add_argument("--out", type=pathlib.Path, default=data)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--explain", action="store_true", help="print events, write nothing")
    parser.add_argument("--sample", type=int, metavar="SEED", help="draw fresh random runs")
    parser.add_argument("--count", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.sample is not None:
        seeds = range(arguments.sample, arguments.sample + arguments.count)
        recorded = list(record_hf.record_all([draw(s) for s in seeds], record, unobserved))
        record_hf.write(arguments.out, recorded, {"deepspeed": deepspeed.__version__})
        return
    files = {f"zero{stage}.json": [s for s in runs() if s.stage == stage] for stage in range(4)}
    files.update({f"fresh_{seed}.json": [draw(s, everywhere=seed > 9300)
                                         for s in range(seed, seed + count)]
                  for seed, count in ((9100, 14), (9200, 16), (9300, 14), (11000, 24))})
    for name, specs in files.items():
        specs = [s for s in specs if arguments.only in s.name]
        recorded = list(record_hf.record_all(specs, record, unobserved))
        if arguments.explain:
            for run in recorded:
                record_hf.explain(run)
        elif recorded:
            record_hf.write(arguments.out / name, recorded,
                            {"deepspeed": deepspeed.__version__})


if __name__ == "__main__":
    sys.exit(main())
