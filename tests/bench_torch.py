# PyTorch's side of scripts/bench_cpu.sh: one training step of GPT-2 124M (Radford et al. 2019) on
# the CPU, written as a user of PyTorch would write it for speed: fused attention, fused or foreach
# AdamW, bf16 by autocast, eager or compiled. The script drives it through a pipe, so that the two
# programs take turns:
#
#   python tests/bench_torch.py --dtype bf16 --batch 4 --seq-len 512 --threads 2
#
# prints "ready ...", with the variant that was the faster, and then answers each line "step" on
# standard input by the milliseconds of one step: forward, backward, clipping by norm, update.
import argparse
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HEADS, CHANNELS, VOCAB, POSITIONS = 12, 12, 768, 50257, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(CHANNELS)
        self.qkv = nn.Linear(CHANNELS, 3 * CHANNELS)
        self.proj = nn.Linear(CHANNELS, CHANNELS)
        self.norm2 = nn.LayerNorm(CHANNELS)
        self.fc = nn.Linear(CHANNELS, 4 * CHANNELS)
        self.out = nn.Linear(4 * CHANNELS, CHANNELS)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, 2)
        q, k, v = (z.view(b, t, HEADS, c // HEADS).transpose(1, 2) for z in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, CHANNELS)
        self.wpe = nn.Embedding(POSITIONS, CHANNELS)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(CHANNELS)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def make_optimizer(model):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    options = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8)
    try:
        return torch.optim.AdamW(groups, fused=True, **options), "fused AdamW"
    except RuntimeError:  # versions before 2.4 have no fused AdamW on the CPU
        return torch.optim.AdamW(groups, foreach=True, **options), "foreach AdamW"


class Trainer:
    """One step at a time of a compiled or an eager model, on the same weights."""

    def __init__(self, args):
        torch.manual_seed(1)
        self.model = GPT()
        self.loss = self.model
        self.optimizer, self.optimizer_name = make_optimizer(self.model)
        self.bf16 = args.dtype == "bf16"
        shape = (args.batch, args.seq_len + 1)
        tokens = torch.randint(0, VOCAB, shape)
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
