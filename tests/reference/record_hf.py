"""Records every device allocation and free of Transformers' training step, in order.

    python tests/reference/record_hf.py                      writes tests/data/hf/*.json
    python tests/reference/record_hf.py --sample 7 --count 20 --out FILE.json
    python tests/reference/record_hf.py --only 'arch=gpt2 …' --explain

PyTorch's CUDA build runs on a stand-in for the CUDA runtime (cuda_stand_in.c): its own
dispatch, autograd, kernels' workspaces and caching allocator, without arithmetic.
README.md beside this script describes the files and what was learnt.
"""

import argparse
import contextlib
import dataclasses
import gc
import json
import multiprocessing
import os
import pathlib
import platform
import sys

import stand_in

stand_in.ensure()

import accelerate  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import torch.distributed  # noqa: E402
import transformers  # noqa: E402
from accelerate.utils import convert_outputs_to_fp32  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from transformers.trainer_pt_utils import get_parameter_names  # noqa: E402

import hf_spec  # noqa: E402
from recording import Recording, Unobserved, named_cache_clear  # noqa: E402

UNDECAYED = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
STEPS = 2


def build_model(spec):
    """The model on the meta device, as from_pretrained would build it for this dtype."""
    config, model_class = hf_spec.hf_config(spec)
    dtype = torch.bfloat16 if spec.precision == "bf16" else torch.float32
    with torch.device("meta"):
        model = adapt(spec, model_class._from_config(config, dtype=dtype))
    return model, config


def adapt(spec, model):
    """With LoRA adapters and gradient checkpointing as the spec has them."""
    if spec.lora != "none":
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=spec.lora_r, lora_alpha=16, lora_dropout=spec.lora_dropout,
            target_modules=hf_spec.lora_targets(spec), task_type="CAUSAL_LM",
            fan_in_fan_out=spec.arch == "gpt2"))
    if spec.checkpoint != "none":
        reentrant = spec.checkpoint == "reentrant"
        model.gradient_checkpointing_enable({"use_reentrant": reentrant},
                                            offload=spec.checkpoint_offload)
        if spec.lora != "none" and reentrant:
            model.enable_input_require_grads()
    return model


def to_device(model):
    """Moves as Module.to does, parameter by parameter; shared ones are moved once."""
    return model._apply(lambda t: torch.empty_like(t, device="cuda") if t.is_meta else t)


def build_optimizer(spec, model):
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    groups = [{"params": list(trainable.values()), "weight_decay": 0.01}]
    if spec.groups == "trainer":
        decayed = set(get_parameter_names(model, [torch.nn.LayerNorm], UNDECAYED))
        groups = [{"params": [p for n, p in trainable.items() if n in decayed],
                   "weight_decay": 0.01},
                  {"params": [p for n, p in trainable.items() if n not in decayed],
                   "weight_decay": 0.0}]
    how = {"adamw_foreach": dict(foreach=True), "adamw_loop": dict(foreach=False),
           "adamw_fused": dict(fused=True)}[spec.optimizer]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, **how)


def reduced_at_once(_, bucket):
    """DDP's hook: the bucket as the all-reduce would leave it (in place). The fake process
    group's own future carries no tensor, which DDP's built-in all-reduce wants."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


class NeverOverflows(torch.amp.GradScaler):
    """What the host would read as the overflow flag is whatever the memory held before."""

    def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
        return optimizer.step(*args, **kwargs)


class Trainer:
    """The training loop that is recorded."""

    def __init__(self, spec, recording):
        self.spec, self.recording = spec, recording
        self.model, self.config = build_model(spec)
        with recording.phase("setup", 0):
            to_device(self.model)
            self.wrapped = self._wrap()
            self.optimizer = build_optimizer(spec, self.model)
            fp16 = spec.precision == "amp_fp16"
            self.scaler = NeverOverflows("cuda") if fp16 else None
        recording.own("parameter", self.model.parameters())
        recording.own("buffer", self.model.buffers())
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]

    def _wrap(self):
        """The model in DDP, if the spec says so: rank 0 of 2, collectives done at once."""
        if self.spec.ddp == "none":
            return self.model
        torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
        wrapped = torch.nn.parallel.DistributedDataParallel(
            self.model, device_ids=[0], bucket_cap_mb=self.spec.bucket_mb,
            gradient_as_bucket_view=self.spec.ddp == "view")
        wrapped.register_comm_hook(None, reduced_at_once)
        return wrapped

    def _sync(self, micro):
        """DDP reduces on the last micro-step only."""
        last = micro + 1 == self.spec.accumulation
        return contextlib.nullcontext() if last or self.spec.ddp == "none" else (
            self.wrapped.no_sync())

    def loss(self):
        """One forward. Inputs arrive from the host; outputs are dropped, as Trainer does."""
        spec = self.spec
        host = torch.zeros(spec.batch, spec.seq, dtype=torch.int64)
        inputs = {"input_ids": host.to("cuda"), "labels": host.to("cuda")}
        autocast = contextlib.nullcontext()
        if spec.precision.startswith("amp"):
            dtype = torch.float16 if spec.precision == "amp_fp16" else torch.bfloat16
            autocast = torch.autocast("cuda", dtype=dtype)

        def forward(**kwargs):
            with autocast:
                return self.wrapped(**kwargs)

        if spec.outputs_fp32:
            forward = convert_outputs_to_fp32(forward)
        loss = forward(**inputs)["loss"]
        del inputs
        return loss / spec.accumulation if spec.accumulation > 1 else loss

    def step(self, number):
        spec, phase = self.spec, self.recording.phase
        self.wrapped.train()
        for micro in range(spec.accumulation):
            with self._sync(micro), phase("forward", number, micro):
                loss = self.loss()
            with self._sync(micro), phase("backward", number, micro):
                if self.scaler:
                    self.scaler.scale(loss).backward()
                else:
                    loss.backward()
                del loss
            self.recording.own("gradient", [p.grad for p in self.parameters])
        if spec.clip:
            with phase("clip", number):
                if self.scaler:
                    self.scaler.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(self.parameters, spec.clip)
        with phase("optimizer", number):
            if self.scaler:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()
        self.recording.own("optimizer", [v for state in self.optimizer.state.values()
                                         for v in state.values() if v.is_cuda])
        with phase("zero_grad", number):
            self.optimizer.zero_grad(set_to_none=True)

    def evaluate(self):
        self.wrapped.eval()
        with self.recording.phase("eval", STEPS + 1), torch.no_grad():
            self.loss()


def use_device(spec):
    """Starts the device in this process, which must not have used it before."""
    if spec.workspace:
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
        os.environ.pop("CUBLASLT_WORKSPACE_SIZE", None)
    torch.manual_seed(0)
    torch.cuda.init()


def train(spec, recording):
    trainer = Trainer(spec, recording)
    for number in range(1, STEPS + 1):
        trainer.step(number)
    trainer.evaluate()
    return trainer  # alive, so that its end is not part of the recording


def record(spec):
    use_device(spec)
    with named_cache_clear(), Recording() as recording:
        trainer = train(spec, recording)
    result = recording.result()
    return {"name": spec.name, "spec": dataclasses.asdict(spec), "config": trainer.config.to_dict(),
            "activation_share": activation_share(result), **result}


def unobserved(spec):
    """The allocator's own figures of each phase, with neither history nor profiler."""
    use_device(spec)
    gc.disable()  # and so no free may hang on Python's collector
    recording = Unobserved()
    train(spec, recording)
    return recording.figures


def activation_share(result):
    """Part of step 2's peak that is not weights, gradients or optimizer state."""
    owned = [set(result["categories"].get(k, ())) for k in ("parameter", "gradient", "optimizer")]
    live = peak = owned_live = share = 0
    for phase in result["phases"]:
        for size, _, number in phase["events"]:
            live += size
            owned_live += size if any(number in o for o in owned) else 0
            if phase["step"] == STEPS and live > peak:
                peak, share = live, 1 - owned_live / live
    return round(share, 4)


def record_all(specs, record, unobserved):
    """Every run in a fresh process, forked before the device is first used."""
    context = multiprocessing.get_context("fork")
    for i, spec in enumerate(specs):
        with context.Pool(1) as pool:
            run = pool.apply(record, (spec,))
        with context.Pool(1) as pool:
            figures = pool.apply(unobserved, (spec,))
        seen = [tuple(p[k] for k in Unobserved.KEYS) for p in run["phases"]]
        assert seen == figures, f"{spec.name}: observed {seen}, unobserved {figures}"
        events = sum(len(p["events"]) for p in run["phases"])
        peak = max(p["peak_bytes"] for p in run["phases"])
        share = f", activations {run['activation_share']:.0%}" if "activation_share" in run else ""
        print(f"{i + 1}/{len(specs)} {run['name']}: {events} events, peak {peak} bytes{share}",
              flush=True)
        yield run


def versions():
    return {"python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__, "peft": peft.__version__,
            "accelerate": accelerate.__version__}


def write(path, runs, more_versions=()):
    """One run a line, so that a difference can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    named = dict(versions(), **dict(more_versions))
    lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    path.write_text(f'{{"versions":{json.dumps(named)},"runs":[\n{lines}\n]}}\n')
    print(f"{path}: {len(runs)} runs, {path.stat().st_size} bytes")


def explain(run):
    """Prints a run's events for a reader."""
    category = {n: k for k, numbers in run["categories"].items() for n in numbers}
    for phase in run["phases"]:
        print(f"== {phase['name']} step {phase['step']} micro {phase['micro']}: peak "
              f"{phase['peak_bytes']} live {phase['live_bytes']}")
        for size, op, number in phase["events"]:
            print(f"{size:+12d} #{number:<5d} {run['ops'][op]} {category.get(number, '')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = pathlib.Path(__file__).resolve().parent.parent / "data" / "hf"
    parser.add_argument("--out", type=pathlib.Path, help="folder, or file with --sample")
    parser.add_argument("--sample", type=int, metavar="SEED", help="draw fresh random runs")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--only", help="runs whose name contains this")
    parser.add_argument("--explain", action="store_true", help="print events, write nothing")
    arguments = parser.parse_args()
    if arguments.sample is not None:
        seeds = range(arguments.sample, arguments.sample + arguments.count)
        files = {arguments.out or pathlib.Path("sample.json"): [hf_spec.draw(s) for s in seeds]}
    else:
        files = {(arguments.out or data) / name: specs for name, specs in committed().items()}
    for path, specs in files.items():
        specs = [s for s in specs if not arguments.only or arguments.only in s.name]
        runs = list(record_all(specs, record, unobserved))
        if arguments.explain:
            for run in runs:
                explain(run)
        elif runs:
            write(path, runs)


def committed():
    """File name -> runs."""
    files = {}
    for spec in hf_spec.by_hand():
        files.setdefault(f"{spec.arch}.json", []).append(spec)
    files["random.json"] = [hf_spec.draw(seed) for seed in range(1000, 1040)]
    files["fresh_7000.json"] = [hf_spec.draw(seed) for seed in range(7000, 7032)]
    files["fresh_8000.json"] = [hf_spec.draw(seed) for seed in range(8000, 8028)]
    files["fresh_8500.json"] = [hf_spec.draw(seed) for seed in range(8500, 8528)]
    files["ddp.json"] = hf_spec.distributed()
    files["offload.json"] = hf_spec.offloaded()
    files["real_shapes.json"] = hf_spec.real_shapes()
    return files


if __name__ == "__main__":
    sys.exit(main())
