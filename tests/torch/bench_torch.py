# PyTorch's side of scripts/bench/bench_cpu.sh: one training step on the CPU, written as a user of
# PyTorch would write it for speed: fused attention, fused or foreach AdamW, bf16 by autocast, eager
# or compiled. GPT-2 124M (Radford et al. 2019) is in torch_fast_gpt2.py, other shapes are those of
# hf_models.py as transformers build them. The script drives it through a pipe, so that
# the two programs take turns:
#
#   python tests/torch/bench_torch.py --model gpt2 --dtype bf16 --batch 4 --seq-len 512 --threads 2
#
# prints "ready ...", with the variant that was the faster, and then answers each line "step" on
# standard input by the milliseconds of one step: forward, backward, clipping by norm, update.
import argparse
import sys
import time

import torch
import torch.nn as nn

from torch_fast_gpt2 import GPT, MODELS, VOCAB, make_optimizer


def fastest_optimizer(model):
    try:
        return make_optimizer(model, 1e-4), "fused AdamW"
    except RuntimeError:  # versions before 2.4 have no fused AdamW on the CPU
        return make_optimizer(model, 1e-4, foreach=True), "foreach AdamW"


class Transformers(nn.Module):
    """The mean loss of a model that transformers build."""

    def __init__(self, name):
        super().__init__()
        import hf_models  # which needs transformers

        self.model = hf_models.build(name, attn_implementation="sdpa").train()

    def forward(self, inputs, targets):
        logits = self.model(inputs, use_cache=False).logits
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Trainer:
    """One step at a time of a compiled or an eager model, on the same weights."""

    def __init__(self, args):
        torch.manual_seed(1)
        if args.model in MODELS:
            self.model, vocab = GPT(*MODELS[args.model], vocab=VOCAB), VOCAB
        else:
            self.model = Transformers(args.model)
            vocab = self.model.model.config.vocab_size
        self.loss = self.model
        self.optimizer, self.optimizer_name = fastest_optimizer(self.model)
        self.bf16 = args.dtype == "bf16"
        shape = (args.batch, args.seq_len + 1)
        tokens = torch.randint(0, vocab, shape)
        self.inputs, self.targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step(self):
        """Milliseconds of one step."""
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.loss(self.inputs, self.targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return (time.perf_counter() - start) * 1e3

    def measure(self):
        """The better of two steps after one that warms up (and compiles)."""
        self.step()
        return min(self.step(), self.step())


def choose_variant(trainer):
    """Leaves the faster of eager and compiled in the trainer, and says what each took."""
    eager = trainer.measure()
    try:
        trainer.loss = torch.compile(trainer.model)
        compiled = trainer.measure()
    except Exception as e:  # no C++ compiler or Python headers: said, and eager stands
        trainer.loss = trainer.model
        reason = str(e).strip().splitlines()[0][:80] if str(e).strip() else type(e).__name__
        return f"eager {eager:.0f} ms (torch.compile failed: {reason})"
    if eager < compiled:
        trainer.loss = trainer.model
    chosen = "eager" if eager < compiled else "compiled"
    return f"{chosen} (eager {eager:.0f} ms, compiled {compiled:.0f} ms)"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    trainer = Trainer(args)
    variant = choose_variant(trainer)
    print(f"ready PyTorch {torch.__version__}, {variant}, {trainer.optimizer_name}", flush=True)
    for line in sys.stdin:
        if line.strip() != "step":
            break
        print(f"{trainer.step():.2f}", flush=True)


main()
