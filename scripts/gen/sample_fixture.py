#!/usr/bin/env python3
"""Makes tests/fixtures/sample/probabilities.txt: what transformers would draw from.

    PYTHON scripts/gen/sample_fixture.py [OUT]

PYTHON has torch and transformers. The processors, and their order, are those that generate() asks
its model for. They run in fp32, as there, and say which tokens stay; a case where fp64 keeps others
is one that rounding decides, and an error. The probabilities are fp64's: transformers' temperature
and a softmax over the tokens that stay. Of tokens with one logit, top-p may keep some: as many as here,
but which is up to torch.sort, and written here as the first ones. The lines of OUT, several cases to a `logits` and `text`:

  logits X ...         of a vocabulary
  text ID ...          the tokens so far
  case TEMPERATURE TOP_K TOP_P MIN_P PENALTY: ID=PROBABILITY ...
"""

import itertools
import sys

import torch
import transformers
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, LogitsProcessorList
from transformers import RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper

USUAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
GRID = {
    "temperature": [0.0, 0.05, 0.8, 100.0],
    "top_k": [1, 3, 6, 24, 1000],
    "top_p": [1e-9, 0.01, 0.3, 0.5, 0.9, 0.999],
    "min_p": [0.01, 0.2, 1.0],
    "repetition_penalty": [0.5, 1.3, 4.0],
}
TOGETHER = {
    "temperature": [0.0, 0.8, 1.7],
    "top_k": [0, 7],
    "top_p": [1.0, 0.85],
    "min_p": [0.0, 0.08],
    "repetition_penalty": [0.7, 1.3],
}


def settings():
    for name, values in GRID.items():
        for value in values:
            yield {**USUAL, name: value}
    for values in itertools.product(*TOGETHER.values()):
        yield dict(zip(TOGETHER, values))


def texts():
    """Pairs of logits and ids of the text so far."""
    draw = torch.Generator().manual_seed(5)
    spread = torch.randn(48, generator=draw) * 3
    ids = torch.randint(0, 48, (20,), generator=draw).tolist()
    yield spread, ids + [int(spread.argmax()), int(spread.argmin())] + ids[:5]
    yield -spread.abs() - 0.5, ids
    steps = (torch.randn(32, generator=draw) * 2).round() / 2  # many are equal, some 0
    steps[steps == 0] *= torch.tensor([-1.0, 1.0]).repeat(16)[: int((steps == 0).sum())]
    yield steps, [1, 5, 5, 9, 30]
    yield torch.zeros(16), [3, 3, 8]
    yield 1 + torch.randperm(32, generator=draw) * 2**-23, []  # the last bits differ


def processors(model, asked):
    asked = dict(asked)
    sample = asked["temperature"] > 0
    if not sample:
        asked.pop("temperature")
    config = GenerationConfig(do_sample=sample, **asked)
    return model._get_logits_processor(config, input_ids_seq_length=1), sample


def first_of_equals(logits, kept):
    """The mask `kept`, with as many tokens of each logit, and those the first."""
    first = kept.clone()
    for value in logits.unique():
        equal = (logits == value).nonzero()[:, 0]
        first[equal] = torch.arange(len(equal)) < kept[equal].sum()
    return first


def probabilities(model, asked, logits, ids):
    chain, sample = processors(model, asked)
    ids = torch.tensor([ids], dtype=torch.long)
    scores = chain(ids, logits[None].clone())
    if not sample:
        return {int(scores.argmax()): 1.0}
    apart = [LogitsProcessorList([p for p in chain if isinstance(p, kind)])
             for kind in (RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper)]
    penalized = apart[0](ids, logits[None].clone())
    kept = (scores > -torch.inf)[0]
    rest = LogitsProcessorList([p for p in chain if p not in apart[0]])
    assert (rest(ids, penalized.double()) > -torch.inf)[0].equal(kept), asked
    kept = first_of_equals(penalized[0], kept)
    exact = apart[1](ids, penalized.double())[0].masked_fill(~kept, -torch.inf).softmax(-1)
    found = scores.softmax(-1)[0].double()
    assert torch.allclose(exact.sort()[0], found.sort()[0], rtol=1e-4, atol=1e-30), asked
    return {i: float(exact[i]) for i in kept.nonzero()[:, 0].tolist()}


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/sample/probabilities.txt"
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=2, n_layer=1, n_head=1))
    lines = [f"# transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"]
    for logits, ids in texts():
        lines.append("logits " + " ".join(f"{x:.9g}" for x in logits.tolist()))
        lines.append(" ".join(["text", *map(str, ids)]))
        seen = {}
        for asked in settings():
            kept = probabilities(model, asked, logits, ids)
            case = " ".join(f"{x:g}" for x in asked.values())
            seen[case] = " ".join(f"{i}={p:.8g}" for i, p in kept.items())
        lines += [f"case {case}: {kept}" for case, kept in seen.items()]
    with open(out, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
