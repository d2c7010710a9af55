#!/bin/bash
# Older CPUs (ZERO_CPU, kernels/cpu/instructions.h): on one that ends with AVX2 or SSE2 the tests of
# products pass, where oneDNN lacks some (no other kernel asks the CPU anything beside its table),
# and ./train takes the table and the format that such a CPU has, with the bits that the table has
# on a newer one. Speaks TAP. Ten seconds on two cores.
#
# TRAIN names the program (default ./train); tests of kernels lie beside it. A CPU of that kind,
# emulated, which stops at an instruction that it lacks: scripts/dev/old_cpu.sh.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
tests=$(dirname "$train")/tests

# run ARGUMENT...: into $said.
run() {
    said=$("$train" --device cpu --data random --vocab 61 --layers 2 --channels 24 --heads 2 \
        --seq-len 16 --batch 2 --threads 2 --steps 3 --val-batches 1 --no-tensorboard \
        --out "$folder/out" "$@" 2>&1)
    rm -rf "$folder/out"
}

for cpu in avx2 base; do
    programs=(test_kernels_matmul)
    [ $cpu = base ] || programs+=(test_matmul_edges)
    for test in "${programs[@]}"; do
        said=$(ZERO_CPU=$cpu "$tests/$test" 2>&1)
        result $? "$cpu: $test" "$said"
    done
    if [ $cpu = avx2 ] && ! ZERO_CPU=avx2 "$train" --device cpu --kernels avx2 --data random \
        --plan >/dev/null 2>&1; then
        echo "ok $((++count)) # SKIP this CPU has no AVX2"
        continue
    fi
    for dtype in fp32 fp16; do
        run --kernels $cpu --dtype $dtype
        want=$(hash_of <<<"$said")
        ZERO_CPU=$cpu run --dtype "${dtype/fp32/auto}"
        [ -n "$want" ] && [ "$(hash_of <<<"$said")" = "$want" ]
        result $? "$cpu: a run has the bits of its table in $dtype" "$said"
    done
    ZERO_CPU=$cpu run --dtype bf16
    want=$(hash_of <<<"$said")
    [ -n "$want" ]
    result $? "$cpu: it trains in bf16, if that is asked for" "$said"
    DNNL_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 run --kernels $cpu --dtype bf16
    [ "$(hash_of <<<"$said")" = "$want" ]
    result $? "$cpu: the same where oneDNN alone is bounded, by its own variables" "$said"
    said=$(ZERO_CPU=$cpu "$train" --device cpu --kernels avx512 --data random --plan 2>&1)
    error_is 'E_CPU_LACKS --kernels avx512'
    result $? "$cpu: a table that it lacks is refused" "$said"
done
said=$(ZERO_CPU=sse9 "$train" --device cpu --data random --plan 2>&1)
[ $? = 2 ] && error_is 'E_KERNELS_NAME sse9'
result $? "a name of no instruction set is refused" "$said"
echo "1..$count"
exit $failed
