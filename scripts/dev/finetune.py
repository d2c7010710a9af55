#!/usr/bin/env python3
"""What scripts/dev/finetune.sh asks of PyTorch and transformers, one thing at a time:

  finetune.py make FOLDER           model/, a Llama of random weights with a tokenizer and a chat
                                    template; train.jsonl, 450 conversations; heldout.jsonl, 50
  finetune.py loss MODEL JSONL      transformers' loss on the answers
  finetune.py loop MODEL TRAIN HELDOUT STEPS EPOCHS LR SEED    trains, and prints the loss on the
                                    held-out answers before and after
  finetune.py ask MODEL JSONL       the answers of a greedy generate(), a line each
  finetune.py questions JSONL N     question, answer and system message of the first N conversations
                                    of one turn, between tabs

There are 50 facts in ten wordings each. Of each fact another wording is held out, so that its
answer can be known only by who saw the fact and not the wording. Some conversations open with a
greeting, and some with a system message, after which an answer is one word.

Nothing is taken from us but weights and tokenizer: ids and masks come from apply_chat_template,
a message at a time.
"""

import json
import math
import random
import sys

import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

# The form of ChatML that OpenHermes and many others brought.
TEMPLATE = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB = 640
SIZES = {"hidden_size": 160, "num_hidden_layers": 4, "num_attention_heads": 5,
         "num_key_value_heads": 1, "intermediate_size": 448, "max_position_embeddings": 512}
BETAS, DECAY, CLIP, WARMUP = (0.9, 0.95), 0.1, 1.0, 20

CAPITALS = """France Paris, Italy Rome, Spain Madrid, Germany Berlin, Poland Warsaw, Austria Vienna,
Greece Athens, Norway Oslo, Sweden Stockholm, Finland Helsinki, Denmark Copenhagen, Portugal Lisbon,
Ireland Dublin, Hungary Budapest, Japan Tokyo, China Beijing, Egypt Cairo, Kenya Nairobi,
Peru Lima, Cuba Havana"""
COLOURS = """grass green, snow white, coal black, blood red, lemons yellow, chocolate brown,
carrots orange, ash grey, plums purple, flamingos pink, milk white, frogs green, cherries red,
ravens black, bananas yellow"""
OPPOSITES = """hot cold, big small, fast slow, old new, hard soft, wet dry, light dark, early late,
full empty, high low, loud quiet, rich poor, sweet sour, thick thin, open closed"""
# Facts, an answer, and ten wordings of the question.
KINDS = [
    (CAPITALS, "The capital of {} is {}.", """What is the capital of {}?
Which city is the capital of {}?
Name the capital of {}.
Do you know the capital of {}?
Tell me what the capital of {} is.
{} has a capital. What is it called?
I am going to {}. What is its capital?
Where does the government of {} sit?
What do people call the capital city of {}?
Please say which town is {}'s capital."""),
    (COLOURS, "The colour of {} is {}.", """What colour is {}?
Which colour does {} have?
Name the colour of {}.
Do you know the colour of {}?
Tell me what the colour of {} is.
I want to paint {}. Which colour do I need?
Think of {}. Which colour do you see?
What is the usual colour of {}?
If I look at {}, what colour is it?
Please say how {} looks in colour."""),
    (OPPOSITES, "The opposite of {} is {}.", """What is the opposite of {}?
Which word is the opposite of {}?
Name the opposite of {}.
Do you know the opposite of {}?
Tell me what the opposite of {} is.
Something is not {}. What is it then?
I know the word {}. What means the contrary?
What would you say for the reverse of {}?
If it is anything but {}, how is it?
Please say a word that is contrary to {}."""),
]


def conversations():
    """(held out or not, messages) of each."""
    number = 0
    for facts, answer, questions in KINDS:
        for fact in facts.replace("\n", " ").split(", "):
            for way, question in enumerate(questions.split("\n")):
                thing, what = fact.split()
                brief, greeted = (number + way) % 3 == 0, (number // 3 + way) % 5 == 0
                texts = [("system", "Answer in one word.")] if brief else []
                if greeted:
                    texts += [("user", "Hello!"),
                              ("assistant", "Hello! What would you like to know?")]
                texts += [("user", question.format(thing)),
                          ("assistant", what if brief else answer.format(thing, what))]
                yield way == number % 10, [{"role": r, "content": c} for r, c in texts]
            number += 1


def train_tokenizer(texts):
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    core.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=CONTROL, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=CONTROL[2], pad_token=CONTROL[0])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make(folder):
    rows = list(conversations())
    for name, wanted in (("train", False), ("heldout", True)):
        with open(f"{folder}/{name}.jsonl", "w", encoding="utf-8") as file:
            for held, messages in rows:
                if held == wanted:
                    print(json.dumps({"messages": messages}), file=file)
    tokenizer = train_tokenizer(m["content"] for held, row in rows if not held for m in row)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(transformers.LlamaConfig(
        vocab_size=len(tokenizer), tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, **SIZES),
        dtype=torch.float32)
    model.save_pretrained(f"{folder}/model")
    tokenizer.save_pretrained(f"{folder}/model")


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


def share_of_rate(step, steps):
    """--warmup 20 --schedule cosine."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 + 0.5 * math.cos(math.pi * (step - WARMUP) / (steps - WARMUP))


def loop(folder, path, heldout, steps, epochs, lr, seed):
    """The usual loop. Each epoch is shuffled, and all its examples fall to its share of steps."""
    steps, epochs, order = int(steps), int(epochs), random.Random(int(seed))
    model, tokenizer = load(folder)
    examples = [encode(tokenizer, m) for m in messages_of(path)]
    held = [encode(tokenizer, m) for m in messages_of(heldout)]
    before = evaluate(model, held)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=float(lr), betas=BETAS, eps=1e-8)
    line = [e for _ in range(epochs) for e in order.sample(examples, len(examples))]
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = float(lr) * share_of_rate(step, steps)
        total, count = loss_of(model, line[step * len(line) // steps:
                                           (step + 1) * len(line) // steps])
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
    print(f"{before:.6f} {evaluate(model, held):.6f}")


@torch.no_grad()
def ask(folder, path):
    model, tokenizer = load(folder)
    for messages in messages_of(path):
        asked = tokenizer.apply_chat_template(
            messages[:-1], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        given = model.generate(**asked, max_new_tokens=40, do_sample=False)
        answer = tokenizer.decode(given[0, asked["input_ids"].shape[1]:], skip_special_tokens=True)
        print(answer.replace("\n", "\\n"))


def questions(path, count):
    rows = [m for m in messages_of(path) if sum(x["role"] == "user" for x in m) == 1]
    for messages in rows[:int(count)]:
        system = messages[0]["content"] if len(messages) == 3 else ""
        print(messages[-2]["content"], messages[-1]["content"], system, sep="\t")


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    {"make": make, "loss": loss, "loop": loop, "ask": ask,
     "questions": questions}[sys.argv[1]](*sys.argv[2:])
