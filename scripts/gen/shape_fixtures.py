#!/usr/bin/env python3
"""Makes tests/fixtures/shapes with transformers: the same talks in each shape that data sets have.

  scripts/gen/shape_fixtures.py      needs transformers and tokenizers; no weights, no network

NAME.jsonl has an object a line, NAME.json the same in a list; both for tests/data/test_shapes.c.
expected.txt has a line for each example, "NAME FORM ID ID* ...", where * counts: what
apply_chat_template gives for the messages that it means (FORM chatml), and for tasks without a
template what `tokenizers` gives for Alpaca's prompt (FORM none). What a shape means is said here
once more, in Python, as other trainers have it:

  ShareGPT's human and gpt are user and assistant (TRL, LlamaFactory, axolotl); an instruction and
  its input are one message, on lines of their own (LlamaFactory); OpenAI's parts are joined by the
  template, without anything between them (Qwen2-VL's, Llama 3.2's); the developer is the system;
  of a prompt and a completion of messages the completion's answers are learned (TRL).

Tokenizer, masks and the form of the lines are those of scripts/gen/chat_fixtures.py, whose merges are
read and not made anew.
"""
import json
import os
import random

import chat_fixtures as chat

FOLDER = os.path.join(chat.ROOT, "tests/fixtures/shapes")
COUNT = 5
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
          "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
PARTS = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'}}"
         "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
         "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}"
         "{{'<|im_end|>' + '\\n'}}{% endfor %}")
ALONE = ("Below is an instruction that describes a task. Write a response that appropriately "
         "completes the request.")
PAIRED = ("Below is an instruction that describes a task, paired with an input that provides "
          "further context. Write a response that appropriately completes the request.")
SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"}


def talk(r):
    """A system message at times, then one to three turns."""
    said = chat.sentence
    turns = [m for _ in range(r.randint(1, 3)) for m in
             ({"role": "user", "content": said(r, 8)},
              {"role": "assistant", "content": said(r, 8)})]
    return ([{"role": "system", "content": said(r, 4)}] if r.random() < 0.5 else []) + turns


def task(question, answer, about="", system=""):
    """A question as messages, and as Alpaca's prompt."""
    asked = "\n".join(text for text in (question, about) if text)
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    opens = system or (PAIRED if about else ALONE)
    prompt = f"{opens}\n\n### Instruction:\n{question}"
    prompt += f"\n\n### Input:\n{about}" if about else ""
    return messages, (f"{prompt}\n\n### Response:\n", answer)


def in_parts(r, messages):
    def cut(text):
        at = r.randint(0, len(text))
        return [{"type": "text", "text": part} for part in (text[:at], text[at:])]
    return [{**m, "content": m["content"] if i == 1 else cut(m["content"])}
            for i, m in enumerate(messages)]


def shapes(r):
    """name: examples, each what a file has, the messages that it means, and an Alpaca prompt."""
    said = chat.sentence
    made = {}

    def add(name, example, messages, prompt=None):
        made.setdefault(name, []).append((example, messages, prompt))

    for i in range(COUNT):
        a, b, c, d = (said(r, 9) for _ in range(4))
        messages = talk(r)
        about, system = c if i % 2 else "", d if i == 3 else ""
        add("alpaca", {"instruction": a, "input": about, "output": b,
                       **({"system": system} if system else {"text": "the same, rendered"})},
            *task(a, b, about, system))
        add("dolly", {"instruction": a, "context": about, "response": b, "category": "open_qa"},
            *task(a, b, about))
        add("prompt_response", {"prompt": a, "response": b}, *task(a, b))
        add("question_answer", {"id": i, "question": a, "answer": b}, *task(a, b))
        add("openorca", {"id": "flan.1", "system_prompt": system, "question": a, "response": b},
            *task(a, b, "", system))
        add("sharegpt", {"id": "x", "conversations":
                         [{"from": SHAREGPT[m["role"]], "value": m["content"], "weight": None}
                          for m in messages]}, messages)
        add("sharegpt_roles", {"conversations":
                               [{"from": m["role"], "value": m["content"]} for m in messages]},
            messages)
        add("messages", {"messages": messages, "tools": [None, [], {}, "", "[]"][i]}, messages)
        add("prompt_messages", {"completion": messages[-1:], "prompt": messages[:-1]}, messages)
        add("ultrachat", {"prompt": messages[0]["content"], "prompt_id": "f0e37e",
                          "messages": messages}, messages)
        add("parts", {"messages": in_parts(r, messages)}, messages)
        turns = [m for m in messages if m["role"] != "system"]
        add("developer", {"messages": [{"role": "developer", "content": d}] + turns},
            [{"role": "system", "content": d}] + turns)
        add("system_beside", {"system": d, "conversations":
                              [{"from": SHAREGPT[m["role"]], "value": m["content"]}
                               for m in messages]},
            messages if messages[0]["role"] == "system"
            else [{"role": "system", "content": d}] + messages)
    return made


def line_of(name, form, ids, counts):
    return f"{name} {form} " + " ".join(f"{x}{'*' * c}" for x, c in zip(ids, counts))


def expect(t, parts, name, example, messages, prompt):
    text = chat.render(t, messages)
    answers = chat.answers(t, messages, text)
    # What stands in the prompt is not learned.
    ids, counts = chat.mask(t, text, answers[-1:] if name == "prompt_messages" else answers)
    assert ids == chat.tokenize(t, messages), name
    if name == "parts":  # as a template that knows parts renders the file's own messages
        assert chat.tokenize(parts, example["messages"]) == ids
    yield line_of(name, "chatml", ids, counts)
    if prompt:
        text = "".join(prompt)
        end = t.convert_tokens_to_ids(t.eos_token)
        ids, counts = chat.mask(t, text, [(len(prompt[0]), len(text))])
        yield line_of(name, "none", ids + [end], counts + [1])


def main():
    assert chat.text_hash(CHATML) in chat.known_forms()["chatml"]
    with open(os.path.join(chat.FOLDER, "merges.txt"), encoding="utf-8") as f:
        pairs = [tuple(map(int, line.split())) for line in f]
    t = chat.open_tokenizer(pairs, "chatml", CHATML)
    parts = chat.open_tokenizer(pairs, "chatml", PARTS)
    lines = []
    os.makedirs(FOLDER, exist_ok=True)
    for name, examples in shapes(random.Random(20)).items():
        objects = [example for example, _, _ in examples]
        with open(os.path.join(FOLDER, name + ".jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(o, ensure_ascii=i % 2 == 0) + "\n"
                         for i, o in enumerate(objects))
        with open(os.path.join(FOLDER, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(objects, f, indent=2 if len(lines) % 2 == 0 else None)
        for example, messages, prompt in examples:
            lines += expect(t, parts, name, example, messages, prompt)
    with open(os.path.join(FOLDER, "expected.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
