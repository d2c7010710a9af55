#!/usr/bin/env python3
"""Writes what DeepSpeed passes over in a configuration, for tests/data/test_deepspeed_passes.c.

    scripts/gen/deepspeed_passes.py SOURCE... >tests/fixtures/deepspeed/passes.txt

SOURCE is an unpacked source distribution of DeepSpeed. Its own DeepSpeedConfig reads each
configuration below: for each block of tests/fixtures/deepspeed/keys.txt one with a key that it has
not, and one with a comment; and features that are switched off, with all that they have. Each
version has a process, with torch, pydantic, hjson and what else DeepSpeed imports. A line is
"passed" where one of the versions takes it, as files outlive versions, else "refused", then it.
Arguments of optimizers and schedulers are not DeepSpeedConfig's: there the constructor is asked.
"""
import inspect
import json
import os
import pathlib
import subprocess
import sys

KEYS = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/fixtures/deepspeed/keys.txt"
STRANGE = {"qzxv_jkwy": 1}  # near no key
COMMENTS = {"_comment": "of a person", "//": "another", "comment": "a third"}
# Without these DeepSpeed does not read a block, or not to its end.
NEEDS = {"amp": {"enabled": False}, "curriculum_learning": {"enabled": False},
         "progressive_layer_drop": {"enabled": False}, "optimizer": {"type": "AdamW"},
         "scheduler": {"type": "WarmupLR"}}
GROUPS = {"wq1": {"params": {"start_bits": 8, "target_bits": 8}, "modules": ["attention.self"]}}
PART = {"shared_parameters": {"enabled": False, "schedule_offset": 50}, "different_groups": {}}

OFF = [
    {"compression_training": {
        "layer_reduction": {"enabled": False, "keep_number_layer": 5, "module_name_prefix": "h"},
        "weight_quantization": {
            "shared_parameters": {"enabled": False, "quantizer_kernel": False,
                                  "fp16_mixed_quantize": {"enabled": False}},
            "different_groups": GROUPS},
        "activation_quantization": PART, "sparse_pruning": PART, "row_pruning": PART,
        "head_pruning": PART, "channel_pruning": PART}},
    {"compression_training": {}},
    {"quantize_training": {"enabled": False, "quantize_groups": 1}},
    {"autotuning": {"enabled": False, "arg_mappings": {"train_batch_size ": "--batch"}}},
    {"elasticity": {"enabled": False, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4]}},
    {"flops_profiler": {"enabled": False, "profile_step": 1, "top_modules": 3}},
    {"data_efficiency": {"enabled": False, "data_sampling": {"num_workers": 2}}},
    {"curriculum_learning": {"enabled": False, "curriculum_type": "seqlen"}},
    {"progressive_layer_drop": {"enabled": False, "theta": 0.5}},
    {"eigenvalue": {"enabled": False, "verbose": True}},
    {"hybrid_engine": {"enabled": False, "max_out_tokens": 512}},
    {"nebula": {"enabled": False, "persistent_storage_path": "/x"}},
    {"wandb": {"enabled": False, "project": "x"}},
    {"comet": {"enabled": False, "project": "x"}},
    {"csv_monitor": {"enabled": False}},
    {"comms_logger": {"enabled": False, "verbose": True}},
    {"amp": {"enabled": False, "opt_level": "O1"}},
    {"torch_autocast": {"enabled": False, "dtype": "bfloat16"}},
    {"weight_quantization": {"enabled": False}},
    {"fp16": {"enabled": False, "consecutive_hysteresis": True, "opt_level": "O2"}},
    {"bf16": {"enabled": False, "opt_level": "O2"}},
    {"bf16": {"enabled": False, "loss_scale": 0, "initial_scale_power": 16,
              "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1}},
]
COMPILE = [
    {"compile": {"disable": False, "backend": "inductor"}},
    {"compile": {"enabled": False, "backend": "inductor", "kwargs": {"dynamic": True}}},
    {"compile": {"deepcompile": True, "offload_parameters": True, "passes": ["z3"]}},
]
OTHERS = [
    {"comms_config": {"verbose": False}, "monitor_config": {"enabled": False}},
    {"cuda_visible_devices": "0,1"},
    {"log": {"enabled": True}},
    {"tensor_parallel": {"autotp_size": 0}},
]


def nested(path, inside):
    for name in reversed(path.split(".") if path else []):
        inside = {name: inside}
    return {"train_batch_size": 1, **inside}


def probes():
    keys = [k for k in KEYS.read_text().splitlines() if not k.startswith("#")]
    blocks = sorted({k.rpartition(".")[0] for k in keys})
    for more in (STRANGE, COMMENTS):
        for block in blocks:
            yield nested(block, {**NEEDS.get(block, {}), **more})
    yield from (nested("", more) for more in OFF + COMPILE + OTHERS)


def constructors():
    """Names that one of the classes takes which a block's parameters go to."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    from deepspeed.runtime import lr_schedules as s
    kinds = {"optimizer": [DeepSpeedCPUAdam],
             "scheduler": [s.WarmupLR, s.WarmupDecayLR, s.WarmupCosineLR]}
    return {block: {name for kind in some for name in inspect.signature(kind).parameters}
            for block, some in kinds.items()}


def answers():
    """One version's: a line of 0 or 1 for each probe."""
    from deepspeed.runtime.config import DeepSpeedConfig
    names = constructors()
    for probe in probes():
        passed = all(set(probe[b].get("params", {})) <= names[b] for b in names if b in probe)
        try:
            # It writes into what it is handed.
            DeepSpeedConfig(json.loads(json.dumps(probe)))
        except Exception:  # of a dozen kinds: pydantic's, assertions, its own
            passed = False
        print(f"answer {int(passed)}")


def ask(root):
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    said = subprocess.run([sys.executable, __file__, "--one"], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": path, "DS_ACCELERATOR": "cpu"})
    lines = [line.split()[1] == "1" for line in said.stdout.splitlines()
             if line.startswith("answer ")]
    if said.returncode or len(lines) != len(list(probes())):
        sys.exit(f"{root}: DeepSpeed does not run")
    return lines


def main():
    if sys.argv[1:] == ["--one"]:
        return answers()
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.split("\n\n")[1].strip())
    versions = [(pathlib.Path(r) / "version.txt").read_text().strip() for r in sys.argv[1:]]
    taken = [any(each) for each in zip(*(ask(root) for root in sys.argv[1:]))]
    print(f"# What DeepSpeed {', '.join(versions)} make of a configuration: passed where")
    print("# one of them takes it. By scripts/gen/deepspeed_passes.py.")
    for probe, passed in zip(probes(), taken):
        # A comment is one everywhere here.
        if passed or "comment" not in json.dumps(probe):
            print("passed " if passed else "refused", json.dumps(probe))


if __name__ == "__main__":
    main()
