#!/usr/bin/env python3
"""Writes the learning rates that DeepSpeed's own schedulers give, for tests/data/test_deepspeed.c.

    scripts/deepspeed_schedules.py SOURCE >tests/fixtures/deepspeed/schedules.txt

SOURCE is an unpacked source distribution of DeepSpeed. Its runtime/lr_schedules.py is run as it is,
with what it imports of PyTorch and DeepSpeed replaced by the little that it uses of them. A line
has the kind, its warm-up, highest and least rate, steps of warm-up and in all, and the rates of
iterations 0 to 24.
"""
import logging
import pathlib
import sys
import types

STEPS = 25


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


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.split("\n\n")[1].strip())
    root = sys.argv[1]
    module = scheduler_module(root)
    version = (pathlib.Path(root) / "version.txt").read_text().strip()
    print(f"# Rates of DeepSpeed {version}'s schedulers, by scripts/deepspeed_schedules.py: kind,")
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
