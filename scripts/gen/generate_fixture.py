#!/usr/bin/env python3
"""Greedy texts of transformers' generate(), for the models of tests/fixtures/hf.

  scripts/gen/generate_fixture.py >tests/fixtures/hf/generated.json

A list of ids for each folder: PROMPT, and what fp32 makes of it on a CPU, up to 200 tokens, or as
many as its positions allow. A text is cut before the first token whose logit is nearer than MARGIN
to the second, since rounding would choose there. tests/model/test_generated.c reads it.
"""
import json
import pathlib

import torch
import transformers

PROMPT = [3, 14, 15, 92, 65, 35]
MARGIN = 1e-4
FOLDERS = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/hf"


def text_of(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32, attn_implementation="eager").eval()
    most = 200
    if model.config.model_type == "gpt2":  # its positions are learned
        most = model.config.n_positions - len(PROMPT)
    model.generation_config.eos_token_id = None
    made = model.generate(torch.tensor([PROMPT]), do_sample=False, max_new_tokens=most,
                          return_dict_in_generate=True, output_logits=True, pad_token_id=0)
    ids = made.sequences[0].tolist()
    for i, logits in enumerate(made.logits):
        first, second = logits[0].float().topk(2).values.tolist()
        if first - second < MARGIN:
            return ids[:len(PROMPT) + i]
    return ids


def main():
    transformers.logging.set_verbosity_error()
    torch.manual_seed(1)
    found = sorted(f.parent for f in FOLDERS.glob("*/config.json"))
    print("{" + ",\n ".join(f'"{f.name}": {json.dumps(text_of(f))}' for f in found) + "}")


main()
