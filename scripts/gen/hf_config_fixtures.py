#!/usr/bin/env python3
"""Makes tests/fixtures/hf_config: what transformers makes of config.json's keys.

    PYTHON scripts/gen/hf_config_fixtures.py [FOLDER]

PYTHON has torch, transformers and safetensors. FOLDER (default: tests/fixtures/hf_config) is made
anew; the models are those of tests/fixtures/hf (scripts/gen/hf_fixtures.py).

edits.jsonl    a case a line: a model of tests/fixtures/hf, what is set in its config.json (null:
               the key is taken out), and the mean loss of reference.json's batch then, in fp64 but
               for what transformers computes in fp32 in any dtype (RMS norms are replaced, as
               there); or "fails": transformers does not open it, or does not run. "refused": what
               ./train refuses it by, although transformers runs it
keys.jsonl     each key that a configuration class has, or that the code of a family asks its
               configuration for, with another value than usual, and what that changes: "forward"
               (the loss), "shape" (weights are missing, left over or of another shape), "training"
               (the loss in training mode alone), "fails" (it does not open or run), "nothing"
rotations.jsonl  a configuration a line, the inverse frequencies that transformers has for it, and
               the factor of their cosines and sines
"""

import argparse
import ast
import copy
import dataclasses
import importlib
import json
import os
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, masking_utils, modeling_rope_utils

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_fixtures  # noqa: E402

MODELS = "tests/fixtures/hf"
LINEAR = {"rope_type": "linear", "factor": 2.0}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
OLD = {"rope_parameters": None}  # a file of transformers 4
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
NO_LENGTH = {"rope_type": "yarn", "factor": 4.0}
SLIDING = ["sliding_attention", "sliding_attention"]
FULL = ["full_attention", "full_attention"]

# Of the cases below, those that ./train refuses although transformers runs them, by what it names.
REFUSED = {
    "dynamic": "rope_scaling", "not causal": "is_causal", "some do": "layer_types",
    "a window of some layers": "max_window_layers",
}
# Model, name, edits.
EDITS = [
    ("llama", "as it is", {}),
    ("llama", "rope_scaling beside rope_parameters", {"rope_scaling": LINEAR}),
    ("llama", "rope_scaling takes no theta from rope_parameters", {
        "rope_scaling": LINEAR, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    ("llama", "rope_scaling takes the theta beside it", {
        "rope_scaling": LINEAR, "rope_theta": 3e5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    ("llama", "a theta inside goes before the one beside", {
        "rope_scaling": {**LINEAR, "rope_theta": 7e5}, "rope_theta": 3e5}),
    ("llama", "an empty rope_scaling is none", {
        "rope_scaling": {}, "rope_parameters": {**LINEAR, "rope_theta": 5e5}}),
    ("llama", "rope_parameters without theta", {"rope_parameters": LINEAR, "rope_theta": 4e5}),
    ("llama", "transformers 4, type", {
        **OLD, "rope_theta": 5e4, "rope_scaling": {"type": "linear", "factor": 3.0}}),
    ("llama", "transformers 4, no scaling", {**OLD, "rope_theta": 2e4}),
    ("llama", "no word of angles", OLD),
    ("llama", "rope_type goes before type", {
        "rope_parameters": {"rope_type": "default", "type": "linear", "factor": 2.0,
                            "rope_theta": 1e4}}),
    ("llama", "llama3 beside the default", {"rope_scaling": LLAMA3}),
    ("llama", "a length beside goes before the one inside", {
        "rope_scaling": LLAMA3, "original_max_position_embeddings": 8}),
    ("llama", "without a length it is the model's", {
        "rope_scaling": {k: v for k, v in LLAMA3.items() if k[0] != "o"}}),
    ("llama", "a length changes no linear", {
        "rope_scaling": LINEAR, "original_max_position_embeddings": 8}),
    ("llama3", "as it is", {}),
    ("llama3", "a length beside the usual place", {"original_max_position_embeddings": 8}),
    ("llama", "yarn beside the default", {"rope_scaling": YARN}),
    ("llama", "yarn, a length beside goes before the one inside", {
        "rope_scaling": YARN, "original_max_position_embeddings": 8}),
    ("llama", "yarn without a length", {"rope_scaling": NO_LENGTH}),
    ("llama", "yarn of transformers 4", {
        **OLD, "rope_theta": 5e4, "rope_scaling": {**NO_LENGTH, "type": "yarn"}}),
    ("llama", "yarn, a factor that is null", {
        "rope_scaling": {**YARN, "factor": None, "original_max_position_embeddings": 10}}),
    ("llama", "yarn without a factor", {
        "rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 32}}),
    ("llama", "yarn, attention_factor", {"rope_scaling": {**YARN, "attention_factor": 1.5}}),
    ("llama", "yarn, two scales", {
        "rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.2}}),
    ("llama", "yarn, one scale alone", {"rope_scaling": {**YARN, "mscale": 0.7}}),
    ("llama", "yarn, attention_factor before scales", {
        "rope_scaling": {**YARN, "attention_factor": 0.8, "mscale": 0.7, "mscale_all_dim": 1.2}}),
    ("llama", "yarn, other turns", {
        "rope_scaling": {**YARN, "beta_fast": 4, "beta_slow": 0.5}}),
    ("llama", "yarn, exact", {"rope_scaling": {**YARN, "truncate": False, "beta_fast": 3}}),
    ("llama", "yarn, a part of a head", {
        "rope_scaling": {**YARN, "partial_rotary_factor": 0.5}}),
    ("llama", "all of a head where nothing is stretched", {"partial_rotary_factor": 0.5}),
    ("qwen2", "yarn as Qwen's cards have it", {
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 8, "type": "yarn"}}),
    ("qwen3", "yarn", {"rope_scaling": {**YARN, "rope_theta": 1e6}}),
    ("mistral", "yarn", {"rope_scaling": YARN}),
    ("llama", "dynamic", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    ("llama", "no layer slides", {"layer_types": SLIDING, "sliding_window": 3}),
    ("llama", "some layers would", {
        "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3}),
    ("llama", "a window that nobody looks at", {"sliding_window": 3}),
    ("mistral", "as it is", {}),
    ("mistral", "no layer of another model slides", {"layer_types": FULL}),
    ("mistral", "all layers of another model slide", {"layer_types": SLIDING}),
    ("mistral", "some do", {"layer_types": ["full_attention", "sliding_attention"]}),
    ("mistral", "no window", {"sliding_window": "null"}),
    ("qwen2", "as it is", {}),
    ("qwen2", "a window that is off", {
        "use_sliding_window": False, "sliding_window": 3, "max_window_layers": 0}),
    ("qwen2", "a window of no layer", {
        "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2,
        "layer_types": None}),
    ("qwen2", "a window of every layer", {
        "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0,
        "layer_types": None}),
    ("qwen3", "all layers slide", {
        "use_sliding_window": True, "sliding_window": 5, "layer_types": SLIDING}),
    ("qwen3", "all are full", {
        "use_sliding_window": True, "sliding_window": 5, "layer_types": FULL}),
    ("qwen2", "a window of some layers", {
        "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1,
        "layer_types": None}),
    ("llama", "not causal", {"is_causal": False}),
    ("gpt2", "as it is", {}),
    ("gpt2", "not causal", {"is_causal": False}),
    ("qwen2", "layers slide without a window", {
        "use_sliding_window": False, "layer_types": SLIDING}),
]


def edit(folder, model, edits):
    """A copy of the model's folder, with links to its weights, and the edited config.json."""
    source = f"{MODELS}/{model}"
    for name in os.listdir(source):
        if "safetensors" in name and not name.startswith("reference"):
            os.symlink(os.path.abspath(f"{source}/{name}"), f"{folder}/{name}")
    with open(f"{source}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    for key, value in edits.items():
        if value is None:
            config.pop(key, None)
        else:
            config[key] = None if value == "null" else copy.deepcopy(value)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)


def loss_of(model, edits):
    with open(f"{MODELS}/{model}/reference.json", encoding="utf-8") as f:
        facts = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        edit(folder, model, edits)
        opened = hf_fixtures.open_model(folder, torch.float64)
        hf_fixtures.replace_norms(opened)
        with torch.no_grad():
            loss = hf_fixtures.loss_of(opened, torch.tensor(facts["tokens"]),
                                       torch.tensor(facts["targets"]))[1]
    return loss.item()


def check_head_alone():
    """A tied matrix that is stored by the head's name alone is the same model."""
    with tempfile.TemporaryDirectory() as folder:
        edit(folder, "llama3", {})
        model = hf_fixtures.open_model(folder, torch.float64)
        tensors = {k: v.clone() for k, v in model.state_dict().items() if k != "lm_head.weight"}
        tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
        for name in os.listdir(folder):
            if "safetensors" in name:
                os.remove(f"{folder}/{name}")
        save_file(tensors, f"{folder}/model.safetensors", {"format": "pt"})
        again = hf_fixtures.open_model(folder, torch.float64)
        for name, value in model.state_dict().items():
            assert torch.equal(value, again.state_dict()[name]), name


def make_edits(root):
    lines, seen = [], {}
    for model, name, edits in EDITS:
        case = {"model": model, "name": name, "set": edits}
        try:
            case["loss"] = loss_of(model, edits)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            case["fails"] = type(error).__name__
        if name in REFUSED:
            case["refused"] = REFUSED[name]
        lines.append(json.dumps(case))
        told = case.get("loss", case.get("fails"))
        print(f"{model}: {name}: {told}")
        seen.setdefault(model, set()).add(told)
    assert all(len(s) > 1 for s in seen.values()), "edits that change nothing"
    with open(f"{root}/edits.jsonl", "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


# Head size, and config.json's words: of models' cards where they name one.
ROTATIONS = {
    "qwen2.5-7b by its card": (128, 1e6, 32768, {
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    "qwen3-8b by its card": (128, 1e6, 40960, {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    "yarn-llama-2-7b-64k": (128, 1e4, 65536, {
        "type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}),
    "scales of deepseek": (64, 1e4, 163840, {
        "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
        "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 1.0}),
    "gpt-oss": (64, 150000.0, 131072, {
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": False, "original_max_position_embeddings": 4096}),
    "one turn": (32, 1e4, 4096, {
        "rope_type": "yarn", "factor": 2.0, "beta_fast": 2, "beta_slow": 2, "truncate": False,
        "original_max_position_embeddings": 2048}),
    "ends beyond a head": (16, 1e4, 1 << 20, {
        "rope_type": "yarn", "factor": 3.5, "beta_fast": 400, "beta_slow": 0.001,
        "original_max_position_embeddings": 512, "attention_factor": 0.9}),
}


def make_rotations(root):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    lines = []
    for name, (size, theta, length, scaling) in ROTATIONS.items():
        said = {"model_type": "llama", "hidden_size": 4 * size, "num_attention_heads": 4,
                "head_dim": size, "max_position_embeddings": length, "rope_theta": theta,
                "rope_scaling": scaling}
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
                json.dump(said, f)
            rope = LlamaRotaryEmbedding(AutoConfig.from_pretrained(folder))
        lines.append(json.dumps({"name": name, "config": said,
                                 "inv_freq": rope.inv_freq.float().tolist(),
                                 "factor": rope.attention_scaling}))
    with open(f"{root}/rotations.jsonl", "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


# ---- every key ----------------------------------------------------------------------------------

# The rest is probed with a value that its type has besides the usual one. A list: each by itself.
PROBES = {
    "activation_function": ["relu", "gelu", "gelu_pytorch_tanh"], "hidden_act": ["gelu", "relu"],
    "head_dim": [32], "hidden_size": [32], "n_embd": [32], "n_head": [2], "n_inner": [128],
    "num_attention_heads": [2], "num_key_value_heads": [4, 1], "intermediate_size": [128],
    "num_hidden_layers": [1], "n_layer": [1], "vocab_size": [180], "n_positions": [20],
    "rms_norm_eps": [1e-2], "layer_norm_epsilon": [1e-2], "sliding_window": [3, "null"],
    "layer_types": [FULL, SLIDING, ["full_attention", "sliding_attention"]],
    "max_window_layers": [0, 1], "rope_theta": [5e5], "rope_scaling": [LINEAR, LLAMA3, YARN],
    "rope_parameters": [{**LINEAR, "rope_theta": 1e4}, {**YARN, "rope_theta": 1e4},
                        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}],
    "partial_rotary_factor": [0.5], "is_causal": [False], "attention_chunk_size": [3],
    "original_max_position_embeddings": [8], "max_position_embeddings": [20],
    "quantization_config": [{"quant_method": "fp8"}], "model_type": ["phi"],
    "tie_word_embeddings": [True, False], "architectures": [["LlamaForSequenceClassification"]],
    "dtype": ["bfloat16"], "torch_dtype": ["float16"], "problem_type": ["regression"],
    "id2label": [{"0": "a"}], "label2id": [{"a": 0}], "pad_token_id": [0],
    "bos_token_id": [5], "eos_token_id": [5, [5, 6]], "pretraining_tp": [2],
    "summary_type": ["mean"], "summary_activation": ["tanh"], "chunk_size_feed_forward": [8],
    "num_labels": [3], "mlp_bias": [True], "attention_bias": [True],
    "initializer_range": [0.5], "per_layer_config": [{"0": {"sliding_window": 3}}],
}
# Without which a key has nothing to change.
SLIDES = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0,
          "layer_types": None}
BESIDE = {
    "rope_theta": OLD, "original_max_position_embeddings": {"rope_scaling": LLAMA3},
    "use_sliding_window": {**SLIDES, "use_sliding_window": None}, "sliding_window": SLIDES,
    "max_window_layers": {**SLIDES, "max_window_layers": 2}, "layer_types": SLIDES,
}
# What is in a rope_parameters, by the kind that reads it.
TURNS = {
    "linear": (LINEAR, {"factor": 3.0, "partial_rotary_factor": 0.5, "rope_theta": 5e5}),
    "llama3": (LLAMA3, {"factor": 3.0, "low_freq_factor": 2.0, "high_freq_factor": 9.0,
                        "original_max_position_embeddings": 8}),
    "yarn": (YARN, {"factor": 3.0, "attention_factor": 1.5, "beta_fast": 1.2, "beta_slow": 0.1,
                    "truncate": False, "original_max_position_embeddings": 8,
                    "mscale": 0.7, "mscale_all_dim": 1.2}),
}
OF_REFUSED_KINDS = {"long_factor", "short_factor"}
# What the code asks for that no config.json says, or that is of other models than these.
NOT_OF_A_FILE = {
    "_attn_implementation", "get_text_config", "classifier_dropout", "hidden_dropout",
    "token_classification_bias", "summary_last_dropout", "return_dict",
}


def asked_of_config(path):
    """Names X of config.X, self.config.X and getattr(config, "X")."""
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in ("config", "effective_config"):
                yield node.attr
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            owner = node.args[0]
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in ("config", "effective_config") and isinstance(node.args[1], ast.Constant):
                yield node.args[1].value


def asked_of_turns():
    """Keys that the code of rotary embedding reads of its dictionary."""
    with open(modeling_rope_utils.__file__, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "").startswith("rope_par"):
            if isinstance(node.slice, ast.Constant):
                yield node.slice.value
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get" and \
                getattr(node.func.value, "id", "").startswith("rope_par"):
            yield node.args[0].value


def keys_of(config):
    """Of a configuration's class, its aliases, and what the family's code asks for."""
    own = {f.name for f in dataclasses.fields(config)} | set(config.attribute_map)
    module = type(config).__module__.replace("configuration", "modeling")
    code = importlib.import_module(module).__file__
    asked = set(asked_of_config(code)) | set(asked_of_config(masking_utils.__file__))
    asked = {k for k in asked if not callable(getattr(type(config), k, None))}
    old = {"is_causal", "quantization_config", "torch_dtype", "num_labels", "per_layer_config"}
    turns = {"rope_theta", "rope_scaling", "partial_rotary_factor",
             "original_max_position_embeddings"}
    old |= turns if hasattr(config, "rope_parameters") else set()
    return sorted((own | asked | old) - NOT_OF_A_FILE)


def probes_of(key, config):
    if key in PROBES:
        return PROBES[key]
    value = getattr(config, key, None)
    if isinstance(value, bool) or value is None:
        return [not value]
    if isinstance(value, (int, float)):
        return [value + 0.25 if key.endswith(("dropout", "pdrop")) else value + 1]
    if isinstance(value, str):
        return ["other"]
    raise SystemExit(f"{key}: {value!r} has no probe")


def effect_of(model, edits, facts, usual):
    """In which mode a loss differs, or how weights do."""
    with tempfile.TemporaryDirectory() as folder:
        edit(folder, model, edits)
        try:
            opened, info = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float64, attn_implementation="sdpa", output_loading_info=True,
                ignore_mismatched_sizes=True)
            if any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")):
                return "shape", None
            hf_fixtures.replace_norms(opened)
            tokens, targets = torch.tensor(facts["tokens"]), torch.tensor(facts["targets"])
            losses = []
            for mode in (opened.eval, opened.train):
                torch.manual_seed(1)
                with torch.no_grad():
                    losses.append(hf_fixtures.loss_of(mode(), tokens, targets)[1].item())
        except Exception as error:  # a reader's, of any kind
            return "fails", type(error).__name__
    if usual is None:
        return None, losses
    if abs(losses[0] - usual[0]) > 1e-12:
        return "forward", losses
    return ("training" if abs(losses[1] - usual[1]) > 1e-12 else "nothing"), losses


def make_keys(root):
    lines = []
    unknown = set(asked_of_turns()) - OF_REFUSED_KINDS - {"rope_type", "type"}
    unknown -= {k for _, probes in TURNS.values() for k in probes}
    assert not unknown, f"no probe for {unknown}"
    for model in ("gpt2", "llama", "mistral", "qwen2", "qwen3"):
        with open(f"{MODELS}/{model}/reference.json", encoding="utf-8") as f:
            facts = json.load(f)
        config = AutoConfig.from_pretrained(f"{MODELS}/{model}")
        usual = effect_of(model, {}, facts, None)[1]
        beside = BESIDE if model.startswith("qwen") else {
            k: v for k, v in BESIDE.items() if "rope_theta" in k or "original" in k}
        rows = [(key, beside.get(key, {}), {**beside.get(key, {}), key: value})
                for key in keys_of(config) for value in probes_of(key, config)]
        for kind, (base, probes) in TURNS.items() if model != "gpt2" else ():
            for key, value in probes.items():
                said = {**base, "mscale_all_dim": 0.4} if key == "mscale" else base
                said = {**base, "mscale": 0.4} if key == "mscale_all_dim" else said
                rows.append((f"rope_scaling.{key} ({kind})", {"rope_scaling": said},
                             {"rope_scaling": {**said, key: value}}))
        for key, before, edits in rows:
            without = effect_of(model, before, facts, None)[1] if before else usual
            effect, _ = effect_of(model, edits, facts, without)
            lines.append({"model": model, "key": key, "before": before, "set": edits,
                          "effect": effect})
    with open(f"{root}/keys.jsonl", "w", encoding="utf-8") as f:
        f.write("\n".join(json.dumps(line) for line in lines) + "\n")
    print(f"{len(lines)} probes of keys")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", nargs="?", default="tests/fixtures/hf_config")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    shutil.rmtree(given.folder, ignore_errors=True)
    os.makedirs(given.folder)
    check_head_alone()
    make_edits(given.folder)
    make_rotations(given.folder)
    make_keys(given.folder)
    print(f"transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
