#!/usr/bin/env python3
"""Makes tests/fixtures/chat with transformers: what apply_chat_template gives, and what counts.

  scripts/gen/chat_fixtures.py TEXTS...          writes the fixtures
  scripts/gen/chat_fixtures.py --hash FILE...    prints what data/chat/forms.c knows templates by

TEXTS are files, or folders of them at any depth: *.jinja, and tokenizer_config.json with a
chat_template. Their texts are other people's and no part of this repository; data/chat/forms.c
knows them by hash, and each of its forms needs one of its texts here. An installed trl is looked
into as well. Needs transformers and tokenizers; no weights, no network.

Written are, for tests/data/test_chat.c:

  conversations.jsonl  500 conversations
  merges.txt           a byte-level BPE without a pre-tokenizer: ids 0-255 are bytes, merge i of
                       two ids makes id 256 + i; control tokens come behind them
  expected.txt         for each form its tokenizer ("form NAME", "control ID TEXT", "begin ID",
                       "end ID"); ids with masks of the first conversations ("whole N ID ID* ...",
                       where * counts); a hash of ids and mask of each conversation ("all N HASH",
                       or "-": refused); and of the ids of 50 questions ("asked N HASH")

The masks are made without the forms: each answer is marked by letters of private use, rendered by
Jinja and found again; up to the next control token everything counts, token by token, by the
offsets of `tokenizers`.
"""
import hashlib
import importlib.util
import json
import os
import random
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "tests/fixtures/chat")
COUNT, ASKED, WHOLE, MERGES = 500, 50, 2, 344
OPEN, CLOSE = "\ue000", "\ue001"

CHATML = ["<|im_start|>", "<|im_end|>"]
LLAMA3 = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
# Control tokens, and which of them begin and end a text, as those models' tokenizers have them.
TOKENIZERS = {
    "chatml": (CHATML, None, "<|im_end|>"),
    "smollm2": (CHATML, "<|im_start|>", "<|im_end|>"),
    "qwen2": (CHATML + ["<|endoftext|>"], None, "<|im_end|>"),
    "qwen2.5": (CHATML + ["<|endoftext|>"], None, "<|im_end|>"),
    "qwen2.5-base": (CHATML + ["<|endoftext|>"], None, "<|endoftext|>"),
    "qwen3": (CHATML + ["<think>", "</think>", "<tool_response>", "</tool_response>"], None,
              "<|im_end|>"),
    "qwen3-2507": (CHATML + ["<tool_response>", "</tool_response>"], None, "<|im_end|>"),
    "llama3": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "llama3.1": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    "llama3.2": (LLAMA3 + ["<|end_of_text|>"], "<|begin_of_text|>", "<|end_of_text|>"),
    "mistral-v0.1": (["<s>", "</s>"], "<s>", "</s>"),
    "mistral-v0.2": (["<s>", "</s>"], "<s>", "</s>"),
    "mistral-v1": (["<s>", "</s>"], "<s>", "</s>"),
    "mistral-v3": (["<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>"),
    "mistral-nemo": (["<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>"),
    "zephyr": (["<s>", "</s>"], "<s>", "</s>"),
}
TOOLS = {"qwen2.5", "qwen2.5-base", "qwen3", "qwen3-2507"}  # forms that know tool messages
SYSTEM_LAST = {"mistral-v3", "mistral-nemo"}  # a system message would be left out in silence


def text_hash(text):
    """A newline at the end goes, and \\n inside a Jinja string is one."""
    text = text[:-1] if text.endswith("\n") else text
    return hashlib.sha256(text.replace("\\n", "\n").encode()).hexdigest()


def templates_in(path):
    with open(path, newline="", encoding="utf-8") as f:
        text = f.read()
    if not path.endswith(".json"):
        return [text]
    found = json.loads(text).get("chat_template") or []
    return [found] if isinstance(found, str) else [t["template"] for t in found]


def find_texts(paths):
    """hash: text of all templates under the paths."""
    spec = importlib.util.find_spec("trl")
    paths = list(paths) + ([os.path.dirname(spec.origin)] if spec else [])
    files = []
    for path in paths:
        for folder, _, names in os.walk(path):
            files += [os.path.join(folder, n) for n in names]
        files += [path] if os.path.isfile(path) else []
    wanted = [f for f in sorted(files)
              if f.endswith(".jinja") or os.path.basename(f) == "tokenizer_config.json"]
    return {text_hash(t): t for f in wanted for t in templates_in(f)}


def known_forms():
    """name: hashes, as data/chat/forms.c has them."""
    forms = {}
    with open(os.path.join(ROOT, "data/chat/forms.c"), encoding="utf-8") as f:
        for found, name in re.findall(r'\{"([0-9a-f]{64})", "([^"]+)"\}', f.read()):
            forms.setdefault(name, []).append(found)
    return forms


# ---- conversations ------------------------------------------------------------------------------

WORDS = ("the a water river bank code answer question why how is are list of numbers 1 22 3.14 "
         "café naïve 東京 данные emoji 🙂 def f(x): return x+1 \t <b> [x] user assistant system "
         "I you it's don't e\u0301 \u00a0 x\u0338").split(" ")


def sentence(r, most):
    words = [r.choice(WORDS) for _ in range(r.randint(1, most))]
    gaps = [" ", " ", " ", "\n", "\n\n", ". "]
    text = "".join(w + r.choice(gaps) for w in words[:-1]) + words[-1]
    kind = r.random()
    if kind < 0.1:
        text = r.choice(["\n", "\n\n", " ", "\u3000", "\t"]) + text
    elif kind < 0.2:
        text += r.choice(["\n", "\n\n", " ", "\u2028"])
    return text


def conversation(r, i):
    messages = []
    if r.random() < 0.4:
        messages.append({"role": "system", "content": sentence(r, 6)})
    turns = r.randint(1, 3)
    for turn in range(turns):
        messages.append({"role": "user", "content": sentence(r, 12)})
        if i % 10 == 3:
            for _ in range(r.randint(1, 2)):
                messages.append({"role": "tool", "content": sentence(r, 4)})
        if i % 10 == 4 and turn:
            messages.append({"role": "system", "content": sentence(r, 4)})
        if i % 10 == 5:
            messages.append({"role": "user", "content": sentence(r, 4)})
        answer = "" if r.random() < 0.03 else sentence(r, 14)
        messages.append({"role": "assistant", "content": answer})
    if i % 10 == 6:
        messages.append({"role": "user", "content": sentence(r, 4)})
    if i % 50 == 7:
        messages = [m for m in messages if m["role"] != "user"]
    return messages


# ---- the tokenizer ------------------------------------------------------------------------------

def train(texts):
    """Merges of a byte-level BPE over whole texts, as pairs of ids."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = byte_level
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=256 + MERGES, initial_alphabet=byte_level.alphabet(), max_token_length=8,
        show_progress=False))
    merges = json.loads(t.to_str())["model"]["merges"]
    letters = byte_letters()
    ids = {letters[b]: b for b in range(256)}
    pairs = []
    for a, b in merges[:MERGES]:
        pairs.append((ids[a], ids[b]))
        ids[a + b] = 256 + len(pairs) - 1
    return pairs


def byte_letters():
    """The letter that byte-level vocabularies write each byte as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def open_tokenizer(pairs, form, template):
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    letters = byte_letters()
    pieces = [letters[b] for b in range(256)]
    merges = []
    for a, b in pairs:
        merges.append((pieces[a], pieces[b]))
        pieces.append(pieces[a] + pieces[b])
    t = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False,
                                               trim_offsets=False)
    controls, begin, end = TOKENIZERS[form]
    t.add_tokens([AddedToken(c, special="think" not in c and "tool" not in c, normalized=False)
                  for c in controls])
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token=begin, eos_token=end,
                                   chat_template=template)


# ---- what is expected ---------------------------------------------------------------------------

SAID = {"date_string": "26 Jul 2024", "enable_thinking": False}


def render(t, messages, ask=False):
    return t.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask, **SAID)


def tokenize(t, messages, ask=False):
    ids = t.apply_chat_template(messages, tokenize=True, add_generation_prompt=ask, **SAID)
    return ids if isinstance(ids, list) else ids["input_ids"]


def marked(messages, which):
    """The answers between marks; `which` says what of their white space the template keeps."""
    def mark(text):
        return OPEN + which(text) + CLOSE
    return [{**m, "content": mark(m["content"])} if m["role"] == "assistant" else m
            for m in messages]


def answers(t, messages, text):
    """Where answers lie in the rendered text, each up to the control token that ends it."""
    ways = (lambda s: s, lambda s: s.strip(), lambda s: s.lstrip("\n"))
    last = len(messages) - 1
    for way in ways + (None,):
        seen = marked(messages, way or ways[0])
        if not way:  # the last answer alone loses its newlines
            seen[last]["content"] = OPEN + messages[last]["content"].lstrip("\n") + CLOSE
        found = render(t, seen)
        if found.replace(OPEN, "").replace(CLOSE, "") == text:
            break
    else:
        raise ValueError("answers could not be marked")
    controls = "|".join(re.escape(c) for c in t.get_added_vocab())
    spans, at, marks = [], 0, re.split("([" + OPEN + CLOSE + "])", found)
    for i in range(0, len(marks), 2):
        if i and marks[i - 1] == OPEN:
            stop = at + len(marks[i])
            spans.append((at, stop + re.compile(controls).search(text[stop:]).end()))
        at += len(marks[i])
    return spans


def mask(t, text, spans):
    coded = t._tokenizer.encode(text, add_special_tokens=False)
    counts = [int(any(a < end and b > begin for begin, end in spans)) for a, b in coded.offsets]
    return coded.ids, counts


def fnv(ids, counts=None):
    h = 0xcbf29ce484222325
    for i, token in enumerate(ids):
        for byte in token.to_bytes(4, "little") + (bytes([counts[i]]) if counts else b""):
            h = ((h ^ byte) * 0x100000001b3) % 2**64
    return f"{h & 0xffffffff:08x}"


def refused(form, messages):
    """What forms do not do although their templates render something."""
    if any(m["role"] == "tool" for m in messages) and form not in TOOLS:
        return True
    return (form in SYSTEM_LAST and messages[0]["role"] == "system" and
            messages[-1]["role"] != "user")


def expect(form, t, conversations):
    import jinja2
    controls, begin, end = TOKENIZERS[form]
    added = t.get_added_vocab()
    lines = [f"form {form}"]
    lines += [f"control {added[c]} {c}" for c in controls]
    lines += [f"begin {added[begin] if begin else -1}", f"end {added[end] if end else -1}"]
    whole = taken = asked = 0
    for i, messages in enumerate(conversations):
        try:
            ids = None if refused(form, messages) else tokenize(t, messages)
        except jinja2.TemplateError:
            ids = None
        if ids is None:
            lines.append(f"all {i} -")
            continue
        text = render(t, messages)
        same, counts = mask(t, text, answers(t, messages, text))
        assert same == ids, (form, i)
        taken += 1
        if whole < WHOLE:
            whole += 1
            lines.append(f"whole {i} " + " ".join(f"{x}{'*' * c}" for x, c in zip(ids, counts)))
        lines.append(f"all {i} {fnv(ids, counts)}")
    for i, messages in enumerate(conversations):
        while messages and messages[-1]["role"] == "assistant":
            messages = messages[:-1]
        try:
            known = asked < ASKED and messages and not refused(form, messages)
            ids = tokenize(t, messages, ask=True) if known else None
        except jinja2.TemplateError:
            ids = None
        if ids is not None:
            asked += 1
            lines.append(f"asked {i} {fnv(ids)}")
    assert taken >= 50 and asked == ASKED, (form, taken, asked)
    print(f"{form}: {taken} of {len(conversations)} conversations, {asked} questions")
    return lines


def main():
    if sys.argv[1:2] == ["--hash"]:
        for path in sys.argv[2:]:
            for text in templates_in(path):
                print(text_hash(text), path)
        return
    texts, forms = find_texts(sys.argv[1:]), known_forms()
    missing = [f for f in TOKENIZERS if not any(h in texts for h in forms[f])]
    if missing:
        sys.exit("no text of " + ", ".join(missing))
    r = random.Random(15)
    conversations = [conversation(r, i) for i in range(COUNT)]
    plain = [m["content"] for c in conversations for m in c]
    heads = [f"{role}\n{m}" for m in plain[:300] for role in ("user", "assistant")]
    pairs = train(plain + heads + ["\n\n" + m for m in plain[:100]])
    lines = []
    for form, hashes in forms.items():
        every = [expect(form, open_tokenizer(pairs, form, texts[h]), conversations)
                 for h in hashes if h in texts]
        assert all(e == every[0] for e in every), form
        lines += every[0]
    os.makedirs(FOLDER, exist_ok=True)
    for name, content in (
            ("conversations.jsonl", (json.dumps({"messages": c}, ensure_ascii=i % 2 == 0)
                                     for i, c in enumerate(conversations))),
            ("merges.txt", (f"{a} {b}" for a, b in pairs)),
            ("expected.txt", lines)):
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as f:
            f.write("\n".join(content) + "\n")


if __name__ == "__main__":
    main()
