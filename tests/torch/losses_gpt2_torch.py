# The losses of ./train against PyTorch's, from the same initial weights on the same data.
#
#   python3 tests/torch/losses_gpt2_torch.py shards DIR   writes DIR/batch-NN.bin and DIR/val.bin
#   python3 tests/torch/losses_gpt2_torch.py compare DIR  reads DIR/init (a checkpoint of one step
#                                                      at --lr 0) and the logs of DIR/fp32, bf16
#
# An epoch of ./train takes shards in order and shuffles inside each. So a shard that holds the
# samples of one step, and no more, says which step sees what, whatever the order inside. The tokens
# are bytes of this repository's sources. scripts/gpu_check.sh runs all of it on a GPU; with
# --device cpu and a small model it runs anywhere that has PyTorch. The model's sizes are the
# checkpoint's.
#
# PyTorch makes the fp32 run three times, each with other orders of the same sums: how far these
# drift apart is what rounding does to this model. losses_rule.py judges by that.
import argparse
import glob
import json
import re
import sys

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import checkpoint_reader
import losses_rule
from torch_fast_gpt2 import GPT, make_optimizer, train_step

LR = 3e-4
HEAD = 256  # int32 of a shard before its tokens, which are uint16
FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]  # a GPU's fp32: the latter


def write_shards(args):
    names = sorted(glob.glob("kernels/**/*.c", recursive=True) + glob.glob("[zmd]*/*.c"))
    text = np.frombuffer(b"".join(open(n, "rb").read() for n in names), np.uint8)
    need = args.batch * args.seq_len + 1
    text = np.resize(text, (args.steps + 1) * need)
    for i in range(args.steps + 1):
        name = "val" if i == args.steps else f"batch-{i:02d}"
        head = np.zeros(HEAD, np.int32)
        head[:3] = 20240520, 1, need
        with open(f"{args.dir}/{name}.bin", "wb") as f:
            f.write(head.tobytes() + text[i * need : (i + 1) * need].astype(np.uint16).tobytes())
    return 0


def read_batches(folder, seq_len, device):
    """One tensor (B, T + 1) for each step."""
    batches = []
    for path in sorted(glob.glob(f"{folder}/batch-*.bin")):
        tokens = np.fromfile(path, np.uint16)[2 * HEAD :].astype(np.int64)
        rows = range((tokens.size - 1) // seq_len)
        rows = [tokens[i * seq_len : (i + 1) * seq_len + 1] for i in rows]
        batches.append(torch.tensor(np.stack(rows), device=device))
    return batches


def their_name(name):
    """block.0.mlp.fc.weight is blocks.0.fc.weight here, and ends.wte is wte.weight."""
    name = re.sub(r"^block\.(\d+)\.((attention|mlp)\.)?", r"blocks.\1.", name)
    return re.sub(r"^ends\.(w[tp]e)$", r"\1.weight", name).replace("ends.", "")


def load(checkpoint, device):
    layers, channels, seq_len, vocab, heads = checkpoint.sizes()
    model = GPT(layers, heads, channels, vocab, seq_len)
    theirs = {their_name(n): torch.from_numpy(w) for n, w in checkpoint.parameters().items()}
    model.load_state_dict(theirs)  # fails unless the names and shapes are the same
    return model.to(device)


def micro_steps(model, optimizer, tokens):
    """train_step, by two micro-batches."""
    parts = tokens.split((len(tokens) + 1) // 2)
    losses = [model(p[:, :-1], p[:, 1:]) * (len(p) / len(tokens)) for p in parts]
    for loss in losses:
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return sum(losses).detach()


def torch_losses(args, checkpoint, backends, step):
    model = load(checkpoint, args.device)
    optimizer = make_optimizer(model, LR)
    batches = read_batches(args.dir, checkpoint.sizes()[2], args.device)
    with sdpa_kernel(backends):
        return np.array([step(model, optimizer, tokens).item() for tokens in batches])


def all_torch_losses(args, checkpoint):
    """fp32 in three orders, and bf16."""

    def fp32(model, optimizer, tokens):
        return train_step(model, model, optimizer, tokens, False)

    def backwards(model, optimizer, tokens):
        return train_step(model, model, optimizer, tokens.flip(0), False)

    def bf16(model, optimizer, tokens):
        return train_step(model, model, optimizer, tokens, True)

    ways = [(FUSED, fp32), ([SDPBackend.MATH], backwards), (FUSED, micro_steps)]
    exact = [torch_losses(args, checkpoint, *way) for way in ways]
    return exact, torch_losses(args, checkpoint, FUSED, bf16)


def our_losses(folder, dtype):
    lines = [json.loads(line) for line in open(f"{folder}/{dtype}/log.jsonl")]
    return np.array([line["loss"] for line in lines if "loss" in line])


def compare(args):
    torch.backends.cuda.matmul.allow_tf32 = False
    (path,) = glob.glob(f"{args.dir}/init/checkpoints/step-*")
    exact, rounded = all_torch_losses(args, checkpoint_reader.read(path))
    ours32, ours16 = (our_losses(args.dir, d) for d in ("fp32", "bf16"))
    if args.save:
        np.savez(args.save, exact=exact, rounded=rounded, ours32=ours32, ours16=ours16)
    good, lines = losses_rule.judge(ours32, ours16, exact, rounded)
    print("\n".join(lines))
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser()
    what = parser.add_subparsers(dest="what", required=True)
    p = what.add_parser("shards")
    p.add_argument("dir")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq-len", type=int, default=1024)
    p.set_defaults(run=write_shards)
    p = what.add_parser("compare")
    p.add_argument("dir")
    p.add_argument("--device", default="cuda")
    p.add_argument("--save", metavar="FILE.npz", help="keep all losses there")
    p.set_defaults(run=compare)
    args = parser.parse_args()
    sys.exit(args.run(args))


if __name__ == "__main__":
    main()
