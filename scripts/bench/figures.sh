# Figures, for scripts that measure: bench_cpu.sh, bench_gpu.sh, bench_offload.sh, bench_save.sh,
# bench_stages.sh, gpu_check.sh. Sourced. LC_ALL=C in those scripts gives numbers with points.
# shellcheck shell=bash

# calculate FORMAT EXPRESSION[, EXPRESSION...]: awk's
calculate() { awk "BEGIN { printf \"$1\", $2 }"; }

median() { # of the numbers on standard input, one a line; of none: nothing
    sort -g |
        awk '{ x[NR] = $1 } END { if (NR) print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}

# step_ms DIR FIRST: the median milliseconds of the logged steps of ./train --out DIR, from the one
# numbered FIRST on; those before it warm up.
step_ms() {
    sed -n 's/.*"step_ms": *\([0-9.]*\).*/\1/p' "$1/log.jsonl" 2>/dev/null | tail -n "+$2" | median
}

# expect NAME VALUE LOW [HIGH]: one line, PASS or FAIL, and counts it in passed or failed.
passed=0 failed=0
expect() {
    local limits="at least $3"
    [ $# = 3 ] || limits="$3 to $4"
    if awk "BEGIN { exit !($2 >= $3 && $2 <= ${4:-1e300}) }"; then
        echo "PASS  $1: $2 ($limits)"
        passed=$((passed + 1))
    else
        echo "FAIL  $1: $2 ($limits)"
        failed=$((failed + 1))
    fi
}
