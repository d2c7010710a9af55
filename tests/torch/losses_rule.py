# When do the losses of ./train agree with PyTorch's? The rule alone, on arrays of losses;
# losses_gpt2_torch.py makes them.
#
# fp32. Both sides compute the same sums in other orders, so their losses differ by rounding: a loss
# near 11 is known to 1e-6. The first STRICT_STEPS steps must agree to STRICT, a hundred times that:
# room for larger models and for the first updates, in which AdamW moves a weight whose gradient is
# nothing but noise by a whole learning rate in either direction. Errors are larger. Measured on a
# CPU with --model tiny, largest change of a loss in ten steps: 2e-6 ./train to PyTorch, 3e-6 among
# PyTorch's own runs; but 4e-3 for a learning rate 1% off, 2e-3 for a beta2 of 0.96 instead of 0.95,
# 2e-4 without weight decay.
#
# Training then amplifies any difference from step to step, and no bound that was chosen beforehand
# is right for every model. So PyTorch makes the same run several times, each with other orders of
# its sums (another attention, sequences reversed, two micro-batches). The largest distance between
# two of them up to a step is what rounding alone does by then, and ours to PyTorch's first run may
# be TIMES as large. It is more than 1 because ./train differs from PyTorch in the order of every
# sum, PyTorch's runs from one another only in some. Where PyTorch's runs hardly differ, STRICT is
# allowed; and never more than MOST, whatever they do.
#
# bf16 need not agree with anything exactly: its mean distance to PyTorch's fp32 must be at most
# twice that of PyTorch's own bf16 (or 0.01, where both are small).
import itertools

import numpy as np

STRICT_STEPS, STRICT = 10, 1e-4
TIMES, MOST = 3, 1e-2
BF16_TIMES, BF16_FLOOR = 2, 0.01


def spread_of(runs):
    """For each step the largest distance of two of the runs up to it."""
    pairs = [np.abs(a - b) for a, b in itertools.combinations(runs, 2)]
    return np.maximum.accumulate(np.max(pairs, axis=0))


def limits_of(runs):
    """How far from the first run a step's loss may be."""
    limits = np.clip(TIMES * spread_of(runs), STRICT, MOST)
    limits[:STRICT_STEPS] = STRICT
    return limits


def judge_fp32(ours, runs):
    distance, limits, spread = np.abs(ours - runs[0]), limits_of(runs), spread_of(runs)
    good = distance <= limits  # which not-a-number is not
    lines = []
    for part in (slice(None, STRICT_STEPS), slice(STRICT_STEPS, None)):
        share = distance[part] / limits[part]
        i = (part.start or 0) + int(np.argmax(np.where(np.isnan(share), np.inf, share)))
        lines.append(
            "fp32, steps %d to %d: nearest to its limit at step %d, %.1e of %.1e; PyTorch's own "
            "runs are %.1e apart by then"
            % (
                (part.start or 0) + 1,
                part.stop or len(ours),
                i + 1,
                distance[i],
                limits[i],
                spread[i],
            )
        )
    if not good.all():
        lines.append("fp32: too far from PyTorch from step %d on" % (np.argmin(good) + 1))
    return good.all(), lines


def judge_bf16(ours, exact, theirs):
    off, noise = np.abs(ours - exact).mean(), np.abs(theirs - exact).mean()
    line = "bf16: mean distance to fp32 %.1e, PyTorch's own %.1e" % (off, noise)
    return off <= max(BF16_TIMES * noise, BF16_FLOOR), [line]


def judge(ours32, ours16, exact, rounded):
    """Losses of each step: ours in fp32 and bf16, PyTorch's fp32 runs (a list), PyTorch's bf16.
    Returns whether they agree, and lines that say how well."""
    steps = len(exact[0])
    lines = []
    for name, run in (("fp32", ours32), ("bf16", ours16)):
        if len(run) != steps:
            lines.append("%s: ./train made %d steps, PyTorch %d" % (name, len(run), steps))
    if lines or steps <= STRICT_STEPS:
        return False, [*lines, "%d steps: more than %d are needed" % (steps, STRICT_STEPS)]
    for i in sorted({0, STRICT_STEPS - 1, steps // 2 - 1, steps - 1}):
        lines.append(
            "step %d: fp32 PyTorch %.6f, ./train %.6f; bf16 PyTorch %.4f, ./train %.4f"
            % (i + 1, exact[0][i], ours32[i], rounded[i], ours16[i])
        )
    good32, lines32 = judge_fp32(ours32, exact)
    good16, lines16 = judge_bf16(ours16, exact[0], rounded)
    good = bool(good32 and good16)
    return good, [*lines, *lines32, *lines16, "PASS" if good else "FAIL"]
