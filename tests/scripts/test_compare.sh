#!/bin/bash
# scripts/dev/compare.sh on logs that are equal, part by loss, by norm or by hash, have other steps,
# are torn, broken or missing; and on runs of ./train, whose hashes on the way (--hash-every) do not
# depend on ranks, stages, tiers or late updates, and are those that a run which ends there prints.
# Tokens seen go on where a run is resumed on other ranks. Speaks TAP.
set -u
compare=$(realpath scripts/dev/compare.sh)
. "${BASH_SOURCE%/*}/../lib/small_run.sh"

# make FOLDER STEPS [SED]: a run with hashes every 2 steps, its log changed by SED.
make() {
    mkdir -p "$1"
    printf '{\n\t"ranks":\t%s,\n\t"data":\t"a b, c",\n\t"out":\t"%s"\n}\n' "${ranks:-1}" "$1" \
        >"$1/config.json"
    awk -v n="$2" 'BEGIN {
        for (i = 1; i <= n; i++) {
            printf "{\"step\":%d,\"loss\":%g,\"grad_norm\":%g,\"lr\":1e-4,\"step_ms\":%g}\n", i,
                   5 / i, 1 / i, i % 3
            if (i % 2 == 0) printf "{\"step\":%d,\"weights_hash\":\"%016x\"}\n", i, i * 77
            if (i % 5 == 0) printf "{\"step\":%d,\"val_loss\":%g}\n", i, i / 3
        }
    }' | sed "${3:-}" >"$1/log.jsonl"
}

same() { # same STATUS TEXT...: what compare.sh came to, and texts that it said
    local want=$1 text
    shift
    [ "$status" = "$want" ] || return 1
    for text; do
        grep -qF -- "$text" <<<"$said" || return 1
    done
}
look() { said=$(bash "$compare" "$@" 2>&1) status=$?; }

make a 20
make b 20
look a b
same 0 'the same flags' 'losses and norms: equal up to step 20 (20 compared)' \
    'weights: equal up to step 20 (10 compared)'
result $? "two equal runs" "$said"

ranks=3 make c 12
look a c
same 0 '--ranks 1 | 3' 'equal up to step 12 (12 compared)' &&
    ! grep -q -e --out -e --data <<<"$said"
result $? "flags are told, and the shorter run's steps are compared" "$said"

make loss 20 '/"step":7,/s/"loss":[^,]*/"loss":0.5/'
look a loss
same 1 'losses and norms: part at step 7: loss 0.714286 | 0.5; equal up to step 6' \
    'weights: equal up to step 20'
result $? "the first loss that differs" "$said"

make norm 20 '/"step":1[19],/s/"grad_norm":[^,]*/"grad_norm":9/'
look norm a
same 1 'losses and norms: part at step 11: grad_norm 9 | 0.0909091; equal up to step 10'
result $? "the first norm that differs" "$said"

make hash 20 '/"step":1[26],.*hash/s/0"}/1"}/; /"step":8,.*hash/s/00/0f/'
look a hash
same 1 'losses and norms: equal up to step 20' 'weights: part at step 8: weights_hash' \
    '; equal up to step 6'
result $? "the first hash that differs" "$said"

make first 20 's/"loss":5,/"loss":6,/'
look a first
same 1 'part at step 1: loss 5 | 6' && ! grep -q 'equal up to step 0' <<<"$said"
result $? "runs that part at once" "$said"

make bare 20 /weights_hash/d
look a bare
same 0 'equal up to step 20' 'weights: not compared; --hash-every N in both'
result $? "hashes of one run alone are not compared" "$said"

make null 20 '/"step":3,/s/"loss":[^,]*/"loss":null/'
look null null
same 0 'equal up to step 20'
result $? "a loss that is not finite is compared, too" "$said"

make torn 20
truncate -s -20 torn/log.jsonl
look a torn
same 0 'equal up to step 20'
result $? "a line that is still being written is left out" "$said"

refused() { # refused TEXT: status 2 and that line alone
    same 2 "$1" && [ "$(wc -l <<<"$said")" = 1 ]
}
make broken 20 '5s/.*/nonsense/'
look a broken
refused 'broken/log.jsonl: line 5 is no JSON object with a step'
result $? "a broken line is named by its number" "$said"
make later 30 '/"step":1\?[0-9],/d; /"step":20,/d'
look a later
refused 'the two logs have no step in common'
result $? "runs without a common step are refused" "$said"
mkdir empty
look a empty
refused 'empty/log.jsonl is missing'
result $? "a folder without a log is refused" "$said"
look a
refused 'usage: scripts/dev/compare.sh OUT1 OUT2'
result $? "one folder is too few" "$said"
look a nowhere
refused 'nowhere is no folder'
result $? "a folder that is not there is refused" "$said"

# ---- runs ----

hash_at() { sed -n "s/^{\"step\":$2,\"weights_hash\":\"\\(.*\\)\"}/\\1/p" "$1/log.jsonl"; }

tiny+=(--global-batch 6 --hash-every 2 --steps 6)
run --out one --batch 1
whole=$(hash_of <<<"$said")
run --out three --batch 2 --ranks 3 --zero 1 --offload-optimizer cpu
[ "$(hash_of <<<"$said")" ] && look one three && grep -q 'ranks 1 | 3' <<<"$said"
[ "$(hash_at one 6)" = "$whole" ] && [ "$whole" ] && [ "$(hash_at one 2)" != "$whole" ] &&
    [ "$(grep -c weights_hash one/log.jsonl)" = 3 ]
result $? "the last hash is the one that the run prints" "$said"

tiny+=(--batch 2)
run --out zero0 --ranks 3
run --out zero3 --ranks 3 --zero 3 --offload-optimizer cpu --offload-param cpu --val-every 3
look zero0 zero3
same 0 'equal up to step 6 (6 compared)' 'weights: equal up to step 6 (3 compared)' \
    '--zero "0" | "3"'
result $? "stages and tiers have the same hashes on the way" "$said"

late=(--ranks 3 --zero 1 --offload-optimizer cpu --delay-update --delay-after 1)
run --out late "${late[@]}"
whole=$(hash_of <<<"$said")
run --out late4 "${late[@]}" --steps 4
[ "$(hash_at late 4)" = "$(hash_of <<<"$said")" ] && [ "$(hash_at late 4)" ] &&
    [ "$(hash_at late 6)" = "$whole" ]
result $? "a hash is what a run that ends there would save, late updates included" "$said"
deep=("${late[@]}" --layers 6) # so that most of an update is still to come when a step ends
run --out deep "${deep[@]}" --steps 4
run --out deep2 "${deep[@]}" --steps 2
[ "$(hash_at deep 2)" = "$(hash_of <<<"$said")" ] && [ "$(hash_of <<<"$said")" ]
result $? "also where layers are updated long behind the step" "$said"
run --out quiet "${late[@]}" --hash-every 0
[ "$(hash_of <<<"$said")" = "$whole" ] && ! grep -q weights_hash quiet/log.jsonl
result $? "hashes change nothing, late updates included" "$said"
look late zero0
same 1 'weights: part at step'
result $? "late updates part from others" "$said"

run --out late4 --resume auto --ranks 1 --zero 0 --steps 6 --breakdown --peak-tflops 0.001
seen=$(sed -n 's/.*"step":\([0-9]*\),"loss".*"tokens_seen":\([0-9]*\).*/\1 \2/p' late4/log.jsonl)
[ "$seen" = "$(for i in 1 2 3 4 5 6; do echo $i $((i * 6 * 16)); done)" ]
result $? "tokens seen go on where a run is resumed on other ranks" "$seen"
grep -q '^of rank 0.s steps, queues were busy  compute [0-9.]*%  comm ' <<<"$said" &&
    grep -q '^compute waited for  weights [0-9.]*%  update .*  and was idle [0-9.]*%$' <<<"$said" &&
    grep -q '"step":6,"breakdown":{"compute":0\.[0-9]*,"comm".*"host_compute":.*"idle":' \
        late4/log.jsonl && grep -q '"step":6,"waited_s":{"weights":0\.[0-9]*,' late4/log.jsonl &&
    [ "$(grep -c '"breakdown"' late4/log.jsonl)" = 2 ] && grep -q 'MFU' <<<"$said" &&
    grep -q '"mfu":' late4/log.jsonl && ! grep -q '"mfu":\|breakdown' quiet/log.jsonl
result $? "a run tells where its time went, where somebody asks" "$said"

# Of the tiny model: 256 tokens and 16 positions of 16 each, 3280 of the block, 32 of the norm.
run --out mfu --ranks 3 --steps 3 --peak-tflops 1e-9
run --out mfu_again --ranks 3 --steps 3 --peak-tflops 1e-9 --recompute block
flops=$(cat mfu/log.jsonl mfu_again/log.jsonl |
    sed -n 's/.*"tokens_per_s":\([0-9.]*\).*"mfu":\([0-9.]*\).*/\1 \2/p' |
    awk '{ printf "%.0f ", $2 * 1e-9 * 1e12 * 3 / $1 }')
[ "$flops" = "47520 47520 47520 47520 47520 47520 " ]
result $? "MFU is of all ranks' peak, with 6 N + 6 L C T operations a token, also recomputed" \
    "$flops"

echo "1..$count"
exit $failed
