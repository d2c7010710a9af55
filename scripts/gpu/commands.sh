# What the parts of scripts/gpu_check.sh run, as far as several modes share it, and the ratios that
# are taken of what they printed. Sourced; see lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with lib.sh and gpu_check.sh

program() { # program NAME ARGUMENT...: of the build
    "$bin/$1" "${@:2}"
}

machine() {
    nvidia-smi --format=csv \
        --query-gpu=name,memory.total,driver_version,compute_cap,clocks.max.sm,compute_mode
    nvidia-smi --query-compute-apps=pid,process_name --format=csv
    grep -m 1 'model name' /proc/cpuinfo
    echo "cores: $(nproc)"
    grep -E '^Mem(Total|Available)' /proc/meminfo
    [ -z "$nvcc" ] || "$nvcc" --version | tail -n 2 | head -n 1
    gcc --version | head -n 1
    "$python" -c 'import importlib.metadata as m; print("PyTorch", m.version("torch"))' \
        2>/dev/null || echo "no PyTorch"
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
}

# Runs one program of tests that speaks TAP, and shows only what failed and the count.
one_test() {
    [ -x "$bin/tests/$1" ] || { echo "$bin/tests/$1 is not there" && return 1; }
    CMOCKA_MESSAGE_OUTPUT=TAP "$bin/tests/$1" >"$work/tap" 2>&1
    local status=$?
    grep -aE '^not ok|^# |says|CUDA' "$work/tap" | head -n 40
    echo "$(grep -acE '^ok ' "$work/tap") passed," \
        "$(grep -aE '^not ok ' "$work/tap" | grep -avc '# SKIP') failed," \
        "$(grep -acE '^not ok .*# SKIP' "$work/tap") skipped, status $status"
    return $status
}

# with_torch ARGUMENT...: of the program that measures PyTorch
with_torch() {
    torch_has "$python" || { echo "no PyTorch" && return 77; }
    "$python" tests/torch/bench_gpt2_torch.py "$@"
}

# trained NAME FLAG...: a short run, to print the weights hash of which is hash_of's
trained() {
    "$train" --device cuda --batch 4 --steps 10 --no-tensorboard --out "$work/$1" "${@:2}" \
        >"$work/$1.log" 2>&1
}

hash_of() { # hash_of NAME...: one line each, and status 1 if one has none or they differ
    local name hash first='' status=0
    for name in "$@"; do
        hash=$(sed -n 's/^weights hash: //p' "$work/$name.log")
        echo "$name: $hash"
        [ -n "$hash" ] || tail -n 5 "$work/$name.log"
        [ -n "$hash" ] && [ "${first:=$hash}" = "$hash" ] || status=1
    done
    return $status
}

# until_logged STEPS DIR FLAG...: runs ./train until so many steps are logged and kills it there,
# since a checkpoint is no part of the measurement.
until_logged() {
    local steps=$1 dir=$2 pid used=''
    rm -rf "$dir"
    setsid "$train" --device cuda --data random --dtype bf16 --seq-len 1024 --steps 1000 \
        --no-tensorboard "${@:3}" --out "$dir" >"$dir.log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        if [ -e "$dir/log.jsonl" ] && [ "$(grep -c step_ms "$dir/log.jsonl")" -ge "$steps" ]; then
            used=$(memory_used)
            break
        fi
        sleep 0.1
    done
    { kill -KILL -- -$pid && wait $pid; } 2>/dev/null # says "Killed" otherwise
    if [ -z "$used" ]; then
        echo "./train ${*:3}: failed"
        tail -n 3 "$dir.log"
        return 1
    fi
    echo "the card's memory: $used used, $(memory_used) after its end; ./train's table (MiB):"
    grep -E '^ *(each|sum|all, about|host, about) ' "$dir.log"
}

memory_used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader; }

# ---- ratios ----

results() { # results MODE: what its parts printed
    sed -n 's/^    //p' "$out/gpu_$1.md" 2>/dev/null
}

# judge WHAT RATIO LEAST: one line, and one more that is below its target.
judge() {
    local words=''
    awk "BEGIN { exit !($2 >= $3) }" || { words=', BELOW TARGET' && below=$((below + 1)); }
    calculate "- %.3f (at least $3)$words: $1\n" "$2"
}

missing() { # missing WHAT: a ratio that could not be taken is no ratio that was reached
    [ "$pending" = 0 ] || { echo "- not yet measured: $1" && return; }
    echo "- NOT MEASURED: $1"
    below=$((below + 1))
}

export -f calculate median step_ms torch_has program machine one_test with_torch trained hash_of \
    until_logged memory_used
