"""Records what PyTorch's CUDA caching allocator is asked for, phase by phase.

Two observers see every allocation and free: the allocator's own history (bytes asked
for, address) and the profiler (the op and autograd node that were running). Both are
written under the allocator's lock, so their n-th entries are the same event; that
is checked entry by entry. Neither changes how PyTorch dispatches, unlike a
TorchDispatchMode or FakeTensorMode, under which autograd takes other paths (gradients
are then never accumulated in place).
"""

import contextlib
import ctypes
import itertools

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

BLOCK_BYTES = 512  # the allocator's granularity for small requests
EVALUATE = "autograd::engine::evaluate_function: "
PHASE = "phase:"
CLEAR_CASTS = "clear_autocast_cache"
# Names that say only "memory is taken here"; the op that takes it is what matters.
ALLOCATING = {"empty", "empty_like", "empty_strided", "resize_", "new_empty", "new_empty_strided"}


def rounded(size):
    return max(BLOCK_BYTES, -(-size // BLOCK_BYTES) * BLOCK_BYTES)


def label(stack):
    """'MmBackward0/mm': autograd nodes and ops around an event, outermost first.

    A node in brackets, '(MmBackward0)', is the engine at work on it outside its own code:
    accumulating gradients, dropping its inputs and saved tensors.
    """
    parts, allocating = [], ""
    for i, event in enumerate(stack):
        name = event.name()
        if name.startswith(PHASE):
            continue
        if name.startswith(EVALUATE):
            node = name[len(EVALUATE):].removeprefix("torch::autograd::")
            inside = i + 1 < len(stack) and stack[i + 1].name().endswith(node)
            part = None if inside else f"({node})"
        else:
            part = name.removeprefix("aten::").removeprefix("torch::autograd::")
        if part in ALLOCATING:
            allocating = part
        elif part:
            parts.append(part)
    return "/".join(parts) or allocating


def device_flag(value):
    """Sets what the stand-in answers when the host reads one byte from the device."""
    ctypes.c_int.in_dll(ctypes.CDLL(None), "stand_in_flag").value = int(value)


@contextlib.contextmanager
def named_cache_clear():
    """Gives autocast's dropping of its cached casts a name among the ops.

    The cache is a hash map by address, so the order of these frees changes from
    process to process; `_Writer` puts each such run of frees in order of allocation.
    """
    clear = torch.clear_autocast_cache

    def named_clear():
        with record_function(CLEAR_CASTS):
            clear()

    torch.clear_autocast_cache = named_clear
    try:
        yield
    finally:
        torch.clear_autocast_cache = clear


class Recording:
    """Use as a context manager around everything, with `phase(...)` inside."""

    def __init__(self):
        self.phases = []      # dicts: name, step, micro
        self.owned = {}       # category -> addresses at the end of each phase
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def __enter__(self):
        torch.cuda.memory._record_memory_history(
            enabled="all", context=None, stacks="python", max_entries=10**7)
        self._profile.__enter__()
        return self

    def __exit__(self, *error):
        self._profile.__exit__(*error)
        history = torch.cuda.memory._snapshot()["device_traces"][0]
        self._history = [e for e in history if e["action"] in ("alloc", "free_requested")]
        torch.cuda.memory._record_memory_history(enabled=None)

    @contextlib.contextmanager
    def phase(self, name, step, micro=0):
        index = len(self.phases)
        self.phases.append({"name": name, "step": step, "micro": micro})
        with record_function(f"{PHASE}{index}"):
            yield
        self.phases[index]["reserved_bytes"] = torch.cuda.memory_reserved()

    def own(self, category, tensors):
        """Says that these tensors' storages, live now, are of this category."""
        addresses = {t.untyped_storage().data_ptr() for t in tensors}
        self.owned.setdefault(category, []).append((len(self.phases), addresses))

    def result(self):
        """{ops, phases: [{…, events}], categories}; see README.md."""
        contexts = _contexts(self._profile.profiler.kineto_results.events())
        assert len(contexts) == len(self._history), (len(contexts), len(self._history))
        writer = _Writer(self.phases)
        for (signed, phase, stack), entry in zip(contexts, self._history):
            size = entry["size"] if entry["action"] == "alloc" else -entry["size"]
            assert (size > 0) == (signed > 0), (size, signed, stack)
            writer.add(entry, size, abs(signed), phase, stack)
        return writer.result(self.owned)


class Unobserved:
    """Stands in for a Recording and only asks the allocator for its counters at each phase.

    A recording is believed when a run without observers has the same figures.
    """

    KEYS = ("peak_allocated_bytes", "live_allocated_bytes")

    def __init__(self):
        self.figures = []

    @contextlib.contextmanager
    def phase(self, name, step, micro=0):
        torch.cuda.reset_peak_memory_stats()
        yield
        statistics = torch.cuda.memory_stats()
        self.figures.append((statistics["allocated_bytes.all.peak"],
                             statistics["allocated_bytes.all.current"]))

    def own(self, category, tensors):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def _contexts(events):
    """(signed block bytes, phase index, enclosing events) of every memory event, in order.

    Parents are told by time within a thread: an event encloses what starts before it ends.
    """
    stacks, phase, result = {}, -1, []
    for event in sorted(events, key=lambda e: (e.start_ns(), -e.duration_ns())):
        memory = event.name() == "[memory]"
        if memory and event.device_type() != DeviceType.CUDA:
            continue
        stack = stacks.setdefault(event.start_thread_id(), [])
        while stack and stack[-1].start_ns() + stack[-1].duration_ns() < event.start_ns():
            stack.pop()
        if memory:
            result.append((event.nbytes(), phase, list(stack)))
            continue
        if event.name().startswith(PHASE):
            phase = int(event.name()[len(PHASE):])
        stack.append(event)
    return result


class _Writer:
    """Numbers allocations, follows them to their free, sums up each phase."""

    def __init__(self, phases):
        self.phases = [dict(p, events=[], peak_bytes=0, live_bytes=0,
                            peak_allocated_bytes=0, live_allocated_bytes=0) for p in phases]
        self.ops, self.live, self.allocations = {}, {}, []
        self.live_bytes = self.live_allocated_bytes = 0
        self.at_phase = {}  # phase -> {address: allocation} when it began
        self.current = -1

    def add(self, entry, size, block_bytes, phase, stack):
        self._enter(phase)
        address = entry["addr"]
        op = self.ops.setdefault(label(stack), len(self.ops))
        if size > 0:
            number = len(self.allocations)
            self.live[address] = number
            self.allocations.append({"bytes": size, "block": block_bytes, "stack": stack[-1:],
                                     "stream": entry["stream"]})
        else:
            number = self.live.pop(address)
            allocation = self.allocations[number]
            assert allocation["bytes"] == -size and allocation["block"] == block_bytes
            allocation["scratch"] = bool(stack) and allocation["stack"] == stack[-1:]
        self.live_bytes += size
        self.live_allocated_bytes += block_bytes if size > 0 else -block_bytes
        summary = self.phases[self.current]
        summary["events"].append([size, op, number])
        for key in ("bytes", "allocated_bytes"):
            live = getattr(self, "live_" + key)
            summary["live_" + key] = live
            summary["peak_" + key] = max(summary["peak_" + key], live)

    def _enter(self, phase):
        while self.current < phase:
            self.current += 1
            self.at_phase[self.current] = dict(self.live)
            summary = self.phases[self.current]
            for key in ("bytes", "allocated_bytes"):
                summary["live_" + key] = summary["peak_" + key] = getattr(self, "live_" + key)

    def _order_cache_clears(self):
        clears = {number for op, number in self.ops.items() if op.endswith(CLEAR_CASTS)}
        for phase in self.phases:
            events, start = phase["events"], 0
            for is_clear, run in itertools.groupby(events, key=lambda e: e[1] in clears):
                run = list(run)
                if is_clear:
                    events[start:start + len(run)] = sorted(run, key=lambda e: e[2])
                start += len(run)

    def result(self, owned):
        self._order_cache_clears()
        self._enter(len(self.phases) - 1)
        self.at_phase[len(self.phases)] = dict(self.live)
        categories = {name: sorted({self.at_phase[phase][a] for phase, addresses in entries
                                    for a in addresses if a in self.at_phase[phase]})
                      for name, entries in owned.items()}
        categories["scratch"] = [i for i, a in enumerate(self.allocations) if a.get("scratch")]
        side = [i for i, a in enumerate(self.allocations) if a["stream"]]
        if side:
            categories["side_stream"] = side
        return {"ops": list(self.ops), "phases": self.phases, "categories": categories}
