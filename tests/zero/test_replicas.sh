#!/bin/bash
# Shards over some of the ranks, and replicas of them beyond (--zero-shard-size): one result for
# every stage, tier and launcher, the bytes that were predicted, checkpoints for any other grid, and
# what is refused. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/mpi_jobs.sh"
. "${BASH_SOURCE%/*}/../lib/planned_run.sh"

model=("${here[@]}" --data random --vocab 300 --layers 2 --channels 32 --heads 2 --seq-len 16
    --batch 1 --threads 1 --log-every 1 --val-batches 1 --no-tensorboard)

norms() { sed -n 's/^step .* norm \([^ ]*\) .*/\1/p' <<<"$said"; } # of the last run's steps
train 6 --zero 1
plain=$hash plain_norms=$(norms)
train 6 --zero 3 --zero-shard-size 6
[ $status = 0 ] && [ -n "$plain" ] && [ "$hash" = "$plain" ]
result $? "shards over all ranks are shards as they were" "$said"

for shard in 2 3; do
    compare 6 --zero 1 --zero-shard-size $shard
    paste <(norms) - <<<"$plain_norms" | awk '{ off = $1 / $2 - 1 } off > .01 || off < -.01 { bad = 1 }
        END { exit bad || NR != 3 }'
    result $? "shards of $shard: the norms of shards over all ranks, within a hundredth" "$said"
    for how in "--zero 2" "--zero 3" "--zero 3 --prefetch 0 --recompute block" \
        "--zero 1 --offload-optimizer cpu" "--zero 2 --offload-optimizer cpu --offload-param cpu" \
        "--zero 3 --offload-param cpu --offload-activations cpu"; do
        # shellcheck disable=SC2086 # words
        same 6 --zero-shard-size $shard $how
    done
    processes 6 --zero 3 --zero-shard-size $shard
done

# ---- a second partition of the weights: nothing changes but what is sent ----

# The bytes of all_gather in a step of the last run.
gathered() {
    python3 - "$folder/out/memory.json" <<'END'
import json, sys
print(json.load(open(sys.argv[1]))["measured"]["traffic"]["all_gather"])
END
}

for how in "" "--dtype bf16 --offload-optimizer cpu" "--offload-optimizer cpu --delay-update" \
    "--dtype fp16 --loss-scale 1099511627776" "--zero-shard-size 3 --recompute block"; do
    two=(--batch 1 --global-batch 12 --steps 5 --zero 3) # steps of two micro-batches
    # shellcheck disable=SC2086
    train 6 "${two[@]}" $how
    want=$hash before=$(gathered)
    for near in 1 3; do
        # shellcheck disable=SC2086
        train 6 "${two[@]}" $how --zero-hpz-partition-size $near
        [ $status = 0 ] && [ -n "$want" ] && [ "$hash" = "$want" ] && exact &&
            { [[ $how == *shard-size* ]] && [ $near = 3 ] || [ "$(gathered)" -lt "$before" ]; }
        result $? "a second partition over $near, ${how:-as it is}: same hash, bytes as predicted" \
            "$want; $said"
    done
done
train 6 --zero 3 --steps 4 --val-every 1
want=$hash
train 6 --zero 3 --steps 4 --val-every 1 --zero-hpz-partition-size 2
[ -n "$want" ] && [ "$hash" = "$want" ]
result $? "and with validations between steps" "$said"
train 6 --zero 3 --steps 3 --zero-hpz-partition-size 2
said=$("$train" --out "$folder/out" --resume auto --steps 6 2>&1)
want=$(grep '^weights hash' <<<"$said")
train 6 --zero 3 --steps 6
[ -n "$want" ] && [ "$hash" = "$want" ]
result $? "and resumed" "$said"
compare 4 --zero 3
processes 4 --zero 3 --zero-hpz-partition-size 2

# ---- what leaves a node is counted apart ----

# far EXPRESSION: true of a step's traffic, `t`, of the last run.
far() {
    python3 - "$folder/out/memory.json" "$1" <<'END'
import json, sys
t = json.load(open(sys.argv[1]))["measured"]["traffic"]
assert eval(sys.argv[2]), t
END
}

train 6 --zero 0 --node-size 2
exact && far 't["far"] * 5 == t["sum"] * 4'
result $? "of five other ranks four are on other nodes, and get as much each" "$said"
train 6 --zero 1
exact && far 't["far"] == 0'
result $? "threads are on one node, unless somebody says otherwise" "$said"
train 6 --zero 3 --node-size 3
all=$(gathered)
train 6 --zero 3 --zero-shard-size 3 --node-size 3 # besides, all ranks hear all ranks' reports
exact && far 't["all_reduce"] < t["far"] < t["all_reduce"] + 2000' && far "t['far'] < $all / 2"
result $? "with shards over a node, what leaves it is the replicas' sum" "$all; $said"
train 6 --zero 3 --node-size 3 --zero-hpz-partition-size 3 --batch 1 --global-batch 12 --steps 5
exact && far 't["far"] < 0.6 * (t["sum"] - t["all_gather"]) + t["all_gather"] * 0.25'
result $? "with a second partition over a node, weights leave it once a step" "$said"
rm -rf "$folder/out"
said=$(job 4 "$train" "${model[@]}" --steps 3 --zero 2 --node-size 2 --out "$folder/out")
exact && far 't["far"] * 3 == t["sum"] * 2'
result $? "and between processes" "$said"

# ---- checkpoints: every shard is in one file, and any grid goes on from it ----

train 4 --zero 3 --zero-shard-size 2 --global-batch 12 --batch 1
want=$hash
saved=$folder/saved
rm -rf "$saved"
mv "$folder/out" "$saved"
for grid in "4 1 2" "4 3 2" "2 0 2" "6 3 3" "1 0 1" "6 2 2"; do
    read -r ranks stage shard <<<"$grid"
    rm -rf "$folder/out"
    cp -r "$saved" "$folder/out"
    resumed "a checkpoint of 4 ranks, shards over 2, on $ranks ranks, stage $stage, over $shard" \
        --steps 3 --ranks "$ranks" --zero "$stage" --zero-shard-size "$shard" --batch 1
done
[ "$(find "$saved/checkpoints" -name 'rank-*.state' -size -2k | wc -l)" = 2 ]
result $? "replicas write nothing twice" "$(ls -l "$saved"/checkpoints/*)"
said=$("$train" --out "$saved" --resume auto --steps 5 --zero-shard-size 4 2>&1)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY "--zero-shard-size 2"'
result $? "as many ranks in other groups would round otherwise: refused" "$said"

train 4 --zero 1 --zero-shard-size 2 --save-every 1 --batch 1 --global-batch 4
want=$hash
rm -rf "$folder/out/checkpoints/step-00000003"
resumed "a resumed run is the run that never stopped" --steps 3

train 4 --zero 3 --zero-shard-size 2 --export "llmc:$folder/one.bin" --batch 1 --dtype fp32
train 1 --init "llmc:$folder/one.bin" --steps 0 --export "llmc:$folder/two.bin"
cmp -s "$folder/one.bin" "$folder/two.bin"
result $? "an export has every parameter once" "$said"

# ---- what is refused ----

refused "a size that divides nothing, with those that do" \
    'E_SHARD_SIZE_RANKS --zero-shard-size 4*--zero-shard-size 1, 2, 3 or 6' 6 --zero 1 \
    --zero-shard-size 4
refused "one over ranks that are no neighbours in a shard's group" \
    'E_HPZ_SIZE --zero-hpz-partition-size 4*--zero-hpz-partition-size 1 or 2' \
    4 --zero 3 --zero-shard-size 2 --zero-hpz-partition-size 4
refused "a stage that shards nothing" 'E_SHARD_SIZE_RANKS --zero 0' 4 --zero 0 --zero-shard-size 2

echo "1..$count"
exit $failed
