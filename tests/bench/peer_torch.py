"""The bench peer: one Llama training step in plain PyTorch, at PyTorch's best settings.

Prints one line of JSON: tokens_per_second, median_step_seconds, step_seconds,
peak_allocated_bytes (and what made it up), versions. Runs with Debian's python3-torch
1.13 and with current PyPI wheels: the model is written out here, and newer PyTorch's
fused attention is used where it exists.

Best settings found: libopenblas0-openmp with Debian's build (its pthread variant is
1.9 times slower beside libgomp), waiting threads that spin on a quiet machine (840 against
647 tokens/s passive with Debian's build, 831 against 813 with the wheel), foreach AdamW,
gradients set to None, no dropout, attention fused where available.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "ACTIVE")

import torch  # noqa: E402  (the wait policy is read when OpenMP loads)
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")


class RMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(hidden)), eps

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False)
                                          for _ in range(4))

    def forward(self, x, cos, sin, mask):
        batch, steps, hidden = x.shape
        q, k, v = (p(x).view(batch, steps, self.heads, -1).transpose(1, 2)
                   for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if FUSED_ATTENTION:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = torch.baddbmm(mask, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2),
                                   alpha=q.shape[-1] ** -0.5)
            y = (scores.softmax(-1) @ v.flatten(0, 1)).view(batch, self.heads, steps, -1)
        return self.o(y.transpose(1, 2).reshape(batch, steps, hidden))


class Layer(nn.Module):
    def __init__(self, hidden, heads, ffn):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(hidden), RMSNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.gate, self.up = (nn.Linear(hidden, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cos, sin, mask):
        x = x + self.attention(self.norm1(x), cos, sin, mask)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, steps = shape.hidden, shape.sequence
        self.embed = nn.Embedding(shape.vocabulary, hidden)
        self.layers = nn.ModuleList(Layer(hidden, shape.heads, shape.ffn)
                                    for _ in range(shape.layers))
        self.norm, self.head = RMSNorm(hidden), nn.Linear(hidden, shape.vocabulary, bias=False)
        dim = hidden // shape.heads
        inverse = 10000.0 ** -(torch.arange(0, dim, 2) / dim)
        angles = torch.cat([torch.arange(steps)[:, None] * inverse] * 2, dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((steps, steps), float("-inf")).triu(1))

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        logits = self.head(self.norm(x))[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


def make_step(shape):
    torch.manual_seed(0)
    model = Llama(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    tokens = torch.randint(0, shape.vocabulary, (shape.batch, shape.sequence))

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        return loss.item()

    return model, optimizer, step


def tensor_bytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def peak_allocated(model, optimizer, step):
    """Bytes live at the start of a steady step, plus the allocator's own account of it.

    The profiler does not report the free of what was allocated before it began, so the
    last step's gradients go first; they are in the peak as this step allocates them.
    """
    optimizer.zero_grad(set_to_none=True)
    resident = {
        "parameter_bytes": tensor_bytes(model.parameters()),
        "optimizer_bytes": tensor_bytes(t for state in optimizer.state.values()
                                        for t in state.values() if torch.is_tensor(t)),
        "buffer_bytes": tensor_bytes(model.buffers()),
    }
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        step()
    live = peak = sum(resident.values())
    events = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
    clock = "start_ns" if hasattr(events[0], "start_ns") else "start_us"
    for event in sorted(events, key=lambda e: getattr(e, clock)()):
        live += event.nbytes()
        peak = max(peak, live)
    return dict(resident, peak_allocated_bytes=peak, memory_events=len(events))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in dict(hidden=512, layers=8, heads=8, ffn=1376, vocabulary=8192,
                            sequence=256, batch=4, threads=2, warmup=2, steps=5).items():
        parser.add_argument("--" + name, type=int, default=value)
    shape = parser.parse_args()
    torch.set_num_threads(shape.threads)
    model, optimizer, step = make_step(shape)
    for _ in range(shape.warmup):
        loss = step()
    seconds = []
    for _ in range(shape.steps):
        start = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    print(json.dumps({
        "tokens_per_second": round(shape.batch * shape.sequence / median, 1),
        "median_step_seconds": round(median, 5),
        "step_seconds": [round(s, 5) for s in seconds],
        **peak_allocated(model, optimizer, step),
        "last_loss": loss,
        "shape": vars(shape),
        "torch": torch.__version__,
        "fused_attention": FUSED_ATTENTION,
    }))


if __name__ == "__main__":
    main()
