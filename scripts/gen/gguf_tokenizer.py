#!/usr/bin/env python3
"""Makes the tokenizer's files of a Hugging Face folder out of a GGUF file that has byte-level BPE.

    PYTHON scripts/gen/gguf_tokenizer.py MODEL.gguf FOLDER      needs PyPI's `gguf` and `tokenizers`

FOLDER gets tokenizer.json and tokenizer_config.json (begin, end, padding and unknown token, the
chat template). A GGUF holds pieces, their types and merges as the original tokenizer.json had them,
but of normalizer and pre-tokenizers only a name: what the published files of that name have is in
PRE below, and another name is refused. Called by scripts/dev/real_model.sh and tokenizer_compare.sh.
"""
import json
import os
import sys

import gguf
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors)
from tokenizer_fixtures import LLAMA3, QWEN2

NORMAL, CONTROL, USER = 1, 3, 4  # types of tokens


def level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), level(False)])


def digits():
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level(True)])


PRE = {  # name: pre-tokenizer, normalizer, ignore_merges
    "gpt-2": (lambda: level(True), None, False),
    "smollm": (digits, None, False),
    "starcoder": (digits, None, False),
    "llama-bpe": (lambda: split(LLAMA3), None, True),
    "qwen2": (lambda: split(QWEN2), normalizers.NFC, False),
}


def values(reader):
    return {name: field.contents() for name, field in reader.fields.items()
            if name.startswith("tokenizer.")}


def make(v):
    if v["tokenizer.ggml.model"] != "gpt2":
        sys.exit(f"a tokenizer \"{v['tokenizer.ggml.model']}\" is no byte-level BPE")
    name = v["tokenizer.ggml.pre"]
    if name not in PRE:
        sys.exit(f"pre-tokenizer \"{name}\" is not known; expected {', '.join(PRE)}")
    pre, normalizer, ignore = PRE[name]
    tokens, types = v["tokenizer.ggml.tokens"], v["tokenizer.ggml.token_type"]
    named = [i for i, kind in enumerate(types) if kind in (CONTROL, USER)]
    # Added tokens behind the vocabulary are no part of it.
    end = max(i for i, kind in enumerate(types) if kind == NORMAL) + 1
    merges = [tuple(m.split(" ")) for m in v["tokenizer.ggml.merges"]]
    vocab = {token: i for i, token in enumerate(tokens[:end])}
    t = Tokenizer(models.BPE(vocab, merges, ignore_merges=ignore))
    t.pre_tokenizer = pre()
    if normalizer:
        t.normalizer = normalizer()
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    for i in named:
        add = t.add_special_tokens if types[i] == CONTROL else t.add_tokens
        add([AddedToken(tokens[i], normalized=False, special=types[i] == CONTROL)])
        assert t.token_to_id(tokens[i]) == i, tokens[i]
    return t


def config(v):
    tokens = v["tokenizer.ggml.tokens"]
    out = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
           "add_bos_token": bool(v.get("tokenizer.ggml.add_bos_token", False))}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        number = v.get(f"tokenizer.ggml.{key}_token_id")
        if number is not None:
            out[f"{name}_token"] = tokens[number]
    if "tokenizer.chat_template" in v:
        out["chat_template"] = v["tokenizer.chat_template"]
    return out


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    file, folder = sys.argv[1:]
    v = values(gguf.GGUFReader(file))
    t = make(v)
    os.makedirs(folder, exist_ok=True)
    t.save(f"{folder}/tokenizer.json", pretty=False)
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as f:
        json.dump(config(v), f, ensure_ascii=False, indent=2)
        f.write("\n")
    print(f"{v['tokenizer.ggml.pre']}: {t.get_vocab_size()} ids")


if __name__ == "__main__":
    main()
