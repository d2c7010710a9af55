#!/usr/bin/env python3
"""Makes tests/fixtures/peft: LoRA adapters that PEFT saves, and what it computes with them.

    PYTHON scripts/gen/peft_fixtures.py [FOLDER]

PYTHON has torch, transformers, peft and safetensors (`pip install peft` brings them). Run it in the
repository's root; it makes FOLDER (default: tests/fixtures/peft) anew. Run it again only where the
references must change; the tests read what is committed.

The base of FOLDER/FAMILY is the model of tests/fixtures/hf/FAMILY. Beside it:

  adapter/               adapter_config.json and adapter_model.safetensors, as save_pretrained
                         writes them: every linear module of the blocks, r 4, lora_alpha 8 (so the
                         products count twice), no dropout. A and B are fp32, normal with standard
                         deviation 0.1 (a B of zeros would leave A without gradients), from the seed
                         of the family: its place in FAMILIES.
  reference.json         tokens, targets (B, T); the losses of this batch before each of three steps
                         and behind them; seed, hyperparameters, the norm of the whole gradient; for
                         each matrix the norm of its gradient; the versions that made it all
  reference.safetensors  fp32: logits (B, T, V); gradient.NAME of the mean cross entropy, and
                         after.NAME, the matrix behind three steps of AdamW, NAME as in
                         adapter_model.safetensors; merged.NAME, two matrices of the base by
                         merge_and_unload() before the first step, NAME as in the base's files

The steps are those of

    ./train --init hf:BASE --init-adapter adapter --lr 1e-3 --schedule constant --warmup 0
        --beta1 0.9 --beta2 0.95 --eps 1e-8 --weight-decay 0.1 --clip 0 --steps 3 --dtype fp32
        --batch 2 --seq-len 17

with the same B sequences in each: weight decay on every A and B, no clipping, one micro-batch.

All is computed in fp64, but for what transformers computes in fp32 in any dtype, as
scripts/gen/hf_fixtures.py does and explains; the result is held against PEFT in fp32, unchanged.
Elements of after.NAME that fp32 does not decide are NaN there too, and "unsure" counts them.
"""

import argparse
import json
import os
import shutil

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

from hf_fixtures import ADAMW, STEPS, UNSURE, batch, loss_of, open_model, replace_norms

FAMILIES = ["gpt2", "llama", "mistral", "qwen2", "qwen3"]
RANK, ALPHA, STD = 4, 8, 0.1
SEED = 500  # of the first family's adapter; its batch has the same plus 100

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
GPT2_TARGETS = ["c_attn", "c_proj", "c_fc"]
MERGED = ["model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.up_proj.weight"]
GPT2_MERGED = ["transformer.h.1.attn.c_attn.weight", "transformer.h.0.mlp.c_proj.weight"]


def base_of(family):
    return f"tests/fixtures/hf/{family}"


def sort_targets(path):
    """PEFT writes target_modules in the order of a set, which differs from run to run."""
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    config["target_modules"].sort()
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2, sort_keys=True)


def make_adapter(family, folder, seed):
    gpt2 = family == "gpt2"
    config = peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, task_type="CAUSAL_LM", fan_in_fan_out=gpt2,
        target_modules=GPT2_TARGETS if gpt2 else TARGETS)
    model = peft.get_peft_model(open_model(base_of(family), torch.float32), config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.requires_grad:
                assert p.dtype == torch.float32 and ("lora_A" in name or "lora_B" in name), name
                p.copy_(torch.randn(p.shape, generator=generator) * STD)
    model.save_pretrained(folder)
    os.remove(f"{folder}/README.md")
    sort_targets(f"{folder}/adapter_config.json")


def open_adapter(family, folder, dtype, trains):
    model = peft.PeftModel.from_pretrained(
        open_model(base_of(family), dtype), folder, is_trainable=trains)
    return model.eval()


def trained(model):
    """Name in the file, and the parameter."""
    found = [(name.replace(".default", ""), p) for name, p in model.named_parameters()
             if p.requires_grad]
    return sorted(found, key=lambda row: row[0])


def compute(model, tokens, targets):
    """Tensors, the losses, and per matrix which elements three steps leave undecided."""
    rows = trained(model)
    assert all(p.dim() == 2 for _, p in rows)
    optimizer = torch.optim.AdamW([p for _, p in rows], lr=ADAMW["lr"],
                                  betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"],
                                  weight_decay=ADAMW["weight_decay"])
    tensors, losses, unsure = {}, [], {}
    for step in range(STEPS + 1):
        logits, loss = loss_of(model, tokens, targets)
        losses.append(loss.item())
        if step == STEPS:
            break
        optimizer.zero_grad()
        loss.backward()
        for name, p in rows:
            size = p.grad.abs()
            small = (size < UNSURE * size.max()) & (size > 0)
            unsure[name] = small | unsure.get(name, False)
            if step == 0:
                tensors["gradient." + name] = p.grad.detach().clone()
        if step == 0:
            tensors["logits"] = logits.detach().clone()
        optimizer.step()
    for name, p in rows:
        tensors["after." + name] = p.detach().clone()
    return tensors, losses, unsure


def merge(family, folder, dtype):
    names = GPT2_MERGED if family == "gpt2" else MERGED
    state = open_adapter(family, folder, dtype, False).merge_and_unload().state_dict()
    return {"merged." + name: state[name].detach().clone() for name in names}


def compute_reference(family, folder, seed):
    tokens, targets = batch(seed)
    exact = open_adapter(family, folder, torch.float64, True)
    assert all(p.dtype == torch.float64 for p in exact.parameters())
    replace_norms(exact)
    tensors, losses, unsure = compute(exact, tokens, targets)
    tensors.update(merge(family, folder, torch.float64))
    for name, mask in unsure.items():
        tensors["after." + name][mask] = float("nan")
    usual = compute(open_adapter(family, folder, torch.float32, True), tokens, targets)[0]
    usual.update(merge(family, folder, torch.float32))
    worst = {}
    for key, want in tensors.items():
        sure = ~want.isnan()
        apart = ((usual[key].double() - want)[sure].abs().max() / want[sure].abs().max()).item()
        kind = key.split(".", 1)[0]
        worst[kind] = max(worst.get(kind, 0.0), apart)
        assert apart < 5e-6, f"{family}: {key} in fp32 is {apart} of the largest away"
    return tensors, worst, {
        "tokens": tokens.tolist(), "targets": targets.tolist(), "losses": losses}


def write_reference(folder, tensors, facts):
    matrices = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition(".")
        if kind == "gradient":
            matrices.setdefault(name, {})["gradient_norm"] = tensor.norm().item()
        elif kind == "after":
            matrices.setdefault(name, {})["unsure"] = int(tensor.isnan().sum())
    norm = sum(m["gradient_norm"] ** 2 for m in matrices.values()) ** 0.5
    save_file({k: v.float().contiguous() for k, v in tensors.items()},
              f"{folder}/reference.safetensors")
    facts = {"peft": peft.__version__, "transformers": transformers.__version__,
             "torch": torch.__version__.split("+")[0], "r": RANK, "lora_alpha": ALPHA,
             "adamw": ADAMW, "gradient_norm": norm, **facts}
    with open(f"{folder}/reference.json", "w", encoding="utf-8") as f:
        lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in facts.items()]
        inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in matrices.items())
        f.write("{\n" + ",\n".join(lines) + ',\n"matrices": {\n' + inner + "\n}}\n")


def make_family(root, family, seed):
    folder = f"{root}/{family}"
    os.makedirs(folder)
    make_adapter(family, f"{folder}/adapter", seed)
    tensors, worst, facts = compute_reference(family, f"{folder}/adapter", seed + 100)
    write_reference(folder, tensors, {"seed": seed, **facts})
    size = sum(os.path.getsize(f"{d}/{f}") for d, _, files in os.walk(folder) for f in files)
    told = ", ".join(f"{k} {v:.1e}" for k, v in worst.items())
    print(f"{family}: {size} bytes; fp32 is away by at most {told} of a tensor's largest")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", nargs="?", default="tests/fixtures/peft")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    shutil.rmtree(given.folder, ignore_errors=True)
    for place, family in enumerate(FAMILIES):
        make_family(given.folder, family, SEED + place)
        assert load_file(f"{given.folder}/{family}/adapter/adapter_model.safetensors")
    total = sum(os.path.getsize(f"{d}/{f}") for d, _, files in os.walk(given.folder)
                for f in files)
    print(f"peft {peft.__version__}: {total} bytes in all")
    assert total < 1_500_000, f"{total} bytes are too many to commit"


if __name__ == "__main__":
    main()
