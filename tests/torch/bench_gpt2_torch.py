# PyTorch's side of comparisons on GPUs (scripts/gpu_check.sh and scripts/bench/bench_gpu.sh). The
# model is in torch_fast_gpt2.py.
#
#   python3 tests/torch/bench_gpt2_torch.py speed gpt2 64,32 --seconds 100  tokens/s for each batch
#   torchrun --standalone --nproc-per-node 8 \
#       tests/torch/bench_gpt2_torch.py speed gpt2-xl 8 --fsdp 3         the same on 8 GPUs
#   python3 tests/torch/bench_gpt2_torch.py matmul gpt2-xl 16            rate of its products
#   python3 tests/torch/bench_gpt2_torch.py attention                    of each SDPA backend
#   python3 tests/torch/bench_gpt2_torch.py check tiny 4 --device cpu    compiled as eager?
#
# A batch is of one GPU, as --batch of ./train. --compile says what torch.compile gets: the whole
# model, which is a little faster where compiling it is affordable, or one block for all and the
# head. --seconds bounds all that `speed` does, compiling included: what was not done by then is
# said. --device cpu is for tests of this file.
import argparse
import contextlib
import ctypes
import os
import resource
import signal
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import torch_fast_gpt2 as gpt2
from torch_fast_gpt2 import GPT, MODELS, PADDED, POSITIONS, VOCAB

MANY_LAYERS = 24  # from here on the whole model takes minutes to compile
PR_SET_PDEATHSIG = 1  # linux/prctl.h: this process ends with the one that started it


# ---- one process, or one for each GPU ----


def world():
    return dist.get_world_size() if dist.is_initialized() else 1


def say(line):
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(line, flush=True)


def open_device(args):
    if not args.fsdp:
        return torch.device(args.device)
    if "RANK" not in os.environ:
        sys.exit("--fsdp: torchrun starts this, one process for each GPU")
    # In a session of its own, where no signal to the launcher's group reaches it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    device = torch.device(args.device, int(os.environ["LOCAL_RANK"]))
    if args.device == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
        return device
    dist.init_process_group("gloo")
    return torch.device(args.device)


def build(args, device):
    """The model as `args` say, compiled and in shards."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = GPT(*MODELS[args.model]).to(device)
    whole = len(model.blocks) < MANY_LAYERS and not args.fsdp
    if args.compile == "whole" or (args.compile == "auto" and whole):
        gpt2.compile_whole(model)
    elif args.compile != "none":
        gpt2.compile_regions(model)
    if args.fsdp:
        gpt2.shard(model, args.fsdp)
    return model


def random_tokens(args, batch, device):
    """Other ones on each rank."""
    of = torch.Generator().manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    return torch.randint(0, VOCAB, (batch, args.seq_len + 1), generator=of).to(device)


# ---- speed ----


class OutOfTime(BaseException):  # which no `except Exception` of a library catches
    pass


@contextlib.contextmanager
def time_limit(end):
    """Raises OutOfTime at `end` (time.monotonic), also where something compiles."""

    def expire(*_):
        raise OutOfTime

    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_bytes(device):
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def time_batch(args, batch, device, seconds, steps=12, warm=4):
    """Appends the seconds of each step after the warm-up; what was done counts if time runs out."""
    model = build(args, device)
    optimizer = gpt2.make_optimizer(model, 1e-4)
    tokens = random_tokens(args, batch, device)
    for i in range(warm + steps):
        synchronize(device)
        begin = time.perf_counter()
        gpt2.train_step(model, model, optimizer, tokens, True)
        synchronize(device)
        if i >= warm:
            seconds.append(time.perf_counter() - begin)


def measure(args, batch, device, end):
    """What is to be said of one batch size, whether it is a figure, and whether time is left."""
    seconds, out_of_time = [], False
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        with time_limit(end):
            time_batch(args, batch, device, seconds)
    except OutOfTime:
        out_of_time = True
    except torch.OutOfMemoryError:
        return "out of memory", False, False
    if len(seconds) < 3:
        return f"no figure within {args.seconds:.0f} s", False, out_of_time
    s = statistics.median(seconds)
    line = f"{world() * batch * args.seq_len / s:.0f} tokens/s, {1e3 * s:.1f} ms, "
    return line + f"{peak_bytes(device) / 2**30:.1f} GiB", True, out_of_time


def speed(args):
    """One line for each batch size: tokens/s of all GPUs, ms, GiB of one. Stops when the time is
    up, with status 1 if there is no figure."""
    end = time.monotonic() + args.seconds
    device, figures = open_device(args), 0
    for batch in (int(b) for b in args.batches.split(",")):
        begin = time.monotonic()
        line, is_figure, out_of_time = measure(args, batch, device, end)
        # Of what went wrong each rank tells: the first one may be waiting for another.
        (say if is_figure else print)(f"PyTorch {args.model} batch {batch}: {line}")
        figures += is_figure
        if device.type == "cuda":
            torch.cuda.empty_cache()
        # A rank that ran out of time or memory left the others in a collective: no other batch.
        if out_of_time or time.monotonic() + 1.2 * (time.monotonic() - begin) > end:
            break
        if world() > 1 and not is_figure:
            break
    # Without the interpreter's own end: threads that compile, and ranks that wait, are left.
    sys.stdout.flush()
    os._exit(0 if figures else 1)


# ---- the compiled and sharded model against the eager one ----


def few_losses(args, model, tokens, steps=4):
    optimizer = gpt2.make_optimizer(model, 1e-3)
    return [
        gpt2.train_step(model, model, optimizer, tokens, args.bf16).item() for _ in range(steps)
    ]


def check(args):
    """Status 0: the losses of some steps are those of the eager model on all ranks' sequences."""
    device = open_device(args)
    mine = random_tokens(args, args.batch, device)
    losses = torch.tensor(few_losses(args, build(args, device), mine))
    tokens = mine
    if dist.is_initialized():
        parts = [torch.empty_like(mine) for _ in range(world())]
        dist.all_gather(parts, mine)
        tokens = torch.cat(parts)
        losses = losses.to(device)
        dist.all_reduce(losses)
        losses /= world()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch.manual_seed(1)
    eager = torch.tensor(few_losses(args, GPT(*MODELS[args.model]).to(device), tokens))
    worst = (losses.cpu() - eager).abs().max().item()
    rounded = [[round(x, 5) for x in some.tolist()] for some in (losses, eager)]
    say(f"losses {rounded[0]}, eager {rounded[1]}")
    say(f"{graphs} graphs compiled; largest difference {worst:.1e} (at most {args.tolerance:g})")
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(0 if worst <= args.tolerance else 1)


# ---- products and attention by themselves ----


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


def add_model_arguments(p):
    p.add_argument("--fsdp", type=int, choices=(2, 3), help="in shards, as ZeRO's stage; torchrun")
    p.add_argument("--compile", choices=("auto", "whole", "blocks", "none"), default="auto")
    p.add_argument("--device", default="cuda")
    p.add_argument("--seq-len", type=int, default=POSITIONS)


def main():
    parser = argparse.ArgumentParser()
    what = parser.add_subparsers(dest="what", required=True)
    p = what.add_parser("speed")
    p.add_argument("model", choices=MODELS)
    p.add_argument("batches")
    p.add_argument("--seconds", type=float, default=100)
    add_model_arguments(p)
    p.set_defaults(run=speed)
    p = what.add_parser("matmul")
    p.add_argument("model", choices=MODELS)
    p.add_argument("batch", type=int)
    p.set_defaults(run=matmul)
    what.add_parser("attention").set_defaults(run=attention)
    p = what.add_parser("check")
    p.add_argument("model", choices=MODELS)
    p.add_argument("batch", type=int)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--tolerance", type=float, default=1e-4)
    add_model_arguments(p)
    p.set_defaults(run=check)
    args = parser.parse_args()
    torch.manual_seed(1)
    args.run(args)


if __name__ == "__main__":
    main()
