# The rule by which losses of ./train agree with PyTorch's (losses_rule.py), on curves that are made
# up: what rounding does must pass, and each kind of error that the comparison is there for must
# fail. Speaks TAP.
import numpy as np

import losses_rule as rule
import tap

STEPS = 50
steps = np.arange(STEPS)
curve = 4 + 7 * np.exp(-steps / 15)  # a loss that falls
random = np.random.RandomState(1)


def rounding(size, growth=1.1, of=curve):
    """A run whose distance to the curve begins at `size` and grows from step to step."""
    return of + size * growth**steps * random.choice([-1, 1], STEPS) * random.uniform(0.3, 1, STEPS)


def theirs(size=1e-6, growth=1.1):
    return [rounding(size, growth) for _ in range(3)]


def bf16(size=3e-3):
    return curve + random.normal(0, size, STEPS)


def expect(good, name, ours, runs, ours16=None, theirs16=None, says=""):
    ours16 = bf16() if ours16 is None else ours16
    theirs16 = bf16() if theirs16 is None else theirs16
    passed, lines = rule.judge(ours, ours16, runs, theirs16)
    said = "\n".join(lines)
    right = passed == good and says in said and (("PASS" in said) == good)
    tap.result(right, ("agrees: " if good else "does not: ") + name, said)


def wrong_from(step, size):
    return curve + np.where(steps >= step - 1, size * (steps - step + 2), 0)


# ---- what rounding does ----

expect(True, "the same bits", curve, [curve] * 3)
for growth in (1.0, 1.1, 1.15):
    expect(
        True,
        "rounding, %g times larger each step" % growth,
        rounding(1e-6, growth),
        theirs(growth=growth),
    )
expect(True, "twice PyTorch's own distances", rounding(2e-6, 1.15), theirs(growth=1.15))
# 1e-6 * 1.15^49 = 9.4e-4: a fixed 1e-4 would have been a false alarm.
expect(
    True,
    "more than 1e-4 apart where PyTorch's own runs are",
    curve + 8e-4 * (steps > 45),
    [curve, rounding(1e-6, 1.15), rounding(1e-6, 1.15)],
)
expect(
    True,
    "less than 1e-4 apart where PyTorch's own runs have the same bits",
    curve + 9e-5,
    [curve] * 3,
)
dip = rounding(1e-6, 1.15)
dip[47] = curve[47]
expect(
    True,
    "a step at which PyTorch's runs meet by chance",
    curve + 5e-4 * (steps == 47),
    [curve, dip, dip],
)

# ---- errors ----

expect(
    False,
    "a loss of the first ten steps 2e-4 off",
    curve + 2e-4 * (steps == 3),
    [curve, curve + 1e-3],
    says="from step 4 on",
)
expect(
    False,
    "a wrong gradient from step 11 on",
    wrong_from(11, 2e-3),
    theirs(),
    says="from step 11 on",
)
expect(
    False,
    "the same, where rounding grows fast",
    wrong_from(11, 2e-3),
    theirs(growth=1.15),
    says="from step 11 on",
)
expect(False, "a drift of 2e-5 a step", curve + 2e-5 * steps, theirs())
expect(False, "the same, downwards", curve - 2e-5 * steps, theirs())
expect(False, "ten times PyTorch's own distances", rounding(1e-5, 1.15), theirs(growth=1.15))
expect(False, "the last step alone", curve + 1e-2 * (steps == 49), theirs(), says="from step 50 on")
expect(
    False,
    "2e-2 off where PyTorch's own runs are as far apart",
    curve + 2e-2 * (steps > 40),
    [curve, curve + 2e-2 * (steps > 30)],
)
expect(
    False, "not a number", np.where(steps == 20, np.nan, curve), theirs(), says="from step 21 on"
)
expect(
    False,
    "not a number in PyTorch's run",
    curve,
    [np.where(steps == 20, np.nan, curve), curve, curve],
)
expect(False, "a run that ended early", curve[:49], theirs(), says="made 49 steps, PyTorch 50")
expect(
    False,
    "a bf16 run that ended early",
    curve,
    theirs(),
    ours16=bf16()[:12],
    says="bf16: ./train made 12",
)
expect(False, "no steps", curve[:0], [curve[:0]] * 3, bf16()[:0], bf16()[:0], says="0 steps")

# ---- bf16 ----

expect(True, "bf16 as far off as PyTorch's, which is much", curve, theirs(), bf16(0.1), bf16(0.1))
expect(
    True,
    "bf16 less than 0.01 off where PyTorch's is not at all",
    curve,
    theirs(),
    curve + 9e-3,
    curve,
)
expect(
    False, "bf16 three times as far off as PyTorch's", curve, theirs(), curve + 0.09, curve + 0.03
)
expect(False, "bf16 2e-2 off where PyTorch's is not", curve, theirs(), curve + 2e-2, curve)
expect(False, "bf16 not a number", curve, theirs(), np.where(steps == 9, np.nan, curve))
tap.finish()
