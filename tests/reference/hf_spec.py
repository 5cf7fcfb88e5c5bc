"""What one recorded run is: model shape, batch, and every choice that moves memory."""

import dataclasses
import random

import transformers


@dataclasses.dataclass(frozen=True)
class Spec:
    arch: str = "llama"            # llama mistral qwen2 falcon falcon_new gpt2
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 4
    ffn: int = 344
    vocab: int = 512
    tied: bool = False             # llama, mistral, qwen2; falcon and gpt2 always are
    batch: int = 4
    seq: int = 128
    precision: str = "bf16"        # fp32 bf16 amp_bf16 amp_fp16
    outputs_fp32: bool = False     # accelerate's convert_outputs_to_fp32 around the forward
    attention: str = "sdpa"        # sdpa eager
    checkpoint: str = "none"       # none reentrant non_reentrant
    lora: str = "none"             # none qv all
    lora_r: int = 8
    lora_dropout: float = 0.0
    accumulation: int = 1
    optimizer: str = "adamw_foreach"  # adamw_foreach adamw_loop adamw_fused
    groups: str = "trainer"        # trainer (biases and norms undecayed apart) one
    clip: float = 0.0              # 0: none
    dropout: float = 0.0           # attention, and residual and embedding where they exist
    ddp: str = "none"              # none copy view (gradient_as_bucket_view), 2 ranks
    bucket_mb: int = 25            # DDP's bucket_cap_mb
    workspace: bool = False        # cuBLAS workspaces as PyTorch takes them (else none)
    checkpoint_offload: bool = False  # checkpointed inputs in host memory (Transformers' `offload`)
    seed: int = -1                 # of the random draw; -1: written by hand

    @property
    def name(self):
        """The fields that differ from their defaults, readable and unique."""
        parts = [f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self)
                 if getattr(self, f.name) != f.default and f.name != "arch"]
        return " ".join([self.arch, *parts])


def hf_config(spec):
    """The Transformers config and the model class."""
    t = transformers
    common = dict(vocab_size=spec.vocab, use_cache=False)
    llama = dict(common, hidden_size=spec.hidden, num_hidden_layers=spec.layers,
                 num_attention_heads=spec.heads, num_key_value_heads=spec.kv_heads,
                 intermediate_size=spec.ffn, max_position_embeddings=8192,
                 attention_dropout=spec.dropout, tie_word_embeddings=spec.tied)
    falcon = dict(common, hidden_size=spec.hidden, num_hidden_layers=spec.layers,
                  num_attention_heads=spec.heads, ffn_hidden_size=spec.ffn, alibi=False, bias=False,
                  parallel_attn=True, hidden_dropout=spec.dropout, attention_dropout=spec.dropout,
                  max_position_embeddings=8192)
    if spec.arch == "llama":
        config, model = t.LlamaConfig(**llama), t.LlamaForCausalLM
    elif spec.arch == "mistral":
        config, model = t.MistralConfig(**llama, sliding_window=None), t.MistralForCausalLM
    elif spec.arch == "qwen2":
        config, model = t.Qwen2Config(**llama, use_sliding_window=False), t.Qwen2ForCausalLM
    elif spec.arch == "falcon":
        config, model = t.FalconConfig(**falcon, multi_query=True), t.FalconForCausalLM
    elif spec.arch == "falcon_new":
        config = t.FalconConfig(**falcon, new_decoder_architecture=True, num_kv_heads=spec.kv_heads)
        model = t.FalconForCausalLM
    else:
        config = t.GPT2Config(**common, n_embd=spec.hidden, n_layer=spec.layers, n_head=spec.heads,
                              n_inner=spec.ffn, n_positions=1024, attn_pdrop=spec.dropout,
                              resid_pdrop=spec.dropout, embd_pdrop=spec.dropout)
        model = t.GPT2LMHeadModel
    config._attn_implementation = spec.attention
    return config, model


LORA_TARGETS = {
    "qv": {"falcon": ["query_key_value"], "gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"]},
    "all": {"falcon": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
            "gpt2": ["c_attn", "c_proj", "c_fc"],
            "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                      "down_proj"]},
}


def lora_targets(spec):
    family = {"falcon_new": "falcon", "mistral": "llama", "qwen2": "llama"}
    return LORA_TARGETS[spec.lora][family.get(spec.arch, spec.arch)]


# --- runs written by hand: every rule at least once ----------------------------------------------

SHAPES = {
    "llama": dict(kv_heads=2), "mistral": dict(kv_heads=2, ffn=448),
    "qwen2": dict(kv_heads=2, ffn=336), "falcon": dict(kv_heads=1, ffn=512),
    "falcon_new": dict(kv_heads=2, ffn=512), "gpt2": dict(ffn=512),
}


def by_hand():
    """Llama in depth, then what differs in the others."""
    runs = [Spec()]
    for precision in ("fp32", "bf16", "amp_bf16", "amp_fp16"):
        for attention in ("sdpa", "eager"):
            for checkpoint in ("none", "reentrant", "non_reentrant"):
                runs.append(Spec(kv_heads=2, precision=precision, attention=attention,
                                 checkpoint=checkpoint))
    for arch, shape in SHAPES.items():
        here = [dict(precision="bf16"), dict(precision="bf16", attention="eager"),
                dict(precision="fp32", checkpoint="non_reentrant", clip=1.0),
                dict(precision="amp_bf16", outputs_fp32=True, dropout=0.1),
                dict(precision="bf16", lora="qv", attention="eager", dropout=0.1),
                dict(precision="amp_fp16", lora="all", checkpoint="reentrant", clip=1.0),
                dict(precision="bf16", lora="all", lora_dropout=0.1, checkpoint="non_reentrant"),
                dict(precision="bf16", accumulation=2, optimizer="adamw_fused")]
        runs += [Spec(arch=arch, **{**shape, **choices}) for choices in here]
    gqa = dict(kv_heads=2)
    runs += [Spec(**gqa, optimizer=o, groups=g, clip=c) for o in ("adamw_loop", "adamw_fused")
             for g in ("one", "trainer") for c in (0.0, 1.0)]
    runs += [Spec(**gqa, precision=p, lora=l, accumulation=2, clip=1.0)
             for p in ("fp32", "bf16", "amp_bf16", "amp_fp16") for l in ("none", "qv")]
    runs += [Spec(**gqa, precision=p, lora="all") for p in ("fp32", "amp_bf16")]
    runs += [Spec(**gqa, tied=True), Spec(kv_heads=1), Spec(**gqa, workspace=True),
             Spec(**gqa, precision="amp_bf16", workspace=True),
             Spec(**gqa, attention="eager", precision="fp32", dropout=0.1),
             Spec(**gqa, precision="fp32", dropout=0.1),
             Spec(**gqa, batch=1, seq=512), Spec(**gqa, batch=16, seq=256, layers=1),
             Spec(**gqa, batch=3, seq=100), Spec(**gqa, batch=1, seq=33, attention="eager")]
    return list(dict.fromkeys(runs))


def distributed():
    """DistributedDataParallel on one of two ranks; 1 MiB makes several buckets."""
    here = [dict(), dict(ddp="view"), dict(bucket_mb=1), dict(ddp="view", bucket_mb=1),
            dict(precision="fp32", bucket_mb=1), dict(precision="amp_bf16", bucket_mb=1),
            dict(precision="amp_fp16", ddp="view", clip=1.0), dict(accumulation=2, bucket_mb=1),
            dict(accumulation=2, ddp="view"), dict(lora="qv"), dict(tied=True, bucket_mb=1),
            dict(checkpoint="non_reentrant", bucket_mb=1), dict(checkpoint="reentrant"),
            dict(optimizer="adamw_fused", clip=1.0), dict(arch="gpt2", kv_heads=4, ffn=512),
            dict(arch="falcon", kv_heads=1, ffn=512, ddp="view")]
    return [Spec(**{"kv_heads": 2, "ddp": "copy", **choices}) for choices in here]


def offloaded():
    """Checkpointed inputs in host memory."""
    runs = [Spec(arch=arch, **SHAPES[arch], checkpoint=checkpoint, attention=attention)
            for arch in ("llama", "gpt2", "falcon") for checkpoint in ("reentrant", "non_reentrant")
            for attention in ("sdpa", "eager")]
    runs += [Spec(kv_heads=2, checkpoint="reentrant", lora="qv"),
             Spec(kv_heads=2, checkpoint="non_reentrant", lora="all", precision="amp_bf16")]
    return [dataclasses.replace(run, checkpoint_offload=True) for run in runs]


def real_shapes():
    """Models that people train; device memory is only address space here."""
    llama7b = dict(hidden=4096, layers=32, heads=32, kv_heads=32, ffn=11008, vocab=32000)
    tiny = dict(hidden=2048, layers=22, heads=32, kv_heads=4, ffn=5632, vocab=32000)
    gpt2 = dict(arch="gpt2", hidden=768, layers=12, heads=12, kv_heads=12, ffn=3072, vocab=50257)
    return [Spec(**tiny, batch=4, seq=2048, precision="amp_bf16", outputs_fp32=True, clip=1.0),
            Spec(**llama7b, batch=1, seq=4096, checkpoint="non_reentrant", lora="all"),
            Spec(**gpt2, batch=8, seq=1024, dropout=0.1, clip=1.0, optimizer="adamw_fused")]


# --- runs drawn at random ---------------------------------------------------------------------


def draw(seed):
    """One random run. The same seed always gives the same run."""
    rng = random.Random(seed)
    arch = rng.choice(list(SHAPES))
    head_dim = rng.choice([32, 64])
    heads = rng.choice([2, 4, 6])
    kv_heads = rng.choice([k for k in (1, 2, 3, heads) if heads % k == 0])
    precision = rng.choice(["fp32", "bf16", "amp_bf16", "amp_fp16"])
    lora = rng.choice(["none", "none", "qv", "all"])
    checkpoint = rng.choice(["none", "none", "reentrant", "non_reentrant"])
    return Spec(
        arch=arch, hidden=heads * head_dim, heads=heads, layers=rng.choice([1, 2, 3]),
        kv_heads=heads if arch == "gpt2" else 1 if arch == "falcon" else kv_heads,
        ffn=rng.choice([2, 3, 4]) * heads * head_dim + rng.choice([0, 8, 24]),
        vocab=rng.choice([320, 512, 1000, 2048]),
        tied=arch in ("llama", "mistral", "qwen2") and rng.random() < 0.3,
        batch=rng.choice([1, 2, 4, 8]), seq=rng.choice([48, 96, 128, 200, 256]),
        precision=precision, outputs_fp32=precision.startswith("amp") and rng.random() < 0.4,
        attention=rng.choice(["sdpa", "eager"]), checkpoint=checkpoint, lora=lora,
        lora_r=rng.choice([4, 8, 16]) if lora != "none" else 8,
        lora_dropout=rng.choice([0.0, 0.1]) if lora != "none" else 0.0,
        accumulation=rng.choice([1, 1, 2]),
        optimizer=rng.choice(["adamw_foreach", "adamw_loop", "adamw_fused"]),
        groups=rng.choice(["trainer", "one"]), clip=rng.choice([0.0, 1.0]),
        dropout=rng.choice([0.0, 0.0, 0.1]), seed=seed,
        checkpoint_offload=checkpoint != "none" and seed >= 11000 and rng.random() < 0.4)
