#!/bin/bash
# ./train --plan as a user and a script meet it: the ZeRO paper's Table 1 figure by figure, JSON
# that parses, no data touched, and what does not fit refused with the flags that would make it fit,
# which do. Speaks TAP.
#
# TRAIN names the program (default ./train).
set -u
export TRAIN=${TRAIN:-./train}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/../lib/tap.sh"

# ---- the paper ----

# N, then stages 1 / 2 / 3 of 7.5B, 128B and 1T: Rajbhandari et al. 2020, Table 1.
table='1|120 / 120 / 120|2048 / 2048 / 2048|16000 / 16000 / 16000
4|52.5 / 41.3 / 30|896 / 704 / 512|7000 / 5500 / 4000
16|35.6 / 21.6 / 7.5|608 / 368 / 128|4750 / 2875 / 1000
64|31.4 / 16.6 / 1.88|536 / 284 / 32|4187 / 2218 / 250
256|30.4 / 15.4 / 0.47|518 / 263 / 8|4046 / 2054 / 62.5
1024|30.1 / 15.1 / 0.12|513 / 257 / 2|4011 / 2013 / 15.6'
said=$(bash scripts/bench/memory_table.sh paper "$folder/paper" 2>"$folder/said")
status=$?
rows=$(grep -E '^\| [0-9]' <<<"$said" | sed 's/^| //; s/ |$//; s/ | /|/g')
[ $status = 0 ] && [ "$rows" = "$table" ]
result $? "Table 1 of the ZeRO paper, all 54 figures" "$said"
if command -v gnuplot >/dev/null; then
    grep -q '</svg>' "$folder/paper/memory_paper.svg" && [ -s "$folder/paper/memory_paper.png" ]
    result $? "and its picture" "$(cat "$folder/said")"
fi
said=$(bash scripts/bench/memory_table.sh tutorial-7b "$folder/paper" 2>/dev/null)
grep -q '^| 0 .*\*\*112\*\* .*| 40 ' <<<"$said" && grep -q '^| 1 .*\*\*49\*\* .*| 15 ' <<<"$said" &&
    grep -q '^| 2 .*\*\*38.5\*\* .*| 10 ' <<<"$said" &&
    grep -q '^| 3 .*\*\*28\*\* .*| 5 ' <<<"$said"
result $? "7B on 4 ranks beside the tutorial's figures" "$said"

said=$(bash scripts/bench/memory_table.sh families 2>&1)
rows() { grep -E '^\| [a-z0-9.-]+ \| [0-9]+ GB \|'; }
[ "$(rows <<<"$said" | wc -l)" = 40 ] && cmp -s <(rows <<<"$said") <(rows <docs/models.md)
result $? "docs/models.md says with which flags real models fit" "$said"
[ ! -e "$XDG_CACHE_HOME/zero.c/machine.txt" ]
result $? "no speed is measured where there are no steps" \
    "$(cat "$XDG_CACHE_HOME/zero.c/machine.txt" 2>&1)"

# ---- a plan ----

# On every machine the same: without these two, the machine chooses.
here=(--device cpu --dtype fp32)
gpt2=(--plan --model gpt2 --device cpu --dtype bf16 --batch 2 --seq-len 256)
"$TRAIN" "${gpt2[@]}" --ranks 4 --zero 3 --json >"$folder/json" 2>"$folder/said"
status=$?
if command -v python3 >/dev/null; then
    said=$(python3 - "$folder/json" <<'P' 2>&1
import json, sys
p = json.load(open(sys.argv[1]))
tags = p["tiers"][0]["tags"]
assert sum(tags.values()) == p["tiers"][0]["peak"] == p["peak"], tags
states = p["model_states"]
assert states["param"] + states["grad"] + states["optimizer"] == states["sum"]
assert (p["ranks"], p["stage"], p["dtype"]) == (4, 3, "bf16")
assert p["model"]["parameters"] == (50257 + 256 + 2) * 768 + 12 * (12 * 768**2 + 13 * 768)
assert 0 < p["process"] and p["all"] == p["process"] + 4 * p["peak"]
t = p["traffic"]
assert t["reduce_scatter"] == 2 * p["model"]["padded"] // 4 * 3 and t["swap"] == 0, t
P
    )
    result $? "--json parses, and its sums hold" "$said"
fi
[ $status = 0 ] && [ "$(head -c 1 "$folder/json")" = "{" ] && [ ! -s "$folder/said" ]
result $? "--json prints one object and nothing else" "$(cat "$folder/said")"
"$TRAIN" "${gpt2[@]}" --device cuda --json >"$folder/json" 2>"$folder/said"
status=$?
if [ -e /dev/nvidia0 ]; then
    count=$((count + 1))
    echo "ok $count # SKIP a plan for a GPU that is not here: one is here"
else
    [ $status = 0 ] && grep -q '"peak":' "$folder/json" && [ ! -s "$folder/said" ] &&
        grep -q '"rates":.*A100 80 GB (docs/clusters/a100.json)' "$folder/json" &&
        ! grep -qE '"(process|all)":' "$folder/json"
    result $? "--json leaves out what a GPU that is not here would hold, and says whose rates" \
        "$(cat "$folder/json")"
fi
said=$("$TRAIN" "${gpt2[@]}" --ranks 4 --zero 2 2>&1)
grep -q 'each of 4 ranks' <<<"$said" && grep -q '^  all, about  ' <<<"$said" &&
    grep -q reduce_scatter <<<"$said" && grep -q '^parameters: ' <<<"$said"
result $? "--plan tells of each rank, the process, and what is sent" "$said"
said=$("$TRAIN" "${here[@]}" --plan --data /no/such --tokenizer train:5000 --json 2>&1)
grep -q '"vocab":.*5000' <<<"$said" && [ ! -e "$folder/cache" ]
result $? "a plan knows the vocabulary from the tokenizer's name and touches no data" "$said"
said=$("$TRAIN" --plan --params 1T --device cpu --dtype bf16 --ranks 1024 --zero 3 --json)
grep -q '"numerator":.15625000000' <<<"$said"
result $? "fault_22: 10^12 parameters" "$said"
for layers in 2 1000; do # 12 * 20480^2 elements a block are more than 2^32
    said=$("$TRAIN" --plan --layers $layers --heads 160 --channels 20480 --device cpu --dtype bf16 \
        --batch 1 --seq-len 128 --zero 0 --json)
    want=$((2 * (layers * (12 * 20480 * 20480 + 13 * 20480) + (50304 + 128 + 2) * 20480)))
    grep -q "\"param\":.$want,\$" <<<"$said"
    result $? "fault_22: $layers layers of more than 2^32 elements" "$want: $said"
done

. "${BASH_SOURCE%/*}/../lib/known_speeds.sh"
speeds=$XDG_CACHE_HOME/zero.c/machine.txt
cp "$speeds" "$folder/speeds.txt"
for run in "--dtype fp32" "--dtype bf16 --offload-optimizer cpu --master-dtype split" \
    "--dtype bf16 --offload-optimizer nvme --offload-param nvme --zero 3 --nvme-path $folder"; do
    # shellcheck disable=SC2086 # a word is a flag
    said=$("$TRAIN" --data random --device cpu --layers 2 --heads 2 --channels 32 --vocab 61 --seq-len 16 \
        --ranks 2 --steps 1 --out "$folder/known" $run 2>&1)
    [ $? = 0 ] && ! grep -q measuring <<<"$said" && cmp -s "$speeds" "$folder/speeds.txt"
    result $? "nothing is measured where all speeds are known: $run" "$said
$(diff "$folder/speeds.txt" "$speeds")"
    rm -rf "$folder/known"
done

refused() { # refused NAME ERROR ARGUMENT...: one line and status 2
    local name=$1 error=$2 said status
    shift 2
    said=$(timeout 60 "$TRAIN" "$@" 2>&1 >/dev/null)
    status=$?
    [ $status = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] && error_is "$error"
    result $? "refused: $name" "status $status: $said"
}
refused "--json without --plan" 'E_PLAN_MISSING --json' --data random --json
refused "--params without --plan" 'E_PLAN_MISSING --params' --data random --params 7G
refused "too many parameters" 'E_FLAG_RANGE --params' --plan --params 1000000000000000

refused "--params with a model" 'E_PARAMS_FLAG --model*7000000000' --plan --params 7G --model gpt2
said=$("$TRAIN" --plan --params 7G --zero 1 --device cpu --dtype bf16 2>&1
    "$TRAIN" "${here[@]}" --plan --zero 2 2>&1
    "$TRAIN" "${here[@]}" --plan --zero 2 --ranks 2 2>&1)
[ "$(grep 'shards nothing' <<<"$said")" = "\
--zero 1 with one rank shards nothing; raise --ranks to shard
--zero 2 with one rank shards nothing; raise --ranks to shard" ]
result $? "a stage without ranks says that it shards nothing" "$said"

refused "--params with a part of the optimizer" 'E_PARAMS_FLAG --offload-ratio 0.5' \
    --plan --params 7G --offload-optimizer cpu --offload-ratio 0.5

said=$("$TRAIN" "${gpt2[@]}" --host-mem 64G --host-mem-per-rank 32G 2>&1)
[ $? = 0 ] && ! grep -q -- '--host-mem' <<<"$said"
result $? "a plan takes the host's bounds, and shows them only where something is there" "$said"

# ---- a plan of all tiers ----

said=$("$TRAIN" "${gpt2[@]}" 2>&1)
! grep -qE '^memory.* (cpu|nvme)$|moved|at least' <<<"$said"
result $? "without offload there is one tier, and nothing else" "$said"
said=$("$TRAIN" "${gpt2[@]}" --offload-optimizer nvme --offload-param cpu 2>&1)
grep -q '^memory.* cpu$' <<<"$said" && grep -q '^memory.* nvme$' <<<"$said" &&
    grep -q '^  to disk' <<<"$said" && grep -q '^  bus .* GB/s' <<<"$said" &&
    grep -qx '  disk             not known: --nvme-path names none' <<<"$said" &&
    ! grep -q '^  step ' <<<"$said"
result $? "tiers, what is moved, and the time of what is known: no disk was named" "$said"
if "$TRAIN" --version | grep -q 'liburing  *[0-9]'; then
    said=$("$TRAIN" "${gpt2[@]}" --offload-optimizer nvme --nvme-path "$PWD" 2>&1)
    grep -q '^  disk .* GB/s read' <<<"$said" && grep -qE '^  step .* takes longest' <<<"$said"
    result $? "a disk that is named has a speed, and the step a time" "$said"
fi
"$TRAIN" "${gpt2[@]}" --offload-optimizer cpu --json >"$folder/json" 2>"$folder/said"
if command -v python3 >/dev/null; then
    said=$(python3 - "$folder/json" <<'P' 2>&1
import json, sys
p = json.load(open(sys.argv[1]))
device, cpu = p["tiers"]
assert (device["name"], cpu["name"]) == ("device", "cpu")
padded = p["model"]["padded"]
assert cpu["tags"]["optimizer"] == 12 * padded and cpu["tags"]["gradients"] == 2 * padded, cpu
assert device["tags"]["optimizer"] == device["tags"]["gradients"] == 0, device
assert p["moved"] == {"in": 2 * padded, "out": 2 * padded, "read": 0, "written": 0}, p["moved"]
assert p["seconds"]["step"] >= 0.999 * p["seconds"]["compute"] > 0 and p["seconds"]["longest"]
assert p["all"] == p["process"] + device["peak"] + cpu["peak"] and p["node_host"] == cpu["peak"]
P
    )
    result $? "--json has a tier for each that is used, and what is moved" "$said"
fi
pipeline=("${gpt2[@]}" --tie off --ranks 6 --pp 3 --zero 2 --offload-optimizer cpu --global-batch 8)
said=$("$TRAIN" "${pipeline[@]}" 2>"$folder/said")
"$TRAIN" "${pipeline[@]}" --json >"$folder/json" 2>"$folder/said"
if command -v python3 >/dev/null; then
    want=$(python3 - "$folder/json" <<'P' 2>&1
import json, sys
p = json.load(open(sys.argv[1]))
stages = p["stages"]
assert p["pp"] == len(stages) == 3 and [s["rank"] for s in stages] == [0, 2, 4]
assert sum(s["parameters"] for s in stages) == p["model"]["parameters"]
most = next(s for s in stages if s["rank"] == p["rank"])
assert most["peak"]["device"] == p["peak"] == max(s["peak"]["device"] for s in stages)
assert most["peak"]["cpu"] == p["tiers"][1]["peak"] and most["swaps"] == p["traffic"]["swap"]
micro = 2 * 256 * 768 * 2 * 2  # micro-batches, of 2 sequences, in bf16
assert [s["swaps"] for s in stages] == [micro, 2 * micro, micro], stages
for i, s in enumerate(stages):
    first, last = s["first_layer"], s["first_layer"] + s["layers"] - 1
    parts = ["embedding"] * s["embedding"] + [f"{first}-{last}"] * (s["layers"] > 0)
    mib = [s["peak"]["device"], s["peak"]["cpu"], s["swaps"]]
    print(i, ", ".join(parts + ["head"] * s["head"]), s["parameters"],
          *(f"{b / 2**20:.2f}" for b in mib), f"{s['work'] * 100:.1f}%")
print(f"bubble: stages wait {p['bubble'] * 100:.1f}% of a step")
P
    )
    [ "$(sed -n '/^stages:/,$p' <<<"$said" | tail -n +2 | tr -s ' ' | sed 's/^ //')" = "$want" ]
    result $? "a row for each stage of a pipeline, as in --json, and the bubble" "$said $want"
fi
# Of the last stage, which has most on the device and moves nothing, but for what is on the host.
unlike=("${here[@]}" --data random --layers 4 --heads 4 --channels 32 --seq-len 32 --batch 2
    --vocab 8192 --ranks 3 --pp 3 --pp-split 0,4,0 --global-batch 16 --tie off
    --offload-activations cpu)
said=$("$TRAIN" --plan "${unlike[@]}" 2>&1)
[ "$(grep -E '^memory|, the most|^sent|^moved' <<<"$said" | tr -s ' ')" = "memory (MiB) device
 rank 2, the most 7.76
memory (MiB) cpu
 rank 1, the most 1.02
sent a step (MiB) rank 2" ]
result $? "a plan of unlike ranks names for each tier the one that takes most of it" "$said"
said=$("$TRAIN" "${unlike[@]}" --steps 1 --out "$folder/unlike" 2>&1)
grep -A 9 '^memory (MiB) *predicted *measured' <<<"$said" |
    grep -qE '^  rank 0 +([0-9.]+) +\1$'
result $? "and what was measured is that of the rank which is named" "$said"
rm -rf "$folder/unlike"
refused "a run of which one stage alone has too much on the host, before step 1" \
    'E_MEMORY 3 x 1.0 MiB*--host-mem-per-rank*0.2 MiB' \
    "${unlike[@]}" --host-mem-per-rank 200k --out "$folder/run"
refused "and on a node of three ranks, of which only that one has anything there" \
    'E_MEMORY 1.0 MiB*3 ranks*--host-mem*0.2 MiB' \
    "${unlike[@]}" --host-mem 200k --out "$folder/run"
large=$("$TRAIN" --plan --model gpt2-large "${here[@]}" --batch 2 --ranks 3 --pp 3 \
    --pp-split 0,36,0 2>"$folder/said")
awk '/^  process itself/ { own = $3 } /^  all, about/ { all = $3 }
    /^  [0-2]  / { sum += $(NF - 2) }
    END { away = all - own - sum; exit !(sum > 0 && away < 0.1 && away > -0.1) }' <<<"$large"
result $? "the process has the sum of its stages, not as many of the largest" "$large"
said=$("$TRAIN" --plan --params 7G --device cpu --dtype bf16 --ranks 4 --zero 2 \
    --offload-optimizer nvme 2>&1)
[ "$(grep sum <<<"$said" | tr -s ' ')" = " sum 14.000 device
 sum 3.500 cpu
 sum 21.000 nvme" ]
result $? "--params says the sum of each tier" "$said"
seven=(--plan --params 7G --device cpu --dtype bf16 --ranks 4 --zero 2 --offload-optimizer cpu)
refused "--params beyond --host-mem-per-rank" 'E_MEMORY --host-mem-per-rank 24.499 GB*24.500 GB' \
    "${seven[@]}" --host-mem-per-rank 24499M
refused "--params beyond --host-mem" 'E_MEMORY --host-mem 97.999 GB*98.000 GB*4 ranks' \
    "${seven[@]}" --host-mem 97999M
refused "--params beyond --device-mem" 'E_MEMORY --device-mem 13.999 GB*14.000 GB' \
    "${seven[@]}" --host-mem 98G --device-mem 13999M --json
said=$("$TRAIN" "${seven[@]}" --host-mem 98G --host-mem-per-rank 24500M --device-mem 14G 2>&1) &&
    grep -qx '  node of 4 *98.000  cpu' <<<"$said" &&
    "$TRAIN" "${seven[@]}" --node-size 2 --host-mem 49G >/dev/null 2>&1 &&
    "$TRAIN" "${seven[@]}" --json | tr -d ' \t\n' |
    grep -q '"node_host":{"numerator":98000000000,"denominator":1,'
result $? "--params within all of them" "$said"

# ---- what does not fit ----

# advised NAME FLAGS ARGUMENT...: refused, and exactly FLAGS are advised; with them the plan fits,
# which needs no folder.
advised() {
    local name=$1 flags=$2 said status
    shift 2
    said=$("$TRAIN" "$@" 2>&1 >/dev/null)
    status=$?
    # shellcheck disable=SC2086
    [ $status = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] &&
        error_is "E_MEMORY with $flags it" &&
        "$TRAIN" "$@" ${flags% --nvme-path FOLDER} >/dev/null 2>&1
    result $? "refused, and advised: $name" "status $status: $said"
}
advised "a stage" "--zero 1" "${gpt2[@]}" --ranks 4 --device-mem 1500M
advised "a higher stage" "--zero 3" "${gpt2[@]}" --ranks 4 --zero 1 --device-mem 950M
advised "a smaller batch, before a lower stage than was said" \
    "--recompute block --offload-param cpu --offload-activations cpu --batch 9" --plan \
    --model gpt2 --device cpu --dtype bf16 --ranks 4 --zero 3 --batch 16 --seq-len 256 \
    --offload-optimizer cpu --device-mem 400M
advised "a lower stage, where nothing else is enough" \
    "--zero 1 --recompute block --offload-optimizer cpu --offload-param cpu" "${gpt2[@]}" --zero 3 \
    --device-mem 300M
advised "recomputation, on one rank" "--recompute attention" "${gpt2[@]}" --device-mem 2155M
advised "the optimizer on the CPU, where stage and recomputation are not enough" \
    "--offload-optimizer cpu" "${gpt2[@]}" --device-mem 1G
advised "a stage before offload" "--zero 3" "${gpt2[@]}" --ranks 4 --device-mem 1G
advised "optimizer and parameters on the CPU, with recomputation" \
    "--recompute block --offload-optimizer cpu --offload-param cpu" "${gpt2[@]}" --device-mem 300M
advised "the disk, where --nvme-path names one" "--offload-optimizer nvme" "${gpt2[@]}" \
    --offload-optimizer cpu --offload-param nvme --nvme-path "$folder" --host-mem 1G
advised "the disk for the optimizer alone" "--offload-optimizer nvme" "${gpt2[@]}" \
    --offload-optimizer cpu --offload-activations nvme --nvme-path "$folder" --host-mem 1G
advised "less offload, where the host's memory is short" "--offload-activations none" --plan \
    --model gpt2 --device cpu --dtype bf16 --batch 16 --recompute block --offload-optimizer cpu \
    --offload-activations cpu --host-mem 2G --master-dtype fp32
advised "split master weights, before less offload" "--master-dtype split" --plan --model gpt2 \
    --device cpu --dtype bf16 --batch 16 --recompute block --offload-optimizer cpu \
    --offload-activations cpu --host-mem 2G
advised "split master weights with what is offloaded" "--offload-optimizer cpu --master-dtype split" \
    "${gpt2[@]}" --device-mem 1G --host-mem 1800M
advised "none where the user said how they are kept" "--offload-optimizer nvme --nvme-path FOLDER" \
    "${gpt2[@]}" --device-mem 1G --host-mem 1800M --master-dtype fp32
# Not to offload at all is no advice: a run would then refuse --host-mem.
advised "the disk that no flag names" "--offload-optimizer nvme --nvme-path FOLDER" "${gpt2[@]}" \
    --offload-optimizer cpu --host-mem 1G
advised "the disk, where less on the device is too much on the host" \
    "--recompute block --offload-optimizer nvme --offload-param cpu --nvme-path FOLDER" \
    "${gpt2[@]}" --offload-optimizer cpu --device-mem 300M --host-mem 1G
advised "no folder, where the disk is used already" "--recompute block" "${gpt2[@]}" \
    --offload-optimizer nvme --offload-param cpu --device-mem 300M
advised "a machine's two memories, with nothing offloaded yet" "--offload-optimizer cpu" \
    "${gpt2[@]}" --device-mem 1G --host-mem 64G
advised "what needs no offload, beside a bound of the host" "--recompute attention" "${gpt2[@]}" \
    --device-mem 2155M --host-mem 64G
refused "a run for which the disk would be enough" \
    'E_MEMORY with --offload-optimizer nvme --nvme-path FOLDER it' --data random --model gpt2 \
    --device cpu --dtype bf16 --batch 1 --seq-len 64 --offload-optimizer cpu --host-mem 1G \
    --out "$folder/run"
offloaded=(--offload-optimizer cpu --offload-param cpu --recompute block --batch 16 --seq-len 256)
advised "a smaller batch, after offload" "--batch 8" --plan --model gpt2 --device cpu \
    --dtype bf16 "${offloaded[@]}" --device-mem 390M
advised "a batch that divides --global-batch" "--batch 4" "${here[@]}" --plan --model gpt2 \
    "${offloaded[@]}" --global-batch 32 --device-mem 600M
advised "a stage and recomputation together" "--zero 3 --recompute block" "${here[@]}" --plan \
    --model gpt2 --ranks 4 --batch 8 --seq-len 1024 --device-mem 2G
refused "what nothing makes fit, and says so" E_MEMORY "${gpt2[@]}" --ranks 4 --device-mem 100M
refused "what fits the device alone, with what the host lacks" \
    'E_MEMORY CPU memory*--host-mem*95.4 MiB' \
    "${gpt2[@]}" --offload-optimizer cpu --device-mem 300M --host-mem 100M
# A limit that nobody wrote on the line, and a flag of the advice that nobody wrote at all.
echo '{"device-mem": 100000000}' >"$folder/limit.json"
refused "what a file's limit does not allow, with the file's name and no other flag's" \
    "E_MEMORY device memory*(--device-mem: from $folder/limit.json)" \
    "${gpt2[@]}" --ranks 4 --config "$folder/limit.json"
said=$("$TRAIN" "${gpt2[@]}" --ranks 4 --device-mem 1500M --json 2>/dev/null)
[ $? = 2 ] && grep -q '"advice":.*"--zero 1"' <<<"$said"
result $? "--json holds the advice" "$said"

# 24G are not 24 GiB, in which the tables would count.
said=$("$TRAIN" "${gpt2[@]}" --device-mem 1G 2>&1 >/dev/null)
grep -q -- '--device-mem allows each rank 953.7 MiB (1.00 GB)' <<<"$said"
result $? "what is too much is told in MiB and GB" "$said"
said=$("$TRAIN" "${gpt2[@]}" --device-mem 24G --offload-optimizer cpu --host-mem 24Gi 2>&1)
grep -qx '  --device-mem       22888.18  24.00 GB, 22.35 GiB' <<<"$said" &&
    grep -qx '  --host-mem         24576.00  25.77 GB, 24.00 GiB' <<<"$said"
result $? "a bound stands in the table in all three units" "$said"

# A machine's memory is what its ranks share: four of an 8B model's take 128.5 GB there.
four=(--plan --model llama3.1-8b --device cpu --dtype bf16 --ranks 4 --zero 2 --batch 1 --seq-len 64
    --offload-optimizer cpu --steps 0)
refused "four ranks that take more than their host has" \
    'E_MEMORY 4 ranks, --host-mem*122070.3 MiB (128.00 GB)*with' \
    "${four[@]}" --host-mem 128G
said=$("$TRAIN" "${four[@]}" --host-mem 128G --node-size 2 --host-mem-per-rank 33G 2>&1)
[ $? = 0 ] && grep -qE '^  node of 2 +61266.03$' <<<"$said" &&
    grep -qx '  --host-mem        122070.31  128.00 GB, 119.21 GiB' <<<"$said" &&
    grep -qx '  --host-mem-per-rank   31471.25  33.00 GB, 30.73 GiB' <<<"$said"
result $? "two on each of two hosts do not; a row says what a node has" "$said"
refused "and one of which each may have less" \
    'E_MEMORY 4 x 30633.0 MiB*--host-mem-per-rank*30517.6 MiB' \
    "${four[@]}" --host-mem 200G --host-mem-per-rank 32G
advised "what a node of four has room for" "--master-dtype split" "${four[@]}" --host-mem 128G

# A run is refused the same way, before its first step, with the table.
said=$("$TRAIN" "${here[@]}" --data random --model gpt2 --ranks 2 --device-mem 100M \
    --out "$folder/run" 2>&1)
[ $? = 2 ] && grep -q '^ *optimizer ' <<<"$said" && error_is 'E_MEMORY --device-mem' &&
    [ ! -e "$folder/run" ]
result $? "a run that does not fit is refused with the table before step 1" "$said"
refused "a run larger than the machine" 'E_MEMORY the machine' \
    "${here[@]}" --data random --ranks 2 --layers 300 --heads 64 --channels 8192 --out "$folder/run"

# ---- a run beside its plan ----

"$TRAIN" "${here[@]}" --data random --vocab 300 --seq-len 32 --steps 2 --ranks 2 --zero 2 \
    --out "$folder/run" >"$folder/said" 2>&1
grep -q 'predicted *measured' "$folder/said" && grep -q 'predicted *counted' "$folder/said" &&
    ! grep -q 'predicted [0-9]' "$folder/said"
result $? "a run prints the measurement beside the forecast" "$(cat "$folder/said")"
half() { grep -nE '"(peak|parameters|optimizer|activations|all_gather|reduce_scatter)":' "$1" |
    sed 's/.*"\(.*\)":[ \t]*/\1 /; s/,$//'; }
all=$(half "$folder/run/memory.json" | grep -v '^parameters 8') # the model's own count
n=$(($(wc -l <<<"$all") / 2))
[ $n -ge 6 ] && [ "$(head -n $n <<<"$all")" = "$(tail -n $n <<<"$all")" ]
result $? "memory.json: what was predicted is what was measured" "$all"

"$TRAIN" "${here[@]}" --data random --vocab 300 --seq-len 32 --steps 3 --ranks 2 --zero 2 \
    --out "$folder/off" --offload-optimizer cpu --offload-param cpu >"$folder/said" 2>&1
[ "$(grep -c 'predicted *measured' "$folder/said")" = 2 ] &&
    grep -q '^moved a step (MiB) *predicted *counted' "$folder/said" &&
    ! grep -q 'predicted [0-9]' "$folder/said"
result $? "and of every tier, and of what was moved" "$(cat "$folder/said")"
# all_of FILE: the sums of the process in a JSON, predicted and measured.
all_of() { sed -n 's/.*"all":[ \t]*\([0-9]*\).*/\1/p' "$1"; }
within_a_tenth() {
    local away=$(($1 - $2))
    [ "$2" -gt 0 ] && [ $((10 * ${away#-})) -le "$2" ]
}
whole_process() { # whole_process NAME ARGUMENT...: plan and run predict what lies in memory
    local name=$1 plan predicted measured
    shift
    set -- --device cpu --data README.md --tokenizer byte --threads 1 "$@"
    "$TRAIN" --plan --json "$@" >"$folder/json" 2>"$folder/said"
    plan=$(all_of "$folder/json")
    "$TRAIN" "$@" --steps 3 --out "$folder/whole" >"$folder/said" 2>&1
    { read -r predicted && read -r measured; } < <(all_of "$folder/whole/memory.json")
    within_a_tenth "$plan" "$measured" && within_a_tenth "$predicted" "$measured"
    result $? "the whole process within a tenth, planned and predicted: $name" \
        "planned $plan, predicted $predicted, measured $measured: $(tail -n 3 "$folder/said")"
    rm -rf "$folder/whole"
}
tiny=(--layers 2 --heads 2 --channels 64 --seq-len 64 --batch 2)
whole_process "a tiny model" "${tiny[@]}" --dtype fp32
whole_process "on 4 ranks at stage 3" "${tiny[@]}" --ranks 4 --zero 3 --dtype bf16
whole_process "offloaded" "${tiny[@]}" --dtype fp32 --ranks 2 --zero 2 --offload-optimizer cpu \
    --offload-param cpu
whole_process "the usual model" --dtype fp32 --ranks 2 --zero 1
unlike=(--layers 4 --heads 4 --channels 32 --seq-len 32 --batch 2 --dtype fp32 --ranks 3 --pp 3
    --pp-split 0,4,0 --global-batch 16 --tie off --offload-activations cpu)
whole_process "stages of which only one has layers" "${unlike[@]}"
whole_process "and two a vocabulary" "${unlike[@]}" --vocab 8192

if "$TRAIN" --version | grep -q 'liburing  *[0-9]'; then
    refused "a run whose disk is memory" 'E_NVME_PATH --nvme-path /dev/shm' \
        "${here[@]}" --data random \
        --vocab 300 --seq-len 32 --offload-optimizer nvme --nvme-path /dev/shm --out "$folder/shm"
fi

echo "1..$count"
exit $failed
