#!/usr/bin/env python3
"""Lists every key that DeepSpeed's configuration files may have, from its package.

    scripts/gen/deepspeed_keys.py SOURCE... >tests/fixtures/deepspeed/keys.txt

SOURCE is an unpacked source distribution of DeepSpeed ("pip download --no-deps --no-binary :all:
deepspeed==VERSION", and tar); several versions make one list, as files outlive the versions that
they were written for. Nothing of it is run: the text is parsed, and a key is a field (or its alias)
of a pydantic model, or a name that a reader asks its dictionary for. What is read where is in the
tables below; a model or a reader that no table names ends the script, so that the next version's
are not forgotten. tests/data/test_deepspeed.c fails where a key of the list has no verdict.
"""
import ast
import pathlib
import re
import sys

# A pydantic model, and where in the file it lies. Models inside it are found by its fields' types.
MODELS = {
    "DeepSpeedZeroConfig": ["zero_optimization"],
    "DeepSpeedBF16Config": ["bf16", "bfloat16"],
    "DeepSpeedFP16Config": ["fp16"],
    "DeepSpeedMonitorConfig": [""],
    "HybridEngineConfig": ["hybrid_engine"],
    "CommsLoggerConfig": ["comms_logger"],
    "CompileConfig": ["compile"],
    "TPTrainingConfig": ["tensor_parallel"],
    "WeightQuantConfig": ["weight_quantization"],
    "DeepSpeedThroughputTimerConfig": ["timers.throughput"],
}

# A reader: file, function or class (a regular expression), its dictionary, where that lies.
READERS = [
    ("runtime/config.py", "(?!get_sparse_attention_).*", "param_dict", ""),
    ("runtime/config.py", "get_sparse_attention_.*", "param_dict", "sparse_attention"),
    ("runtime/config.py", "get_sparse_.*_config", "sparsity", "sparse_attention"),
    ("runtime/config.py", "DeepSpeedConfig.*", "config", ""),
    ("runtime/config.py", "DeepSpeedConfig.*", "_param_dict", ""),
    ("runtime/config.py", ".*", "checkpoint_params", "checkpoint"),
    ("runtime/config.py", ".*", "data_types_params", "data_types"),
    ("runtime/config.py", ".*", "par_write_params", "checkpoint.parallel_write"),
    ("runtime/config.py", "get_optimizer.*", "optimizer_params", "optimizer.params"),
    ("runtime/precision_config.py", "get_.*", "param_dict", ""),
    ("runtime/zero/config.py", "get_zero.*|read_zero.*", "param_dict", ""),
    ("runtime/activation_checkpointing/config.py", ".*", "param_dict", ""),
    ("runtime/activation_checkpointing/config.py", ".*", "act_chkpt_config_dict",
     "activation_checkpointing"),
    ("runtime/model_checkpointing/config.py", "get_checkpoint_config", "param_dict", ""),
    ("runtime/model_checkpointing/config.py", "get_checkpoint_writer.*", "param_dict",
     "checkpoint"),
    ("runtime/model_checkpointing/config.py", ".*", "checkpoint_dict", "checkpoint"),
    ("runtime/model_checkpointing/config.py", ".*", "writer_dict", "checkpoint.writer"),
    ("runtime/swap_tensor/aio_config.py", ".*", "param_dict", ""),
    ("runtime/swap_tensor/aio_config.py", ".*", "aio_dict", "aio"),
    ("runtime/data_pipeline/config.py", "get_data_efficiency.*|get_curriculum_.*legacy",
     "param_dict", ""),
    ("runtime/data_pipeline/config.py", "get_data_sampling.*|get_data_routing.*", "param_dict",
     "data_efficiency"),
    ("runtime/data_pipeline/config.py", "get_curriculum_learning(_enabled|_params)?|get_dynamic.*",
     "param_dict", "data_efficiency.data_sampling"),
    ("runtime/data_pipeline/config.py", "get_random_ltd.*", "param_dict",
     "data_efficiency.data_routing"),
    ("profiling/config.py", ".*", "param_dict", ""),
    ("profiling/config.py", ".*", "flops_profiler_dict", "flops_profiler"),
    ("autotuning/config.py", "DeepSpeed.*", "param_dict", ""),
    ("autotuning/config.py", "DeepSpeed.*", "autotuning_dict", "autotuning"),
    ("autotuning/config.py", "get_model_info.*", "param_dict", "autotuning"),
    ("module_inject/auto_ep_config.py", "parse_.*", "param_dict", "expert_parallel"),
    ("monitor/config.py", ".*", "param_dict", ""),
    ("datastates/config.py", ".*", "param_dict", ""),
    ("utils/config.py", ".*", "param_dict", ""),
    ("nebula/config.py", ".*", "param_dict", ""),
    ("nebula/config.py", ".*", "nebula_dict", "nebula"),
    ("elasticity/config.py", ".*", "param_dict", "elasticity"),
    ("compression/config.py", "get_compression_config|get_quantize_enabled", "param_dict", ""),
    ("runtime/tensor_parallel/config.py", ".*", "ds_config", ""),
    ("runtime/engine.py", ".*", "optimizer_parameters", "optimizer.params"),
]

# What a constructor takes: file, class, where its arguments lie.
CONSTRUCTORS = [
    ("ops/adam/fused_adam.py", "FusedAdam", "optimizer.params"),
    ("ops/adam/cpu_adam.py", "DeepSpeedCPUAdam", "optimizer.params"),
] + [("runtime/lr_schedules.py", c, "scheduler.params")
     for c in ("LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR")]

# Files that speak of a dictionary of parameters which is not that of the file.
OTHERS = ("runtime/config_utils.py", "runtime/zero/stage3.py", "runtime/zero/stage_1_and_2.py",
          "compile/", "compression/", "inference/", "linear/", "ops/transformer/")

# Blocks whose keys are those of a dictionary of defaults.
INNER = {"pipeline": "default_pipeline"}


class Package:
    def __init__(self, root):
        self.root = pathlib.Path(root) / "deepspeed"
        self.trees = {}
        self.classes = {}
        self.constants = {}
        for path in sorted(self.root.rglob("*.py")):
            name = path.relative_to(self.root).as_posix()
            if name.startswith(("inference/v2", "model_implementations")):
                continue
            tree = self.trees[name] = ast.parse(path.read_text())
            own = self.constants[name] = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
            for node in tree.body:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and \
                        isinstance(node.value.value, str) and isinstance(node.targets[0], ast.Name):
                    own[node.targets[0].id] = node.value.value

    def text(self, name, node):
        """The string that an expression stands for in the file `name`, or None."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if not isinstance(node, ast.Name):
            return None
        folder = name.rpartition("/")[0]
        for place in (name, folder + "/constants.py", "runtime/constants.py", *self.constants):
            if node.id in self.constants.get(place, {}):
                return self.constants[place][node.id]
        return None

    def is_model(self, node):
        bases = [b.id for b in node.bases if isinstance(b, ast.Name)]
        return "DeepSpeedConfigModel" in bases or any(
            b in self.classes and self.is_model(self.classes[b]) for b in bases)


def model_keys(package, name, prefix, seen):
    """Fields of a model under `prefix`, and those of models that are its fields' types."""
    node = package.classes.get(name)
    if node is None:
        return
    seen.add(name)
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in package.classes:
            if package.is_model(package.classes[base.id]):
                yield from model_keys(package, base.id, prefix, seen)
    for field in node.body:
        if not isinstance(field, ast.AnnAssign) or field.target.id == "model_config":
            continue
        names = [field.target.id]
        for word in getattr(field.value, "keywords", []):
            if word.arg == "alias":
                names.append(word.value.value)
        for key in names:
            path = (prefix + "." if prefix else "") + key
            yield path
            for kind in re.findall(r"\w+", ast.unparse(field.annotation)):
                if kind in package.classes and package.is_model(package.classes[kind]):
                    yield from model_keys(package, kind, path, seen)


def asked(package, name, body, variable):
    """The names that the code asks the dictionary `variable` for."""
    def is_it(node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and \
                node.func.attr == "keys":
            node = node.func.value
        if isinstance(node, ast.Attribute):
            return node.attr == variable
        return isinstance(node, ast.Name) and node.id == variable

    presets = {}  # an argument's default, which is the key where nobody says otherwise
    if isinstance(body, ast.FunctionDef) and body.args.defaults:
        presets = {a.arg: d for a, d in
                   zip(body.args.args[-len(body.args.defaults):], body.args.defaults)}
    for node in ast.walk(body):
        key = None
        if isinstance(node, ast.Subscript) and is_it(node.value):
            key = node.slice
        elif isinstance(node, ast.Compare) and is_it(node.comparators[0]):
            key = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and \
                node.func.attr in ("get", "pop") and is_it(node.func.value):
            key = node.args[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and \
                node.func.id.startswith("get_") and len(node.args) > 1 and is_it(node.args[0]):
            key = node.args[1]
        if isinstance(key, ast.Name) and key.id in presets:
            key = presets[key.id]
        text = package.text(name, key) if key is not None else None
        if text is not None:
            yield text
        # param_dict[BLOCK][NAME] and get_scalar_param(param_dict[BLOCK], NAME, ...)
        inner = None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript):
            inner, key = node.value, node.slice
        elif isinstance(node, ast.Compare) and node.comparators:
            at = node.comparators[0]
            if isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute):
                at = at.func.value
            if isinstance(at, ast.Subscript):
                inner, key = at, node.left
        elif isinstance(node, ast.Call) and len(node.args) > 1 and \
                isinstance(node.args[0], ast.Subscript):
            inner, key = node.args[0], node.args[1]
        if inner is not None and is_it(inner.value):
            outer, text = package.text(name, inner.slice), package.text(name, key)
            if outer and text:
                yield outer + "." + text


def reader_keys(package):
    for name, where, variable, prefix in READERS:
        tree = package.trees.get(name)
        for node in tree.body if tree else []:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and \
                    re.fullmatch(where, node.name):
                for key in asked(package, name, node, variable):
                    if key == key.lower() and " " not in key:
                        yield (prefix + "." if prefix else "") + key
    for node in ast.walk(package.trees["runtime/config.py"]):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            target = node.targets[0].id
            for block, variable in INNER.items():
                if target == variable and isinstance(node.value, ast.Dict):
                    yield from (f"{block}.{k.value}" for k in node.value.keys)
            if target.startswith("_REMOVED_"):
                prefix = "zero_optimization." if "ZERO" in target else ""
                if isinstance(node.value, ast.Dict):
                    yield from (prefix + k.value for k in node.value.keys)


def model_info_keys(package):
    """The keys of a dictionary of defaults, which a reader goes over."""
    name = "autotuning/constants.py"
    for node in package.trees[name].body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "MODEL_INFO_KEY_DEFAULT_DICT":
            yield from ("autotuning.model_info." + package.text(name, k) for k in node.value.keys)


def constructor_keys(package):
    for name, owner, prefix in CONSTRUCTORS:
        node = next((n for n in package.trees.get(name, ast.Module([], [])).body
                     if isinstance(n, ast.ClassDef) and n.name == owner), None)
        for f in node.body if node else []:
            if isinstance(f, ast.FunctionDef) and f.name == "__init__":
                yield from (f"{prefix}.{a.arg}" for a in f.args.args[1:]
                            if a.arg not in ("params", "model_params", "optimizer"))


def check_complete(package, seen):
    """Nothing reads a file that the tables above do not name."""
    for name, tree in package.trees.items():
        if name.startswith(OTHERS) and not name.startswith("compile/config.py"):
            continue
        known = any(name == r[0] for r in READERS)
        if not known and any(isinstance(n, ast.arg) and n.arg in ("param_dict", "ds_config")
                             and re.search(r"config\.py$", name) for n in ast.walk(tree)) and \
                name not in ("comm/config.py",):
            sys.exit(f"{name}: reads a dictionary of parameters, and is in no table")
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and package.is_model(node) and \
                    node.name not in seen:
                sys.exit(f"{name}: the model {node.name} is in no table")


def keys_of(root):
    package = Package(root)
    seen = {"TensorParallelConfig", "TPConfig"}
    keys = set()
    for model, places in MODELS.items():
        for place in places:
            keys.update(model_keys(package, model, place, seen))
    keys.update(reader_keys(package), model_info_keys(package), constructor_keys(package))
    keys.update(("comms_logger", "timers", "timers.throughput", "optimizer.type",
                 "optimizer.params", "scheduler.type", "scheduler.params"))
    check_complete(package, seen)
    return keys


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.split("\n\n")[1].strip())
    keys, versions = set(), []
    for root in sys.argv[1:]:
        versions.append((pathlib.Path(root) / "version.txt").read_text().strip())
        keys |= keys_of(root)
    print(f"# Keys of DeepSpeed {' and '.join(versions)}, by scripts/gen/deepspeed_keys.py.")
    print("\n".join(sorted(keys)))


if __name__ == "__main__":
    main()
