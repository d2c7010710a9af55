#!/bin/bash
# Proves that a refactoring changed no bit: trains with an old commit and with the present tree, and
# compares what comes out.
#
#   scripts/dev/compare_bits.sh OLD [FILTER]      scripts/dev/compare_bits.sh HEAD~3 '^sim|delay'
#
# On two cores the runs take two minutes, half of them the simulator's, and two more the first time,
# when speeds are measured; the builds come on top.
#
# OLD is any name of a commit. It is built in a git worktree that lasts as long as the build, the
# present tree (with all that is not committed) in build/bits/present, so ./train stays as it is:
# each as the CPU's program, and, where clang and the CUDA Toolkit are, as the GPU simulator's. Then
# every row of the table below is trained with both, side by side. Both must end with status 0, and
# print the same weights hash, losses, norms, rates, loss scales, validation losses and samples, to
# the last digit. A row whose flags are refused fails. FILTER is an extended regular expression;
# only rows are run whose first three columns, "HOW DTYPE NAME", match it.
#
# No hash is kept in the repository: libraries of other machines give other bits. Each row names
# dtype and device, and all flags that decide about numbers are given, since defaults may change
# between two commits. A commit that renames a flag cannot be compared across that change.
#
# OLD's programs stay in build/bits/HASH (its full hash), and the next call with the same OLD takes
# them from there; they are built again if the compilers or libraries are other ones by then, or
# CC, CFLAGS, WITHOUT and their like. (WITHOUT="mpi uring" goes to both builds, see the Makefile.)
# What the programs measure of the machine stays in build/bits too. `rm -r build/bits` forgets all.
# Needs git, and make, gcc and procps, which scripts/setup.sh --test installs.
#
# The last lines say which rows this machine could not run, how long it took, and `N passed, N
# failed`. Status 0: no row failed. 1: some did, or a build did. 2: bad arguments.
set -u
. "${0%"${0##*/}"}../help.sh"
export LC_ALL=C # numbers with points
cd "$(dirname "$0")/../.." || exit 1

refuse() { echo "bits: $*" >&2 && exit 2; }
die() { echo "bits: $*" >&2 && exit 1; }
[ $# = 1 ] || [ $# = 2 ] || refuse "expected OLD [FILTER], such as HEAD~1 'cpu bf16', got $# words"
old=$(git rev-parse --verify --quiet --end-of-options "$1^{commit}") ||
    refuse "OLD '$1': expected a commit, such as HEAD~1"
filter=${2:-}
grep -qE -- "$filter" <<<'' 2>/dev/null
[ $? -le 1 ] || refuse "FILTER '$filter': expected an extended regular expression"

# HOW DTYPE NAME FLAG... [then FLAG...]
# HOW: cpu, thread ranks on the CPU; mpiN, N processes; sim, the simulator with one GPU; simN, with
# N. What follows "then" is given to a second run, which resumes the first.
rows() {
    cat <<ROWS
cpu fp32 stage-0 --zero 0 --ranks 1
cpu fp32 stage-0-ranks --zero 0 --ranks 2
cpu fp32 stage-1 --zero 1 --ranks 2
cpu fp32 stage-2 --zero 2 --ranks 3
cpu fp32 stage-3 --zero 3 --ranks 3
cpu bf16 stage-0 --zero 0 --ranks 2
cpu bf16 stage-1 --zero 1 --ranks 3
cpu bf16 stage-2 --zero 2 --ranks 2
cpu bf16 stage-3 --zero 3 --ranks 2
cpu fp16 stage-0 --zero 0 --ranks 1 --loss-scale 1024
cpu fp16 stage-3 --zero 3 --ranks 2 --loss-scale 1024
cpu fp32 accumulate --zero 0 --ranks 1 --global-batch 6
cpu bf16 accumulate-1 --zero 1 --ranks 2 --global-batch 8
cpu bf16 accumulate-2 --zero 2 --ranks 3 --global-batch 12
cpu bf16 accumulate-3 --zero 3 --ranks 2 --global-batch 12 --grad-dtype bf16
cpu fp32 recompute-gelu --zero 0 --ranks 1 --recompute gelu
cpu fp32 recompute-attention --zero 2 --ranks 2 --recompute attention
cpu bf16 recompute-block --zero 3 --ranks 2 --recompute block
cpu bf16 gradients-fp32 --zero 2 --ranks 2 --grad-dtype fp32
cpu bf16 moments-bf16 --zero 1 --ranks 2 --moments bf16
cpu bf16 master-split --zero 1 --ranks 2 --master split
cpu bf16 master-split-offload --zero 3 --ranks 2 --master split --offload-optimizer cpu \
    --moments bf16
cpu bf16 master-bf16 --zero 0 --ranks 1 --master bf16
cpu bf16 master-bf16-nvme --zero 2 --ranks 3 --master bf16 --offload-optimizer nvme
cpu fp16 overflow --zero 0 --ranks 1 --loss-scale 256Ki --loss-scale-hysteresis 1 --steps 8 \
    --loss-scale-window 2
cpu fp16 overflow-2 --zero 2 --ranks 3 --loss-scale 256Ki --loss-scale-hysteresis 2 --steps 8 \
    --grad-dtype fp16
cpu fp16 overflow-offload --zero 3 --ranks 2 --loss-scale 256Ki --loss-scale-hysteresis 1 \
    --steps 6 --offload-optimizer cpu
cpu fp32 offload-optimizer --zero 0 --ranks 1 --offload-optimizer cpu
cpu bf16 offload-optimizer-2 --zero 2 --ranks 2 --offload-optimizer cpu
cpu bf16 offload-optimizer-nvme --zero 1 --ranks 2 --offload-optimizer nvme --check-io
cpu fp32 offload-param --zero 0 --ranks 1 --offload-param cpu
cpu bf16 offload-param-3 --zero 3 --ranks 2 --offload-param cpu
cpu bf16 offload-param-nvme --zero 3 --ranks 3 --offload-param nvme
cpu fp32 offload-activations --zero 0 --ranks 1 --offload-activations cpu
cpu bf16 offload-activations-nvme --zero 1 --ranks 2 --offload-activations nvme \
    --recompute attention
cpu bf16 offload-all --zero 3 --ranks 2 --offload-optimizer cpu --offload-param cpu \
    --offload-activations cpu --recompute block --global-batch 8
cpu fp16 offload-all-nvme --zero 3 --ranks 2 --offload-optimizer nvme --offload-param nvme \
    --offload-activations nvme --loss-scale 1024
cpu fp32 offload-ratio --zero 0 --ranks 1 --offload-optimizer cpu --offload-ratio 0.5
cpu bf16 offload-ratio-nvme --zero 3 --ranks 2 --offload-optimizer nvme --offload-ratio 0.3 \
    --moments bf16
cpu fp32 delay --zero 0 --ranks 1 --offload-optimizer cpu --delay-update --delay-after 0
cpu bf16 delay-after-2 --zero 2 --ranks 2 --offload-optimizer cpu --delay-update --delay-after 2 \
    --steps 6
cpu bf16 delay-nvme --zero 3 --ranks 2 --offload-optimizer nvme --offload-param cpu --delay-update \
    --delay-after 1 --global-batch 8
cpu fp16 delay-overflow --zero 1 --ranks 2 --offload-optimizer cpu --delay-update --delay-after 1 \
    --loss-scale 256Ki --loss-scale-hysteresis 1 --steps 8 --loss-scale-window 2
cpu fp32 prefetch-0 --zero 3 --ranks 3 --prefetch 0
cpu bf16 prefetch-2 --zero 3 --ranks 2 --prefetch 2 --offload-param cpu
cpu bf16 overlap-off --zero 3 --ranks 2 --overlap off --offload-optimizer cpu \
    --offload-activations cpu
cpu fp32 threads-2 --zero 0 --ranks 1 --threads 2
cpu bf16 threads-3 --zero 2 --ranks 2 --threads 3
cpu fp32 kernels-oracle --zero 0 --ranks 1 --kernels oracle
cpu bf16 kernels-base --zero 1 --ranks 2 --kernels base
cpu bf16 kernels-avx2 --zero 0 --ranks 1 --kernels avx2
cpu fp16 kernels-avx512 --zero 0 --ranks 1 --kernels avx512 --loss-scale 1024
cpu fp32 optimizer --zero 1 --ranks 2 --clip 0 --weight-decay 0.3 --beta1 0.8 --beta2 0.99 \
    --eps 1e-6 --lr 3e-3 --seed 7
cpu fp32 schedule --zero 0 --ranks 1 --schedule cosine --warmup 2 --min-lr 1e-4 --steps 6
cpu bf16 schedule-wsd --zero 0 --ranks 1 --schedule wsd --warmup 1 --decay-share 0.5 --steps 6
cpu fp32 validate-sample --zero 3 --ranks 2 --val-every 2 --sample-every 2 --sample-tokens 20
cpu bf16 validate-offload --zero 1 --ranks 1 --val-every 2 --sample-every 3 --sample-tokens 20 \
    --offload-optimizer cpu --offload-param cpu
cpu fp32 tokenizer-trained --zero 0 --ranks 1 --tokenizer train:300
cpu fp32 data-random --zero 1 --ranks 2 --data random --vocab 500
cpu bf16 save-every --zero 2 --ranks 2 --save-every 2 --keep 1
cpu fp32 resume --zero 2 --ranks 2 --batch 3 --steps 3 then --zero 3 --ranks 3 --batch 2 --steps 6
cpu bf16 resume-stage-0 --zero 3 --ranks 3 --batch 1 --steps 3 --offload-optimizer cpu then \
    --zero 0 --ranks 1 --batch 3 --steps 6 --offload-optimizer none
cpu bf16 resume-delay --zero 0 --ranks 2 --steps 3 --offload-optimizer cpu --delay-update \
    --delay-after 1 then --zero 3 --offload-param cpu --steps 6
cpu fp16 resume-overflow --zero 1 --ranks 2 --steps 4 --loss-scale 256Ki \
    --loss-scale-hysteresis 2 then --zero 2 --steps 8
mpi2 fp32 stage-0 --zero 0
mpi2 bf16 stage-1 --zero 1 --global-batch 8
mpi2 bf16 stage-3-offload --zero 3 --offload-optimizer cpu --offload-param cpu
mpi2 fp16 overflow --zero 2 --loss-scale 256Ki --loss-scale-hysteresis 1 --steps 6
mpi3 fp32 stage-2 --zero 2 --recompute gelu
mpi3 bf16 stage-3 --zero 3 --prefetch 2 --comm-chunk 65536
mpi3 bf16 resume --zero 3 --batch 1 --steps 3 then --zero 1 --batch 1 --steps 5
mpi3 bf16 delay-nvme --zero 1 --offload-optimizer nvme --delay-update --delay-after 2
sim fp32 stage-0 --zero 0 --ranks 1
sim bf16 stage-1 --zero 1 --ranks 2
sim fp16 stage-2-overflow --zero 2 --ranks 2 --loss-scale 256Ki --loss-scale-hysteresis 1 \
    --loss-scale-window 1
sim bf16 stage-3 --zero 3 --ranks 3 --prefetch 2
sim bf16 accumulate --zero 0 --ranks 1 --global-batch 3
sim bf16 accumulate-3 --zero 3 --ranks 2 --global-batch 4 --recompute block
sim bf16 offload-optimizer --zero 0 --ranks 1 --offload-optimizer cpu
sim bf16 master-split --zero 1 --ranks 2 --master split
sim bf16 master-bf16 --zero 3 --ranks 2 --master bf16 --offload-optimizer cpu
sim bf16 offload-all --zero 3 --ranks 2 --offload-optimizer nvme --offload-param cpu \
    --offload-activations cpu
sim bf16 offload-ratio --zero 1 --ranks 1 --offload-optimizer cpu --offload-ratio 0.5
sim bf16 delay --zero 1 --ranks 2 --offload-optimizer cpu --delay-update --delay-after 1
sim fp32 check-launches --zero 0 --ranks 1 --check-launches --val-every 2 --sample-every 2 \
    --sample-tokens 3
sim bf16 overlap-off --zero 2 --ranks 2 --overlap off --recompute attention
sim bf16 resume --zero 1 --ranks 2 --steps 2 then --zero 3 --ranks 1 --batch 2 --steps 4
sim2 bf16 stage-2 --zero 2 --ranks 2
sim2 fp32 stage-3-native --zero 3 --ranks 2 --reduce native
ROWS
}

table=$(rows | tr -s " " | while read -r row; do
    ! grep -qE -- "$filter" <<<"$(cut -d " " -f 1-3 <<<"$row")" || echo "$row"
done)
[ -n "$table" ] || refuse "FILTER '$filter': no row's \"HOW DTYPE NAME\" matches it"

kept=$PWD/build/bits
mkdir -p "$kept" || exit 1
work=$(mktemp -d "$kept/run.XXXXXX") || exit 1 # on a disk, for nvme: /tmp may be in memory
clean_up() {
    for name in $(jobs -p); do
        pkill -P "$name" # timeout, which passes it on
    done
    [ ! -e "$work/tree" ] || git worktree remove --force "$work/tree"
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# ---- what this machine has ----

declare -A arguments=([release]="WITHOUT=cuda ${WITHOUT:-}" [cusim]="MODE=cusim")
make_present() { # make_present MODE GOAL
    make -s -j"$(nproc)" "${arguments[$1]}" BUILD="build/bits/present/$1" "$2"
}
has() { # has LIBRARY [MODE]
    grep -qE "^HAVE_$1 := (yes|[0-9])" "$kept/present/${2:-release}/features.mk"
}

modes=(release)
make_present release features >"$work/log" 2>&1 || die "$(tail -n 1 "$work/log")"
if command -v clang++ >/dev/null && make_present cusim features >"$work/log" 2>&1 &&
    has CUDA cusim; then
    modes=(release cusim)
fi
instructions=$(sed -n '/^flags/ { s/$/ /p; q }' /proc/cpuinfo)
has_instructions() { # has_instructions avx2|avx512
    local name need=(avx2 fma f16c)
    [ "$1" = avx2 ] || need=(avx512f avx512bw avx512dq avx512vl fma)
    for name in "${need[@]}"; do
        [[ $instructions == *" $name "* ]] || return 1
    done
}
kernels=base
for name in avx2 avx512; do
    ! has_instructions $name || kernels=$name
done

# missing HOW FLAGS: what the row needs and this machine lacks, or nothing.
missing() {
    case $1 in
    mpi*) { command -v mpirun >/dev/null && has MPI; } || echo MPI ;;
    sim*) [[ " ${modes[*]} " == *" cusim "* ]] || echo "clang or the CUDA Toolkit" ;;
    esac
    [[ $2 != *" nvme"* ]] || has URING || echo liburing
    [[ $2 != *"--tokenizer train:"* ]] || has SPM || echo SentencePiece
    if [[ $2 =~ --kernels\ (avx[0-9]+) ]] && ! has_instructions "${BASH_REMATCH[1]}"; then
        echo "a CPU with ${BASH_REMATCH[1]}"
    fi
}

# ---- the builds ----

# All that a program's bits may depend on, apart from its source.
tools() { # tools MODE
    for name in "${CC:-gcc}" clang ld; do
        $name --version 2>/dev/null | head -n 1
    done
    echo "${CC:-} ${CXX:-} ${CFLAGS:-} ${LDFLAGS:-} ${MAKEFLAGS:-}"
    cat "build/bits/present/$1/features.mk"
}

build_old() { # build_old MODE
    local folder=$kept/$old/$1
    tools "$1" >"$work/tools"
    [ ! -x "$folder/train" ] || ! cmp -s "$work/tools" "$folder/tools" || return 0
    rm -rf "$folder"
    [ -e "$work/tree" ] ||
        git worktree add -q --detach "$work/tree" "$old" || die "no worktree of $old"
    make -s -C "$work/tree" -j"$(nproc)" "${arguments[$1]}" "build/$1/train" >"$work/log" 2>&1 ||
        { tail "$work/log" >&2 && die "$old could not be built (${arguments[$1]})"; }
    mkdir -p "$folder" && cp "$work/tree/build/$1/train" "$work/tools" "$folder"
}

for mode in "${modes[@]}"; do
    if [ "$mode" = cusim ] && ! grep -q '^sim' <<<"$table"; then
        continue
    fi
    begin=$SECONDS
    build_old "$mode"
    middle=$SECONDS
    make_present "$mode" "build/bits/present/$mode/train" >"$work/log" 2>&1 ||
        { tail "$work/log" >&2 && die "the present tree could not be built (${arguments[$mode]})"; }
    echo "built $mode: ${old:0:12} in $((middle - begin)) s," \
        "the present tree in $((SECONDS - middle)) s"
done
[ ! -e "$work/tree" ] || git worktree remove --force "$work/tree"

# ---- the runs ----

# shellcheck source=tests/lib/mpi_env.sh
. tests/lib/mpi_env.sh
. tests/lib/small_text.sh
text=$work/text.txt val=$work/val.txt
small_text 60 >"$text"
head -c 500 "$text" >"$val"

# What is measured here decides about forecasts of time, not about numbers. Nobody waits until the
# simulator's speed is known.
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
for side in old new; do
    mkdir -p "$work/cache.$side/zero.c"
    measured=$work/cache.$side/zero.c/machine.txt
    [ ! -s "$kept/machine.$side.txt" ] || cp "$kept/machine.$side.txt" "$measured"
    [ -s "$measured" ] ||
        for what in "matmul FLOP/s, fp32" "matmul FLOP/s, bf16" "matmul FLOP/s, fp16" \
            "copy B/s, to the device" "copy B/s, from the device"; do
            echo "$what, simulated GPU|$cpu|1e9"
        done >"$measured"
done

training=(--tokenizer byte --vocab 0 --model tiny --layers 3
    --heads 3 --channels 36 --seq-len 32 --batch 2 --global-batch 0 --steps 5
    --lr 1e-3 --min-lr 0 --warmup 0 --schedule constant --beta1 0.9 --beta2 0.95 --eps 1e-8
    --weight-decay 0.1 --clip 1 --seed 1 --grad-dtype auto --moments fp32 --recompute none
    --threads 1 --overlap on --prefetch 1 --reduce ordered
    --offload-optimizer none --offload-param none --offload-activations none --offload-ratio 1
    --val-every 0 --val-batches 2 --sample-every 0 --temperature 0.8 --top-k 50
    --prompt "In line" --save-every 0 --log-every 1 --no-tensorboard)
tiny=(--layers 2 --heads 2 --channels 16 --seq-len 16 --batch 1 --steps 3 --val-batches 1)

# program HOW SIDE FLAG...
program() {
    local mode=release folder=$kept/present before=() more=()
    local device=(--device cpu --kernels "$kernels")
    case $1 in
    mpi*) before=(mpirun -np "${1#mpi}") ;;
    sim*) mode=cusim device=(--device cuda "${tiny[@]}") before=(env "CUSIM_GPUS=${1#sim}") ;;
    esac
    [ "$1" != sim ] || before=(env -u CUSIM_GPUS)
    [ "$2" = new ] || folder=$kept/$old
    [[ $flags == *"--data random"* ]] || more+=(--data "$text" --val-data "$val")
    [[ $flags != *" nvme"* ]] || more+=(--nvme-path "$kept")
    XDG_CACHE_HOME=$work/cache.$2 timeout -k 5 300 "${before[@]}" "$folder/$mode/train" \
        "${training[@]}" "${device[@]}" "${more[@]}" --dtype "$dtype" --out "$work/out.$2" "${@:3}"
}

# What two runs must have in common: all numbers of the log but those that were measured, the text
# of samples, and the weights hash.
bits() { # bits SIDE
    grep -oE '"(step|loss|grad_norm|lr|loss_scale|val_loss)":[^,}]*' "$work/out.$1/log.jsonl"
    sed -n '/^weights hash: [0-9a-f]\{16\}$/p; /^--- /,/^---$/p' "$work/said.$1"
}

# train SIDE: one row by one program; its bits are in $work/bits.SIDE. Fails as the program does.
train() {
    local first second all
    read -ra first <<<"${flags%% then *}"
    read -ra second <<<"${flags#"${flags%% then *}"}"
    rm -rf "$work/out.$1" "$work/bits.$1"
    program "$how" "$1" "${first[@]}" >"$work/said.$1" 2>&1 || return
    if [ ${#second[@]} -gt 0 ]; then
        program "$how" "$1" "${first[@]}" "${second[@]:1}" --resume auto >"$work/said.$1" 2>&1 ||
            return
    fi
    bits "$1" >"$work/bits.$1"
    # The last of several is what the program took.
    all=" ${training[*]} $([[ $how != sim* ]] || echo "${tiny[*]}") $flags"
    [[ $all =~ .*" --steps "([0-9]+) ]]
    if [ "$(grep -c '^"loss":' "$work/bits.$1")" != "${BASH_REMATCH[1]}" ] ||
        [ "$(grep -c '^weights hash' "$work/bits.$1")" != 1 ]; then
        echo "expected ${BASH_REMATCH[1]} losses and a weights hash" >>"$work/said.$1"
        return 1
    fi
    # No row proves anything where no step makes an update, nor one of overflow where none comes.
    if ! grep -q '^"grad_norm":[0-9]' "$work/bits.$1" ||
        { [[ $flags == *hysteresis* ]] && ! grep -q '^"grad_norm":null' "$work/bits.$1"; }; then
        echo "the loss scale overflows in each step, or in none" >>"$work/said.$1"
        return 1
    fi
}

passed=0 failed=0 left_out=()
declare -A seconds=() counts=()
fail() { # fail MESSAGE
    echo "not ok - $how $dtype $name: $1"
    failed=$((failed + 1))
}

while read -r how dtype name flags; do
    lacks=$(missing "$how" "$flags" | head -n 1)
    if [ -n "$lacks" ]; then
        left_out+=("$how $dtype $name: no $lacks here")
        continue
    fi
    begin=${EPOCHREALTIME/./}
    train old </dev/null &
    one=$!
    train new </dev/null &
    other=$!
    wait $one
    status_old=$?
    wait $other
    status_new=$?
    kind=${how%%[0-9]*}
    seconds[$kind]=$((${seconds[$kind]:-0} + ${EPOCHREALTIME/./} - begin))
    counts[$kind]=$((${counts[$kind]:-0} + 1))
    if [ $status_old != 0 ]; then
        fail "status $status_old of ${old:0:12}: $(tail -n 1 "$work/said.old")"
    elif [ $status_new != 0 ]; then
        fail "status $status_new of the present tree: $(tail -n 1 "$work/said.new")"
    elif ! cmp -s "$work/bits.old" "$work/bits.new"; then
        fail "other bits, the first of them:"
        diff "$work/bits.old" "$work/bits.new" | grep '^[<>]' | sort -s -k1,1 | awk '
            { if (n[$1]++ < 2) print "    " $0 }'
    else
        echo "ok - $how $dtype $name: $(sed -n 's/^weights hash: //p' "$work/bits.new")"
        passed=$((passed + 1))
    fi
done <<<"$table"
for side in old new; do
    cp "$work/cache.$side/zero.c/machine.txt" "$kept/machine.$side.txt"
done

for kind in "${!counts[@]}"; do
    echo "$kind: ${counts[$kind]} rows in $((seconds[$kind] / 1000000)) s"
done | sort
[ ${#left_out[@]} = 0 ] || printf 'left out: %s\n' "${left_out[@]}"
echo "${#left_out[@]} rows left out, $SECONDS s in all"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
