#!/bin/bash
# --breakdown of a run whose data come slowly: compute waits for data, in every step and for nothing
# else; and a validation on the way, which reads as slowly, is no part of a step. Each read of a
# file is put off by a time that is far longer than a step's work (tests/lib/fault.c). Speaks TAP.
#
# TRAIN names the program (default ./train); libfault.so lies beside it in tests/.
set -u
. "${BASH_SOURCE%/*}/../lib/small_run.sh"
library=${train%/*}/tests/libfault.so

# shares NAME: of the time of steps 2 to 5; the last three of eight find all read ahead.
shares() {
    sed -n "s/^{\"step\":\([2-5]\),\"breakdown\":.*\"$1\":\([0-9.]*\).*/\1 \2/p" out/log.jsonl
}
# all NAME TEST: of every step's share, and of four of them.
all() {
    shares "$1" | awk "{ n += (\$2 $2) } END { exit n != NR || NR != 4 }"
}

# waits ARGUMENT...: for data alone. On a machine that is busy with other things a queue may come
# late to its work: a few more times are tried.
waits() {
    local again name
    for again in 1 2 3 4; do
        rm -rf out
        LD_PRELOAD=$library FAULT_CLASS=read FAULT_AT=1 FAULT_FOR=0 FAULT_DO=delay:10 \
            run --out out --steps 8 --breakdown "$@"
        [ $status = 0 ] && all wait_data '> 0.6' || continue
        for name in idle wait_weights wait_update wait_gradients wait_other; do
            all $name '< 0.25' || continue 2
        done
        return
    done
    return 1
}

run --out first --steps 1 # text.txt is in the cache now
waits --val-every 0
result $? "slow reads are what compute waits for" "$said
$(cat out/log.jsonl)"
waits --val-every 1 --val-batches 4 && [ "$(grep -c val_loss out/log.jsonl)" -ge 5 ]
result $? "a slow validation is no part of a step" "$said
$(cat out/log.jsonl)"

echo "1..$count"
exit $failed
