#!/usr/bin/env python3
"""Makes tests/fixtures/bpe/kinds, or random strings to compare by, of many kinds of tokenizer.json.

    PYTHON scripts/gen/tokenizer_kinds.py [FOLDER]
    PYTHON scripts/gen/tokenizer_kinds.py files FOLDER          KIND.json of each kind
    PYTHON scripts/gen/tokenizer_kinds.py pcre2 FILE OUT        FILE, but with no pattern of a scanner

A kind is a family's published normalizer, pre-tokenizers, model settings and decoder, or a setting
of one pre-tokenizer, over one of two small vocabularies: `letters` is byte-level, `marks` of
characters with bytes to fall back on. Both are learned without any splitting, so that pairs reach
across all places where words end, and a word that ends elsewhere has other ids. The folder gets
letters.json and marks.json, kinds.json (what each kind sets in its base), and kinds.bin: for each
kind, in its order, a hash of the ids of each of the first TEXTS strings of ../strings.bin, as
PyPI's `tokenizers` gives them: FNV-1a of 32 bits over each id's four bytes, little-endian.

Run it again only where the references must change: the tests read what is committed.
"""
import json
import os
import struct
import sys
from collections import Counter

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizer_fixtures import LLAMA3, strings, training_text

TEXTS = 1000
MARK = "\u2581"


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def level(use_regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True,
            "use_regex": use_regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def punctuation(behavior="Isolated"):
    return {"type": "Punctuation", "behavior": behavior}


def metaspace(scheme, splits=True):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": splits}


def replace(text, content):
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


PREPEND = {"type": "Prepend", "prepend": MARK}
LLAMA2 = {"type": "Sequence", "normalizers": [PREPEND, replace(" ", MARK)]}
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
          r"\s*[\r\n]|\s+(?!\S)|\s+")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{SHORT}|"
         rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{SHORT}|\p{{N}}{{1,3}}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace(SHORT, "").replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
            r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
KIMI = "|".join([
    r"[\p{Han}]+",
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]*[{LOWER}&&[^\p{{Han}}]]+{SHORT}",
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]+[{LOWER}&&[^\p{{Han}}]]*{SHORT}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"

LETTERS = {  # over `letters`: pre-tokenizers; a dictionary: what else
    "gpt-2": level(True),
    "gpt-2 by pcre2": sequence(split(f"(?:{GPT2})"), level()),
    "llama-3 by pcre2": sequence(split(f"(?:{LLAMA3})"), level()),
    "gpt-4, dbrx": sequence(split(CL100K, "Removed", True), level()),
    "gpt-4o, llama-4, gpt-oss": sequence(split(O200K), level()),
    "mistral tekken": sequence(split(TEKKEN), level()),
    "deepseek v3": sequence(split(r"\p{N}{1,3}"), split(CJK), split(DEEPSEEK), level()),
    "deepseek coder": sequence(*map(split, CODER), digits(True), level()),
    "kimi k2": sequence(split(KIMI), level()),
    "falcon": sequence(punctuation("Contiguous"), level(True), digits(False),
                       split("[0-9][0-9][0-9]")),
    "falcon 3": sequence(split(LLAMA3.replace("{1,3}", "")), punctuation("Contiguous"), level()),
    "starcoder 2, granite": sequence(digits(True), level(True)),
    "olmo 2, gpt-neox": {"pre_tokenizer": sequence(split(LLAMA3, "Removed", True), level()),
                         "normalizer": {"type": "NFC"}},
    "command r": {"pre_tokenizer": sequence(digits(True), level(True)),
                  "normalizer": {"type": "NFC"}},
    "bloom": sequence(split(BLOOM), level()),
    "prefix": level(True, True),
    "prefix behind digits": sequence(digits(False), level(True, True)),
    "one word": level(),
    "whitespace": sequence({"type": "Whitespace"}, level()),
    "whitespace split": sequence({"type": "WhitespaceSplit"}, level()),
    "merged with previous": sequence(split(r"\s", "MergedWithPrevious"), level()),
    "merged with next": sequence(split(r"\s|\p{P}", "MergedWithNext"), level()),
    "contiguous": sequence(split(r"\w", "Contiguous"), level()),
    "removed": sequence(split(r"[\d\s]+", "Removed"), level()),
    "merged, inverted": sequence(split(r"\p{L}+", "MergedWithNext", True), level()),
    "merged punctuation": sequence(punctuation("MergedWithPrevious"), level()),
    "a string": sequence(split("e", "MergedWithPrevious", False, "String"), level()),
    "a string with special letters": sequence(split("a+", "Isolated", False, "String"), level()),
    "empty matches": sequence(split(r"\p{L}*", "Isolated"), level()),
    "boundaries": sequence(split(r"\b\w+\b|\B\W", "Isolated"), level()),
    "looks": sequence(split(r"(?<=\p{L})\p{N}+|(?<!\s)\p{L}(?=\p{P})|^\s+|\S$"), level()),
    "any case": sequence(split(r"\p{N}|(?:x(?i)he|[k-t]+)|q|(?i:o)s", "Isolated"), level()),
    "quantifiers": sequence(split(r"\p{L}{2,3}?|\d{2}+|\s{,2}\S|[^\W\d_]*+"), level()),
    "across a cut": sequence(split(r"[^\s,]+ [^\s,]+"), level(True)),
    "words in brackets": sequence(split(r"[\w]+|[^\w\s]+"), level()),
    "whole words": {"pre_tokenizer": sequence(split(O200K), level()),
                    "model.ignore_merges": True},
}
FALLBACK = {"type": "Sequence", "decoders": [
    replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
MARKS = {
    "llama 2, tinyllama, mistral": {"normalizer": LLAMA2},
    "phi 3": {"normalizer": LLAMA2, "model.ignore_merges": True},
    "mistral, mixtral": {"pre_tokenizer": metaspace("first", False)},
    "gemma": {"normalizer": replace(" ", MARK),
              "pre_tokenizer": split(" ", "MergedWithPrevious", False, "String")},
    "metaspace": {"pre_tokenizer": metaspace("always")},
    "metaspace, first": {"pre_tokenizer": metaspace("first")},
    "metaspace, never": {"pre_tokenizer": metaspace("never")},
    "no bytes": {"normalizer": LLAMA2, "model.byte_fallback": False, "model.unk_token": None},
    "unknown": {"normalizer": LLAMA2, "model.byte_fallback": False, "model.fuse_unk": False},
    "unknown, fused": {"normalizer": LLAMA2, "model.byte_fallback": False},
    "codellama, digits": {"pre_tokenizer": sequence(metaspace("always", False), digits(True))},
    "whitespace alone": {"pre_tokenizer": {"type": "Whitespace"}},
}


def kinds():
    out = {}
    for name, sets in LETTERS.items():
        out[name] = ("letters", {"pre_tokenizer": sets} if "type" in sets else sets)
    for name, sets in MARKS.items():
        out[name] = ("marks", {"decoder": FALLBACK, **sets})
    return out


def learn_letters():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, max_token_length=8,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(training_text(), trainer)
    t.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    return json.loads(t.to_str())


def learn_marks():
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    named = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False, special_tokens=named,
                                  max_token_length=10)
    texts = [s.replace("  ", " ") for s in training_text()]
    count = Counter("".join(texts))
    known = sorted(count, key=lambda c: (-count[c], c))[:150]
    t.train_from_iterator(["".join(c for c in s if c in known) for s in texts], trainer)
    tree = json.loads(t.to_str())
    tree["added_tokens"] = tree["added_tokens"][:3]
    tree["pre_tokenizer"] = None
    for half in (MARK, 2 * MARK):  # as the families have them: spaces that belong together
        tree["model"]["vocab"][2 * half] = len(tree["model"]["vocab"])
        tree["model"]["merges"].append([half, half])
    return tree


def apply(base, sets):
    tree = json.loads(json.dumps(base))
    for key, value in sets.items():
        part, _, name = key.rpartition(".")
        (tree[part] if part else tree)[name] = value
    return tree


def without_scanner(pre):
    """The same pre-tokenizers, whose patterns are written as no scanner knows them."""
    steps = pre["pretokenizers"] if pre["type"] == "Sequence" else [pre]
    out = []
    for step in steps:
        if step["type"] == "ByteLevel" and step.get("use_regex", True):
            out += [split(f"(?:{GPT2})"), level(False, step["add_prefix_space"])]
        elif step["type"] == "Split" and "Regex" in step["pattern"]:
            out.append({**step, "pattern": {"Regex": f"(?:{step['pattern']['Regex']})"}})
        else:
            out.append(step)
    return sequence(*out)


def text_of(tree):
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


def sum_of(ids):
    h = 2166136261
    for b in struct.pack(f"<{len(ids)}I", *ids):
        h = (h ^ b) * 16777619 & 0xffffffff
    return h


def main():
    if sys.argv[1:2] == ["pcre2"]:
        with open(sys.argv[2], encoding="utf-8") as f:
            tree = json.load(f)
        with open(sys.argv[3], "w", encoding="utf-8") as f:
            f.write(text_of({**tree, "pre_tokenizer": without_scanner(tree["pre_tokenizer"])}))
        return
    base = {"letters": learn_letters(), "marks": learn_marks()}
    if sys.argv[1:2] == ["files"]:
        for kind, (name, sets) in kinds().items():
            with open(f"{sys.argv[2]}/{kind.replace(' ', '-')}.json", "w", encoding="utf-8") as f:
                f.write(text_of(apply(base[name], sets)))
        return
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/bpe/kinds"
    os.makedirs(folder, exist_ok=True)
    for name, tree in base.items():
        with open(f"{folder}/{name}.json", "w", encoding="utf-8") as f:
            f.write(text_of(tree) + "\n")
    texts = strings(2000, 15)[:TEXTS]
    rows = []
    with open(f"{folder}/kinds.bin", "wb") as f:
        for kind, (name, sets) in kinds().items():
            rows.append({"kind": kind, "base": name, "sets": sets})
            t = Tokenizer.from_str(text_of(apply(base[name], sets)))
            for e in t.encode_batch(texts, add_special_tokens=False):
                f.write(struct.pack("<I", sum_of(e.ids)))
    with open(f"{folder}/kinds.json", "w", encoding="utf-8") as f:
        f.write('{"kinds":[\n' + ",\n".join(map(text_of, rows)) + "\n]}\n")


if __name__ == "__main__":
    main()
