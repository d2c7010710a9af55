#!/bin/bash
# How fast offload's parts are, against what the machine can do and against other programs.
#
#   scripts/bench/bench_offload.sh [ROUNDS]      default 7 rounds, at least 5; some minutes on two cores
#
# AdamW on the CPU (kernels/cpu/adamw.c), over MILLIONS of parameters (default 256, of 16 bytes
# each; 250 to 1000 is what ZeRO-Offload's authors look at), bf16 gradients and weights, fp32
# moments. What must hold:
#
#   at least 0.90 of the bandwidth of a copy loop with the same streams, the faster of two kinds
#   (with bf16 moments the figure is only printed: 20 bytes a parameter no longer hide the root, the
#   division and three roundings where cores are shared)
#   at least 5 times PyTorch's plain Adam on the CPU (AdamW without foreach, not fused)
#   at least 1.4 times the sequence clip, DeepSpeed's CPUAdam, cast to bf16
#
# The NVMe tier in the folder $DISK (default build), a file of $GB GB (default 1):
#
#   at least 0.90 of fio with the same file, block and depth
#   a training step with the optimizer there: at most 1.10 times backward + max(forward, bytes read
#   by fio's rate + bytes written by fio's rate), where forward is 0.3 to 3 times the disk's time
#
# PyTorch is that of $PYTHON, or what torch.sh finds or installs; without it the comparison fails.
# DeepSpeed is compared where that Python has it and can compile its extension; else the output says
# that it is left out. Programs take turns, and ratios are taken round by round: a machine whose
# speed changes disturbs both sides of one. PyTorch's updates use SMALL million parameters (default
# 128) of their own and are compared by the parameter, so that all fits into memory. Figures are
# medians. Nothing else should run meanwhile. The last line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C # numbers with points
rounds=${1:-7}
millions=${MILLIONS:-256} small=${SMALL:-128}
threads=${THREADS:-$(nproc)}
tmp=$(mktemp -d)
declare -A to from pid # of programs that wait on a pipe
trap 'kill "${pid[@]}" 2>/dev/null; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
. scripts/dev/torch.sh
. scripts/bench/figures.sh

die() { printf 'bench: %s\n' "$*" >&2; exit 1; }
[[ $rounds =~ ^[0-9]+$ && $rounds -ge 5 ]] || die "rounds '$rounds': expected a number from 5 on"

# ---- programs that take turns: each waits on a pipe for a command ----

# start NAME COMMAND...: starts it and keeps its first line, "ready ...", in `ready`. Its pipes are
# $tmp/NAME.to and .from, open as ${to[NAME]} and ${from[NAME]}.
start() {
    local name=$1 out in
    shift
    mkfifo "$tmp/$name.to" "$tmp/$name.from"
    "$@" <"$tmp/$name.to" >"$tmp/$name.from" 2>"$tmp/$name.log" &
    pid[$name]=$!
    exec {out}>"$tmp/$name.to" {in}<"$tmp/$name.from"
    to[$name]=$out from[$name]=$in
    read -r ready <&"$in" && [[ $ready == ready* ]] && return
    cat "$tmp/$name.log" >&2
    return 1
}

# turn NAME COMMAND KEEP: runs it once; its milliseconds are in `ms` and, unless KEEP is 0, as in a
# round that warms up, in $tmp/COMMAND.
turn() {
    echo "$2" >&"${to[$1]}"
    read -r ms <&"${from[$1]}" || {
        cat "$tmp/$1.log" >&2
        die "$1 ended at '$2'"
    }
    [ "$3" = 0 ] || echo "$ms" >>"$tmp/$2"
}

# finish NAME: ends it, the one that was started last first, which holds the others' pipes.
finish() {
    local out=${to[$1]} in=${from[$1]}
    exec {out}>&- {in}<&-
    wait "${pid[$1]}"
    unset "pid[$1]"
    rm -f "$tmp/$1.to" "$tmp/$1.from"
}

# ratio A B: the median over the rounds of A's time by B's.
ratio() { paste "$tmp/$1" "$tmp/$2" | awk '{ print $1 / $2 }' | median | xargs printf '%.3f'; }

# ---- AdamW ----

adamw_against_copy() { # adamw_against_copy DTYPE MOMENTS
    local bytes round kind best=copy name="AdamW $1, moments $2, $millions million"
    rm -f "$tmp"/adamw "$tmp"/copy*
    start ours build/release/tests/bench_adamw "$millions" "$1" "$2" "$threads" || die "no bench"
    bytes=${ready#ready }
    for ((round = 0; round <= rounds; round++)); do
        for kind in copy adamw copy-past; do
            turn ours $kind $round
        done
    done
    finish ours
    for kind in adamw copy copy-past; do
        ms=$(median <"$tmp/$kind")
        echo "  $kind: $ms ms, $(calculate %.1f "$bytes / $ms / 1e6") GB/s"
    done
    awk "BEGIN { exit !($(median <"$tmp/copy-past") < $(median <"$tmp/copy")) }" && best=copy-past
    if [ "$2" = bf16 ]; then
        echo "      $name: share of the bandwidth of $best: $(ratio $best adamw)"
    else
        expect "$name: share of the bandwidth of $best" "$(ratio $best adamw)" 0.90
    fi
}

adamw_against_torch() {
    local kinds kind round ours theirs times
    echo "== AdamW against other programs, by the parameter, $threads threads, $rounds rounds"
    if ! start torch env OMP_NUM_THREADS="$threads" "$python" tests/torch/bench_adamw_torch.py \
        --millions "$small" --threads "$threads"; then
        echo "FAIL  $python has no PyTorch that runs: set PYTHON"
        failed=$((failed + 1))
        return
    fi
    echo "  PyTorch $(torch_version)"
    read -r _ theirs kinds <<<"$ready"
    rm -f "$tmp"/adamw
    start ours build/release/tests/bench_adamw "$millions" bf16 fp32 "$threads" || die "no bench"
    ours=$((${ready#ready } / 28)) # parameters
    for ((round = 0; round <= rounds; round++)); do
        for kind in $kinds; do
            turn ours adamw 0
            [ $round = 0 ] || calculate "%.6f\n" "$ms / $ours * 1e6" >>"$tmp/adamw-$kind"
            turn torch "$kind" 0
            [ $round = 0 ] || calculate "%.6f\n" "$ms / $theirs * 1e6" >>"$tmp/$kind"
        done
    done
    finish ours
    finish torch
    for kind in $kinds; do
        times=$(ratio "$kind" "adamw-$kind")
        echo "  $kind: $(median <"$tmp/$kind") ns a parameter, ours" \
            "$(median <"$tmp/adamw-$kind"): $times times"
        [ "$kind" != plain ] || expect "AdamW: times PyTorch's plain AdamW" "$times" 5
        [ "$kind" != deepspeed ] ||
            expect "AdamW: times clip, DeepSpeedCPUAdam, cast" "$times" 1.4
    done
    [[ " $kinds " == *" deepspeed "* ]] ||
        echo "  left out: $(grep '^DeepSpeedCPUAdam: ' "$tmp/torch.log" | tail -n 1)"
}

# ---- NVMe ----

nvme_against_fio() {
    local what ours fio ratio pairs
    build/release/tests/bench_nvme "$disk" "$gb" 1048576 16 "$rounds" >"$tmp/nvme" || return
    cat "$tmp/nvme"
    while read -r what ours fio ratio pairs; do
        [[ $what == read || $what == write ]] || continue
        [ -n "$pairs" ] || die "fio is missing: scripts/setup.sh --bench"
        printf -v "fio_$what" '%s' "${fio}e6"
        expect "NVMe $what: share of fio's rate" "$pairs" 0.90
    done <"$tmp/nvme"
}

step_against_bound() {
    local batch forward backward time bound step ratio
    echo "== a training step with the optimizer on NVMe, ms"
    build/release/tests/bench_step "$disk" "$fio_read" "$fio_write" $((rounds / 2 * 2 + 1)) \
        >"$tmp/step" || return
    cat "$tmp/step"
    while read -r batch forward backward time bound step ratio; do
        [[ $batch =~ ^[0-9]+$ ]] || continue
        awk "BEGIN { exit !($forward >= 0.3 * $time && $forward <= 3 * $time) }" || continue
        expect "step at batch $batch: bound by the step" "$(calculate %.3f "1 / $ratio")" 0.909
    done <"$tmp/step"
}

disk=${DISK:-build} gb=${GB:-1}
scripts/setup.sh --test --bench || exit 1
torch_install
make -s -j"$threads" build/release/tests/bench_{adamw,nvme,step} || die "the build failed"
echo "== AdamW against a copy loop, $threads threads, $rounds rounds"
adamw_against_copy bf16 fp32
adamw_against_copy bf16 bf16
adamw_against_copy fp32 fp32
adamw_against_torch
echo "== the NVMe tier"
nvme_against_fio && step_against_bound
echo "$passed passed, $failed failed"
[ $failed = 0 ]
