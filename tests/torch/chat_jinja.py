#!/usr/bin/env python3
"""Renders by transformers what chat_texts prints (tests/bench/chat_texts.c), and compares.

    build/release/tests/chat_texts | PYTHON tests/torch/chat_jinja.py

Each form's Jinja text must give our text of each of the 500 conversations and 50 questions, byte by
byte, and refuse what ours refuses. PYTHON has transformers. Status 1 where anything differs.
"""

import json
import sys

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template


def render(jinja, messages, ask):
    try:
        return render_jinja_template(
            conversations=[messages], chat_template=jinja, add_generation_prompt=ask)[0][0]
    except jinja2.exceptions.TemplateError:
        return None


def main():
    with open("tests/fixtures/chat/conversations.jsonl", encoding="utf-8") as f:
        conversations = [json.loads(line)["messages"] for line in f]
    differ = same = refused = 0
    forms = 0
    lines = iter(sys.stdin)
    for head in lines:
        form = json.loads(head)
        forms += 1
        for i, messages in enumerate(conversations):
            asked = list(messages)
            while asked and asked[-1]["role"] == "assistant":
                asked.pop()
            for said, ask in ((messages, False), (asked, True)):
                ours = json.loads(next(lines))
                if ours is None:
                    continue
                want = ours.get("asked" if ask else "text")
                got = render(form["jinja"], said, ask)
                same += got == want and want is not None
                refused += got is None and want is None
                if got != want:
                    differ += 1
                    if differ < 10:
                        print(f"{form['form']}, conversation {i}: {got!r}\n  ours: {want!r}")
    print(f"chat templates: {forms} forms, {same} texts equal, {refused} refused by both, "
          f"{differ} differ")
    sys.exit(differ > 0 or not same)


if __name__ == "__main__":
    main()
