#!/usr/bin/env python3
"""Makes tests/fixtures/eval: HellaSwag items that are made up, and what others make of them.

    PYTHON scripts/gen/eval_fixtures.py [FOLDER]

PYTHON has lm_eval, sentencepiece, safetensors and numpy. FOLDER (default: tests/fixtures/eval) is
made anew. Run it again only where the references must change; the tests read what is committed.

  pieces.model   a SentencePiece model of 211 pieces, as many as models in tests/fixtures/hf have
  tokenizer_config.json    which says that no text begins with <s>
  items.jsonl    items whose sequences fit llm.c's protocol at 24 tokens
  long.jsonl     a few items that do not
  items.bin      the first file's tokens, as llm.c writes them (the format: data/eval/hellaswag.h)
  expected.json  by the model tests/fixtures/hf/gpt2, of which the forward pass is written here in
                 numpy, fp64:
      items, long  for each item what lm-eval's own task `hellaswag` makes of it (query, choices),
                   the tokens that its TemplateLM cuts (ids, from; its HFLM then keeps the last 25),
                   the sum of their log-probabilities, and its verdicts; and the same by llm.c's
                   dev/data/hellaswag.py
      clean        strings, and lm-eval's preprocess of them
      capital      strings, and Python's str.capitalize of them, where data/eval/clean.h does the same
"""

import io
import json
import os
import random
import struct
import sys

import lm_eval
import numpy as np
import sentencepiece
import yaml
from lm_eval.api.model import TemplateLM
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks.hellaswag import utils
from safetensors.numpy import load_file

T, PIECES = 24, 211
WORDS = ("the a man woman dog cat walks runs to from house tree then slowly quickly and jumps over "
         "river it is she he puts on roof takes his her hand up down water ball small red").split()
MODEL = os.path.join(os.path.dirname(__file__), "../../tests/fixtures/hf/gpt2")


# ---- the texts ----

def words(rng, least, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def make_item(rng, number, context):
    """Each with something that the clean-up, or the cut, must get right."""
    label = rng.choice(["Baking", "Roof [header] work", "[step] Run", "Cut  grass"])
    a = words(rng, *context) + rng.choice([".", ". [title]", ".  ", " [step]", ", [a [b] it"])
    b = rng.choice(["", "he", "The Man", "she [x]", "A  dog", "it\n[", "ÉL  Y", "[step] "])
    ends = [rng.choice(["", " ", "["]) + words(rng, 2, 4)
            + rng.choice(["", ".", " [title] so", " [substeps] it", "  up", "]", " é", " \t"])
            for _ in range(4)]
    item = {"ind": number, "activity_label": label, "ctx_a": a, "ctx_b": b,
            "ctx": a + (" " + b if b else ""), "split": "val", "endings": ends,
            "label": rng.randrange(4)}
    return item


def make_strings(rng):
    parts = ["[", "]", " [title]", "[title]", "  ", " ", "\n", "\t", "\u00a0", "a", "É", "ß", "x.",
             "\u2003", "\x1c", "\u200b", "漢", "😀", "[step]", "]]", "[[", "\r"]
    return ["".join(rng.choice(parts) for _ in range(rng.randint(0, 12))) for _ in range(300)]


def make_capitals(rng):
    """Without letters that become several, of which the C library has none."""
    parts = ["a", "B", "é", "É", "ß", "ŉ", "ﬁ", "İ", "ǆ", "ǅ", "Ǆ", "ა", "Ⴀ", "Ꭰ", "ꭰ", "𐐀", "𐐨",
             "Я", "я", "ΐ", "ᾳ", "Ω", "ſ", " ", "1", "漢", "Ⅷ", "ⓐ"]
    made = ["".join(rng.choice(parts) for _ in range(rng.randint(0, 8))) for _ in range(200)]
    return [s for s in made if "İ" not in s[1:] and len(s[:1].title()) == len(s[:1])]


# ---- the model ----

class Gpt2:
    """GPT-2 (Radford et al. 2019) in fp64, one sequence at a time."""

    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            self.heads = json.load(f)["n_head"]
        self.w = {}
        for name in sorted(os.listdir(folder)):
            if name.startswith("model-") and name.endswith(".safetensors"):
                for key, value in load_file(os.path.join(folder, name)).items():
                    self.w[key.removeprefix("transformer.")] = value.astype(np.float64)

    def norm(self, x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def dense(self, x, name):
        return x @ self.w[name + ".weight"] + self.w[name + ".bias"]

    def attention(self, x, layer):
        t, c = x.shape
        q, k, v = (p.reshape(t, self.heads, -1).swapaxes(0, 1)
                   for p in np.split(self.dense(x, layer + "attn.c_attn"), 3, -1))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(c // self.heads)
        scores = np.where(np.tril(np.ones((t, t), bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        out = (p / p.sum(-1, keepdims=True)) @ v
        return self.dense(out.swapaxes(0, 1).reshape(t, c), layer + "attn.c_proj")

    def log_probabilities(self, ids):
        x = self.w["wte.weight"][ids] + self.w["wpe.weight"][:len(ids)]
        for i in range(sum(k.endswith("ln_1.weight") for k in self.w)):
            layer = f"h.{i}."
            x = x + self.attention(self.norm(x, layer + "ln_1"), layer)
            u = self.dense(self.norm(x, layer + "ln_2"), layer + "mlp.c_fc")
            u = 0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u ** 3)))
            x = x + self.dense(u, layer + "mlp.c_proj")
        logits = self.norm(x, "ln_f") @ self.w["wte.weight"].T
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def score(self, ids, begin):
        """The sum over ids[begin:], each by those before it."""
        p = self.log_probabilities(ids[:-1])
        return float(sum(p[i - 1, ids[i]] for i in range(begin, len(ids))))


class Model(TemplateLM):
    """lm-eval's own requests and cuts, our tokens; what HFLM adds is the truncation."""

    def __init__(self, pieces, gpt2):
        super().__init__()
        self.pieces, self.gpt2, self.seen = pieces, gpt2, []

    eot_token_id = 2

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        return self.pieces.encode(string)

    def _loglikelihood_tokens(self, requests, **kwargs):
        out = []
        for _, context, continuation in requests:
            assert continuation and len(continuation) <= T
            ids = (context + continuation)[-(T + 1):]
            begin = len(ids) - len(continuation)
            total = self.gpt2.score(ids, begin)
            self.seen.append({"ids": ids, "from": begin, "sum": total})
            out.append((total, False))
        return out

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError

    def generate_until(self, requests, disable_tqdm=False):
        raise NotImplementedError


# ---- the two protocols ----

def by_lm_eval(path, pieces, gpt2):
    model = Model(pieces, gpt2)
    yaml.SafeLoader.add_constructor("!function", lambda loader, node: utils.process_docs)
    with open(os.path.join(os.path.dirname(utils.__file__), "hellaswag.yaml")) as f:
        config = yaml.safe_load(f)
    config.pop("tag")
    config.update(dataset_path="json", training_split=None,
                  dataset_kwargs={"data_files": {"validation": path}})
    result = lm_eval.simple_evaluate(model=model, tasks=[ConfigurableTask(config=config)],
                                     log_samples=True, bootstrap_iters=0)
    samples = sorted(result["samples"]["hellaswag"], key=lambda s: s["doc_id"])
    position = {}
    for sequence in model.seen:
        position[tuple(sequence["ids"]), sequence["from"]] = sequence
    out = []
    for s in samples:
        sums = [float(r[0][0]) for r in s["resps"]]
        query, choices = s["arguments"][0][0], [a[1] for a in s["arguments"]]
        sequences = []
        for choice, total in zip(choices, sums):
            context, continuation = model._encode_pair(query, choice)
            ids = (context + continuation)[-(T + 1):]
            sequences.append(position[tuple(ids), len(ids) - len(continuation)])
            assert sequences[-1]["sum"] == total
        out.append({"query": query, "choices": [c[1:] for c in choices], "lm_eval": sequences,
                    "acc": s["acc"], "acc_norm": s["acc_norm"]})
    return out


def by_llmc(item, pieces, gpt2):
    context, sequences = pieces.encode(item["ctx"]), []
    for ending in item["endings"]:
        ids = context + pieces.encode(" " + ending)
        if len(ids) > T + 1:
            return None
        sequences.append({"ids": ids, "from": len(context), "sum": gpt2.score(ids, len(context))})
    means = [s["sum"] / (len(s["ids"]) - s["from"]) for s in sequences]
    return {"llmc": sequences, "llmc_acc": float(int(np.argmax(means)) == int(item["label"]))}


def write_bin(path, items, results):
    """As data_common.py's write_evalfile."""
    stream, longest = [], 0
    for number, (item, result) in enumerate(zip(items, results)):
        sequences = result["llmc"]
        context = sequences[0]["ids"][:sequences[0]["from"]]
        words16 = [65535, 0, number, int(item["label"]), 4, len(context), *context]
        for s in sequences:
            words16 += [len(s["ids"]) - s["from"], *s["ids"][s["from"]:]]
        words16[1] = 2 * len(words16)
        longest = max(longest, words16[1])
        stream += words16
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240522, 1, len(items), longest, *[0] * 252))
        f.write(struct.pack(f"<{len(stream)}H", *stream))


def write_lines(path, items):
    with open(path, "w", encoding="utf-8") as f:
        for item in items:
            f.write(json.dumps(item, ensure_ascii=item["ind"] % 2 == 0) + "\n")


def main(folder):
    rng = random.Random(15)
    os.makedirs(folder, exist_ok=True)
    at = lambda name: os.path.join(folder, name)
    trained, text = io.BytesIO(), [words(rng, 5, 12) + rng.choice([".", ":", ","]) + rng.choice(
        [" He", " The", " It", " Baking", " Roof"]) + " [so]" for _ in range(2000)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=trained, vocab_size=PIECES, model_type="bpe",
        add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity",
        minloglevel=2)
    with open(at("pieces.model"), "wb") as f:
        f.write(trained.getvalue())
    with open(at("tokenizer_config.json"), "w", encoding="utf-8") as f:
        f.write('{"add_bos_token": false}\n')
    pieces = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    gpt2 = Gpt2(MODEL)
    fits, long = [], [make_item(rng, i, (26, 30)) for i in range(4)]
    for item in long:
        item["label"] = str(item["label"])  # as Hugging Face's copy has it
    while len(fits) < 30:
        item = make_item(rng, len(fits), (3, 8))
        if by_llmc(item, pieces, gpt2):
            fits.append(item)
    expected = {"lm_eval": lm_eval.__version__, "seq_len": T}
    for name, items in (("items", fits), ("long", long)):
        write_lines(at(name + ".jsonl"), items)
        expected[name] = by_lm_eval(at(name + ".jsonl"), pieces, gpt2)
        for item, result in zip(items, expected[name]):
            result["label"] = int(item["label"])
            result.update(by_llmc(item, pieces, gpt2) or {})
    write_bin(at("items.bin"), fits, expected["items"])
    expected["clean"] = [[s, utils.preprocess(s)] for s in make_strings(rng)]
    expected["capital"] = [[s, s.capitalize()] for s in make_capitals(rng)]
    with open(at("expected.json"), "w", encoding="utf-8") as f:
        json.dump(expected, f, separators=(",", ":"))
        f.write("\n")
    for name in ("items", "long"):
        print(name, len(expected[name]), "items; cut by lm-eval:",
              sum(len(s["ids"]) == T + 1 for r in expected[name] for s in r["lm_eval"]))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/eval")
