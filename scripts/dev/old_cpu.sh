#!/bin/bash
# Trains on older CPUs, emulated: a Haswell, which ends with AVX2, and a Nehalem, which ends with
# SSE4.2. An instruction that they lack ends the run, and the weights hash must be the one of
# ZERO_CPU=avx2 and base on this CPU, in fp32, bf16 and fp16.
#
#   scripts/dev/old_cpu.sh
#
# Needs ./train and qemu-x86_64 (Debian's package qemu-user); two minutes. Says `N passed, N failed`
# at the end; status 0: none failed.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
die() { echo "old_cpu: $*" >&2 && exit 2; }
[ $# = 0 ] || die "'$*': expected nothing"
[ -x train ] || die "there is no ./train: make"
command -v qemu-x86_64 >/dev/null || die "qemu-x86_64 is missing: apt-get install qemu-user"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0

# hash DTYPE COMMAND...: the weights hash that it trains to.
hash() {
    "${@:2}" --device cpu --dtype "$1" --data README.md --tokenizer byte --steps 3 --layers 2 \
        --channels 64 --heads 2 --seq-len 64 --batch 4 --threads 2 --cache "$folder/cache" \
        --out "$folder/out" 2>"$folder/errors" | sed -n 's/^weights hash: //p'
    rm -rf "$folder/out"
}

for pair in Haswell:avx2 Nehalem:base; do
    for dtype in fp32 bf16 fp16; do
        old=$(hash $dtype qemu-x86_64 -cpu ${pair%:*} ./train)
        new=$(ZERO_CPU=${pair#*:} hash $dtype ./train)
        if [ -n "$old" ] && [ "$old" = "$new" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
        printf '%-8s %s  %16s, ZERO_CPU=%s: %s\n' ${pair%:*} $dtype "${old:-no end}" \
            "${pair#*:}" "${new:-no end}"
        [ -n "$old" ] || grep -v TCG "$folder/errors"
    done
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
