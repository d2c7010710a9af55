# What scripts/dev/finetune.sh and real_model.sh share, beside NAME.py of each: source this
# file from the top of the repository, with `python` set. It builds what TRAIN does not name, and
# sets train and work: the folder KEEP, or one that goes at the end. shellcheck shell=bash
if [ -z "${TRAIN:-}" ]; then
    scripts/setup.sh --test || exit 1
    make -s -j"$(nproc)" WITHOUT=cuda build/release/{train,tests/train_batches} || exit 1
fi
train=${TRAIN:-build/release/train} work=${KEEP:-}
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work" || exit 1
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
. tests/lib/tally.sh

py() { # py WORD...: NAME.py, which lies beside the script; what goes wrong is the last line it said
    # shellcheck disable=SC2154 # the script sets python
    "$python" "${0%.sh}.py" "$@" 2>"$work/said.py" && return
    tail -n 1 "$work/said.py" >&2
    return 1
}
holds() { awk "BEGIN { exit !($1) }"; } # holds CONDITION: of numbers; one that lacks is an error
# The loss that a log has in its last line about "ppl".
loss_in() { sed -n 's/.*"val_loss": *\([0-9.e+-]*\).*/\1/p' "$1" | tail -n 1; }
last_words() { # last_words JSONL: what each conversation ends with, a line each
    "$python" -c 'import json, sys
for line in open(sys.argv[1]): print(json.loads(line)["messages"][-1]["content"])' "$1"
}
same_lines() { # same_lines A B: how many lines of two files are equal
    paste -d '\n' "$1" "$2" | awk 'NR % 2 { a = $0; next } a == $0 { n++ } END { print n + 0 }'
}
