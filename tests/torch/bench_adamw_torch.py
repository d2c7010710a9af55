# PyTorch's and DeepSpeed's Adam on the CPU, for scripts/bench/bench_offload.sh.
#
#   bench_adamw_torch.py --millions N --threads N
#
# fp32 weights, gradients and moments in blocks of 8 million parameters, which all optimizers share.
# Commands come from standard input, one a line; each runs one update and prints its milliseconds:
#   plain      torch.optim.AdamW(foreach=False, fused=False)
#   foreach    torch.optim.AdamW(foreach=True)
#   fused      torch.optim.AdamW(fused=True)
#   deepspeed  gradients times the clip factor, DeepSpeedCPUAdam, weights cast to bf16: what
#              ZeRO-Offload in DeepSpeed does one after the other (Ren et al. 2021)
# The first line says "ready" and which of them there are; what is wrong with one that is not there
# goes to standard error.
import argparse
import os
import sys
import time

import torch

BLOCK = 1 << 23
OPTIONS = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def deepspeed_adam(weights):
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        return DeepSpeedCPUAdam(weights, adamw_mode=True, **OPTIONS)
    except Exception as e:  # not installed, or its extension cannot be compiled
        print(f"DeepSpeedCPUAdam: {type(e).__name__}: {e}", file=sys.stderr)
        return None


def make_optimizers(weights):
    adamw = torch.optim.AdamW
    found = {
        "plain": adamw(weights, foreach=False, fused=False, **OPTIONS),
        "foreach": adamw(weights, foreach=True, **OPTIONS),
    }
    try:
        found["fused"] = adamw(weights, fused=True, **OPTIONS)
    except (RuntimeError, TypeError) as e:  # before 2.4 there is none on the CPU
        print(f"fused AdamW: {e}", file=sys.stderr)
    deepspeed = deepspeed_adam(weights)
    if deepspeed:
        found["deepspeed"] = deepspeed
    return found


def share_state(optimizers, weights):
    """One pair of moments for all: there is memory for one."""
    for w in weights:
        moments = {"exp_avg": torch.full_like(w, 1e-3), "exp_avg_sq": torch.full_like(w, 1e-5)}
        for name, optimizer in optimizers.items():
            step = 1 if name == "deepspeed" else torch.tensor(1.0)
            optimizer.state[w] = {"step": step, **moments}


@torch.no_grad()
def update(name, optimizer, weights, halves):
    if name != "deepspeed":
        optimizer.step()
        return
    for w in weights:
        w.grad.mul_(0.999)
    optimizer.step()
    for half, w in zip(halves, weights):
        half.copy_(w)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed and its compiler talk on standard output
    torch.set_num_threads(args.threads)
    count = max(1, round(args.millions * 1e6 / BLOCK))
    weights = [torch.nn.Parameter(torch.full((BLOCK,), 0.02)) for _ in range(count)]
    for w in weights:
        w.grad = torch.full_like(w, 1e-2)
    halves = [torch.zeros(BLOCK, dtype=torch.bfloat16) for _ in weights]
    optimizers = make_optimizers(weights)
    share_state(optimizers, weights)
    print("ready", count * BLOCK, *optimizers, file=answers, flush=True)
    for line in sys.stdin:
        name = line.strip()
        begin = time.monotonic()
        update(name, optimizers[name], weights, halves)
        print(f"{(time.monotonic() - begin) * 1e3:.3f}", file=answers, flush=True)


main()
