"""Records losses, logits and gradients of tiny models from PyTorch and Transformers.

Run by hand:  python tests/reference/record_torch.py [--out tests/data/torch | --bf16]
The files' layout is described in README.md beside this script. Everything runs on
one CPU thread from fixed seeds, so a second run with the same versions writes
the same numbers.

Two runs share one file: fp64 and fp32, from the same weights (drawn in fp32, so
that widening them loses nothing). Transformers forces a few steps to fp32 whatever
the model's dtype (norms, rotary angles, the loss); in the fp64 run
`KeepDouble` undoes that, because a reference that is only good to 1e-7 cannot
check a finite difference.
"""

import argparse
import json
import pathlib
import platform

import peft
import torch
import transformers
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

from reference_ops import record_ops

BATCH, SEQUENCE, VOCABULARY = 2, 32, 64
ADAMW = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
ADAMW_STEPS = 20
LORA = dict(r=4, lora_alpha=8, lora_dropout=0.0, bias="none")
IGNORE_INDEX = -100


class KeepDouble(TorchFunctionMode):
    """Turns every request for float32 into one for float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in kwargs.items()}
        return func(*args, **kwargs)


def configs():
    """name -> (config, model class, LoRA target modules)."""
    llama = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                 max_position_embeddings=64, tie_word_embeddings=False)
    mistral = dict(llama, hidden_size=24, intermediate_size=40, head_dim=8, sliding_window=None)
    qwen2 = dict(llama, num_key_value_heads=1, intermediate_size=40, use_sliding_window=False)
    falcon = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
                  num_attention_heads=4, multi_query=True, parallel_attn=True, bias=False,
                  alibi=False, hidden_dropout=0.0, attention_dropout=0.0,
                  ffn_hidden_size=80, max_position_embeddings=64)
    falcon_new = dict(falcon, hidden_size=24, new_decoder_architecture=True, num_kv_heads=2)
    gpt2 = dict(vocab_size=VOCABULARY, n_positions=SEQUENCE, n_embd=24, n_layer=2, n_head=3,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    t, query_value = transformers, ["q_proj", "v_proj"]
    return {
        "llama": (t.LlamaConfig(**llama), t.LlamaForCausalLM, query_value),
        "mistral": (t.MistralConfig(**mistral), t.MistralForCausalLM, query_value),
        "qwen2": (t.Qwen2Config(**qwen2), t.Qwen2ForCausalLM, query_value),
        "falcon": (t.FalconConfig(**falcon), t.FalconForCausalLM, ["query_key_value"]),
        "falcon_new": (t.FalconConfig(**falcon_new), t.FalconForCausalLM, ["query_key_value"]),
        "gpt2": (t.GPT2Config(**gpt2), t.GPT2LMHeadModel, ["c_attn"]),
    }


def clean(name):
    """PEFT's names without its wrappers: 'q_proj.weight', 'q_proj.lora_A.weight'."""
    return (name.removeprefix("base_model.model.").replace(".base_layer", "")
            .replace(".default", ""))


def build(config, model_class, targets, lora):
    """The model in fp32 with informative weights: a fresh model's norms of one, biases
    of zero and LoRA B of zero would hide mistakes. Adapters add an eighth of their
    weight's norm: much larger ones, which no training reaches, make attention so sharp
    that any arithmetic in 16 bits, PyTorch's too, is far off."""
    config._attn_implementation = "sdpa"
    model = model_class(config)
    if lora:
        fan_in_fan_out = targets == ["c_attn"]
        model = peft.get_peft_model(model, peft.LoraConfig(
            **LORA, target_modules=targets, task_type="CAUSAL_LM", fan_in_fan_out=fan_in_fan_out))
    generator = torch.Generator().manual_seed(1234)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                values = 0.1 * values + (1.0 if name.endswith("weight") else 0.0)
            elif "wte" in name or "embed" in name or "wpe" in name:
                values = 0.5 * values
            else:
                values = values * parameter.shape[-1] ** -0.5
            if ".lora_B." in name:
                values = values / 16
            parameter.copy_(values)
    return model.eval()  # dropout is 0 everywhere; eval() also silences PEFT's own


def batch():
    generator = torch.Generator().manual_seed(99)
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    labels = tokens.clone()
    labels[0, :3] = IGNORE_INDEX  # a prompt that is not learnt
    labels[1, -2:] = IGNORE_INDEX  # padding
    return tokens, labels


def exact_rotary(model):
    """Recomputes inverse frequencies in the model's dtype: .double() only widens them."""
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            config = module.config
            dim = getattr(config, "head_dim", None) or (
                config.hidden_size // config.num_attention_heads)
            theta = config.rope_parameters["rope_theta"]
            exponents = torch.arange(0, dim, 2, dtype=module.inv_freq.dtype) / dim
            module.inv_freq.copy_(theta ** -exponents)


def loss_of(model, tokens, labels):
    return model(input_ids=tokens, labels=labels, use_cache=False)


def check_gradients(model, tokens, labels):
    """Central difference along the gradient of each tensor, fp64: the reference's own test."""
    step, worst = 1e-6, 0.0
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        direction = parameter.grad / parameter.grad.norm()
        with torch.no_grad():
            parameter += step * direction
            up = loss_of(model, tokens, labels).loss
            parameter -= 2 * step * direction
            down = loss_of(model, tokens, labels).loss
            parameter += step * direction
        slope = (up - down) / (2 * step)
        worst = max(worst, (slope / parameter.grad.norm() - 1).abs().item())
    assert worst < 1e-6, f"gradient and finite difference differ by {worst}"
    return worst


def train(model, tokens, labels):
    """Loss before each AdamW step and after the last: ADAMW_STEPS + 1 values."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, foreach=False, fused=False, **ADAMW)
    losses = []
    for _ in range(ADAMW_STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, tokens, labels).loss
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
    with torch.no_grad():
        losses.append(loss_of(model, tokens, labels).loss)
    return torch.stack(losses)


def run(model, tokens, labels):
    """One precision's reference: loss, logits, gradients, losses of the training run."""
    output = loss_of(model, tokens, labels)
    output.loss.backward()
    result = {"loss": output.loss.detach().reshape(1), "logits": output.logits.detach()}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            result["grad/" + clean(name)] = parameter.grad.clone()
    return result


def record_model(name, config, model_class, targets, lora):
    tokens, labels = batch()
    tensors = {"input/tokens": tokens, "input/labels": labels}
    model = build(config, model_class, targets, lora)
    for key, parameter in model.named_parameters():
        tensors["param/" + clean(key)] = parameter.detach().double()
    trainable = [clean(k) for k, p in model.named_parameters() if p.requires_grad]
    state = {k: v.clone() for k, v in model.state_dict().items()}

    single = run(model, tokens, labels)
    single["losses"] = train(model, tokens, labels)

    model.load_state_dict(state)
    model.zero_grad(set_to_none=True)
    model.double()
    with KeepDouble():
        exact_rotary(model)
        double = run(model, tokens, labels)
        finite_difference = check_gradients(model, tokens, labels)
        double["losses"] = train(model, tokens, labels)

    worst = max(((single[k].double() - double[k]).norm() / double[k].norm()).item()
                for k in double)
    assert all(v.dtype == torch.float64 for v in double.values())
    assert worst < 1e-5, f"{name}: fp32 and fp64 differ by {worst}"
    tensors.update({"fp32/" + k: v for k, v in single.items()})
    tensors.update({"fp64/" + k: v for k, v in double.items()})
    metadata = {
        "config.json": config.to_json_string(use_diff=False),
        "architecture": model_class.__name__,
        "lora": json.dumps(dict(LORA, target_modules=targets) if lora else None),
        "trainable": json.dumps(trainable),
        "adamw": json.dumps(dict(ADAMW, steps=ADAMW_STEPS)),
        "ignore_index": str(IGNORE_INDEX),
        "loss_fp64": repr(double["loss"].item()),
        "loss_fp32": repr(single["loss"].item()),
        "worst_fp32_against_fp64": f"{worst:.2e}",
        "worst_finite_difference": f"{finite_difference:.2e}",
    }
    return tensors, metadata


def gradients(model, tokens, labels):
    model.zero_grad(set_to_none=True)
    loss_of(model, tokens, labels).loss.backward()
    return {clean(k): p.grad.double() for k, p in model.named_parameters() if p.requires_grad}


def print_bf16(name, config, model_class, targets, lora):
    """How far PyTorch's own bf16 gradients are from its fp64 ones, from the same weights."""
    for attention in "sdpa", "eager":
        model = build(config, model_class, targets, lora)
        model.set_attn_implementation(attention)
        model.bfloat16()
        half = gradients(model, *batch())
        model.double()
        with KeepDouble():
            exact_rotary(model)
            exact = gradients(model, *batch())
        errors = {k: ((half[k] - exact[k]).norm() / exact[k].norm()).item() for k in exact}
        worst = max(errors, key=errors.get)
        print(f"{name}{' LoRA' if lora else ''} {attention}: "
              f"{sum(e > 2e-2 for e in errors.values())} of {len(errors)} over 2e-2, "
              f"worst {errors[worst]:.1e} {worst}")


def versions():
    return {"python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__, "peft": peft.__version__}


def write(path, tensors, metadata):
    metadata = dict(metadata, versions=json.dumps(versions()))
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata=metadata)
    print(f"{path.name}: {path.stat().st_size} bytes, {len(tensors)} tensors, "
          + ", ".join(f"{k} {metadata[k]}" for k in metadata if k[:5] in ("worst", "loss_")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = pathlib.Path(__file__).resolve().parent.parent / "data" / "torch"
    parser.add_argument("--out", type=pathlib.Path, default=default)
    parser.add_argument("--bf16", action="store_true",
                        help="print the errors of PyTorch's own bf16 and record nothing")
    arguments = parser.parse_args()
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name, (config, model_class, targets) in configs().items():
        for lora in (False, True):
            if arguments.bf16:
                print_bf16(name, config, model_class, targets, lora)
                continue
            path = out / f"{name}{'_lora' if lora else ''}.safetensors"
            write(path, *record_model(name, config, model_class, targets, lora))
    if not arguments.bf16:
        write(out / "ops.safetensors", *record_ops())


if __name__ == "__main__":
    main()
