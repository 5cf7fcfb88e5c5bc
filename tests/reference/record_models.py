"""Records what Transformers and PEFT say of models: names, shapes, order and counts of parameters.

Writes tests/data/models/NAME.json for small variants of every architecture and
tests/data/models/preset_counts.json for the presets in kernels/model/presets. Models are built on
the meta device, so nothing is downloaded and no memory is needed.
"""

import json
import pathlib
import sys
import warnings

import peft
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "models"
VERSIONS = {
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "peft": peft.__version__,
}

LLAMA = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 128,
}
FALCON = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128, "n_positions": 32}

# What a config.json may leave out is left out in some of these.
VARIANTS = {
    "llama": {"model_type": "llama", **LLAMA},
    "llama_grouped_biased": {
        "model_type": "llama",
        **LLAMA,
        "num_key_value_heads": 2,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "llama_wide_heads": {"model_type": "llama", **LLAMA, "head_dim": 32},
    "mistral": {"model_type": "mistral", **LLAMA, "num_attention_heads": 8},
    "mistral_wide_heads": {
        "model_type": "mistral",
        **LLAMA,
        "num_key_value_heads": 2,
        "head_dim": 24,
    },
    "qwen2": {"model_type": "qwen2", **LLAMA, "num_key_value_heads": 2},
    "qwen2_tied": {
        "model_type": "qwen2",
        **LLAMA,
        "num_key_value_heads": None,
        "tie_word_embeddings": True,
    },
    "falcon": {"model_type": "falcon", **FALCON},
    "falcon_biased": {"model_type": "falcon", **FALCON, "bias": True, "ffn_hidden_size": 80},
    "falcon_sequential": {
        "model_type": "falcon",
        **FALCON,
        "parallel_attn": False,
        "multi_query": False,
        "tie_word_embeddings": False,
    },
    "falcon_new": {
        "model_type": "falcon",
        **FALCON,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
    },
    "falcon_new_one_norm": {
        "model_type": "falcon",
        **FALCON,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "num_ln_in_parallel_attn": 1,
    },
    "gpt2": {"model_type": "gpt2", **GPT2},
    "gpt2_inner": {"model_type": "gpt2", **GPT2, "n_inner": 96, "tie_word_embeddings": False},
}


def build(config):
    config = dict(config)
    loaded = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(loaded)


def plain(name):
    """PEFT's wrappers cut out, as in the other recordings."""
    return name.replace("base_model.model.", "", 1).replace(".default.", ".")


def adapters(config, targets):
    lora = peft.LoraConfig(r=8, target_modules=targets, task_type="CAUSAL_LM")
    model = peft.get_peft_model(build(config), lora)
    return [[plain(n), list(p.shape)] for n, p in model.named_parameters() if p.requires_grad]


def record(name, config):
    model = build(config)
    document = {
        "versions": VERSIONS,
        "config": config,
        "parameters": [[n, list(p.shape)] for n, p in model.named_parameters()],
        "lora": {
            "rank": 8,
            "attention": adapters(config, None),  # PEFT's own choice for the architecture
            "all-linear": adapters(config, "all-linear"),
        },
    }
    (DATA / f"{name}.json").write_text(json.dumps(document) + "\n")


def record_preset_counts():
    counts = {}
    for path in sorted((ROOT / "kernels" / "model" / "presets").glob("*.json")):
        model = build(json.loads(path.read_text()))
        counts[path.stem] = sum(p.numel() for p in model.parameters())
    document = {"versions": VERSIONS, "counts": counts}
    (DATA / "preset_counts.json").write_text(json.dumps(document, indent=1) + "\n")


def main():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    DATA.mkdir(parents=True, exist_ok=True)
    for name, config in VARIANTS.items():
        record(name, config)
    record_preset_counts()


if __name__ == "__main__":
    sys.exit(main())
