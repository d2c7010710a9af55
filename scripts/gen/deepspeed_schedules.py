#!/usr/bin/env python3
"""Writes the learning rates that DeepSpeed's own schedulers give, for tests/data/test_deepspeed.c.

    scripts/gen/deepspeed_schedules.py SOURCE >tests/fixtures/deepspeed/schedules.txt
    scripts/gen/deepspeed_schedules.py SOURCE first >tests/fixtures/deepspeed/first_steps.txt

SOURCE is an unpacked source distribution of DeepSpeed. Its runtime/lr_schedules.py is run as it is,
with what it imports of PyTorch and DeepSpeed replaced by the little that it uses of them. A line
has the kind, its warm-up, highest and least rate, steps of warm-up and in all, and the rates of
iterations 0 to 24.

"first" prints the table of docs/from-deepspeed.md: the rates of the first five steps as DeepSpeed's
engine makes them (the optimizer's step, then the scheduler's: runtime/engine.py, _take_model_step)
beside those of a run of ./train with the same schedule, from its log.
"""
import json
import logging
import pathlib
import subprocess
import sys
import tempfile
import types

STEPS = 25
FIRST, WARMUP, ALL, MOST = 5, 10, 20, 0.1
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Optimizer:
    def __init__(self, lr):
        self.param_groups = [{"lr": lr}]


def scheduler_module(root):
    """runtime/lr_schedules.py, without PyTorch."""
    for name in ("torch", "torch.optim", "deepspeed", "deepspeed.utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torch.optim"].Optimizer = Optimizer
    sys.modules["torch"].is_tensor = lambda x: False
    sys.modules["deepspeed.utils"].logger = logging.getLogger("deepspeed")
    logging.disable(logging.CRITICAL)
    module = types.ModuleType("lr_schedules")
    text = (pathlib.Path(root) / "deepspeed/runtime/lr_schedules.py").read_text()
    exec(compile(text, "lr_schedules.py", "exec"), module.__dict__)
    return module


def rates(scheduler):
    for _ in range(STEPS):
        scheduler.step()
        yield scheduler.get_lr()[0]


def engine_rates(module, kind, shape):
    optimizer = Optimizer(MOST)
    scheduler = {
        "WarmupLR": lambda: module.WarmupLR(optimizer, 0.0, MOST, WARMUP, shape),
        "WarmupDecayLR": lambda: module.WarmupDecayLR(optimizer, ALL, 0.0, MOST, WARMUP, shape),
        "WarmupCosineLR": lambda: module.WarmupCosineLR(optimizer, ALL, 0.0, WARMUP, 0.0, shape),
    }[kind]()
    for _ in range(FIRST):
        yield optimizer.param_groups[0]["lr"]  # the optimizer's step
        scheduler.step()


def our_rates(kind, shape):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [ROOT / "train", *"--device cpu --threads 1 --tokenizer byte --layers 1 --heads 1 "
             "--channels 16 --seq-len 16 --batch 1 --no-tensorboard".split(),
             "--data", ROOT / "README.md", "--out", folder, "--steps", str(ALL), "--lr", str(MOST),
             "--warmup", str(WARMUP), "--schedule", kind, "--warmup-type", shape],
            check=True, stdout=subprocess.DEVNULL)
        lines = (pathlib.Path(folder) / "log.jsonl").read_text().splitlines()
    return [json.loads(line)["lr"] for line in lines[:FIRST]]


def tell_first(module, version):
    print(f"DeepSpeed {version}: {MOST}, {WARMUP} steps of {ALL}".ljust(46) +
          "".join(f"{f'step {n + 1}':>9}" for n in range(FIRST)))
    for kind in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        for shape in ("log", "linear"):
            for who, some in ("DeepSpeed's engine", engine_rates(module, kind, shape)), \
                             ("./train", our_rates(kind, shape)):
                print(f"{kind:<15} {shape:<7} {who:<22}" + "".join(f"{x:9.5f}" for x in some))


def main():
    if sys.argv[2:] not in ([], ["first"]) or len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.split("\n\n")[1].strip())
    root = sys.argv[1]
    module = scheduler_module(root)
    version = (pathlib.Path(root) / "version.txt").read_text().strip()
    if sys.argv[2:]:
        return tell_first(module, version)
    print(f"# Rates of DeepSpeed {version}'s schedulers, by scripts/gen/deepspeed_schedules.py: kind,")
    print("# warm-up, highest, least, steps of warm-up, of all, and iterations 0 to 24.")
    for shape in ("log", "linear"):
        for warmup in (1, 2, 7, 40):
            for least in (0.0, 1e-4):
                made = module.WarmupLR(Optimizer(1.0), least, 3e-3, warmup, shape)
                tell("WarmupLR", shape, 3e-3, least, warmup, 20, made)
                for total in (20, 5):
                    made = module.WarmupDecayLR(Optimizer(1.0), total, least, 3e-3, warmup, shape)
                    tell("WarmupDecayLR", shape, 3e-3, least, warmup, total, made)
                    made = module.WarmupCosineLR(Optimizer(3e-3), total, 0.0, warmup, least / 3e-3,
                                                 shape)
                    tell("WarmupCosineLR", shape, 3e-3, least, warmup, total, made)


def tell(kind, shape, most, least, warmup, total, scheduler):
    print(kind, shape, most, least, warmup, total, *(f"{x:.17g}" for x in rates(scheduler)))


if __name__ == "__main__":
    main()
