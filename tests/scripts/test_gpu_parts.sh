#!/bin/bash
# How scripts/gpu_check.sh runs its parts, on a machine that is made up: smoke and what it stops;
# builds that fail or are brought along; limits, interrupts, and that no process outlives them.
# test_gpu_check.sh has the figures of bench and offload. Speaks TAP.
# shellcheck disable=SC1091,SC2086,SC2154 # gpu_machine.sh sets status and report
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
. "${BASH_SOURCE%/*}/../lib/gpu_machine.sh"
smoke=$folder/out/gpu_smoke.md

sum_of_limits() { # of all parts but the build
    sed '/^## Build/,/limit/d' "$report" | sed -n 's/.*(limit \([0-9]*\) s).*/\1/p' |
        awk '{ sum += $1 } END { print sum + 0 }'
}
sections() { grep -c '^## ' "$report"; }
is_quiet() { [ -z "$(processes)" ]; } # no process is left

# ---- smoke ----

gpu_check smoke
[ $status = 0 ] && [ "$(tail -n 1 "$report")" = "smoke: green" ] && is_quiet
result $? "smoke is green" "$(said)"
[ "$(grep '^- .*: passed' "$report" | sed 's/^- \([^:,]*\).*/\1/' | paste -sd ,)" = \
    "Tools,Libraries,One kernel,PTX,Attention,Products,Kernels of a bias gradient,Weights \
hashes,GPT-2 124M,Attention" ] &&
    [ "$(grep -c '^- matmul-.*: status 0' "$report")" = 2 ] &&
    grep -q '^gpt2 batch 32: 1000 tokens/s' "$report"
result $? "from the least to the most, each product by itself, and a step's kernels" "$(said 90)"
[ "$(sum_of_limits)" = 60 ]
result $? "its limits sum to a minute" "$(said)"

# red NAME=VALUE WORDS: that fault alone is named.
red() {
    gpu_check smoke "$1"
    [ $status = 1 ] && [ "$(tail -n 1 "$report")" = "smoke: RED: $2" ] && is_quiet
    result $? "smoke is red: $2 ($1)" "$(said 90)"
}
red WRONG=kernel "One kernel"
red WRONG=matmul-nn-fp32 Products
grep -q '^Products that did not pass: matmul-nn-fp32$' "$report" &&
    grep -q '^- matmul-nn-fp32: status 1' "$report" &&
    grep -q '^- matmul-nt-bf16: status 0' "$report"
result $? "a product that fails is named, and the others run" "$(said 90)"
red OTHER=3 "Weights hashes" # --zero 3
rm "$folder/programs/tests/step_kernels" "$folder/build/gpu/tests/step_kernels"
red SUM=1 "GPT-2 124M, batch 32"
program "$folder/programs/tests/step_kernels" <<<'echo "gpt2 batch 32: 1000 tokens/s, 2 ms a step"'

# ---- what smoke stops ----

refuses() { # refuses WHY NAME=VALUE
    gpu_check tests "$2"
    [ $status = 1 ] && [ "$(wc -l <"$folder/said")" = 1 ] && [ ! -e "$report" ] &&
        [ ! -e "$folder/made" ] && grep -q 'smoke.*FORCE=1' "$folder/said"
    result $? "tests do not start: $1" "$(said)"
}
refuses "smoke was red" SUM=1
gpu_check tests FORCE=1
[ $status = 0 ] && grep -q '^FORCE=1: .*is not green' "$report"
result $? "FORCE=1 goes on, and the report says so" "$(said)"
rm "$smoke"
refuses "there was no smoke" SUM=1
gpu_check smoke
refuses "it was on another GPU" CAPABILITY=10.0
echo '// changed' >>"$folder/train.c"
refuses "it was of another source" SUM=1
gpu_check smoke
cp "$smoke" "$folder/green"

# ---- tests ----

gpu_check tests
[ $status = 0 ] && is_quiet && ! grep -q '^FORCE' "$report" &&
    grep -q '^## test_gpu_offload' "$report" &&
    [ "$(grep -c '^1 passed, 0 failed' "$report")" = "$(wc -w <<<"$names")" ]
result $? "tests run all programs" "$(said)"
[ "$(wc -l <"$folder/sanitized")" -ge 9 ] &&
    grep -q 'racecheck.* --kernel-name kns=matmul_ .*matmul' "$folder/sanitized" &&
    grep -q 'racecheck --error-exitcode 9 [^ ]*/gpu_smoke attention-bf16' "$folder/sanitized"
result $? "compute-sanitizer looks at attention, and at our kernels around products" \
    "$(cat "$folder/sanitized")"

# ---- a build ----

gpu_check bench BROKEN=1
[ $status = 1 ] && [ "$(sections)" = 12 ] && grep -q '^said 100$' "$report" &&
    grep -q '^said 61$' "$report" && ! grep -q '^said 60$' "$report" &&
    [ "$(grep -c '^FAILED: not run: the build failed' "$report")" = 9 ] && is_quiet
result $? "a build that failed: its last 40 lines, and no part runs" "$(said 90)"

# An ELF file whose kernels are in two programs, as they would be.
printf 'kernels%s' {1..20000} >"$folder/kernels"
for name in bench_cuda:true test_blas:false; do
    objcopy --add-section .nv_fatbin="$folder/kernels" "$(type -P ${name#*:})" \
        "$folder/programs/tests/${name%:*}"
done
gpu_check build
manifest=$folder/build/brought/manifest
[ $status = 0 ] && grep -q '^build/brought: .* MiB' "$folder/said" &&
    [ "$(grep -c '^program ' "$manifest")" = "$(($(wc -w <<<"$names") + 5))" ] &&
    grep -q '^archs 90$' "$manifest" &&
    [ "$(sed -n 's/^program tests\/\(bench_cuda\|test_blas\) [^ ]* [^ ]* \([^ ]*\) .*/\2/p' \
        "$manifest" | sort -u | wc -l)" = 1 ]
result $? "build packs every program, and kernels once" "$(said)$(cat "$manifest")"
cp -r "$folder/build/brought" "$folder/brought"

# brought WHY NAME=VALUE...: not used, and so make is called; WHY is empty: used. No part runs.
brought() {
    gpu_check tests LIMIT=0 "${@:2}"
    if [ -z "$1" ]; then
        [ ! -e "$folder/made" ] && grep -q '^brought along, for sm_90' "$report"
        result $? "a build that was brought is used, without make" "$(said)"
    else
        [ -e "$folder/made" ] &&
            grep -q "^The build that was brought along is not used: .*$1" "$report"
        result $? "a build that was brought is not used: $1" "$(cat "$report")"
    fi
}
brought ""
cmp -s "$folder/build/brought/bin/tests/test_blas" "$folder/programs/tests/test_blas" &&
    [ ! -e "$folder/build/brought/bin/tests/bench_cuda" ]
result $? "what the mode needs is unpacked as it was, and nothing else"
brought "train does not start" BROKEN_TRAIN=1
brought "this GPU is sm_100" CAPABILITY=10.0 FORCE=1
piece=$(awk '$2 == "tests/test_blas" { print $5 }' "$manifest")
cp "$folder/build/brought/pieces/$piece" "$folder/piece"
echo | gzip -c >"$folder/build/brought/pieces/$piece"
brought "its tests/test_blas is damaged" SUM=1
cp "$folder/piece" "$folder/build/brought/pieces/$piece"
echo '// changed again' >>"$folder/train.c"
brought "it is of another source" FORCE=1
mv "$folder/bin/nvcc" "$folder/nvcc"
gpu_check tests FORCE=1 CUDA_HOME=/nowhere
[ $status = 1 ] && [ ! -e "$folder/made" ] && grep -q '^FAILED: there is no nvcc' "$report"
result $? "without nvcc, and with a build that does not fit, no part runs" "$(said)"
gpu_check build CUDA_HOME=/nowhere
[ $status = 1 ] && [ ! -e "$report" ] && said | grep -q 'no nvcc on this machine: nothing was run'
result $? "nothing is built, and no report written, without nvcc" "$(said)"
mv "$folder/nvcc" "$folder/bin/nvcc"
gpu_check build BROKEN=1
[ $status = 1 ] && grep -q '^FAILED: not run: the build failed' "$report" &&
    [ ! -e "$manifest" ]
result $? "what was not built is not packed" "$(said)"

# ---- limits ----

for mode in tests bench offload; do
    gpu_check $mode LIMIT=0 FORCE=1
    [ $status = 1 ] && [ "$(sum_of_limits)" -le 480 ] && [ "$(sum_of_limits)" -ge 400 ] &&
        [ "$(grep -c '^FAILED: not run: no time was left' "$report")" = \
            "$(($(sections) - 2 - $([ $mode = tests ] && echo 0 || echo 1)))" ]
    result $? "limits of $mode sum to at most 480 s, and each part has its section" "$(said 90)"
done
gpu_check bench FORCE=1 HANG=1 LIMIT=3
[ $status = 1 ] && [ "$(sections)" = 12 ] && grep -q '^FAILED: not done after [123] s' "$report" &&
    [ "$(grep -c 'no time was left' "$report")" = 7 ] && [ -e "$folder/hangs" ] && is_quiet
result $? "a part that hangs ends at its limit, and its children with it" "$(said 90)$(processes)"
gpu_check bench FORCE=1 LEAVE=1
[ $status = 1 ] && is_quiet &&
    grep -q '^FAILED: processes of this check were left, and were ended: [0-9 ]*$' "$report"
result $? "a process that hides from its part is found at the end" "$(said)$(processes)"

# By itself: three parts with limits that sum to the 7 seconds that there are for all.
(
    cd "$folder" || exit
    report=$folder/spare.md work=$folder/spare SECONDS=0
    mkdir "$work"
    . scripts/gpu/lib.sh
    deadline=7
    plan quick 4 true
    plan slow 2 sleep 2.2
    plan slower 1 sleep 30
    run_plan part
) >"$folder/said" 2>&1
report=$folder/spare.md
[ "$(grep -cE '^passed' "$report")" = 2 ] && grep -q '^FAILED: not done after [12] s' "$report"
result $? "what a part leaves of its time is there for the next ones" "$(said)"

# Parts that end while their timers begin: none is taken for one that ran into its limit, and the
# traps of this shell, which are the timers' too by then, do nothing.
(cd "$folder" && bash -s) >"$folder/said" 2>&1 <<'P'
set -u
work=$(mktemp -d) ended=()
. scripts/gpu/lib.sh
marked() { :; }
end_marked() { :; }
setsid() { :; }
trap clean_up EXIT
trap 'interrupt TERM' TERM
for ((i = 0; i < 1000; i++)); do
    run_limited 3 true
    [ $status = 0 ] && [ -e "$work/log" ] || ended+=("$i: status $status, $(ls "$work")")
done
[ ${#ended[@]} = 0 ] || printf '%s\n' "${ended[@]:0:9}"
P
[ $? = 0 ] && [ ! -s "$folder/said" ]
result $? "a thousand parts that end at once" "$(said)"

# interrupted SIGNAL MODE NOT_RUN: while ./train hangs.
interrupted() {
    local pid i
    rm -f "$folder/hangs"
    env PYTHON="$folder/bin/python" PATH="$folder/bin:$user_path" FORCE=1 HANG=1 \
        bash "$folder/scripts/gpu_check.sh" "$2" "$folder/out" >"$folder/said" 2>&1 &
    pid=$!
    for i in {1..300}; do
        [ ! -e "$folder/hangs" ] || break
        sleep 0.1
    done
    kill -"$1" $pid
    wait $pid
    status=$?
    report=$folder/out/gpu_$2.md
    [ $status = 130 ] && is_quiet && grep -q "^FAILED: interrupted by SIG$1" "$report" &&
        [ "$(grep -c "^FAILED: not run: interrupted by SIG$1" "$report")" = "$3" ]
    result $? "$2 interrupted by SIG$1: no process is left, and the report is whole" \
        "$(said 90)$(processes)"
}
interrupted TERM bench 7
interrupted HUP offload 3

bash "$folder/scripts/gpu_check.sh" smoke >"$folder/said" 2>&1
[ $? = 2 ] && bash "$folder/scripts/gpu_check.sh" build "$folder/out" all >"$folder/said" 2>&1
[ $? = 2 ] && [ "$(grep -c gpu_check "$folder/said")" = 2 ]
result $? "bad arguments are refused" "$(cat "$folder/said")"

echo "1..$count"
exit $failed
