#!/bin/bash
# How fast ./train is on this machine's GPUs, against PyTorch, llm.c and what the GPUs could do.
#
#   scripts/bench/bench_gpu.sh [--gpus N] [--peak-tflops X] [--out FILE]
#
#   --gpus N          how many of the GPUs: 1 to 8 (default: all, at most 8)
#   --peak-tflops X   a GPU's dense bf16 peak; without it, that of the card's name (see peak_of)
#   --out FILE        where the table goes (default docs/bench_gpu.md)
#
# and from the environment:
#
#   MODELS="gpt2 gpt2-xl"   of gpt2, gpt2-medium, gpt2-large, gpt2-xl
#   BATCHES="16"            sequences of 1024 tokens on each GPU, one table line a program for each
#   ROUNDS=3                runs of each program; figures are medians of them
#   ZERO="0 1 2 3"          stages of ./train (default on one GPU: 0)
#   LLMC=DIR                a folder of llm.c with a built train_gpt2cu (several GPUs: and mpirun)
#   PART_SECONDS=300        the limit of each run
#   PYTHON=python3          the one that has PyTorch, 2.6 or newer (default: torch.sh finds it);
#                           torchrun is its own
#
# Every program trains on random tokens in bf16, without recomputation: ./train with --autotune;
# PyTorch with torch.compile, and on several GPUs with FSDP2, at stage 2 beside stages 0 to 2 of
# ./train and at 3 beside 3; llm.c at its stage 0, or 1 on several GPUs. The programs take turns,
# and even rounds go backwards, so that a machine that slows down slows all of them. Ratios are
# taken round by round. A step counts after the 4th.
#
# MFU: model FLOPs, 6N + 6LCT a token, over the peak of all GPUs. The share of products: the same
# over the rate that the model's own matrix products reach by themselves on one GPU, through PyTorch
# (bench_gpt2_torch.py matmul), times the GPUs.
#
# A run that fails or does not end is said in the table, and not tried again. Whatever was started
# ends with the script. Status: 0, 1 if a run failed or there is no GPU, 2 for bad arguments.
set -u
. "${0%"${0##*/}"}../help.sh"
export LC_ALL=C
caller=$PWD
cd "$(dirname "$0")/../.." || exit 1
. scripts/dev/torch.sh
. scripts/bench/figures.sh
die() { printf 'bench_gpu: %s\n' "$2" >&2; exit "$1"; } # die STATUS LINE

# ---- arguments ----

out=docs/bench_gpu.md gpus='' peak='' seq_len=1024 warm=4 steps=16
models=${MODELS-gpt2 gpt2-xl} batches=${BATCHES-16} rounds=${ROUNDS-3} stages=${ZERO-}
llmc=${LLMC:-} part_seconds=${PART_SECONDS-300}
while [ $# -gt 0 ]; do
    [[ $1 == --gpus || $1 == --peak-tflops || $1 == --out ]] ||
        die 2 "'$1': expected --gpus N, --peak-tflops X or --out FILE"
    [ $# -ge 2 ] || die 2 "$1: expected a value after it"
    case $1 in
    --gpus) gpus=$2 ;;
    --peak-tflops) peak=$2 ;;
    --out) [[ $2 == /* ]] && out=$2 || out=$caller/$2 ;;
    esac
    shift 2
done

number='^[1-9][0-9]{0,5}$'
[[ -z $gpus || $gpus =~ ^[1-8]$ ]] || die 2 "--gpus '$gpus': expected 1 to 8"
[[ -z $peak || ($peak =~ ^[0-9]+(\.[0-9]+)?$ && $peak =~ [1-9]) ]] ||
    die 2 "--peak-tflops '$peak': expected a number above 0, such as 989.4"
[[ -d $(dirname "$out") && ! -d $out ]] ||
    die 2 "--out '$out': expected a file in a folder that is there"
[[ $rounds =~ $number ]] || die 2 "ROUNDS='$rounds': expected a number from 1 on"
[[ $part_seconds =~ $number ]] || die 2 "PART_SECONDS='$part_seconds': expected a number from 1 on"
[[ $models == *[^\ ]* && $batches == *[^\ ]* ]] || die 2 "MODELS or BATCHES is empty"
for word in $models; do
    [[ $word =~ ^gpt2(-medium|-large|-xl)?$ ]] ||
        die 2 "MODELS: '$word': expected gpt2, gpt2-medium, gpt2-large or gpt2-xl"
done
for word in $batches; do
    [[ $word =~ $number ]] || die 2 "BATCHES: '$word': expected numbers from 1 on"
done
for word in $stages; do
    [[ $word =~ ^[0-3]$ ]] || die 2 "ZERO: '$word': expected stages, 0 to 3"
done

cards=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || cards=''
[ -n "$cards" ] ||
    die 1 "there is no GPU here (nvidia-smi names none)"
there=$(wc -l <<<"$cards")
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || there=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l)
[ "${gpus:-1}" -le "$there" ] || die 2 "--gpus $gpus: this machine has $there"
[ -n "$gpus" ] || gpus=$((there < 8 ? there : 8))
[ -n "${stages// /}" ] || { [ "$gpus" = 1 ] && stages=0 || stages="0 1 2 3"; }
card=$(head -n 1 <<<"$cards")

# ---- what runs, and how it ends ----

work=$(mktemp -d)
torch_find 2>/dev/null # without it, its lines of the table say so
child='' end_by=TERM
# A launcher (torchrun, mpirun) ends what it started when it is told to; the rest of the group is
# killed. ./train is killed at once (end_by): told to end, it would write a checkpoint.
stop_child() {
    [ -n "$child" ] || return
    local i
    {
        kill "-$end_by" -- "-$child"
        for i in {1..20}; do
            has_processes "$child" || break
            sleep 0.25
        done
        kill -KILL -- "-$child"
        wait "$child"
    } 2>/dev/null # a shell says "Killed" otherwise
    child=''
}
has_processes() { # has_processes GROUP: which are not zombies
    sed 's/.*) //' /proc/[0-9]*/stat | awk -v group="$1" '$3 == group && $1 !~ /[ZX]/' | grep -q .
}
trap 'stop_child; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# run SECONDS LOG ENOUGH COMMAND...: until it ends, or the command line ENOUGH holds, or the time is
# up. In a process group of its own. Returns its status, 0 where it was enough, 124.
run() {
    local most=$1 log=$2 enough=$3 begin=$SECONDS status=124
    shift 3
    setsid "$@" >"$log" 2>&1 </dev/null &
    child=$!
    while [ $((SECONDS - begin)) -lt "$most" ]; do
        if eval "$enough"; then
            status=0
            break
        elif ! kill -0 "$child" 2>/dev/null; then
            wait "$child"
            status=$?
            break
        fi
        sleep 0.2
    done
    stop_child
    return $status
}

# gives MODEL BATCH PROGRAM SECONDS ENOUGH PARSER COMMAND...: one run. What PARSER prints, the
# milliseconds of a step (of "products" their TFLOP/s), is a line of $work/MODEL.BATCH.PROGRAM.ms;
# or .why says why there is none.
gives() {
    local name=$1.$2.$3 log=$work/$1.$2.$3.log seconds=$4 enough=$5 parser=$6 ms status said unit=ms
    [ "$3" != products ] || unit=TFLOP/s
    run "$seconds" "$log" "$enough" "${@:7}"
    status=$?
    ms=$("$parser" "$log")
    if [[ $status = 0 && $ms =~ ^[0-9.]+$ ]]; then
        echo "$ms" >>"$work/$name.ms"
        echo "bench_gpu: $1 batch $2, $3: $ms $unit"
        return
    fi
    # The line that says most: PyTorch's own, or the last.
    said=$(grep -a "^PyTorch $1 " "$log" || grep -av '^[[:space:]]*$' "$log")
    said=$(tail -n 1 <<<"$said" | tr -d '|`\r' | cut -c 1-100)
    case $status in
    124) said="not done after $seconds s" ;;
    0) said="no figure: $said" ;;
    *) said="failed, status $status: $said" ;;
    esac
    echo "$said" >"$work/$name.why"
    echo "bench_gpu: $1 batch $2, $3: $said"
}

# ---- the programs ----

size_of() { # size_of MODEL: layers and channels
    case $1 in
    gpt2) echo 12 768 ;;
    gpt2-medium) echo 24 1024 ;;
    gpt2-large) echo 36 1280 ;;
    gpt2-xl) echo 48 1600 ;;
    esac
}

ours_ms() { step_ms "${1%.log}" $((warm + 1)); }
ours() { # ours MODEL BATCH STAGE
    local dir=$work/$1.$2.train.$3
    rm -rf "$dir"
    end_by=KILL # after some steps
    gives "$1" "$2" "train.$3" "$part_seconds" \
        "[ \"\$(grep -c step_ms '$dir/log.jsonl' 2>/dev/null || true)\" -ge $steps ] 2>/dev/null" \
        ours_ms "$PWD/build/gpu/train" --device cuda --data random --dtype bf16 --autotune \
        --seq-len $seq_len --steps 1000 --no-tensorboard --model "$1" --batch "$2" \
        --ranks "$gpus" --zero "$3" --out "$dir"
    end_by=TERM
}

torch_ms() { sed -n 's|^PyTorch .* tokens/s, \([0-9.]*\) ms,.*|\1|p' "$1" | tail -n 1; }
torch() { # torch MODEL BATCH compile|fsdp.2|fsdp.3
    # It ends by itself before it is ended, and says what it had.
    local command=("$python" tests/torch/bench_gpt2_torch.py)
    [ "$gpus" = 1 ] || command=("$python" -m torch.distributed.run --standalone
        --nproc-per-node "$gpus" tests/torch/bench_gpt2_torch.py)
    command+=(speed "$1" "$2" --seconds $((part_seconds - part_seconds / 10)))
    [ "$gpus" = 1 ] || command+=(--fsdp "${3#fsdp.}")
    gives "$1" "$2" "$3" "$part_seconds" false torch_ms "${command[@]}"
}

int32() { # int32 N...: in the order of bytes of x86-64 and ARM
    local n
    for n; do
        # shellcheck disable=SC2059 # the inner one makes the format: \x and two digits, four times
        printf "$(printf '\\x%02x' $((n & 255)) $((n >> 8 & 255)) $((n >> 16 & 255)) $((n >> 24)))"
    done
}
# Shards of random tokens below 2^15, in the format that llm.c and ./train share.
random_shard() { # random_shard FILE TOKENS
    {
        int32 20240520 1 "$2"
        head -c $((253 * 4)) /dev/zero
        head -c $((2 * $2)) /dev/urandom | tr '\200-\377' '\000-\177'
    } >"$1"
}
llmc_ms() { # of the steps after those that warm up
    sed -n 's#^step *\([0-9]*\)/.* | *\([0-9.]*\) ms .*tok/s.*#\1 \2#p' "$1" |
        awk -v warm=$warm '$1 > warm { print $2 }' | median
}
llmc() { # llmc MODEL BATCH: the run of the program, or why there is none
    local stage=0 launcher=() layers tokens=$(($2 * seq_len * gpus)) binary=$llmc/train_gpt2cu
    read -r layers _ <<<"$(size_of "$1")"
    [ "$gpus" = 1 ] || stage=1 launcher=(mpirun --allow-run-as-root -np "$gpus")
    if [ ! -x "$binary" ]; then
        echo "not run: there is no $binary" | tee "$work/$1.$2.llmc.absent"
        return
    fi
    # Each rank reads one token more than its sequences have.
    [ -e "$work/$1.$2.bin" ] || random_shard "$work/$1.$2.bin" $((tokens * 2 + 1))
    gives "$1" "$2" llmc "$part_seconds" false llmc_ms "${launcher[@]}" "$binary" -e "d$layers" \
        -i "$work/$1.$2.bin" -j "$work/$1.$2.bin" -b "$2" -t $seq_len -d $tokens -x $steps \
        -v 1000000 -m 1 -s 0 -l 1e-4 -c 0.1 -r 0 -z $stage
}

sustained() { sed -n 's|^sustained \([0-9.]*\) TFLOP/s.*|\1|p' "$1" | tail -n 1; }

# ---- all rounds ----

programs=()
for stage in $stages; do
    programs+=("ours $stage")
done
if [ "$gpus" = 1 ]; then
    programs+=("torch compile")
else
    [[ $stages != *[012]* ]] || programs+=("torch fsdp.2")
    [[ $stages != *3* ]] || programs+=("torch fsdp.3")
fi
[ -z "$llmc" ] || programs+=("llmc")

# one_round MODEL BATCH ROUND: every program once; what failed before is left out.
one_round() {
    local i n=${#programs[@]} kind which name
    for ((i = 0; i < n; i++)); do
        read -r kind which <<<"${programs[$3 % 2 ? i : n - 1 - i]}"
        name=$which
        [ "$kind" != ours ] || name=train.$which
        [ "$kind" != llmc ] || name=llmc
        [ -e "$work/$1.$2.$name.why" ] || [ -e "$work/$1.$2.$name.absent" ] ||
            "$kind" "$1" "$2" "$which"
    done
}

folders=$(torch_libraries)
export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TORCHINDUCTOR_CACHE_DIR=$work/inductor # compiled once, not in each round
CUDA_VISIBLE_DEVICES=$(cut -d , -f "1-$gpus" <<<"${CUDA_VISIBLE_DEVICES:-0,1,2,3,4,5,6,7}")
export CUDA_VISIBLE_DEVICES
archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
run 1800 "$work/build" false make -s "-j$(nproc)" MODE=gpu "CUDA_ARCHS=${archs/#90/90a}" all || {
    tail -n 3 "$work/build" >&2
    die 1 "the build failed"
}

read -r first _ <<<"$batches"
for model in $models; do
    gives "$model" "$first" products "$part_seconds" false sustained \
        "$python" tests/torch/bench_gpt2_torch.py matmul "$model" "$first"
    for batch in $batches; do
        for ((round = 1; round <= rounds; round++)); do
            one_round "$model" "$batch" $round
        done
    done
done

# ---- the table ----

# The dense bf16 peak of a card in TFLOP/s, from NVIDIA's data sheets (without sparsity, with fp32
# sums); nothing for a card that is not listed.
peak_of() {
    case $1 in
    *GB200*) echo 2500 ;;
    *B200*) echo 2250 ;;
    *"H200 NVL"* | *"H100 NVL"*) echo 835.5 ;;
    *"H100 PCIe"*) echo 756 ;;
    *H100* | *H200*) echo 989.4 ;; # GH200, too
    *A100*) echo 312 ;;
    *L40S*) echo 362 ;;
    *A40*) echo 149.7 ;;
    *L4*) echo 121 ;;
    *"RTX 5090"*) echo 209.5 ;;
    *"RTX 4090"*) echo 165.2 ;;
    *"RTX 3090"*) echo 71 ;;
    esac
}
named_peak="$peak TFLOP/s (--peak-tflops)"
if [ -z "$peak" ]; then
    peak=$(peak_of "$card")
    named_peak="$peak TFLOP/s, dense bf16 of '$card'"
    [ -n "$peak" ] || named_peak="unknown for '$card': give --peak-tflops"
fi

flops_per_token() { # flops_per_token MODEL: 6N + 6LCT, without the padding of the vocabulary
    local l c parameters
    read -r l c <<<"$(size_of "$1")"
    parameters="((50257 + 1024 + 2) * $c + $l * (12 * $c * $c + 13 * $c))"
    calculate "%.0f" "6 * $parameters + 6 * $l * $c * $seq_len"
}

# row MODEL BATCH PROGRAM TITLE BESIDE: a line of the table; BESIDE is the program to compare with.
row() {
    local ms=$work/$1.$2.$3.ms theirs=$work/$1.$2.$5.ms rate flops mfu=- share=- ratio=- middle why
    why=$(cat "$work/$1.$2.$3.why" "$work/$1.$2.$3.absent" 2>/dev/null)
    if [ ! -e "$ms" ] || [ -n "$why" ]; then
        echo "| $1 | $2 | $4 | ${why:-not run} | | | | |"
        return
    fi
    middle=$(median <"$ms")
    rate=$(calculate "%.0f" "$gpus * $2 * $seq_len / $middle * 1e3")
    flops="$rate * $(flops_per_token "$1") / 1e12 / $gpus" # of one GPU
    [ -z "$peak" ] || mfu=$(calculate "%.1f%%" "100 * $flops / $peak")
    [ ! -e "$work/$1.$first.products.ms" ] ||
        share=$(calculate "%.1f%%" "100 * $flops / $(cat "$work/$1.$first.products.ms")")
    [ ! -e "$theirs" ] || [ -e "${theirs%.ms}.why" ] ||
        ratio=$(paste "$theirs" "$ms" | awk '{ print $1 / $2 }' | median)
    [ "$ratio" = - ] || ratio=$(calculate "%.3f" "$ratio")
    echo "| $1 | $2 | $4 | $rate | $(calculate "%.1f" "$middle") | $mfu | $share | $ratio |"
}

rows_of() { # rows_of MODEL BATCH
    local kind which beside program
    for program in "${programs[@]}"; do
        read -r kind which <<<"$program"
        beside=compile
        [ "$gpus" = 1 ] || beside=fsdp.2
        case $kind in
        ours)
            [ "$gpus" = 1 ] || [ "$which" != 3 ] || beside=fsdp.3
            row "$1" "$2" "train.$which" "./train, stage $which" $beside
            ;;
        torch)
            beside="PyTorch, compiled"
            [ "$which" = compile ] || beside+=", FSDP2 as stage ${which#fsdp.}"
            row "$1" "$2" "$which" "$beside" "$which"
            ;;
        llmc)
            [[ $beside != fsdp.2 || $stages == *[012]* ]] || beside=fsdp.3
            row "$1" "$2" llmc "llm.c" $beside
            ;;
        esac
    done
}

table() {
    echo "# GPT-2 on GPUs: ./train, PyTorch and llm.c"
    # shellcheck disable=SC2016
    printf '\nMeasured by `scripts/bench/bench_gpu.sh` on %s, commit %s: ' "$(date -u +%F)" \
        "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    printf '%d x %s, medians of %d rounds.\n' "$gpus" "$card" "$rounds"
    printf 'Driver %s, %s, PyTorch %s.\n' \
        "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)" \
        "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)" \
        "$(torch_version)"
    printf 'bf16, sequences of %d tokens, no recomputation. Peak of a GPU: %s.\n\n' $seq_len \
        "$named_peak"
    for model in $models; do
        printf 'Products of %s by themselves: %s.\n' "$model" \
            "$(sed 's|$| TFLOP/s on one GPU|' "$work/$model.$first.products.ms" 2>/dev/null ||
                cat "$work/$model.$first.products.why")"
    done
    printf '\n| model | batch of a GPU | program | tokens/s | ms | MFU | of its products '
    printf '| to PyTorch |\n'
    echo "|---|---|---|---|---|---|---|---|"
    for model in $models; do
        for batch in $batches; do
            rows_of "$model" "$batch"
        done
    done
}

table >"$work/table"
cp "$work/table" "$out" || die 1 "cannot write $out"
cat "$out"
failed=$(find "$work" -maxdepth 1 -name '*.why' | wc -l)
echo "bench_gpu: $failed failed: $out"
[ "$failed" = 0 ]
