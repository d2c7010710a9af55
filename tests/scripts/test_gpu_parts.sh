#!/bin/bash
# How scripts/gpu_check.sh runs its parts, on a machine that is made up: smoke and what it stops;
# builds that fail or are brought along; what reports of earlier calls save; limits, interrupts, and
# that no process outlives them. test_gpu_check.sh has the figures of bench and offload, and
# test_gpu_calls.sh calls that are killed. Speaks TAP.
# shellcheck disable=SC1091,SC2034,SC2086,SC2154 # gpu_machine.sh sets status and report
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
. "${BASH_SOURCE%/*}/../lib/gpu_machine.sh"
summary=$folder/out/gpu_summary.md
few_kernels

# No process is left; those that were killed have two seconds to be gone.
is_quiet() {
    for _ in {1..20}; do
        [ -z "$(processes)" ] && return
        sleep 0.1
    done
    return 1
}
ran() { grep -cE '^[a-z]+, .* try [0-9]\)' "$folder/said"; } # how many parts

# ---- smoke ----

parts=$(bash "$folder/scripts/gpu_check.sh" list | sed -n 's/^[0-9]* s smoke, //p')
all=$(($(wc -l <<<"$parts") + 1)) # and the build
gpu_check smoke
[ $status = 0 ] && grep -q "^- smoke: green, $all parts" "$summary" && is_quiet
result $? "smoke is green" "$(said)"
diff <(sed -n 's/^smoke, \(.*\): passed, .*/\1/p' "$report") <(echo "$parts" && echo Build) &&
    [ "$(grep -c '^    matmul-.*: right' "$report")" = 6 ] &&
    grep -q '^    gpt2 batch 32: 1000 tokens/s' "$report"
result $? "from the least to the most, each product by itself, and a step's kernels" "$(said 90)"
keep
without smoke Build
gpu_check smoke
[ $status = 0 ] && [ "$(ran)" = 0 ] && [ ! -e "$folder/made" ] &&
    cmp -s "$folder/green/gpu_smoke.md" "$report"
result $? "what is done is not done again, and its report comes along" "$(said)"
cp "$report" "$folder/smoke.md"

# red NAME=VALUE PART: that fault alone is named.
red() {
    cp "$folder/smoke.md" "$folder/green/gpu_smoke.md"
    without smoke "$2"
    gpu_check smoke "$1"
    [ $status = 1 ] && [ "$(ran)" = 2 ] && grep -q "^- smoke, $2: RED" "$summary" &&
        grep -q "^- smoke: $((all - 1)) of $all parts passed, 1 RED$" "$summary" && is_quiet
    result $? "smoke is red: $2 ($1)" "$(said 90)"
}
red WRONG=kernel "One kernel"
red FAULT=matmul-nt-fp32 "Products, fp32"
grep -q '^    matmul-nt-fp32: FAULT, status 134$' "$report" &&
    grep -q '^    matmul-nn-fp32: right' "$report"
result $? "a product that ends its process is named, and the others run" "$(said 90)"
red WRONG=matmul-nt-bf16 "Products, bf16"
red OTHER=3 "Weights hashes" # --zero 3

# ---- what smoke stops ----

keep
gpu_check tests
[ $status = 1 ] && [ "$(ran)" = 0 ] && [ ! -e "$report" ] && [ ! -e "$folder/made" ] &&
    grep -q 'parts left: smoke is RED; FORCE=1' "$folder/said"
result $? "tests do not start: smoke is RED" "$(said)"
cp -r "$folder/green" "$folder/red"

# again WHY NAME=VALUE: smoke of another card is not taken over, so that it is built for again.
again() {
    cp "$folder/smoke.md" "$folder/green/gpu_smoke.md"
    gpu_check tests BROKEN=1 "$2"
    [ $status = 1 ] && grep -q '^smoke, Build: RED' "$folder/said" &&
        grep -q 'gpu_smoke.md is of another source or card' "$folder/said"
    result $? "smoke is not taken over: $1" "$(said)"
}
again "another capability" CAPABILITY=10.0
again "another card" CARD="NVIDIA Y"
cp "$folder/train.c" "$folder/same.c"
echo '// changed' >>"$folder/train.c"
again "another source" SUM=1
cp "$folder/same.c" "$folder/train.c"

refused() { # refused WHY ARGUMENT...
    env PATH="$folder/bin:$user_path" bash "$folder/scripts/gpu_check.sh" "${@:2}" \
        >"$folder/said" 2>&1
    [ $? = 2 ] && [ "$(wc -l <"$folder/said")" = 1 ]
    result $? "refused: $1" "$(cat "$folder/said")"
}
refused "no folder" smoke
refused "no architecture" build "$folder/out" all
refused "no mode" some "$folder/out"
refused "REPORTS are nowhere" all "$folder/out" "$folder/nowhere"
mkdir "$folder/empty"
refused "REPORTS without a report" all "$folder/out" "$folder/empty"
sed '/^smoke, One kernel/d' "$folder/green/gpu_smoke.md" >"$folder/empty/gpu_smoke.md"
refused "REPORTS that lack a line" all "$folder/out" "$folder/empty"
grep -q '^gpu_check: .*/gpu_smoke.md, line [0-9]*: ' "$folder/said"
result $? "which one is said" "$(cat "$folder/said")"

# ---- a build ----

gpu_check bench BROKEN=1
[ $status = 1 ] && [ "$(ran)" = 1 ] && grep -q '^    said 100$' "$report" && is_quiet &&
    tail -n 1 "$folder/said" | grep -q '8 parts left: bench, Build: RED'
result $? "a build that failed: its last lines, and no part runs" "$(said 90)"

# ELF files whose kernels are the same, and one that has some of its own in front of them.
printf 'kernels%s' {1..20000} >"$folder/kernels"
cp "$folder/programs/tests/bench_cuda" "$folder/script"
{ echo own && cat "$folder/kernels"; } >"$folder/own"
with_kernels() { # with_kernels PROGRAM KERNELS LIKE
    objcopy --add-section .nv_fatbin="$folder/$2" "$(type -P "$3")" "$folder/programs/$1"
}
kernels_kept() { # kernels_kept PROGRAM...: the pieces that have their kernels
    for name in "$@"; do
        sed -n "s|^program $name [^ ]* [^ ]* \([^ ]*\) .*|\1|p" "$folder/build/brought/manifest"
    done | sort -u
}
with_kernels tests/bench_cuda kernels false
with_kernels tests/test_blas own true
mv "$folder/programs/train" "$folder/train"
with_kernels train kernels true
gpu_check build
mv "$folder/train" "$folder/programs/train"
[ $status = 0 ] && [ "$(kernels_kept train tests/bench_cuda tests/test_blas | wc -l)" = 1 ]
result $? "build keeps kernels once, also of a program that has some of its own" "$(said)"
with_kernels tests/test_blas kernels true
gpu_check build BROUGHT_MIB=0
[ $status = 1 ] && grep -q '^build/brought: .* MiB, at most 0: too large to carry; .* in: 0' \
    "$folder/said"
result $? "a build that is too large to be carried is a failure, and says what is large" "$(said)"
program "$folder/bin/objdump" <<<'echo "  NEEDED libnone.so.1"'
gpu_check build
rm "$folder/bin/objdump"
[ $status = 1 ] && grep -q '^    test_blas: needs libnone.so.1' "$report"
result $? "so is one that needs what a bare machine lacks" "$(said)"
gpu_check build
manifest=$folder/build/brought/manifest
[ $status = 0 ] && grep -q '^build/brought: .* MiB, at most 48: carry' "$folder/said" &&
    [ "$(grep -c '^program ' "$manifest")" = "$(($(wc -w <<<"$names") + 5))" ] &&
    grep -q '^archs 90$' "$manifest" &&
    [ "$(kernels_kept tests/bench_cuda tests/test_blas | wc -l)" = 1 ]
result $? "build packs every program, and kernels once" "$(said)$(cat "$manifest")"


cp "$folder/red/gpu_smoke.md" "$folder/green/"
gpu_check tests FORCE=1
[ $status = 1 ] && is_quiet && [ ! -e "$folder/made" ] &&
    grep -q '^Build: brought along, for sm_90.* FORCE=1' "$report" &&
    grep -q '^## test_gpu_offload' "$report" &&
    [ "$(grep -c '^    1 passed, 0 failed' "$report")" = "$(($(wc -w <<<"$names") - 2))" ]
result $? "FORCE=1 goes on, with a build that was brought; tests run all programs" "$(said)"
[ "$(wc -l <"$folder/sanitized")" = 3 ] &&
    grep -q 'racecheck.*/gpu_smoke attention-bf16 matmul' "$folder/sanitized"
result $? "compute-sanitizer looks at attention, and at our kernels around products" \
    "$(cat "$folder/sanitized")"

cmp -s "$folder/build/brought/bin/tests/test_blas" "$folder/programs/tests/test_blas" &&
    [ ! -e "$folder/build/brought/bin/tests/bench_cuda" ]
result $? "what the mode needs is unpacked as it was, and nothing else"
cp "$folder/smoke.md" "$folder/green/gpu_smoke.md"

# not_brought WHY NAME=VALUE: make is called, and fails here.
not_brought() {
    gpu_check tests BROKEN=1 "$2"
    [ $status = 1 ] && [ -e "$folder/made" ] && grep -q \
        "^Build: made here.*; that which was brought along is not used: .*$1" "$folder"/out/*.md
    result $? "a build that was brought is not used: $1" "$(said)"
}
not_brought "train does not start" BROKEN_TRAIN=1
piece=$(awk '$2 == "tests/test_blas" { print $5 }' "$manifest")
cp "$folder/build/brought/pieces/$piece" "$folder/piece"
echo | gzip -c >"$folder/build/brought/pieces/$piece"
not_brought "its tests/test_blas is damaged" SUM=1
cp "$folder/piece" "$folder/build/brought/pieces/$piece"
not_brought "this GPU is sm_100" CAPABILITY=10.0
echo '// changed again' >>"$folder/train.c"
not_brought "it is of another source" SUM=1
mv "$folder/bin/nvcc" "$folder/nvcc"
gpu_check tests CUDA_HOME=/nowhere
[ $status = 1 ] && [ ! -e "$folder/made" ] && [ "$(ran)" = 0 ] &&
    tail -n 1 "$folder/said" | grep -q ': there is no nvcc, .*: it is of another source'
result $? "without nvcc, and with a build that does not fit, no part runs" "$(said)"
gpu_check build CUDA_HOME=/nowhere
[ $status = 1 ] && [ ! -e "$report" ] && said | grep -q 'no nvcc on this machine: nothing was run'
result $? "nothing is built, and no report written, without nvcc" "$(said)"
mv "$folder/nvcc" "$folder/bin/nvcc"
gpu_check build BROKEN=1
[ $status = 1 ] && [ "$(ran)" = 1 ] && grep -q '^build, Build: RED' "$folder/said" &&
    [ ! -e "$manifest" ]
result $? "what was not built is not packed" "$(said)"

# ---- limits ----

cp "$folder/script" "$folder/programs/tests/bench_cuda"
cp "$folder/same.c" "$folder/train.c"
gpu_check bench HANG=gpt2 LIMIT=2 # which is less than the first part's limit
[ $status = 3 ] && [ "$(ran)" = 2 ] && is_quiet &&
    grep -q '^bench, ./train, GPT-2 124M: cut, .*, no more was left of the call$' "$report"
result $? "a part that no call has time for gets what is left, and is cut" "$(said)"
cp "$report" "$folder/green/"
short_limits
gpu_check bench HANG=gpt2
[ $status = 3 ] && [ -e "$folder/hangs" ] && is_quiet &&
    grep -q '^bench, ./train, GPT-2 124M: slow, .*try 2)$' "$report" &&
    grep -q '^- bench: 8 of 9 parts passed, 1 left$' "$summary"
result $? "a part that hangs ends at its limit, and its children with it" "$(said 90)$(processes)"
keep
gpu_check bench HANG=gpt2
[ $status = 1 ] && [ "$(ran)" = 2 ] && grep -q '^- 0 RED, 1 slow, .*, 0 parts left$' "$summary"
result $? "one that was slow is tried once more" "$(said)"
gpu_check bench LEAVE=1
[ $status = 0 ] && is_quiet &&
    grep -q '^bench, ./train, GPT-2 124M: passed, .*, left [12] processes behind' "$report"
result $? "what a part leaves behind is told, and ended" "$(said)$(processes)"

# By itself: 5 of 10 seconds are left.
(
    cd "$root" || exit
    . scripts/gpu/lib.sh
    plan smoke long 6 true
    plan smoke short 3 true
    plan smoke longest 11 true
    SECONDS=5 deadline=10 call_s=10
    ! fits 0 && fits 1 && [ $most = 3 ] && fits 2 && [ $most -le 5 ]
) >"$folder/said" 2>&1
result $? "a part starts if its limit fits, or no call is long enough" "$(said)"

# Parts that end while their timers begin: none is taken for one that ran into its limit, and the
# traps of this shell, which are the timers' too by then, do nothing.
(cd "$folder" && bash -s) >"$folder/said" 2>&1 <<'P'
set -u
work=$(mktemp -d) ended=()
. scripts/gpu/lib.sh
running=$work/log
marked() { :; }
end_marked() { :; }
setsid() { :; }
trap clean_up EXIT
trap 'interrupt TERM' TERM
for ((i = 0; i < 500; i++)); do
    run_limited 3 KILL true
    [ $status = 0 ] && [ -e "$work/log" ] || ended+=("$i: status $status, $(ls "$work")")
done
[ ${#ended[@]} = 0 ] || printf '%s\n' "${ended[@]:0:9}"
P
[ $? = 0 ] && [ ! -s "$folder/said" ]
result $? "five hundred parts that end at once" "$(said)"

# interrupted SIGNAL MODE: while ./train hangs; sets status.
interrupted() {
    local pid
    rm -rf "$folder/hangs" "$folder/out"
    env PYTHON="$folder/bin/python" PATH="$folder/bin:$user_path" HANG=gpt2-xl \
        bash "$folder/scripts/gpu_check.sh" "$2" "$folder/out" "$folder/green" \
        >"$folder/said" 2>&1 &
    pid=$!
    for _ in {1..300}; do
        [ ! -e "$folder/hangs" ] || break
        sleep 0.1
    done
    { kill -"$1" $pid && wait $pid; } 2>/dev/null # says "Killed" otherwise
    status=$?
    report=$folder/out/gpu_$2.md
}
rm "$folder/green/gpu_bench.md"
for one in TERM:bench HUP:offload; do
    signal=${one%:*} mode=${one#*:}
    interrupted $signal $mode
    [ $status = 130 ] && is_quiet &&
        grep -q "^$mode, .*: cut, .*, interrupted by SIG$signal$" "$report" &&
        tail -n 1 "$folder/said" | grep -q " parts left: interrupted by SIG$signal$"
    result $? "$mode interrupted by SIG$signal: no process is left, and the report says so" \
        "$(said 90)$(processes)"
done
interrupted KILL offload
[ $status = 137 ] && is_quiet && grep -q '^offload, .*: cut, .*, the call ended here$' "$report"
result $? "offload killed: the same" "$(said 90)$(processes)"

echo "1..$count"
exit $failed
