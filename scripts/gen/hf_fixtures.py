#!/usr/bin/env python3
"""Makes tests/fixtures/hf: small models that `transformers` saves, and what it computes with them.

    PYTHON scripts/gen/hf_fixtures.py [--whole DIR] [FOLDER]

PYTHON has torch, transformers and safetensors. FOLDER (default: tests/fixtures/hf) is made anew.
Run it again only where the references must change; the tests read what is committed.

Each family's folder holds a model of 2 layers with random weights from a fixed seed, written by
save_pretrained in shards of at most 50 KB. The weights are values of the dtype that they are saved
in, so that fp32, bf16 and fp16 files carry exactly the weights that the reference starts from.
Beside them:

  reference.json         tokens, targets (B, T); the losses of the first batch before each of three
                         steps and behind them; hyperparameters; for each parameter its stride,
                         and the norm of the whole gradient; the versions that made it all
  reference.safetensors  fp32: logits (B, T, V); gradient.NAME, of the mean cross entropy; and
                         after.NAME, the parameter behind three steps of AdamW (the same batch each
                         time, no clipping, weight decay on matrices alone)

To keep the whole small, a tensor of 1,024 elements or more is there in every 11th element of its
flattened order: element i of gradient.NAME is element i * stride of the parameter's gradient. No
side of a matrix here is a multiple of 11, so every row and column is met. --whole DIR writes the
same with stride 1 to DIR/FAMILY.safetensors, to look for a fault with.

The first step of AdamW moves an element by lr times its gradient's sign, whatever the gradient's
size. Where a gradient is small beside the tensor's largest (a bias of GPT-2's keys has none at all,
but for rounding), fp32 does not decide it: such elements of after.NAME are NaN, "unsure" counts
them, and a test passes over them.

All is computed in fp64, but for what transformers computes in fp32 in any dtype: the rotary angles
and their cosines (we do the same), and RMS norms, which are replaced here by the same in fp64. The
result is held against transformers in fp32, unchanged.

inv_freq.safetensors and inv_freq.json hold the inverse frequencies of rotary embeddings by the
configurations of well-known models; defaults.json, what each family's class takes for a key that
config.json does not have ("derived": from hidden_size and num_attention_heads).
"""

import argparse
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

VOCAB, BATCH, T = 211, 2, 17
STRIDE, WHOLE_BELOW = 11, 1024
STEPS = 3
UNSURE = 3e-3
ADAMW = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}

SIZES = {
    "vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 40,
    "bos_token_id": 1, "eos_token_id": 2,
}
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}

# Folder: class of the configuration, dtype of the files, what differs from SIZES.
FAMILIES = {
    "gpt2": ("GPT2Config", torch.float32, None),
    "llama": ("LlamaConfig", torch.float32, {"tie_word_embeddings": False}),
    "llama3": ("LlamaConfig", torch.bfloat16, {
        "tie_word_embeddings": True, "rope_parameters": LLAMA3_ROPE, "rms_norm_eps": 1e-5}),
    "mistral": ("MistralConfig", torch.float16, {
        "tie_word_embeddings": False, "sliding_window": 5, "rms_norm_eps": 1e-5}),
    "qwen2": ("Qwen2Config", torch.bfloat16, {
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
    "qwen3": ("Qwen3Config", torch.bfloat16, {
        "tie_word_embeddings": False, "head_dim": 24,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
}
GPT2 = {
    "vocab_size": VOCAB, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": 96,
    "n_positions": 24, "bos_token_id": 1, "eos_token_id": 2, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}

# Name: head size, theta, and rope_scaling as the models' published config.json has it.
LLAMA31 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}
ROPES = {
    "llama3.1-8b": (128, 500000.0, LLAMA31),
    "llama3.2-1b": (64, 500000.0, dict(LLAMA31, factor=32.0)),
    "llama3.2-3b": (128, 500000.0, dict(LLAMA31, factor=32.0)),
    "llama2-7b": (128, 10000.0, {"rope_type": "default"}),
    "linear-4": (64, 10000.0, {"rope_type": "linear", "factor": 4.0}),
    "qwen2.5-0.5b": (64, 1000000.0, {"rope_type": "default"}),
    "test-llama3": (16, 10000.0, LLAMA3_ROPE),
}

# Of a class's defaults, what says nothing about the model.
NOT_OF_THE_MODEL = {
    "_name_or_path", "architectures", "chunk_size_feed_forward", "dtype", "id2label", "label2id",
    "output_attentions", "output_hidden_states", "problem_type", "return_dict", "use_cache",
    "task_specific_params", "tokenizer_class", "transformers_version", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "is_encoder_decoder", "layer_types",
}


def make_config(family):
    name, _, extra = FAMILIES[family]
    return getattr(transformers, name)(**(GPT2 if extra is None else {**SIZES, **extra}))


def fill(model, dtype, seed):
    """Random weights that are values of dtype: matrices large enough for attention to choose."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            if p.dim() == 2:
                value = noise * 0.1
            else:
                value = noise * 0.1 + (0.0 if name.endswith("bias") else 1.0)
            p.copy_(value.to(dtype).to(p.dtype))


def exact_norm(self, x):
    eps = getattr(self, "variance_epsilon", getattr(self, "eps", None))
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def open_model(folder, dtype):
    """The folder as a reader opens it."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa")
    return model.eval()


def replace_norms(model):
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = exact_norm.__get__(module)


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (BATCH, T + 1), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def loss_of(model, tokens, targets):
    logits = model(input_ids=tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
    return logits, loss


def open_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": ADAMW["weight_decay"]},
              {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"])


def compute(model, tokens, targets):
    """Whole tensors, the losses, and per parameter which elements three steps leave undecided."""
    optimizer = open_optimizer(model)
    tensors, losses, unsure = {}, [], {}
    for step in range(STEPS + 1):
        logits, loss = loss_of(model, tokens, targets)
        losses.append(loss.item())
        if step == STEPS:
            break
        optimizer.zero_grad()
        loss.backward()
        for name, p in model.named_parameters():
            size = p.grad.abs()
            small = (size < UNSURE * size.max()) & (size > 0)
            unsure[name] = small | unsure.get(name, False)
            if step == 0:
                tensors["gradient." + name] = p.grad.detach().clone()
        if step == 0:
            tensors["logits"] = logits.detach().clone()
        optimizer.step()
    for name, p in model.named_parameters():
        tensors["after." + name] = p.detach().clone()
    return tensors, losses, unsure


def compute_reference(folder, seed):
    """In fp64, and held against the same in fp32, as transformers computes it unchanged."""
    tokens, targets = batch(seed)
    model = open_model(folder, torch.float64)
    replace_norms(model)
    tensors, losses, unsure = compute(model, tokens, targets)
    for name, mask in unsure.items():
        tensors["after." + name][mask] = float("nan")
    usual = compute(open_model(folder, torch.float32), tokens, targets)[0]
    worst = {"logits": 0.0, "gradient": 0.0, "after": 0.0}
    for key, want in tensors.items():
        sure = ~want.isnan()
        apart = ((usual[key].double() - want)[sure].abs().max() / want[sure].abs().max()).item()
        kind = key.split(".", 1)[0]
        worst[kind] = max(worst[kind], apart)
        assert apart < 5e-6, f"{folder}: {key} in fp32 is {apart} of the largest away"
    return tensors, worst, {
        "tokens": tokens.tolist(), "targets": targets.tolist(), "losses": losses}


def thin(tensor):
    flat = tensor.detach().reshape(-1)
    if flat.numel() < WHOLE_BELOW:
        return 1, flat
    assert all(n % STRIDE for n in tensor.shape), f"{tuple(tensor.shape)} and stride {STRIDE}"
    return STRIDE, flat[::STRIDE]


def write_reference(folder, tensors, facts, whole):
    parameters, kept = {}, {"logits": tensors["logits"].float()}
    for key, tensor in tensors.items():
        if key == "logits":
            continue
        kind, name = key.split(".", 1)
        stride, values = thin(tensor)
        kept[key] = values.float().contiguous()
        entry = parameters.setdefault(name, {"shape": list(tensor.shape), "stride": stride})
        if kind == "gradient":
            entry["gradient_norm"] = tensor.norm().item()
        else:
            entry["unsure"] = int(tensor.isnan().sum())
    save_file(kept, f"{folder}/reference.safetensors")
    facts = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
             "adamw": ADAMW, **facts, "parameters": parameters}
    with open(f"{folder}/reference.json", "w", encoding="utf-8") as f:
        # One line for each key, and for each parameter.
        lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in facts.items() if k != "parameters"]
        inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in parameters.items())
        f.write("{\n" + ",\n".join(lines) + ',\n"parameters": {\n' + inner + "\n}}\n")
    if whole:
        os.makedirs(whole, exist_ok=True)
        save_file({k: v.contiguous() for k, v in tensors.items()},
                  f"{whole}/{os.path.basename(folder)}.safetensors")


def make_family(root, family, seed, whole):
    folder = f"{root}/{family}"
    dtype = FAMILIES[family][1]
    model = AutoModelForCausalLM.from_config(make_config(family), dtype=torch.float64)
    fill(model, dtype, seed)
    model.tie_weights()
    model.to(dtype).save_pretrained(folder, max_shard_size="50KB")
    tensors, worst, facts = compute_reference(folder, seed + 100)
    write_reference(folder, tensors, facts, whole)
    size = sum(os.path.getsize(f"{folder}/{f}") for f in os.listdir(folder))
    told = ", ".join(f"{k} {v:.1e}" for k, v in worst.items())
    print(f"{family}: {size} bytes; fp32 is away by at most {told} of a tensor's largest")


def make_frequencies(root):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    tensors = {}
    for name, (size, theta, scaling) in ROPES.items():
        config = transformers.LlamaConfig(
            hidden_size=4 * size, num_attention_heads=4, head_dim=size,
            max_position_embeddings=131072, rope_parameters={**scaling, "rope_theta": theta})
        tensors[name] = LlamaRotaryEmbedding(config).inv_freq.float().contiguous()
        assert tensors[name].numel() == size // 2
    save_file(tensors, f"{root}/inv_freq.safetensors")
    with open(f"{root}/inv_freq.json", "w", encoding="utf-8") as f:
        lines = [f"{json.dumps(name)}: " + json.dumps(
            {"head_size": size, "rope_theta": theta, "rope_scaling": scaling})
            for name, (size, theta, scaling) in ROPES.items()]
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


def make_defaults(root):
    classes = sorted({name for name, _, _ in FAMILIES.values()})
    lines = []
    for name in classes:
        values = getattr(transformers, name)().to_dict()
        chosen = {k: values[k] for k in sorted(values) if k not in NOT_OF_THE_MODEL}
        # What another model has another value for, without having been told.
        given = {"hidden_size": 1024, "num_attention_heads": 16}
        other = getattr(transformers, name)(**given).to_dict()
        chosen["derived"] = [k for k in chosen if other[k] != chosen[k] and k not in given
                             and k not in ("n_embd", "n_head")]
        lines.append(f"{json.dumps(chosen['model_type'])}: {json.dumps(chosen)}")
    with open(f"{root}/defaults.json", "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--whole", metavar="DIR")
    parser.add_argument("folder", nargs="?", default="tests/fixtures/hf")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    shutil.rmtree(given.folder, ignore_errors=True)
    os.makedirs(given.folder)
    for seed, family in enumerate(FAMILIES):
        make_family(given.folder, family, seed, given.whole)
    make_frequencies(given.folder)
    make_defaults(given.folder)
    for family in FAMILIES:
        assert load_file(f"{given.folder}/{family}/reference.safetensors")
    total = sum(os.path.getsize(f"{d}/{f}") for d, _, files in os.walk(given.folder)
                for f in files)
    print(f"transformers {transformers.__version__}: {total} bytes in all")
    assert total < 2_000_000, f"{total} bytes are too many to commit"


if __name__ == "__main__":
    main()
