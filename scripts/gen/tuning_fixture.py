#!/usr/bin/env python3
"""Makes tests/fixtures/tuning/llama.txt: the losses of a fine-tune as PyTorch computes them.

    PYTHON scripts/gen/tuning_fixture.py [FOLDER [OUT]]

PYTHON has torch, transformers and safetensors. FOLDER (default: tests/fixtures/hf/llama) is a
model that scripts/gen/hf_fixtures.py made. It is trained on one sequence, in fp32, as transformers'
Trainer and TRL train where nobody says more than the rate: AdamW without weight decay, gradients
clipped to a norm of 1. The rate rises in 3% of the steps and is constant then. The lines of OUT:

  steps, lr, length    what to give to ./train
  ids                  length + 1 tokens of the sequence
  loss N X             of step N, before its update
"""

import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

STEPS, TOLD, LR, LENGTH, WARMUP = 100, 12, 1e-3, 40, 0.03


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/hf/llama"
    out = sys.argv[2] if len(sys.argv) > 2 else "tests/fixtures/tuning/llama.txt"
    torch.set_num_threads(1)
    ids = [(37 * i + 11) % 200 for i in range(LENGTH + 1)]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    warmup = int(WARMUP * STEPS)
    lines = [f"# transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
             f"steps {STEPS}", f"lr {LR}", f"length {LENGTH}", "ids " + " ".join(map(str, ids))]
    tokens = torch.tensor([ids[:-1]])
    targets = torch.tensor(ids[1:])
    for step in range(1, TOLD + 1):
        logits = model(input_ids=tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[0], targets)
        lines.append(f"loss {step} {loss.item():.7g}")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = LR * min(1, step / warmup)
        optimizer.step()
    with open(out, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
