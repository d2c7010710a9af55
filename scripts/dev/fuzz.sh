#!/bin/bash
# Gives every reader of files 100,000 damaged inputs under AddressSanitizer (libFuzzer, clang):
#
#   scripts/dev/fuzz.sh [NAME...]     RUNS=1000000 scripts/dev/fuzz.sh fuzz_text
#
# An input that crashes, hangs, leaks or breaks a promise ends a fuzzer, and lies in
# build/fuzz/NAME/ then; `build/fuzz/tests/NAME FILE` shows it again. The last line is "N passed,
# N failed".
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1

# A fuzzer of tests/NAME.c and the longest input worth trying, in bytes.
fuzzers="
fuzz_tokens           2048
fuzz_tokenizer_model  12000
fuzz_text             512
fuzz_config           2048
fuzz_checkpoint       1024
fuzz_log              2048
fuzz_kept             1024
fuzz_safetensors      2048
fuzz_llmc             6000
fuzz_chat             1024
fuzz_stream           1024
fuzz_eval             2048
fuzz_deepspeed        2048
fuzz_bpe              9000
fuzz_peft             1024
"

runs=${RUNS:-100000}
scripts/setup.sh --test || exit 1
make --no-print-directory -j"$(nproc)" MODE=fuzz CC=clang CXX=clang++ CFLAGS="-O1 -g" fuzz-build \
    >/dev/null || { echo "the fuzzers could not be built"; exit 1; }
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1

passed=0 failed=0
while read -r name longest; do
    [[ -n $name ]] || continue
    [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
    folder=build/fuzz/$name
    rm -rf "$folder" && mkdir -p "$folder/corpus"
    begin=$SECONDS
    if "build/fuzz/tests/$name" -runs="$runs" -max_len="$longest" -seed=1 -timeout=20 \
        -rss_limit_mb=4096 -artifact_prefix="$folder/" "$folder/corpus" >"$folder/log" 2>&1; then
        passed=$((passed + 1))
        echo "PASS  $name ($runs inputs in $((SECONDS - begin)) s)"
    else
        failed=$((failed + 1))
        tail -n 40 "$folder/log"
        echo "FAIL  $name (the whole log: $folder/log)"
    fi
done <<<"$fuzzers"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
