#!/bin/bash
# ./train on a machine that refuses something: memory, a thread, io_uring's service. Whatever call
# it is, the run ends with status 0, or with status 2 and one line "train: ..."; never with a
# signal, nor never. Speaks TAP.
#
# TRAIN names the program (default ./train); tests/scarce.so lies beside it. CALLS (default 12) of
# the calls of each kind are refused, one a run; CALLS=all: each.
set -u
train=${TRAIN:-./train}
folder=$(mktemp -d -p "$(dirname "$train")") # on a disk, which --nvme-path wants
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/../lib/known_speeds.sh"
. "${BASH_SOURCE%/*}/../lib/tap.sh"
. "${BASH_SOURCE%/*}/../lib/small_text.sh"
. "${BASH_SOURCE%/*}/../lib/mpi_env.sh"
scarce=$(realpath "$(dirname "$train")/tests/scarce.so")
calls=${CALLS:-12}

text=$folder/text.txt
small_text 200 >"$text"
tiny=(--device cpu --dtype fp32 --data "$text" --layers 2 --heads 2 --channels 32
    --seq-len 32 --batch 2 --threads 2 --steps 3 --save-every 2 --log-every 1)

# run WHAT AT ARGUMENT...: into $folder/said, $status.
run() {
    rm -rf "$folder/out"
    timeout 60 env LD_PRELOAD="$scarce" SCARCE="$1:$2" SCARCE_COUNT="$folder/count" "$train" \
        "${tiny[@]}" --out "$folder/out" "${@:3}" >"$folder/said" 2>&1
    status=$?
}

# Which of 1 .. COUNT: the first, the last, and others evenly between them.
places() {
    awk -v n="$1" -v calls="$calls" 'BEGIN {
        calls = calls == "all" || calls > n ? n : calls
        for (i = 0; i < calls; i++)
            print calls == 1 ? 1 : 1 + int(i * (n - 1) / (calls - 1) + 0.5)
    }'
}

# one_of ERRORS LINES: one of them, with | between two, is in the lines.
one_of() {
    local errors error
    IFS='|' read -ra errors <<<"$1"
    for error in "${errors[@]}"; do
        ! error_is "$error" "$2" || return 0
    done
    return 1
}

# refused WHAT NAME ERRORS ARGUMENT...
refused() {
    local what=$1 name=$2 errors=$3 total at ended=0 bad=
    shift 3
    run "$what" 0 "$@" # what is prepared once is there from here on
    run "$what" 0 "$@"
    total=$(cat "$folder/count")
    for at in $(places "$total"); do
        run "$what" "$at" "$@"
        if [ $status = 2 ] && [ "$(grep -c '^train: ' "$folder/said")" = 1 ] &&
            one_of "$errors" "$(<"$folder/said")" &&
            ! grep -qE 'check failed|terminate called' "$folder/said"; then
            ended=$((ended + 1))
        elif [ $status != 0 ]; then
            bad+="call $at of $total: status $status: $(tail -n 3 "$folder/said")"$'\n'
        fi
    done
    [ -z "$bad" ] && [ "$total" -gt 0 ] && [ $ended -gt 0 ]
    result $? "$what refused to $name" "$ended of $total ended; $bad"
}

# processes WHAT ERROR: refused to the second of two processes; the first must not wait for it.
processes() {
    local what=$1 error=$2 total at said status ended=0 bad=
    # second WHAT AT
    second() {
        rm -rf "$folder/out"
        # (Two programs with a colon between them make mpirun 5 crash where there is no /sys.)
        # shellcheck disable=SC2016 # the inner shell's
        said=$(timeout 60 mpirun -np 2 bash -c '
            if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then
                export LD_PRELOAD="$0" SCARCE="$1:$2" SCARCE_COUNT="$3"
            fi
            exec "${@:4}"' "$scarce" "$1" "$2" "$folder/count" "$train" "${tiny[@]}" \
            --tokenizer byte --out "$folder/out" 2>&1)
        status=$?
    }
    second "$what" 0
    total=$(cat "$folder/count")
    for at in $(places "$total"); do
        second "$what" "$at"
        if [ $status = 2 ] && error_is "$error"; then
            ended=$((ended + 1))
        elif [ $status != 0 ]; then # a call that the run can do without
            bad+="call $at of $total: status $status: $said"$'\n'
        fi
    done
    [ -z "$bad" ] && [ "$total" -gt 0 ] && [ $ended -gt 0 ]
    result $? "$what refused to one of two processes ends both" "$ended of $total ended; $bad"
}

memory=E_MEMORY_REFUSED
refused memory "one rank" "$memory" --tokenizer byte
refused memory "one rank that trains its tokenizer" "$memory" --tokenizer train:300 \
    --cache "$folder/c"
refused memory "three ranks of stage 3" "$memory" --tokenizer byte --ranks 3 --zero 3 --batch 1 \
    --global-batch 3
refused thread "three ranks of stage 3" 'E_THREAD_REFUSED|E_LIBRARY_ENDED' \
    --tokenizer byte --ranks 3 --zero 3 --batch 1 --global-batch 3
if "$train" --version | grep -qi '^mpi  *not'; then
    echo "ok $((count += 1)) - processes # SKIP there is no MPI"
else
    processes memory "$memory"
fi
nvme=(--tokenizer byte --offload-optimizer nvme --offload-param nvme --offload-activations nvme
    --nvme-path "$folder")
if "$train" --version | grep -q '^liburing  *not'; then
    echo "ok $((count += 1)) - io_uring # SKIP it is not built in"
else
    refused memory "a rank on NVMe" "$memory" "${nvme[@]}"
    refused uring-io "a rank on NVMe" 'E_NVME_IO io_uring' "${nvme[@]}"
    calls=1 # the kernel is asked again for ten seconds
    refused uring "a rank on NVMe" 'E_NVME_IO io_uring: Cannot allocate' "${nvme[@]}"
    # Descriptors: some number of them is too small for the rings, and then for nothing before.
    told=
    ring='E_NVME_RING Too many open files; raise `ulimit -n`'
    for open_max in {12..40}; do
        said=$(ulimit -n "$open_max" && timeout 60 "$train" "${tiny[@]}" --out "$folder/few" \
            "${nvme[@]}" --ranks 4 --zero 2 --batch 1 2>&1 | tail -n 1)
        told+=$said$'\n'
        ! error_is "$ring" || break
    done
    error_is "$ring" "$told" && ! grep -q 'open files.*io_uring_disabled' <<<"$told"
    result $? "descriptors refused to ranks on NVMe" "$told"
fi

echo "1..$count"
exit $failed
