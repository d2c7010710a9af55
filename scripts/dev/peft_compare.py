#!/usr/bin/env python3
"""Holds LoRA adapters and merged models that ./train exports against PEFT.

    PYTHON scripts/dev/peft_compare.py loss BASE ADAPTER TOKENS [--seq-len T] [--batch B]
    PYTHON scripts/dev/peft_compare.py merged BASE ADAPTER MERGED

PYTHON has torch, transformers, peft and safetensors (`pip install peft` brings them).

loss: PeftModel.from_pretrained reads the folder ADAPTER on the model in the folder BASE, in fp32. A
warning, or a tensor that it has no place for, ends the script with status 1. It prints the mean
cross entropy of TOKENS, a shard of token ids as ./train writes and reads them (16 or 32 bits an
id): sequence i has the ids i T .. i T + T - 1, each with the next id as its target, and ids that
fill no sequence are left out. A second line has the loss of BASE alone, so that an adapter that
does nothing is seen.

merged: MERGED is the folder of --export hf:MERGED. Each of its tensors is held against those of
PEFT's merge_and_unload() in fp32, rounded to MERGED's format. The last line has the largest
difference, that of its tensor's largest value, and the tensor. Status 1: a tensor is there on one
side alone, or has another shape.
"""

import argparse
import glob
import sys
import warnings

import numpy
import peft
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

HEADER_BYTES = 1024
IDS = {(20240520, 1): numpy.dtype("<u2"), (20240801, 7): numpy.dtype("<u4")}  # magic, version


def read_tokens(path):
    with open(path, "rb") as f:
        header = f.read(HEADER_BYTES)
        words = numpy.frombuffer(header, "<i4")
        if len(header) < HEADER_BYTES:
            sys.exit(f"{path}: no token shard: it has {len(header)} bytes")
        if header[:8] == b"BIN.TOK\n":
            kind, count = numpy.dtype("<i4"), int(words[4])
        else:
            kind, count = IDS.get((int(words[0]), int(words[1]))), int(words[2])
        if kind is None:
            sys.exit(f"{path}: no token shard: it begins with {int(words[0])}, {int(words[1])}")
        ids = numpy.frombuffer(f.read(count * kind.itemsize), kind)
    if len(ids) != count:
        sys.exit(f"{path}: it has {len(ids)} of {count} ids")
    return torch.from_numpy(ids.astype(numpy.int64))


def read_folder(folder):
    tensors = {}
    for path in sorted(glob.glob(f"{glob.escape(folder)}/*.safetensors")):
        with safe_open(path, "pt") as f:
            for name in f.keys():
                tensors[name] = f.get_tensor(name)
    if not tensors:
        sys.exit(f"{folder}: no .safetensors file with tensors")
    return tensors


def open_base(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def open_adapter(base, folder):
    """Warnings are what is wrong with the adapter: keys that are missing or unknown."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = peft.PeftModel.from_pretrained(open_base(base), folder)
    faults = [f"warning: {w.message}" for w in told if not issubclass(w.category, FutureWarning)]
    # Of tensors that it has no place for PEFT says nothing.
    unused = set(read_folder(folder)) - set(peft.get_peft_model_state_dict(model))
    faults += [f"{name}: PEFT has no place for it" for name in sorted(unused)]
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(1)
    return model.eval()


def mean_loss(model, sequences, batch):
    total = 0.0
    with torch.no_grad():
        for rows in sequences.split(batch):
            logits = model(input_ids=rows[:, :-1], use_cache=False).logits
            total += torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum").double().item()
    return total / sequences[:, 1:].numel()


def compare_loss(given):
    ids = read_tokens(given.tokens)
    if len(ids) <= given.seq_len:
        sys.exit(f"{given.tokens}: {len(ids)} ids are no sequence of --seq-len {given.seq_len}")
    sequences = ids.unfold(0, given.seq_len + 1, given.seq_len)
    adapted = mean_loss(open_adapter(given.base, given.adapter), sequences, given.batch)
    print(f"loss {adapted:.6f} over {sequences[:, 1:].numel()} targets")
    print(f"base {mean_loss(open_base(given.base), sequences, given.batch):.6f}")


def compare_merged(given):
    ours = read_folder(given.merged)
    merged = open_adapter(given.base, given.adapter).merge_and_unload()
    theirs = merged.state_dict()
    tied = merged.config.tie_word_embeddings
    left = set(theirs) - set(ours) - ({"lm_head.weight"} if tied else set())
    faults = [f"{name}: in PEFT's model alone" for name in sorted(left)]
    worst = (0.0, 0.0, "no tensor differs")
    for name, got in sorted(ours.items()):
        want = theirs.get(name)
        if want is None or want.shape != got.shape:
            faults.append(f"{name}: {tuple(got.shape)} here, in PEFT's model "
                          f"{'nothing' if want is None else tuple(want.shape)}")
            continue
        want = want.to(got.dtype).double()
        apart = (got.double() - want).abs().max().item()
        share = apart / max(want.abs().max().item(), 1e-30)
        # A NaN is the worst of all.
        if not share <= worst[1]:
            worst = (apart, share, name)
    for fault in faults:
        print(fault)
    print(f"{len(ours)} tensors; largest difference {worst[0]:.3g}, {worst[1]:.3g} of the "
          f"tensor's largest: {worst[2]}")
    sys.exit(1 if faults else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    kinds = parser.add_subparsers(required=True)
    loss = kinds.add_parser("loss")
    merged = kinds.add_parser("merged")
    for kind in (loss, merged):
        kind.add_argument("base")
        kind.add_argument("adapter")
    loss.add_argument("tokens")
    loss.add_argument("--seq-len", type=int, default=128, metavar="T")
    loss.add_argument("--batch", type=int, default=4, metavar="B")
    loss.set_defaults(run=compare_loss)
    merged.add_argument("merged")
    merged.set_defaults(run=compare_merged)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
