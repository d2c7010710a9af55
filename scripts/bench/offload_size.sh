#!/bin/bash
# How much larger a model may be when nothing but the unit at hand lies on the device.
#
#   scripts/bench/offload_size.sh [DEVICE_MEM]     default 192M; some minutes, and some GB of disk
#
# With the device's memory capped, looks for the deepest GPT of one width that fits: first without
# offload, then with parameters, optimizer state and activations on NVMe. Both are then really
# trained for some steps. What must hold:
#
#   the second has at least 10 times the parameters of the first
#   both losses are numbers, and the process takes what the plan said, within 10%
#
# NVMe is the folder $DISK (default build). The last line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
device_mem=${1:-192M}
disk=${DISK:-build} train=${TRAIN:-build/release/train} most=${MOST:-4096}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

die() { printf 'offload_size: %s\n' "$*" >&2; exit 2; }

expect() { # expect NAME CONDITION: awk's
    if awk "BEGIN { exit !($2) }"; then
        echo "ok    $1"
        passed=$((passed + 1))
    else
        echo "FAIL  $1 ($2)"
        failed=$((failed + 1))
    fi
}

model=(--device cpu --data random --dtype bf16 --channels 512 --heads 8 --seq-len 128 --vocab 512
    --batch 2 --recompute block --device-mem "$device_mem" --zero 0)
near=()
far=(--offload-optimizer nvme --offload-param nvme --offload-activations nvme --nvme-path "$disk")

fits() { # fits LAYERS FLAG...: does the plan say so?
    "$train" --plan --layers "$1" "${model[@]}" "${@:2}" >"$tmp/plan" 2>"$tmp/error"
}

deepest() { # deepest FLAG...: the most layers that fit, at most $most
    local low=0 high=$((most + 1)) middle
    while ((high - low > 1)); do
        middle=$(((low + high) / 2))
        if fits "$middle" "$@"; then low=$middle; else high=$middle; fi
    done
    echo "$low"
}

value() { # value NAME FILE: the number of a field, the first of that name behind any "measured"
    python3 - "$1" "$2" <<'PY'
import json, sys
value = json.load(open(sys.argv[2]))
for name in sys.argv[1].split("."):
    value = value[name]
print(value)
PY
}

run() { # run NAME LAYERS FLAG...: trains it, and looks at what it took
    local name=$1 layers=$2 start=$SECONDS
    "$train" --layers "$layers" "${model[@]}" "${@:3}" --steps 4 --log-every 1 --lr 1e-4 \
        --out "$tmp/$name" >"$tmp/$name.log" 2>&1 || {
        cat "$tmp/$name.log"
        return 1
    }
    parameters=$(value model.parameters "$tmp/$name/memory.json")
    echo "$name: $layers layers, $parameters parameters, $((SECONDS - start)) s for 4 steps and" \
        "validations"
    grep -E '^ *step ' "$tmp/$name.log" | tail -n 2
    local predicted measured
    predicted=$(value all "$tmp/$name/memory.json")
    measured=$(value measured.all "$tmp/$name/memory.json")
    expect "$name: the process takes $((measured >> 20)) MiB, predicted $((predicted >> 20))" \
        "$measured <= 1.1 * $predicted && $measured >= 0.9 * $predicted"
    ! grep -qiE 'loss (nan|inf)' "$tmp/$name.log"
}

scripts/setup.sh --test || exit 2
[ -x "$train" ] || die "$train is missing: make first"
small=$(deepest "${near[@]}")
((small > 0)) || die "not one layer fits into $device_mem"
large=$((small * 12)) # deeper ones would fit, too: a unit's memory does not grow with their number
fits "$large" "${far[@]}" || large=$(deepest "${far[@]}")
echo "device memory $device_mem: without offload $small layers; on NVMe at least $large"
run near "$small" "${near[@]}" || failed=$((failed + 1))
first=${parameters:-0}
run far "$large" "${far[@]}" || failed=$((failed + 1))
expect "times as many parameters: ${parameters:-0} / $first" "${parameters:-0} >= 10 * $first"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
