# PyTorch's side of scripts/gpu_check.sh: GPT-2 on a GPU as a user of PyTorch would write it for
# speed (Radford et al. 2019): fp32 weights with bf16 autocast, torch.compile, fused AdamW, fused
# attention, a vocabulary padded to 50304. Loss and clipping are those of ./train. bench_torch.py,
# for the CPU, and losses_gpt2_torch.py take the model from here.
#
#   python3 tests/bench_gpt2_torch.py speed gpt2 64,32 --seconds 100     tokens/s for each batch
#   python3 tests/bench_gpt2_torch.py matmul gpt2-xl 16                  rate of its products alone
#   python3 tests/bench_gpt2_torch.py attention                          of each SDPA backend
import argparse
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {  # layers, heads, channels
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
}
VOCAB, PADDED, POSITIONS = 50257, 50304, 1024


class Block(nn.Module):
    def __init__(self, heads, channels):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.norm2 = nn.LayerNorm(channels)
        self.fc = nn.Linear(channels, 4 * channels)
        self.out = nn.Linear(4 * channels, channels)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, 2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, channels, vocab=PADDED):
        super().__init__()
        self.columns = vocab  # of the logits; a comparison of losses takes VOCAB
        self.wte = nn.Embedding(vocab, channels)
        self.wpe = nn.Embedding(POSITIONS, channels)
        self.blocks = nn.ModuleList(Block(heads, channels) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.wte.weight[: self.columns])
        return F.cross_entropy(logits.view(-1, self.columns), targets.reshape(-1))


def make_optimizer(model, lr, **kind):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    kind = kind or {"fused": True}
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, **kind)


def train_step(loss_of, model, optimizer, tokens, bf16):
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
        loss = loss_of(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def time_batch(model_name, batch, steps=12, warm=4):
    """Median seconds of a step, and the most memory that it took."""
    torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()
    model = GPT(*MODELS[model_name]).cuda()
    optimizer = make_optimizer(model, 1e-4)
    loss_of = torch.compile(model, dynamic=False)
    tokens = torch.randint(0, VOCAB, (batch, POSITIONS + 1), device="cuda")
    seconds = []
    for _ in range(warm + steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        train_step(loss_of, model, optimizer, tokens, True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[warm:]), torch.cuda.max_memory_allocated()


def speed(args):
    """One line for each batch size: tokens/s, ms, GiB. Stops when the time is up."""
    end = time.monotonic() + args.seconds
    for batch in (int(b) for b in args.batches.split(",")):
        begin = time.monotonic()
        try:
            s, peak = time_batch(args.model, batch)
            rate = batch * POSITIONS / s
            line = f"{rate:.0f} tokens/s, {1e3 * s:.1f} ms, {peak / 2**30:.1f} GiB"
        except torch.OutOfMemoryError:
            line = "out of memory"
        print(f"PyTorch {args.model} batch {batch}: {line}", flush=True)
        torch.cuda.empty_cache()
        if time.monotonic() + 1.2 * (time.monotonic() - begin) > end:
            break


def time_calls(call, least=0.3):
    """Median seconds of a call: batches of calls are queued, and the GPU's own events read."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times, until = [], time.monotonic() + least
    while len(times) < 5 or time.monotonic() < until:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 5e3)
    return statistics.median(times)


def matmul(args):
    """The rate of the model's products (forward, both gradients), weighted as a step has them."""
    layers, _, c = MODELS[args.model]
    rows = args.batch * POSITIONS
    shapes = [(layers, 3 * c, c), (layers, c, c), (layers, 4 * c, c), (layers, c, 4 * c)]
    flops = seconds = 0
    for count, n, k in shapes + [(1, PADDED, c)]:
        m = min(rows, 8192) if n == PADDED else rows  # the head goes by rows, or its C is too large
        x, w, dy = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (n, k), (m, n)))
        parts = [lambda: x @ w.T, lambda: dy @ w, lambda: dy.T @ x]
        s = [time_calls(p) for p in parts]
        rates = " ".join(f"{2 * m * n * k / t / 1e12:.0f}" for t in s)
        print(f"m {m} n {n} k {k}: forward, dx, dw {rates} TFLOP/s", flush=True)
        flops += count * 6 * m * n * k * (rows / m)
        seconds += count * sum(s) * (rows / m)
    print(f"sustained {flops / seconds / 1e12:.1f} TFLOP/s")


def attention(args):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = [("FlashAttention-2", SDPBackend.FLASH_ATTENTION)]
    backends += [("cuDNN", SDPBackend.CUDNN_ATTENTION)]
    for hs, t, rows in ((64, 1024, 384), (128, 1024, 192), (64, 4096, 96), (128, 4096, 48)):
        shape = (rows // 12, 12, t, hs)
        q, k, v, dout = (torch.randn(shape, device="cuda").bfloat16() for _ in range(4))
        for x in (q, k, v):
            x.requires_grad_(True)
        flops = 2 * rows * t * t * hs  # two products, half of each masked
        for name, backend in backends:
            try:
                with sdpa_kernel(backend):
                    run = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
                    forward = time_calls(lambda: run().detach())
                    both = time_calls(lambda: torch.autograd.grad(run(), (q, k, v), dout))
            except RuntimeError as e:
                print(f"{name} HS {hs} T {t}: {str(e).splitlines()[0][:70]}", flush=True)
                continue
            print(
                f"{name} HS {hs} T {t}: forward {flops / forward / 1e12:.0f} TFLOP/s, "
                f"forward and backward {3.5 * flops / both / 1e12:.0f} TFLOP/s",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser()
    what = parser.add_subparsers(dest="what", required=True)
    p = what.add_parser("speed")
    p.add_argument("model", choices=MODELS)
    p.add_argument("batches")
    p.add_argument("--seconds", type=float, default=100)
    p.set_defaults(run=speed)
    p = what.add_parser("matmul")
    p.add_argument("model", choices=MODELS)
    p.add_argument("batch", type=int)
    p.set_defaults(run=matmul)
    what.add_parser("attention").set_defaults(run=attention)
    args = parser.parse_args()
    torch.manual_seed(1)
    args.run(args)


if __name__ == "__main__":
    main()
