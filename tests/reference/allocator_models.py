"""Real traces: training steps of Transformers models, through PyTorch's memory history."""

MIB = 1 << 20

# name, settings, capacity in MiB, architecture, what differs from a plain fp32 step
MODELS = [
    ("model_llama_bf16", "", 81920, "llama", {"dtype": "bfloat16"}),
    ("model_llama_autocast", "", 81920, "llama", {"autocast": "bfloat16"}),
    ("model_llama_tight", "", 640, "llama", {"dtype": "bfloat16", "lengths": [512, 384, 512, 128]}),
    ("model_llama_expandable", "expandable_segments:True", 81920, "llama",
     {"dtype": "bfloat16", "lengths": [512, 384, 512]}),
    ("model_llama_checkpointing", "max_split_size_mb:64", 81920, "llama",
     {"autocast": "bfloat16", "checkpointing": True}),
    ("model_llama_garbage", "garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
     850, "llama", {"dtype": "bfloat16", "lengths": [512, 100, 384, 512]}),
    ("model_gpt2", "", 81920, "gpt2", {}),
    ("model_gpt2_divisions", "roundup_power2_divisions:4", 81920, "gpt2",
     {"lengths": [256, 200, 300], "autocast": "float16"}),
    ("model_falcon", "large_segment_size_mb:64", 81920, "falcon", {"dtype": "bfloat16"}),
]


def build(architecture, dtype):
    import torch
    import transformers
    size = {"hidden_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 16,
            "vocab_size": 8192}
    if architecture == "llama":
        config = transformers.LlamaConfig(intermediate_size=2816, num_key_value_heads=4, **size)
    elif architecture == "falcon":
        config = transformers.FalconConfig(new_decoder_architecture=False, **size)
    else:
        config = transformers.GPT2Config(n_embd=1024, n_layer=3, n_head=16, vocab_size=8192)
    with torch.device("cuda"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)


def train(architecture, dtype="float32", autocast=None, checkpointing=False, lengths=(512, 512)):
    import torch
    model = build(architecture, getattr(torch, dtype))
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths:
        tokens = torch.zeros((2, length), dtype=torch.long, device="cuda")
        with torch.autocast("cuda", getattr(torch, autocast or "bfloat16"),
                            enabled=autocast is not None):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss, tokens


def record_model(architecture, options):
    """Events of the whole run, the hash of all addresses and the statistics at its end."""
    import torch
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(max_entries=10 ** 7, context=None)
    train(architecture, **options)
    statistics = torch.cuda.memory_stats()
    events, ids, placement, base = [], {}, 14695981039346656037, 1 << 40
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        if entry["action"] == "alloc":
            ids[entry["addr"]] = len(ids) if not ids else max(ids.values()) + 1
            events.append(["alloc", ids[entry["addr"]], entry["size"]])
            placement = ((placement ^ (entry["addr"] - base)) * 1099511628211) % (1 << 64)
        elif entry["action"] == "free_requested":
            events.append(["free", ids.pop(entry["addr"])])
        assert entry["action"] != "oom", "the device is too small for this model"
    events.append(["check"])
    return events, placement, statistics
