# Writes the layouts of DeepSpeed's sparse attention that tests/model/test_sparse.c holds ours
# against.
#
#   python3 tests/torch/deepspeed_layouts.py PATH/deepspeed/ops/sparse_attention/sparsity_config.py
#
# needs torch, and writes tests/fixtures/deepspeed/layouts.txt, which is committed: the test itself
# needs no Python. A layout is a line with the flag's text, the heads and the blocks of a sequence,
# and a line for each head: its rows, of each the columns up to the
# diagonal, 1 where it is seen.
#
# Random blocks are left out, as the generators differ; and sequences whose last window is shorter
# than its global blocks, which DeepSpeed moves (model/sparse.h).
import importlib.util
import os
import sys

spec = importlib.util.spec_from_file_location("sparsity_config", sys.argv[1])
theirs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(theirs)

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "deepspeed",
                   "layouts.txt")
CLASSES = {"fixed": theirs.FixedSparsityConfig, "variable": theirs.VariableSparsityConfig,
           "bigbird": theirs.BigBirdSparsityConfig,
           "local": theirs.LocalSlidingWindowSparsityConfig,
           "bslongformer": theirs.BSLongformerSparsityConfig}
CASES = [
    ("fixed", {}, 2, 13),
    ("fixed", {"num_local_blocks": 8, "num_global_blocks": 2}, 1, 19),
    ("fixed", {"num_local_blocks": 4, "num_global_blocks": 1, "different_layout_per_head": True,
               "num_different_global_patterns": 4}, 6, 12),
    ("fixed", {"num_local_blocks": 6, "num_global_blocks": 3, "different_layout_per_head": True,
               "num_different_global_patterns": 2}, 3, 21),
    ("fixed", {"num_local_blocks": 1, "num_global_blocks": 1}, 1, 6),
    ("variable", {}, 1, 11),
    ("variable", {"local_window_blocks": [1, 3, 2], "global_block_indices": [2, 5, 40]}, 2, 14),
    ("variable", {"local_window_blocks": [5], "global_block_indices": [1, 6],
                  "global_block_end_indices": [3, 9]}, 1, 16),
    ("bigbird", {"num_random_blocks": 0}, 1, 9),
    ("bigbird", {"num_random_blocks": 0, "num_sliding_window_blocks": 6, "num_global_blocks": 3},
     2, 12),
    ("bslongformer", {}, 1, 9),
    ("bslongformer", {"num_sliding_window_blocks": 1, "global_block_indices": [0, 4]}, 1, 10),
    ("bslongformer", {"num_sliding_window_blocks": 5, "global_block_indices": [2, 8],
                      "global_block_end_indices": [4, 11]}, 1, 13),
    ("local", {}, 1, 7),
    ("local", {"num_sliding_window_blocks": 7}, 1, 12),
]


def text_of(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def rows_of(layout):
    return " ".join("".join(str(int(x)) for x in row[:i + 1]) for i, row in enumerate(layout))


with open(OUT, "w") as out:
    for mode, keys, heads, blocks in CASES:
        config = CLASSES[mode](num_heads=heads, block=16, attention="unidirectional", **keys)
        flag = ",".join(f"{key}={text_of(value)}" for key, value in keys.items())
        out.write(f"{mode}{':' if flag else ''}{flag} {heads} {blocks}\n")
        for layout in config.make_layout(16 * blocks):
            out.write(rows_of(layout) + "\n")
