#!/usr/bin/env bash
# Real models on one device, with which flags: a part of memory_table.sh, which sources it.
#
# Nothing is searched for here: `--plan --json` says whether a run fits, and if not, what would
# (zero/plan/fit.c). It wants $train, the program, $work, a folder to work in, flatten, and die.

# Whether a run with these flags fits. If not, `advice` are those with which the plan says that it
# would. Another table of kernels needs other scratch, hence --kernels; steps would measure speeds.
ask() { # ask FLAG...
    local status=0
    "$train" --plan --json --steps 0 --device cpu --kernels base --threads 1 --dtype bf16 \
        --batch 1 "$@" >"$work/json" 2>"$work/said" || status=$?
    [ -s "$work/json" ] || die "no plan for $*: $(tail -n 1 "$work/said")"
    flatten "$work/json" >"$work/plan"
    read -r -a advice < <(sed -n 's/.*"advice":[ \t]*"\(.*\)".*/\1/p' "$work/json") || true
    [ $status = 0 ]
}

# A disk needs no folder to be planned with. The host's memory bounds what is offloaded alone.
settle() { # settle MODEL DEVICE HOST, in GB: `flags` with which it fits, the mildest
    local all limits=(--device-mem "$2G" --host-mem "$3G")
    flags=()
    ! ask --model "$1" "${limits[@]}" || return 0
    [ ${#advice[@]} -gt 0 ] || return 1
    all=${advice[*]}
    read -r -a flags <<<"${all/ --nvme-path FOLDER/}"
    ask --model "$1" "${flags[@]}" "${limits[@]}" ||
        die "$1: what --plan advises does not fit: ${flags[*]}"
}

families() {
    local model card host
    echo "One sequence of 2048 tokens in bf16 on one device: the mildest flags with which the plan"
    echo "fits, and what they take of each memory (GB, of 10^9 bytes)"
    echo
    echo "| model | device | host | flags | on the device | on the host | on NVMe |"
    echo "|---|---|---|---|---|---|---|"
    for model in qwen2.5-0.5b llama3.2-1b llama3.2-3b llama3.1-8b qwen2.5-14b; do
        for card in 16 24 48 80; do
            for host in 64 128; do
                settle $model $card $host || flags=("does not fit")
                awk -v model=$model -v card=$card -v host=$host -v flags="${flags[*]}" '
                    $1 == "tiers.name" { tier = $2 }
                    $1 == "tiers.peak" { need[tier] = $2 / 1e9 }
                    END {
                        printf "| %s | %d GB | %d GB | %s |", model, card, host,
                            flags ? "`" flags "`" : "none"
                        printf " %.1f | %.1f | %.1f |\n", need["device"], need["cpu"], need["nvme"]
                    }' "$work/plan"
            done
        done
    done
}
