"""Records what PyTorch's own caching allocator does with random and real traces.

    venv/bin/python tests/reference/record_allocator.py            # writes tests/data/allocator
    venv/bin/python tests/reference/record_allocator.py --traces 50 --seed 7 --out DIR

Every combination of settings runs in a process of its own, on the CUDA stand-in. With --gpu the
real driver is used instead: then placement differs (segments are where the driver puts them) and
events complete when the device says so, so only traces on one stream are recorded.
"""

import argparse
import ctypes
import importlib.metadata
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from allocator_models import MODELS, record_model
from allocator_traces import draw_trace

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent / "data" / "allocator"
MIB = 1 << 20

# name, PYTORCH_CUDA_ALLOC_CONF, capacity of the device in MiB
SETTINGS = [
    ("plain", "", 4096),
    ("plain_tight", "", 300),
    ("divisions", "roundup_power2_divisions:4", 4096),
    ("divisions_list", "roundup_power2_divisions:[1:8,4:2,16:4,>:1]", 4096),
    ("divisions_all", "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]", 2048),
    ("max_split_20", "max_split_size_mb:20", 1024),
    ("max_split_64", "max_split_size_mb:64", 512),
    ("max_split_tight", "max_split_size_mb:32,max_non_split_rounding_mb:21", 300),
    ("non_split_rounding", "max_split_size_mb:40,max_non_split_rounding_mb:64", 700),
    ("fraction", "per_process_memory_fraction:0.5", 600),
    ("garbage", "garbage_collection_threshold:0.6,per_process_memory_fraction:0.9", 600),
    ("garbage_low", "garbage_collection_threshold:0.2,per_process_memory_fraction:0.95", 800),
    ("garbage_max_split",
     "garbage_collection_threshold:0.5,per_process_memory_fraction:0.8,max_split_size_mb:32", 600),
    ("expandable", "expandable_segments:True", 4096),
    ("expandable_tight", "expandable_segments:True", 300),
    ("expandable_fraction", "expandable_segments:True,per_process_memory_fraction:0.7", 400),
    ("expandable_divisions", "expandable_segments:True,roundup_power2_divisions:8", 1024),
    ("expandable_garbage",
     "expandable_segments:True,garbage_collection_threshold:0.4,per_process_memory_fraction:0.8",
     500),
    ("expandable_max_split", "expandable_segments:True,max_split_size_mb:32", 400),
    ("large_segment", "large_segment_size_mb:64", 2048),
    ("large_segment_split", "large_segment_size_mb:32,max_split_size_mb:32", 500),
    ("large_segment_expandable", "large_segment_size_mb:12,expandable_segments:True", 300),
    ("everything",
     "roundup_power2_divisions:[1:4,8:2,>:8],max_split_size_mb:48,max_non_split_rounding_mb:30,"
     "garbage_collection_threshold:0.7,per_process_memory_fraction:0.9", 500),
]


def stand_in_environment(directory):
    """Compiles both stand-ins and returns the environment that loads them."""
    include = [f"-I{path}" for root in sys.path for path in
               sorted(pathlib.Path(root).glob("nvidia/*/include"))]
    libraries = []
    # PyTorch opens the driver and NVML by these names.
    for name, soname in (("allocator", "libnvidia-ml.so.1"), ("cuda", "libcuda.so.1")):
        library = pathlib.Path(directory) / f"lib{name}_stand_in.so"
        subprocess.run(["gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-Wall", "-Werror",
                        f"-Wl,-soname,{soname}", *include, str(HERE / f"{name}_stand_in.c"),
                        "-o", str(library)], check=True)
        libraries.append(str(library))
    return dict(os.environ, LD_PRELOAD=":".join(libraries), CUDA_VISIBLE_DEVICES="0",
                HBMTUNE_ALLOCATOR_STAND_IN=libraries[0])


def rules():
    """Whose decisions this PyTorch takes: AllocatorRules in kernels/memory/allocator_config.h."""
    release = tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])
    return "torch-2.9" if release <= (2, 9) else "torch-2.10" if release == (2, 10) else "current"


def settings_to_record():
    """The table, or what an older PyTorch knows of it."""
    if rules() == "current":
        return SETTINGS
    new = ("large_segment_size_mb", "per_process_memory_fraction", "max_split_size_mb:20")
    prefix = rules().replace("-", "_").replace(".", "_")
    return [(f"{prefix}_{name}", settings, capacity) for name, settings, capacity in SETTINGS
            if not any(key in settings for key in new)]


def pick_streams(torch):
    """The default stream and three others, polled by PyTorch in this order.

    It keeps pending events in a hash map by stream and visits them in slot order (Fibonacci
    hashing). The order changes nothing but peaks of inactive_split between two frees. hbmtune
    visits streams by number, so streams are picked that do the same: one in each quarter.
    """
    def quarter(stream):
        packed = (1 << 56) | (stream.stream_id & ((1 << 48) - 1))
        return (packed * 11400714819323198485 % (1 << 64)) >> 62
    by_quarter = {0: torch.cuda.default_stream()}
    assert quarter(by_quarter[0]) == 0
    for _ in range(32):
        stream = torch.cuda.Stream()
        by_quarter.setdefault(quarter(stream), stream)
    return [by_quarter[i] for i in range(4)]


class Driver:
    """Runs one trace through PyTorch's allocator."""

    def __init__(self):
        import torch
        self.torch = torch
        path = os.environ.get("HBMTUNE_ALLOCATOR_STAND_IN")
        self.stand_in = ctypes.CDLL(path) if path else None
        torch.cuda.init()
        self.streams = pick_streams(torch)

    def start(self, at_once):
        torch = self.torch
        torch.cuda.empty_cache()
        self.drop_empty_segments()
        assert torch.cuda.memory_reserved() == 0, "the allocator is not fresh"
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        if self.stand_in:
            assert self.stand_in.stand_in_reset(int(at_once)) == 0, "the device is not empty"

    def drop_empty_segments(self):
        """An expandable segment whose first page could not be mapped stays reserved until
        something was mapped in it."""
        for stream in self.streams:
            with self.torch.cuda.stream(stream):
                for size in (1, 2 * MIB):
                    self.torch.empty(size, dtype=self.torch.uint8, device="cuda")
        self.torch.cuda.empty_cache()

    def run(self, trace):
        """The statistics at every check, with a hash over the addresses of all allocations."""
        self.start(trace["events_complete"] == "at_once")
        live, rows, self.placement = {}, [], 14695981039346656037
        for event in trace["events"]:
            if event[0] == "check":
                rows.append((self.placement, self.torch.cuda.memory_stats()))
            else:
                getattr(self, event[0])(live, *event[1:])
        live.clear()
        return rows

    def alloc(self, live, key, size, stream=0):
        torch = self.torch
        try:
            with torch.cuda.stream(self.streams[stream]):
                live[key] = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            return
        offset = live[key].data_ptr() - (1 << 40)
        self.placement = ((self.placement ^ offset) * 1099511628211) % (1 << 64)

    def free(self, live, key):
        live.pop(key, None)

    def record_stream(self, live, key, stream):
        if key in live:
            live[key].record_stream(self.streams[stream])

    def progress(self, live, stream):
        self.stand_in.stand_in_progress(ctypes.c_void_p(self.streams[stream].cuda_stream))

    def empty_cache(self, live):
        self.torch.cuda.empty_cache()

    def reset_peak(self, live):
        self.torch.cuda.reset_peak_memory_stats()


def record(traces):
    """The traces with what PyTorch did, and the names of the figures."""
    driver = Driver()
    names = None
    for trace in traces:
        rows = driver.run(trace)
        names = names or sorted(rows[0][1])
        trace["expected"] = [[f"{placement:016x}"] + [stats[n] for n in names]
                             for placement, stats in rows]
    return names


def worker(index, seed, count, gpu, path):
    import torch
    name, settings, capacity_mib = settings_to_record()[index]
    traces = []
    for number in range(count):
        rng = random.Random(f"{seed}/{name}/{number}")
        trace = draw_trace(rng, capacity_mib * MIB, single_stream=gpu)
        traces.append({"name": f"{name}_{number}", "rules": rules(), "settings": settings,
                       "capacity_bytes": capacity_mib * MIB, **trace})
    names = record(traces)
    write(path, torch.__version__, names, traces)


def model_worker(index, path):
    import torch
    name, settings, capacity_mib, architecture, options = MODELS[index]
    events, placement, statistics = record_model(architecture, options)
    names = sorted(statistics)
    write(path, torch.__version__, names, [{
        "name": name, "rules": rules(), "settings": settings, "capacity_bytes": capacity_mib * MIB,
        "events_complete": "at_once", "events": events,
        "expected": [[f"{placement:016x}"] + [statistics[n] for n in names]]}])


def write(path, version, names, traces):
    """One trace a line, so that a difference is easy to see."""
    with open(path, "w") as out:
        head = json.dumps({"torch": version, "statistics": names}, separators=(",", ":"))
        out.write(head[:-1] + ',"traces":[\n')
        out.write(",\n".join(json.dumps(t, separators=(",", ":")) for t in traces))
        out.write("\n]}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=10, help="random traces for each setting")
    parser.add_argument("--seed", default="hbmtune")
    parser.add_argument("--out", type=pathlib.Path, default=DATA)
    parser.add_argument("--gpu", action="store_true", help="a real device instead of the stand-in")
    parser.add_argument("--models", action="store_true", help="only the models' traces")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    table = MODELS if args.models else settings_to_record()
    if args.worker is not None:
        path = args.out / f"{table[args.worker][0]}.json"
        if args.models:
            model_worker(args.worker, path)
        else:
            worker(args.worker, args.seed, args.traces, args.gpu, path)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        environment = dict(os.environ) if args.gpu else stand_in_environment(directory)
        for index, (name, settings, capacity_mib, *_) in enumerate(table):
            environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
            environment["HBMTUNE_STAND_IN_BYTES"] = str(capacity_mib * MIB)
            print(name, flush=True)
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--worker", str(index)],
                           env=environment, check=True)


if __name__ == "__main__":
    main()
