#!/usr/bin/env python3
"""Makes tests/fixtures/bpe, or random strings to compare by: what PyPI's `tokenizers` answers.

    PYTHON scripts/gen/tokenizer_fixtures.py [FOLDER]
    PYTHON scripts/gen/tokenizer_fixtures.py compare TOKENIZER.json N SEED

The folder holds tokenizers of some 600 ids, one a pattern (gpt2, llama3, qwen2, smollm), trained on
made-up text; strings.bin, 2,000 texts of code, CJK, combining marks, emoji, random code points,
white space, digits, contractions and added tokens; and NAME.ids, their ids by encode(text,
add_special_tokens=False). A record is a count in 16 bits and so many bytes, or ids of 16 bits; all
is little-endian. `compare`, for scripts/dev/tokenizer_compare.sh, writes N records of a text and its
ids, with numbers of 32 bits, to standard output.

Run it again only where the references must change: the tests read what is committed.
"""
import json
import os
import random
import struct
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
BYTES = pre_tokenizers.ByteLevel
NAMES = ["gpt2", "llama3", "qwen2", "smollm"]
IDS = 600

WORDS = """
the of and to in is that it was for on are as with his they at be this from have or by one
had not but what all were when we there can an your which their said if do will each about how up
out them then she many some so these would other into has more her two like him see time could no
make than first been its who now people my made over did down only way find use may water long
little very after words called just where most know GetValue toString self.assertEqual
naïve café Ångström Größe façade señor Привет мир Москва это слово Ελλάδα λόγος
שלום עולם مرحبا العالم
नमस्ते दुनिया สวัสดีชาวโลก 한국어 안녕하세요 日本語 こんにちは 世界 你好 中文 漢字 東京 ﬁnd ǅ ℌ ª º ʰ""".split()
CODE = [
    "def f(x):\n    return x+1\n", "for (int i = 0; i < n; i++) {\n\tsum += a[i];\n}\n",
    "#include <stdio.h>\r\n", "if(x!=NULL&&y->z){", "SELECT * FROM t WHERE a='b';--",
    "https://example.com/a?b=c&d=%20e", "print(f\"{x:>10.3f}\")", "\\u0041\\n",
    "<div class=\"a\">&nbsp;</div>", "x **= 2 // 3", "!!!???...---===",
    "{\"k\": [1, 2.5e-3, null]}", "$HOME/.cache/**/*.json", "a_b-c.d@e", "::std::vector<int>{}"
]
SHORT = [
    "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'lL", "'D",
    "'\u017f", "\u2019s", "'x", "''", "'", " 's", "'sT", "'rE", "'vE", "'l", "'r", "'\u212a"
]
SPACES = [
    " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2003",
    "\u2028", "\x85", "\x0b", "\x0c", "\u1680", "\u200b", "\u180e", "\x1c", "\x1f"
]
DIGITS = list("0123456789") + [
    "12", "123", "1234", "12345", "3.14", "1,000", "²", "½", "Ⅷ", "٣", "৪", "一", "𝟘", "①",
    "\U00011de0", "\U00016ff4", "๗", "0x1F"
]
EMOJI = [
    "😀", "👍🏽", "👨\u200d👩\u200d👧", "🇩🇪", "❤\ufe0f", "🏴\U000e0067\U000e007f", "☃", "🧑\u200d🚀",
    "1\ufe0f\u20e3", "🤷"
]
BASES = "aeionuAEOxyqсиקשक가ᄀあか"
MARKS = [
    chr(c) for c in (0x300, 0x301, 0x302, 0x303, 0x304, 0x306, 0x307, 0x308, 0x30a, 0x30c, 0x316,
                     0x323, 0x327, 0x328, 0x331, 0x334, 0x338, 0x340, 0x341, 0x343, 0x344, 0x345,
                     0x5b0, 0x5bc, 0x5c1, 0x64b, 0x651, 0x93c, 0x94d, 0x9be, 0x9d7, 0xbbe, 0xcd5,
                     0xe38, 0xe48, 0xf71, 0xf72, 0xf74, 0x1161, 0x1175, 0x11a8, 0x11c2, 0x3099,
                     0x309a, 0x302a, 0x1d165, 0x1d16e, 0x110ba, 0x1112e)
]
SINGLE = ("ÅΩK\u212b\u2126\u212a\u1e9b\u0958\u09dc\ufb1d\ufb2c\uf900\U0002f800\u0340\u0374\u037e"
          "\u0387\u2000\u2001éñüÇ한가각힣")
ADDED = [
    "<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "<mask>",
    "<mask>  ", "  <mask>", "<|im", "<|", "|>", "<|endoftext|><|endoftext|>", "<|eot_id|>", "日本<s>",
    "<s>"
]


def point(r):
    while True:
        c = r.choice((r.randrange(0x80), r.randrange(0x800), r.randrange(0x10000),
                      r.randrange(0x20000), r.randrange(0x110000)))
        if c and not 0xD800 <= c < 0xE000:
            return chr(c)


def piece(r, kind):
    if kind == 0:
        return " ".join(r.choice(WORDS) for _ in range(r.randrange(1, 5)))
    if kind == 1:
        return r.choice(CODE)
    if kind == 2:
        lo, hi = r.choice(((0x4E00, 0x9FFF), (0x3040, 0x30FF), (0xAC00, 0xD7A3), (0x3400, 0x4DBF),
                           (0x20000, 0x2A6DF)))
        return "".join(chr(r.randint(lo, hi)) for _ in range(r.randrange(1, 6)))
    if kind == 3:
        return r.choice(BASES) + "".join(r.choice(MARKS) for _ in range(r.randrange(1, 5)))
    if kind == 4:
        return r.choice(EMOJI)
    if kind == 5:
        return "".join(point(r) for _ in range(r.randrange(1, 6)))
    if kind == 6:
        return "".join(r.choice(SPACES) for _ in range(r.randrange(1, 5)))
    if kind == 7:
        return r.choice(DIGITS) * r.randrange(1, 4)
    if kind == 8:
        return r.choice(WORDS) + r.choice(SHORT)
    if kind == 9:
        return r.choice(ADDED)
    if kind == 10:
        return "".join(r.choice(SINGLE) for _ in range(r.randrange(1, 4)))
    if kind == 11:
        return r.choice(WORDS[:40])[:r.randrange(1, 4)] * r.randrange(1, 8)
    return "".join(chr(r.randrange(32, 127)) for _ in range(r.randrange(1, 9)))


def strings(count, seed):
    r = random.Random(seed)
    out = []
    for i in range(count):
        kinds = [i % 13] if i % 3 == 0 else range(13)
        parts = [piece(r, r.choice(kinds)) for _ in range(r.randrange(1, 8))]
        out.append(r.choice(("", "", " ")).join(parts))
    return out


def training_text():
    r = random.Random(7)
    return [
        "".join(piece(r, r.choice((0, 0, 0, 1, 2, 3, 7, 8))) + " " for _ in range(40))
        for _ in range(400)
    ]


def train(name):
    special = {
        "gpt2": ["<|endoftext|>"],
        "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
        "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        "smollm": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    }[name]
    t = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    if name in ("llama3", "qwen2"):
        split = pre_tokenizers.Split(Regex(LLAMA3 if name == "llama3" else QWEN2), "isolated")
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [split, BYTES(add_prefix_space=False, use_regex=False)])
    elif name == "smollm":
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True),
             BYTES(add_prefix_space=False)])
    else:
        t.pre_tokenizer = BYTES(add_prefix_space=False)
    if name == "qwen2":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    first = name == "smollm"  # where the special tokens have the first ids of the vocabulary
    trainer = trainers.BpeTrainer(vocab_size=IDS - 3,
                                  initial_alphabet=BYTES.alphabet(),
                                  show_progress=False,
                                  special_tokens=special if first else [])
    t.train_from_iterator(training_text(), trainer)
    t.add_special_tokens([AddedToken(s, normalized=name == "gpt2") for s in special])
    if name == "gpt2":
        t.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False)])
    if name == "qwen2":
        t.add_tokens(
            [AddedToken("<tool_call>", normalized=False),
             AddedToken("日本<s>", normalized=True)])
    if name == "llama3":
        start = special[0]
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{start} $A",
                                          pair=f"{start} $A {start}:1 $B:1",
                                          special_tokens=[(start, t.token_to_id(start))])
        ])
    else:
        t.post_processor = processors.ByteLevel(trim_offsets=False)
    tree = json.loads(t.to_str())
    if name in ("gpt2", "smollm"):  # as files were written until 2024
        tree["model"]["merges"] = [" ".join(m) for m in tree["model"]["merges"]]
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


def config(name):
    chat = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
            "'<|im_end|>\\n' }}{% endfor %}")
    return {
        "gpt2": {
            "bos_token": "<|endoftext|>",
            "eos_token": {
                "content": "<|endoftext|>",
                "lstrip": False
            },
            "add_bos_token": False
        },
        "llama3": {
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|eot_id|>"
        },
        "qwen2": {
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "chat_template": chat
        },
        "smollm": {
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "chat_template": [{
                "name": "tool",
                "template": "x"
            }, {
                "name": "default",
                "template": chat
            }]
        },
    }[name]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/bpe"
    texts = strings(2000, 15)
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/strings.bin", "wb") as f:
        for s in map(str.encode, texts):
            f.write(struct.pack("<H", len(s)) + s)
    for name in NAMES:
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        text = train(name)
        with open(f"{folder}/{name}/tokenizer.json", "w", encoding="utf-8") as f:
            f.write(text + "\n")
        with open(f"{folder}/{name}/tokenizer_config.json", "w", encoding="utf-8") as f:
            json.dump(config(name), f)
            f.write("\n")
        t = Tokenizer.from_str(text)
        print(name, t.get_vocab_size(), "ids")
        with open(f"{folder}/{name}.ids", "wb") as f:
            for e in t.encode_batch(texts, add_special_tokens=False):
                f.write(struct.pack(f"<H{len(e.ids)}H", len(e.ids), *e.ids))


def compare(path, count, seed):
    t = Tokenizer.from_file(path)
    out = sys.stdout.buffer
    for at in range(0, count, 20000):
        texts = strings(min(20000, count - at), seed * 1000003 + at)
        for s, e in zip(texts, t.encode_batch_fast(texts, add_special_tokens=False)):
            s = s.encode()
            out.write(
                struct.pack("<I", len(s)) + s + struct.pack(f"<I{len(e.ids)}I", len(e.ids), *e.ids))


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "compare":
        compare(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
