"""Single ops in fp64 from PyTorch: inputs, output, output gradient, input gradients.

Tensors are named `<op>/<tensor>`; `y` is the output, `dy` the gradient fed into it,
`d<input>` the gradient of each input. Attributes stand in the metadata as JSON
under the op's name.
"""

import json

import torch
import torch.nn.functional as F

GENERATOR_SEED = 7


class Draw:
    """Normal fp64 tensors from one seeded stream."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(GENERATOR_SEED)

    def __call__(self, *shape):
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def integers(self, high, *shape):
        return torch.randint(0, high, shape, generator=self.generator)


def differentiate(name, function, inputs, draw, constants=None):
    """Runs function(**inputs, **constants) and its backward with a random dy."""
    leaves = {k: v.requires_grad_() for k, v in inputs.items()}
    y = function(**leaves, **(constants or {}))
    dy = draw(*y.shape)
    gradients = torch.autograd.grad(y, list(leaves.values()), dy)
    tensors = {"y": y, "dy": dy, **leaves, **(constants or {})}
    tensors.update({"d" + k: g for k, g in zip(leaves, gradients)})
    return {f"{name}/{k}": v.detach().reshape(v.shape or (1,)) for k, v in tensors.items()}


def rms_norm(x, weight, eps=1e-5):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def rotate(x, theta):
    """Rotary positions as Llama applies them: halves, not pairs. x: [B, H, S, D]."""
    dim, steps = x.shape[-1], torch.arange(x.shape[-2], dtype=x.dtype)
    inverse = theta ** -(torch.arange(0, dim, 2, dtype=x.dtype) / dim)
    angles = torch.cat([steps[:, None] * inverse] * 2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


def pointwise_and_norms(draw):
    shape = (3, 5, 8)
    return {
        **differentiate("rms_norm", rms_norm, {"x": draw(*shape), "weight": draw(8)}, draw),
        **differentiate("layer_norm",
                        lambda x, weight, bias: F.layer_norm(x, (8,), weight, bias, 1e-5),
                        {"x": draw(*shape), "weight": draw(8), "bias": draw(8)}, draw),
        **differentiate("gelu_erf", lambda x: F.gelu(x), {"x": 2 * draw(*shape)}, draw),
        **differentiate("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"),
                        {"x": 2 * draw(*shape)}, draw),
        **differentiate("silu_gate", lambda gate, up: F.silu(gate) * up,
                        {"gate": 2 * draw(*shape), "up": draw(*shape)}, draw),
        **differentiate("rotary", lambda x: rotate(x, 10000.0), {"x": draw(2, 3, 5, 8)}, draw),
    }


def products(draw):
    embedding = differentiate(
        "embedding", lambda weight, tokens: F.embedding(tokens, weight),
        {"weight": draw(11, 8)}, draw, {"tokens": draw.integers(11, 2, 6)})
    linear = differentiate("linear", F.linear,
                           {"input": draw(2, 5, 8), "weight": draw(6, 8), "bias": draw(6)}, draw)
    return {**embedding, **linear}


def attention(draw):
    def grouped(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)

    result = {}
    for name, heads, kv_heads, steps, dim in (
            ("attention_mha", 2, 2, 5, 8), ("attention_gqa", 4, 2, 7, 8),
            ("attention_mqa", 4, 1, 9, 16)):
        inputs = {"query": draw(2, heads, steps, dim), "key": draw(2, kv_heads, steps, dim),
                  "value": draw(2, kv_heads, steps, dim)}
        result.update(differentiate(name, grouped, inputs, draw))
    return result


def cross_entropy(draw):
    """Mean over the targets that are not ignored; y and dy are one number."""
    targets = draw.integers(13, 10)
    targets[2] = targets[7] = -100
    return differentiate(
        "softmax_cross_entropy",
        lambda logits, targets: F.cross_entropy(logits, targets, ignore_index=-100),
        {"logits": 3 * draw(10, 13)}, draw, {"targets": targets})


def adamw(draw, steps=5):
    """Parameter before, gradients [steps, n], parameter after each step [steps, n]."""
    before, gradients = draw(16), draw(steps, 16)
    parameter = before.clone().requires_grad_()
    optimizer = torch.optim.AdamW([parameter], lr=1e-2, betas=(0.9, 0.999), eps=1e-8,
                                  weight_decay=0.1, foreach=False)
    after = []
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
        after.append(parameter.detach().clone())
    state = optimizer.state[parameter]
    return {"adamw/before": before, "adamw/gradients": gradients,
            "adamw/after": torch.stack(after), "adamw/exp_avg": state["exp_avg"],
            "adamw/exp_avg_sq": state["exp_avg_sq"]}


def clipping(draw):
    """Two gradients before and after clip_grad_norm_(max_norm=1), and the norm found."""
    first, second = draw(4, 6), draw(7)
    parameters = [torch.zeros_like(t).requires_grad_() for t in (first, second)]
    parameters[0].grad, parameters[1].grad = first.clone(), second.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm=1.0)
    return {"clip/first": first, "clip/second": second, "clip/norm": norm.reshape(1),
            "clip/first_clipped": parameters[0].grad, "clip/second_clipped": parameters[1].grad}


def record_ops():
    draw = Draw()
    tensors = {**pointwise_and_norms(draw), **products(draw), **attention(draw),
               **cross_entropy(draw), **adamw(draw), **clipping(draw)}
    attributes = {
        "rms_norm": {"eps": 1e-5}, "layer_norm": {"eps": 1e-5},
        "rotary": {"theta": 10000.0, "layout": "BHSD", "halves": True},
        "attention": {"causal": True, "scale": "1/sqrt(head_dim)", "layout": "BHSD"},
        "softmax_cross_entropy": {"ignore_index": -100, "reduction": "mean"},
        "adamw": {"lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1},
        "clip": {"max_norm": 1.0, "eps": 1e-6},
    }
    return tensors, {k: json.dumps(v) for k, v in attributes.items()}
