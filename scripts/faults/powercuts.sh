#!/bin/bash
# Power cuts: ./train makes tiny runs, all that they do to a disk is written down, and for every
# moment of it the disk is made as it could be if the power had gone then. From each,
# ./train --resume auto must come to the weights of a run without a cut, from the newest checkpoint
# that was saved by then, with a log that lacks no step.
#
#   scripts/faults/powercuts.sh [SCENARIO ...]      default: one prune threads load prepare adapters
#
# DISKS are two models, of the calls that ./train makes (libfault.so, tests/lib/powercut.c): ordered
# (names as a journal keeps them), and nasty (whatever POSIX allows); and real file systems, where
# one may mount and has their tools: ext4, ext4-writeback, xfs, btrfs, on a disk that logs its
# writes and flushes (tests/lib/blockdisk.c). What was forced to the disk is there after a cut; of
# the rest SEEDS choose (default "0 1 2"; 0: nothing, 1: all, else some of it).
#
# SKIP="CLASS N [COUNT]" leaves out the Nth call of a class (and those after it; 0: all), as a
# broken program would: SKIP="fsync 1 0" scripts/faults/powercuts.sh one must find what is lost
# then.
#
# EVERY (1: all moments), WORKERS (2), TRAIN. The last line is
# `N power cuts: 0 lost, 0 wrong, 0 hangs, 0 signals`; status 0 if so.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/trial.sh

SEEDS=${SEEDS:-0 1 2}
DISKS=${DISKS:-ordered nasty ext4 ext4-writeback xfs btrfs}
EVERY=${EVERY:-1}
WORKERS=${WORKERS:-2}
scenarios=("$@")
[ $# -gt 0 ] || scenarios=(one prune threads load prepare adapters)
mounted=() # folders, to be let go of at the end
trap 'exit 2' INT TERM
trap 'for m in "${mounted[@]}"; do umount "$m" 2>/dev/null; done; rm -rf "$folder"' EXIT

# After a cut: what lies in $work, and the promise of what was said by then.
judge() { # judge WORKER SCENARIO DISK CUT SEED
    promised_by "$folder/promise$1" "$folder/promise$1"
    verdict=ok detail=
    if [ "$exports" ] && grep -aq '^exported ' "$folder/promise$1" && [ ! -e "$work/exported" ]; then
        verdict=lost detail="the export that was said"
    fi
    check_export "$work" "$2"
    if [ $verdict = ok ]; then
        recover_in "$work"
        [ $verdict != ok ] || check_export "$work" "$2"
    fi
    tell "$@"
}

tell() { # tell WORKER SCENARIO DISK CUT SEED
    echo "$2 $3 $5 $4 $verdict $detail" >>"$folder/results$1"
    [ $verdict = ok ] && return
    echo "$verdict: $2 on $3, cut after operation $4, seed $5: $detail"
    echo "    CUT=$4 DISKS=$3 SEEDS=$5 scripts/faults/powercuts.sh $2"
}

# A run of the scenario in $1, whose record goes to $2.
run_recorded() { # run_recorded WORK RECORD
    local broken=()
    if [ "${SKIP:-}" ]; then
        # shellcheck disable=SC2086 # words
        set -- "$@" $SKIP
        broken=(FAULT_CLASS="$3" FAULT_AT="$4" FAULT_FOR="${5:-1}" FAULT_DO=skip)
    fi
    run_in "$1" LD_PRELOAD="$libfault" FAULT_RECORD="$2" FAULT_BELOW="$1" "${broken[@]}" -- \
        --steps $steps "${resume[@]}"
    [ "$(hash_in "$1/said")" = "$reference" ] || {
        echo "powercuts: another run with libfault.so: $(tail -n 1 "$1/said")"
        exit 2
    }
}

# ---- models: each has record_NAME SCENARIO (sets from and to, the cuts) and cut_NAME ----

record_model() { # record_model SCENARIO
    local record=$folder/record-$1
    from=0 to=$("$helpers/powercut" "$record/record" "$record/root" "$record/before" 2>/dev/null) &&
        return
    mkdir "$record"
    fill_work "$record/root" "$1"
    cp -r "$record/root" "$record/before"
    run_recorded "$record/root" "$record/record"
    rm "$record/root/said"
    to=$("$helpers/powercut" "$record/record" "$record/root" "$record/before") || exit 2
    # All of it on the disk must be what the program sees, or the model is wrong.
    "$helpers/powercut" "$record/record" "$record/root" "$record/before" "$to" ordered 1 \
        "$folder/whole-$1" >/dev/null
    diff -r "$folder/whole-$1" "$record/root" || {
        echo "powercuts: $1: the record is not what happened"
        exit 2
    }
}

cut_model() { # cut_model WORKER SCENARIO DISK CUT SEED
    local work=$folder/cut$1 record=$folder/record-$2
    rm -rf "$work"
    "$helpers/powercut" "$record/record" "$record/root" "$record/before" "$4" "$3" "$5" "$work" \
        >"$folder/promise$1" || exit 2
    judge "$@"
}

# ---- real file systems ----

make_system() { # make_system DISK IMAGE
    case $1 in
    ext4*) truncate -s 48M "$2" && mkfs -t ext4 -q -F -J size=4 "$2" ;;
    xfs) truncate -s 300M "$2" && mkfs -t xfs -q "$2" ;;
    btrfs) truncate -s 128M "$2" && mkfs -t btrfs -q "$2" >/dev/null ;;
    esac
}

mount_system() { # mount_system DISK DEVICE FOLDER
    local options=loop
    case $1 in
    ext4-writeback) options+=,data=writeback ;;
    xfs) options+=,nouuid ;;
    esac
    mount -t "${1%%-*}" -o "$options" "$2" "$3"
}

record_system() { # record_system SCENARIO
    local at=$folder/disk-$disk-$1 server
    mkdir -p "$at/fuse" "$at/mount"
    make_system "$disk" "$at/image" || return 1
    cp --sparse=always "$at/image" "$at/served"
    "$helpers/blockdisk" serve "$at/served" "$at/log" "$at/fuse" &
    server=$!
    mounted+=("$at/mount" "$at/fuse")
    while ! [ -e "$at/fuse/disk" ]; do
        kill -0 $server 2>/dev/null || return 1
        sleep 0.05
    done
    mount_system "$disk" "$at/fuse/disk" "$at/mount" || return 1
    fill_work "$at/mount/w" "$1"
    sync -f "$at/mount"
    from=$("$helpers/blockdisk" count "$at/log")
    run_recorded "$at/mount/w" "$at/log"
    to=$("$helpers/blockdisk" count "$at/log")
    umount "$at/mount" && umount "$at/fuse" && wait $server
}

cut_system() { # cut_system WORKER SCENARIO DISK CUT SEED
    local at=$folder/disk-$3-$2 image=$folder/image$1 mount=$folder/mount$1 work=$folder/mount$1/w
    mkdir -p "$mount"
    cp --sparse=always "$at/image" "$image"
    "$helpers/blockdisk" cut "$at/log" "$image" "$4" "$5" >"$folder/promise$1" || exit 2
    if mount_system "$3" "$image" "$mount" 2>"$folder/why$1"; then
        judge "$@"
        umount "$mount"
    else
        verdict=lost detail="cannot be mounted: $(head -n 1 "$folder/why$1")"
        tell "$@"
    fi
}

can_mount() { # can_mount DISK
    [ "$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] &&
        command -v "mkfs.${1%%-*}" >/dev/null && grep -qw "${1%%-*}" /proc/filesystems
}

# ---- all ----

work_through() { # work_through WORKER WORKERS KIND SCENARIO
    local cut seed n=0
    for ((cut = from; cut <= to; cut += EVERY)); do
        [ "${CUT:-$cut}" = $cut ] || continue
        for seed in $SEEDS; do
            [ $((n++ % $2)) = "$1" ] && "cut_$3" "$1" "$4" "$disk" $cut "$seed"
        done
    done
}

for name in "${scenarios[@]}"; do
    run_references "$name" || {
        echo "powercuts: $name fails without a cut: $(tail -n 1 "$folder/reference-$name/said")"
        exit 2
    }
    for disk in $DISKS; do
        workers=$WORKERS kind=system
        case $disk in
        ordered | nasty) kind=model ;;
        btrfs) workers=1 ;; # two disks of one name confuse it
        esac
        if [ $kind = system ] && ! can_mount "$disk"; then
            echo "left out: $name on $disk, which cannot be mounted here"
            continue
        fi
        "record_$kind" "$name" || {
            echo "powercuts: $name on $disk: no record"
            exit 2
        }
        for ((w = 0; w < workers; w++)); do
            work_through $w "$workers" $kind "$name" &
        done
        wait
    done
done
cat "$folder"/results* | awk '
    { n[$1 " " $2]++; bad[$1 " " $2, $5]++; all++; of[$5]++ }
    END {
        for (k in n)
            printf "%-24s %6d cuts: %d lost, %d wrong, %d hangs, %d signals\n", k, n[k],
                bad[k, "lost"], bad[k, "wrong"], bad[k, "hang"], bad[k, "signal"] | "sort"
        close("sort")
        printf "%d power cuts: %d lost, %d wrong, %d hangs, %d signals\n", all, of["lost"],
            of["wrong"], of["hang"], of["signal"]
        exit !all || all != of["ok"]
    }'
