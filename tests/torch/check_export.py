#!/usr/bin/env python3
"""Takes folders that --export hf: wrote as their user would, with transformers.

    PYTHON tests/torch/check_export.py <LIST

Each line of LIST is FOLDER [--texts FILE --like REFERENCE] [--chats FILE] [--class CLASS], and gets
a line "ok - ..." or "not ok - ...". AutoTokenizer (or CLASS) and AutoModelForCausalLM open the
folder, with no weight missing and none left over. --texts: pieces of a file have the ids of
REFERENCE: "bytes", a SentencePiece .model, or a tokenizer.json for `tokenizers`. --chats: JSON
lines of a question and our answer to it at temperature 0; apply_chat_template asks, generate()
answers the same, and stops by itself. PYTHON has torch and transformers.
"""

import argparse
import json
import os
import shlex
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

TOKENS = 48
EDGES = ["", " ", "a",
         "  two  spaces\n\n\tand a tab\n", "caf\u00e9 \u6771\u4eac \U0001f642 \u00a0x",
         " x", "12 345", "x\x01y", "<s> </s>", "it's DON'T"]


def reference(like):
    if like == "bytes":
        return lambda text: list(text.encode())
    if like.endswith(".model"):
        import sentencepiece
        return sentencepiece.SentencePieceProcessor(model_file=like).encode
    import tokenizers
    opened = tokenizers.Tokenizer.from_file(like)
    return lambda text: opened.encode(text, add_special_tokens=False).ids


def check_texts(tokenizer, given):
    encode = reference(given.like)
    with open(given.texts, encoding="utf-8", newline="") as f:
        text = f.read()
    texts = EDGES + [text[i:i + 997] for i in range(0, min(len(text), 60000), 997)]
    # A text that spells a control token of a .model is that token there, and letters here.
    texts = [t for t in texts if not any(token in t for token in tokenizer.all_special_tokens)]
    for text in texts:
        got, want = tokenizer(text, add_special_tokens=False)["input_ids"], encode(text)
        assert got == want, f"{text!r}: {got[:20]}, {given.like} has {want[:20]}"
    return f"{len(texts)} texts have the ids of {given.like.rsplit('/', 1)[-1]}"


def check_chats(tokenizer, model, path):
    with open(path, encoding="utf-8") as f:
        chats = [json.loads(line) for line in f]
    lengths = []
    for chat in chats:
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": chat["question"]}], add_generation_prompt=True,
            return_tensors="pt", return_dict=True)
        ids = model.generate(**asked, max_new_tokens=TOKENS, do_sample=False)
        ids = ids[0, asked["input_ids"].shape[1]:].tolist()
        answer = tokenizer.decode(ids, skip_special_tokens=True)
        assert answer.strip() == chat["answer"].strip(), \
            f"{chat['question']}: {answer!r}, ours is {chat['answer']!r}"
        assert len(ids) < TOKENS, f"{chat['question']}: generate() does not stop: {answer!r}"
        lengths.append(len(ids))
    return f"{len(chats)} answers are ours, and stop after {min(lengths)} to {max(lengths)} tokens"


def check(given):
    tokenizer = getattr(transformers, given.opener).from_pretrained(given.folder)
    model, info = AutoModelForCausalLM.from_pretrained(
        given.folder, dtype=torch.float32, output_loading_info=True)
    assert not any(info.values()), f"weights: {info}"
    done = []
    if given.texts:
        done.append(check_texts(tokenizer, given))
    if given.chats:
        done.append(check_chats(tokenizer, model.eval(), given.chats))
    return "; ".join(done)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--texts")
    parser.add_argument("--like")
    parser.add_argument("--chats")
    parser.add_argument("--class", dest="opener", default="AutoTokenizer")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for line in sys.stdin:
        given = parser.parse_args(shlex.split(line))
        name = os.path.basename(given.folder)
        try:
            print(f"ok - {name} in transformers: {check(given)}", flush=True)
        except Exception as error:  # whatever a user would see
            told = str(error).replace("\n", " ")[:300]
            print(f"not ok - {name} in transformers: {type(error).__name__}: {told}", flush=True)


if __name__ == "__main__":
    main()
