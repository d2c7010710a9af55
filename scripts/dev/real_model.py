#!/usr/bin/env python3
"""What scripts/dev/real_model.sh asks of PyTorch and transformers, one thing at a time:

  real_model.py model GGUF FOLDER       a folder as Hugging Face has it, weights in fp32;
                                        without its tokenizer
  real_model.py data FOLDER             train.jsonl, 160 conversations, and heldout.jsonl, 40
  real_model.py text MODEL TEXT T       tokens, and the loss on each next token, in windows of T
  real_model.py loss MODEL JSONL        the loss on answers
  real_model.py loop MODEL BATCHES T SAMPLES LOG      trains on what train_batches wrote, so many
                                        samples a step, at the rates of a log; prints each loss, and
                                        keeps the model in MODEL-torch
  real_model.py ask MODEL JSONL         greedy answers to each conversation's question, a line each

The weights are what transformers read from the GGUF; scripts/gen/gguf_tokenizer.py makes the tokenizer.
"""

import json
import os
import random
import sys

import numpy
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

SEED, TRAINED, HELD_OUT = 7, 160, 40
BETAS, CLIP = (0.9, 0.95), 1.0
UNITS = [("weeks", "days", 7), ("days", "hours", 24), ("hours", "minutes", 60),
         ("years", "months", 12), ("decades", "years", 10), ("dozen", "eggs", 12),
         ("fortnights", "days", 14), ("centuries", "years", 100)]
ASKED = ["How many {small} are in {n} {large}?", "{n} {large}, how many {small} is that?",
         "Turn {n} {large} into {small}, please.", "I have {n} {large}. Count the {small}.",
         "What are {n} {large} in {small}?"]


def model(gguf, folder):
    made = AutoModelForCausalLM.from_pretrained(
        os.path.dirname(gguf), gguf_file=os.path.basename(gguf), dtype=torch.float32)
    del made.config.quantization_config
    os.makedirs(folder, exist_ok=True)
    save_file({name: value.contiguous() for name, value in made.state_dict().items()
               if name != "lm_head.weight"}, f"{folder}/model.safetensors", {"format": "pt"})
    made.config.save_pretrained(folder)
    made.generation_config.save_pretrained(folder)


def data(folder):
    """Answers in a manner of speaking that the model does not have by itself."""
    draw, seen = random.Random(SEED), set()
    while len(seen) < TRAINED + HELD_OUT:
        (large, small, times), n = draw.choice(UNITS), draw.randint(2, 19)
        seen.add((draw.choice(ASKED).format(n=n, large=large, small=small),
                  f"Count with me: {n} times {times} is {n * times}. "
                  f"So {n} {large} hold {n * times} {small}, friend."))
    rows = draw.sample(sorted(seen), len(seen))
    for name, part in (("train", rows[:TRAINED]), ("heldout", rows[TRAINED:])):
        with open(f"{folder}/{name}.jsonl", "w", encoding="utf-8") as file:
            for question, answer in part:
                print(json.dumps({"messages": [{"role": "user", "content": question},
                                               {"role": "assistant", "content": answer}]}),
                      file=file)


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


def messages_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["messages"] for line in file]


def encode(tokenizer, messages):
    """Ids, and labels: each answer up to the token that ends it, -100 elsewhere."""
    def ids_of(n, ask):
        return tokenizer.apply_chat_template(messages[:n], add_generation_prompt=ask,
                                             return_dict=False)
    ids = ids_of(len(messages), False)
    labels = [-100] * len(ids)
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            begin, end = len(ids_of(i, True)), len(ids_of(i + 1, False))
            end = begin + ids[begin:end].index(tokenizer.eos_token_id) + 1
            labels[begin:end] = ids[begin:end]
    return torch.tensor(ids), torch.tensor(labels)


def loss_of(model, examples):
    """The sum over answers' tokens, and how many they are. Ends are padded; nothing looks ahead."""
    ids, labels = (torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)
                   for rows, value in zip(zip(*examples), (0, -100)))
    logits = model(ids[:, :-1], use_cache=False).logits
    total = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    return total, (labels != -100).sum()


@torch.no_grad()
def evaluate(model, examples):
    total, count = loss_of(model.eval(), examples)
    return (total / count).item()


def loss(folder, path):
    model, tokenizer = load(folder)
    print(f"{evaluate(model, [encode(tokenizer, m) for m in messages_of(path)]):.6f}")


@torch.no_grad()
def ask(folder, path):
    model, tokenizer = load(folder)
    for messages in messages_of(path):
        asked = tokenizer.apply_chat_template(
            messages[:-1], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        given = model.generate(**asked, max_new_tokens=40, do_sample=False)
        answer = tokenizer.decode(given[0, asked["input_ids"].shape[1]:], skip_special_tokens=True)
        print(answer.replace("\n", "\\n"))


def first_difference(mine, theirs):
    return next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b),
                min(len(mine), len(theirs)))


@torch.no_grad()
def compare(folder, path, dtype):
    """How many answers of a file of --answers are generate()'s; and how many of the others part
    from it where two tokens are equally likely, but for one rounding of a logit."""
    model, tokenizer = load(folder)
    model = model.to(getattr(torch, dtype))
    same = near = 0
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        asked = tokenizer.apply_chat_template(
            line["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        begin = asked["input_ids"].shape[1]
        made = model.generate(**asked, max_new_tokens=200, do_sample=False)[0]
        theirs = [i for i in made[begin:].tolist() if i != tokenizer.eos_token_id]
        mine = tokenizer(line["answer"], add_special_tokens=False)["input_ids"]
        if mine == theirs:
            same += 1
            continue
        at = first_difference(mine, theirs)
        logits = model(made[None, :begin + at]).logits[0, -1].float()
        ours = logits[mine[at] if at < len(mine) else tokenizer.eos_token_id]
        step = torch.finfo(getattr(torch, dtype)).eps * 2 ** torch.floor(torch.log2(logits.max()))
        near += bool(logits.max() - ours <= step)
    print(same, near, len(lines))


@torch.no_grad()
def text(folder, path, seq_len):
    made, tokenizer = load(folder)
    with open(path, encoding="utf-8") as file:
        ids = torch.tensor(tokenizer.encode(file.read(), add_special_tokens=False))
    t, total = int(seq_len), 0.0
    windows = (len(ids) - 1) // t
    for i in range(windows):
        logits = made(ids[None, i * t:(i + 1) * t]).logits[0]
        total += torch.nn.functional.cross_entropy(
            logits, ids[i * t + 1:(i + 1) * t + 1], reduction="sum").item()
    print(f"{len(ids)} {total / (windows * t):.6f}")


def documents(samples):
    """The documents of packed samples, each (inputs, targets)."""
    for inputs, targets, starts in samples:
        for begin in numpy.unique(starts):
            at = starts == begin
            yield (torch.from_numpy(inputs[at]).long(), torch.from_numpy(targets[at]).long())


def loop(folder, batches, seq_len, samples, log):
    made, _ = load(folder)
    rows = numpy.fromfile(batches, dtype=numpy.int32).reshape(-1, 3, int(seq_len))
    with open(log, encoding="utf-8") as file:
        rates = [line["lr"] for line in map(json.loads, file) if "lr" in line]
    optimizer = torch.optim.AdamW(made.parameters(), betas=BETAS, eps=1e-8,
                                  weight_decay=0.0)
    made.train()
    for step, rate in enumerate(rates):
        given = list(documents(rows[step * int(samples):(step + 1) * int(samples)]))
        counted = sum((targets >= 0).sum().item() for _, targets in given)
        whole = 0.0
        for some in (given[i:i + 8] for i in range(0, len(given), 8)):
            ids, labels = (torch.nn.utils.rnn.pad_sequence(row, batch_first=True, padding_value=v)
                           for row, v in zip(zip(*some), (0, -1)))
            loss = torch.nn.functional.cross_entropy(
                made(ids, use_cache=False).logits.flatten(0, 1), labels.flatten(),
                ignore_index=-1, reduction="sum") / counted
            loss.backward()
            whole += loss.item()
        for group in optimizer.param_groups:
            group["lr"] = rate
        torch.nn.utils.clip_grad_norm_(made.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        print(f"{step + 1} {whole:.6f}", flush=True)
    made.save_pretrained(f"{folder}-torch")
    AutoTokenizer.from_pretrained(folder).save_pretrained(f"{folder}-torch")


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    {"model": model, "data": data, "text": text, "loss": loss, "loop": loop,
     "ask": ask, "compare": compare}[sys.argv[1]](*sys.argv[2:])
