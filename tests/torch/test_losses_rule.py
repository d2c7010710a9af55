# The rule by which losses of ./train agree with PyTorch's (losses_rule.py), on curves that are made
# up: what rounding does must pass, and an error of the size that it was made for must not. Speaks
# TAP.
import numpy as np

import losses_rule as rule
import tap

STEPS = 50
steps = np.arange(STEPS)
curve = 4 + 7 * np.exp(-steps / 15)  # a loss that falls
random = np.random.RandomState(1)


def rounding(size, growth=1.1):
    """A run whose distance to the curve begins at `size` and grows from step to step."""
    return curve + size * growth**steps * random.choice([-1, 1], STEPS)


def agrees(ours):
    runs = [rounding(1e-6) for _ in range(3)]
    bf16 = [curve + random.normal(0, 3e-3, STEPS) for _ in range(2)]
    return rule.judge(ours, bf16[0], runs, bf16[1])


good, lines = agrees(rounding(1e-6))
tap.result(good, "what rounding does passes", "\n".join(lines))
# Losses of a learning rate 1% off are 4e-3 apart after ten steps.
good, lines = agrees(curve + 4e-4 * steps)
tap.result(not good, "a learning rate 1% off does not", "\n".join(lines))
tap.finish()
