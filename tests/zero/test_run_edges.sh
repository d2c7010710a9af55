#!/bin/bash
# What lies around a run does it no harm, and it does none to what lies around it: links, a second
# run in the same folder, checkpoints that are damaged or cannot be read, every signal, data that
# change while they are read, and a disk that fills up. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/small_run.sh"

# in_background OUT ARGUMENT...: a run that goes on; returns when it has made two steps. (A shell
# starts what is in the background with INT and QUIT ignored.)
in_background() {
    local out=$1
    shift
    env --default-signal "$train" "${tiny[@]}" --out "$out" "$@" >"$out.said" 2>&1 &
    pid=$!
    until_true 600 grep -q '"step":2,' "$out/log.jsonl"
}
# ends SECONDS: whether the run ends in that time; its status is in `status`.
ends() {
    local i
    for ((i = 0; i < $1 * 20; i++)); do
        if ! kill -0 $pid 2>/dev/null; then
            wait $pid
            status=$?
            return 0
        fi
        sleep 0.05
    done
    return 1
}
newest() { find "$1/checkpoints" -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -n 1; }

# ---- nobody's files ----

run --steps 3 --save-every 1 --out a
mkdir -p b/checkpoints
ln -s "$folder/a/checkpoints/step-00000003" b/checkpoints/
before=$(cd a && find . -type f -exec sha256sum {} + | sort)
run --steps 6 --save-every 1 --out b --resume auto
[ $status = 0 ] && [ "$before" = "$(cd a && find . -type f -exec sha256sum {} + | sort)" ] &&
    [ -h b/checkpoints/step-00000003 ]
result $? "pruning passes over a link to another run's checkpoint" "status $status: $said"

rm -rf b
mkdir -p b/checkpoints
ln -s "$folder/a/checkpoints/step-00000003" b/checkpoints/writing
run --steps 3 --out b
[ $status = 2 ] && error_is 'E_CHECKPOINT_IN_THE_WAY b/checkpoints/writing' &&
    ! grep -q '"step"' b/log.jsonl && [ -s a/checkpoints/step-00000003/rank-0000.state ]
result $? "a planted checkpoints/writing is told before the first step" "status $status: $said"

# Several, as it is left to the file system which name comes first.
rm -rf b
run --steps 4 --save-every 1 --keep 0 --ranks 3 --zero 3 --out b
for step in 1 2 3; do echo mine >b/checkpoints/step-0000000$step/notes-$step.txt; done
ln -s /etc/hostname b/checkpoints/step-00000004/rank-0003.state
run --steps 9 --save-every 1 --keep 2 --ranks 3 --zero 3 --out b --resume auto
[ $status = 0 ] && [ "$(cat b/checkpoints/step-*/notes-*.txt | grep -c mine)" = 3 ] &&
    [ "$(find b/checkpoints/step-0000000[1-4] -type f -name 'rank-*' -size +0 | wc -l)" = 12 ] &&
    [ -h b/checkpoints/step-00000004/rank-0003.state ] && [ ! -e b/checkpoints/step-00000006 ]
result $? "a checkpoint with somebody's file or link in it stays, whole" \
    "status $status: $said $(ls -R b/checkpoints)"

# A step that is saved again where a link has its name: the link is put aside, not followed.
rm -rf b
mkdir -p b/checkpoints
ln -s "$folder/a/checkpoints/step-00000003" b/checkpoints/step-00000003
run --steps 3 --out b --resume "$folder/a/checkpoints/step-00000002"
run --steps 4 --save-every 1 --out b --resume b/checkpoints/step-00000003
[ "$before" = "$(cd a && find . -type f -exec sha256sum {} + | sort)" ]
result $? "a link in the place of a step is not followed" "status $status: $said"

# ---- two runs in one folder ----

in_background c --steps 1000000
mine=$(sha256sum c/config.json)
run --steps 3 --out c
[ $status = 2 ] && [ "$mine" = "$(sha256sum c/config.json)" ] &&
    error_is "E_FOLDER_BUSY --out c: process $pid on $(uname -n)"
result $? "a second run in one --out is refused, and told who holds it" "status $status: $said"
run --steps 3 --out c --resume auto
[ $status = 2 ] && error_is "E_FOLDER_BUSY process $pid on"
result $? "so is one that resumes" "status $status: $said"
kill -TERM $pid
ends 20 && [ $status = 0 ] && [ -n "$(newest c)" ] && [ ! -e c/lock ]
result $? "the run that holds it ends well, and takes the lock away" "$(cat c.said)"
run --out c --resume auto --sample-only --sample-tokens 5
[ $status = 0 ]
result $? "a sample needs no lock" "status $status: $said"

in_background c2 --steps 1000000
kill -KILL $pid
ends 20
run --steps 3 --out c2
[ $status = 0 ]
result $? "a killed run leaves no lock" "status $status: $said"

# ---- checkpoints that cannot be used ----

for ranks in 1 3; do
    rm -rf d
    run --steps 4 --save-every 1 --keep 0 --ranks $ranks --zero 3 --out d
    cp -r d whole
    file=d/checkpoints/step-00000004/rank-000$((ranks - 1)).state
    # The low byte of the first group's size, behind 88 bytes and the text, whose length is at 36:
    # the sizes still add up, and the head is of another model.
    length=$(od -An -td4 -j 36 -N 4 $file) choices=$(od -An -td4 -j 68 -N 4 $file)
    printf '\xff' | dd of=$file bs=1 seek=$((88 + length + choices)) conv=notrunc 2>/dev/null
    run --steps 5 --ranks $ranks --zero 3 --out d --resume auto
    [ $status = 0 ] && grep -q "is damaged.*trying the one before" <<<"$said" &&
        grep -q 'resumed after step 3' <<<"$said"
    result $? "$ranks ranks: a damaged head is fallen back from" "status $status: $said"

    rm -rf d && cp -r whole d && rm -f $file && mkdir $file
    run --steps 5 --ranks $ranks --zero 3 --out d --resume auto
    [ $status = 0 ] && grep -q 'resumed after step 3' <<<"$said"
    result $? "$ranks ranks: a folder in place of a file, too" "status $status: $said"

    rm -rf d && cp -r whole d && rm -f $file && mkfifo $file
    run --steps 5 --ranks $ranks --zero 3 --out d --resume auto
    [ $status = 0 ] && grep -q 'resumed after step 3' <<<"$said"
    result $? "$ranks ranks: a FIFO is not waited for" "status $status: $said"

    rm -rf d && cp -r whole d && rm -f $file && ln -s "$(basename $file)" $file
    run --steps 5 --ranks $ranks --zero 3 --out d --resume auto
    [ $status = 0 ] && grep -q 'trying the one before' <<<"$said" &&
        grep -q 'resumed after step 3' <<<"$said"
    result $? "$ranks ranks: one that cannot be opened is fallen back from" "status $status: $said"

    rm -rf d && mkdir -p d/checkpoints && cp -r whole/checkpoints/step-0000000[34] d/checkpoints
    for file in d/checkpoints/*/rank-0000.state; do
        printf '\xff' | dd of=$file bs=1 seek=100 conv=notrunc 2>/dev/null
    done
    run --steps 5 --ranks $ranks --zero 3 --out d --resume auto
    [ $status = 2 ] && [ "$(grep -c 'trying the one before' <<<"$said")" = 1 ] &&
        error_is 'E_CHECKPOINT_DAMAGED step-00000003'
    result $? "$ranks ranks: where all are damaged, the oldest is the error" "status $status: $said"
    rm -rf whole
done

# ---- signals ----

for signal in TERM HUP XCPU QUIT INT; do
    rm -rf e e.said
    in_background e --steps 1000000
    kill -$signal $pid
    ends 20 && [ $status = 0 ] && [ -n "$(newest e)" ] && grep -q 'stopped after step' e.said
    result $? "SIG$signal saves and stops" "status $status: $(cat e.said)"
done
for signal in USR1 USR2; do
    rm -rf e e.said
    in_background e --steps 1000000
    kill -$signal $pid
    until_true 200 grep -q '^saved e/' e.said
    kill -0 $pid && [ "$(grep '^saved' e.said)" = "saved $(newest e)" ]
    result $? "SIG$signal saves, says so, and goes on" "$(cat e.said)"
    kill -TERM $pid
    ends 20
done
rm -rf e e.said
in_background e --steps 1000000
kill -TERM $pid
kill -TERM $pid
kill -HUP $pid
ends 20 && [ $status = 0 ] && [ -n "$(newest e)" ]
result $? "a second TERM or HUP still lets it save" "status $status: $(cat e.said)"

# Also if a library takes it when it is loaded, as UCX does.
${CC:-cc} -x c -shared -fPIC -o take.so - <<'END'
#include <signal.h>
static void nothing(int number) { (void)number; }
__attribute__((constructor)) static void take(void) { signal(SIGHUP, nothing); }
END
rm -rf e e.said
# (AddressSanitizer wants to be the first library.)
(trap '' HUP && ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD="$PWD/take.so" exec "$train" \
    "${tiny[@]}" --out e --steps 1000000 >e.said 2>&1) &
pid=$!
for ((i = 0; i < 600; i++)); do
    grep -q '"step":2,' e/log.jsonl 2>/dev/null && break || sleep 0.05
done
kill -HUP $pid
sleep 0.5
kill -0 $pid
result $? "HUP stays ignored where it was, as under nohup" "$(cat e.said)"
kill -TERM $pid
ends 20

rm -rf e e.said
run --steps 4 --out e
whole=$(hash_of <<<"$said")
rm -rf e e.said
in_background e --steps 1000000 --save-every 1s
for ((i = 0; i < 200; i++)); do [ -n "$(newest e)" ] && break || sleep 0.05; done
[ -n "$(newest e)" ] && kill -0 $pid
result $? "--save-every 1s saves by the clock" "$(cat e.said)"
kill -TERM $pid
ends 20
rm -rf e e.said
run --steps 2 --save-every 30x --out none
[ $status = 2 ] && error_is "E_FLAG_TIME '30x'"
result $? "--save-every with neither steps nor a time is told of both" "status $status: $said"
run --steps 1000000 --time-limit 2s --out e
[ $status = 0 ] && grep -q 'stopped after step' <<<"$said" && [ -n "$(newest e)" ]
result $? "--time-limit saves and stops" "status $status: $said"

# ---- checkpoints written meanwhile ----

for ranks in 1 3; do
    rm -rf h h2
    run --steps 30 --save-every 4 --keep 0 --ranks $ranks --zero 3 --out h
    whole=$(hash_of <<<"$said")
    run --steps 30 --save-every 4 --keep 0 --ranks $ranks --zero 3 --save-async --out h2
    [ $status = 0 ] && [ -n "$whole" ] && [ "$whole" = "$(hash_of <<<"$said")" ] &&
        diff -r h/checkpoints h2/checkpoints &&
        diff <(sed -n 's/^saved //p' <<<"$said") <(printf '%s\n' h2/checkpoints/step-*)
    result $? "$ranks ranks: --save-async writes the same checkpoints" "status $status: $said"
    rm -rf h2 h2.said
    in_background h2 --steps 1000000 --save-every 2 --save-async --ranks $ranks --zero 3
    prlimit --pid $pid --fsize=8192:
    until_true 600 grep -q 'is not saved: .*File too large' h2.said
    prlimit --pid $pid --fsize=unlimited:
    kill -TERM $pid
    ends 30 && [ $status = 0 ] && [ -n "$(newest h2)" ]
    result $? "$ranks ranks: and goes on where they cannot be written" "$status: $(cat h2.said)"
done

rm -rf i
late=(--offload-optimizer cpu --offload-param cpu --delay-update)
run --steps 4 "${late[@]}" --out i
whole=$(hash_of <<<"$said")
run --steps 4 "${late[@]}" --out i --resume auto
[ $status = 0 ] && [ -n "$whole" ] && [ "$whole" = "$(hash_of <<<"$said")" ]
result $? "a run with late updates that is done already is resumed" "status $status: $said"

# Each write takes its time: what has its name before it is whole is caught half-written.
libfault=$(dirname "$train")/tests/libfault.so
rm -rf j j.said
LD_PRELOAD=$libfault FAULT_CLASS=write FAULT_AT=1 FAULT_FOR=0 FAULT_DO=delay:40 in_background j \
    --steps 1000000 --save-every 2 --ranks 3 --zero 3 --save-async
for ((i = 0; i < 600; i++)); do [ -n "$(newest j)" ] && break || sleep 0.01; done
kill -KILL $pid
ends 20
saved=$(newest j)
run --steps 40 --ranks 3 --zero 3 --out j --resume auto
[ -n "$saved" ] && [ $status = 0 ] && ! grep -q 'trying the one before' <<<"$said" &&
    grep -q "resumed after step" <<<"$said"
result $? "a snapshot has its name when all ranks have written it" "$saved $status: $said"

# Each call in turn that opens or reads a folder: what was there must not be taken for nothing.
rm -rf k k0
run --steps 2 --save-every 1 --out k0
refused=0 bad=
for ((n = 1; n <= 30; n++)); do
    rm -rf k
    cp -r k0 k
    said=$(LD_PRELOAD=$libfault FAULT_CLASS=dir FAULT_AT=$n FAULT_DO=EIO "$train" "${tiny[@]}" \
        --out k --steps 3 --resume auto 2>&1)
    status=$?
    [ $status = 2 ] && refused=$((refused + 1))
    cmp -s {k0,k}/checkpoints/step-00000002/rank-0000.state &&
        { [ $status = 2 ] || grep -q 'resumed after step 2' <<<"$said"; } || bad+=" $n: $said"
done
[ -z "$bad" ] && [ $refused -ge 2 ]
result $? "a folder of checkpoints that cannot be read is not taken for an empty one" \
    "$refused refused;$bad"

# A folder that two runs are to save in, too, is one run's.
rm -rf m m2 also2
in_background m --steps 1000000 --backup-dir also2
run --out m2 --steps 2 --backup-dir also2
[ $status = 2 ] && [ ! -e m2 ] &&
    error_is 'E_FOLDER_BUSY --backup-dir also2: process'
result $? "a --backup-dir that another run has is refused" "status $status: $said"
kill -TERM $pid
ends 20
run --out m2 --steps 2 --backup-dir m2
[ $status = 2 ] && error_is 'E_BACKUP_DIR --backup-dir m2' && [ ! -e m2 ]
result $? "and so is one that is --out" "status $status: $said"
run --out m2 --steps 2 --backup-dir ./m2/
[ $status = 2 ] && error_is 'E_BACKUP_DIR --backup-dir ./m2/' && [ ! -e m2 ]
result $? "also with a slash behind its name" "status $status: $said"
mkdir m3
ln -s m3 m4
run --out m3 --steps 2 --backup-dir m4
[ $status = 2 ] && error_is 'E_BACKUP_DIR --backup-dir m4'
result $? "and by a link" "status $status: $said"
mkdir -p also2
cp -r m/checkpoints also2/
run --out m2 --steps 2 --backup-dir also2
[ $status = 2 ] && error_is 'E_OUT_HOLDS_RUN --backup-dir also2' && [ ! -e m2 ]
result $? "a checkpoint in --backup-dir is told as one there" "status $status: $said"

# ---- data that change ----

# Shards of 2,000 and 400 ids: a header of 1,024 bytes, then 16 bits each.
shard() { # shard FILE COUNT
    {
        printf '\x88\xd8\x34\x01\x01\0\0\0'
        printf "$(printf '\\x%02x\\x%02x\\0\\0' $(($2 % 256)) $(($2 / 256)))"
        head -c 1012 /dev/zero
        for ((i = 0; i < $2; i++)); do printf "\\x$(printf %02x $((i * 7 % 100)))\\0"; done
    } >"$1"
}
shard train.bin 2000
shard val.bin 400
with_text=("${tiny[@]}")
tiny=("${tiny[@]/text.txt/f.bin}")
for ranks in 1 2; do
    rm -rf f
    cp train.bin f.bin
    tokens=(--val-data val.bin --tokenizer ids --vocab 128 --ranks $ranks)
    in_background f --steps 1000000 "${tokens[@]}"
    truncate -s 1100 f.bin
    ends 30 && [ $status = 2 ] && [ "$(grep -c '^train: ' f.said)" = 1 ] &&
        error_is 'E_FILE_CHANGED f.bin' "$(<f.said)" && [ -n "$(newest f)" ] && cp train.bin f.bin
    step=$(basename "$(newest f)" | tr -dc 0-9 | sed 's/^0*//')
    run --steps $((step + 2)) "${tokens[@]}" --out f --resume auto
    resumed=$(hash_of <<<"$said")
    rm -rf f2
    run --steps $((step + 2)) "${tokens[@]}" --out f2
    [ -n "$resumed" ] && [ "$resumed" = "$(hash_of <<<"$said")" ]
    result $? "$ranks ranks: a shard that shrinks is one line, and what was trained is saved" \
        "status $status, step $step: $(cat f.said) $said"
done
tiny=("${with_text[@]}")

# ---- a disk that is full ----

state=$(stat -c %s e/checkpoints/step-*/rank-0000.state | head -n 1)
limit=$((state / 2048)) # KiB: half a checkpoint

# cannot_save: a run in g, told to end, that tries again: what it would write lies in nobody's way,
# but for somebody's file.
cannot_save() {
    rm -rf g g.said
    in_background g --steps 1000000 --save-every 1000000 --ranks 3 --zero 3
    mkdir -p g/checkpoints/writing
    touch g/checkpoints/writing/mine
    kill -TERM $pid
    until_true 600 grep -q 'trying again' g.said
}
cannot_save
grep -q 'is not saved: .*writing is in the way' g.said && kill -0 $pid &&
    rm -r g/checkpoints/writing
ends 30 && [ $status = 0 ] && step=$(newest g) && step=$((10#${step##*-} + 1)) &&
    run --steps $step --ranks 3 --out g --resume auto && [ $status = 0 ]
result $? "a last save that fails is tried again, and succeeds as soon as it can" \
    "status $status: $(cat g.said) $said"

cannot_save
kill -TERM $pid
ends 20 && [ $status = 2 ] && [ "$(grep -c '^train: ' g.said)" = 1 ] && [ -z "$(newest g)" ] &&
    [ "$(ls g/checkpoints/writing)" = mine ]
result $? "a signal ends the wait with one line and nothing half-written" \
    "status $status: $(cat g.said)"

# A real disk without room, where this machine lets us mount one.
mkdir small also
if mount -t tmpfs -o size=$((2 * limit))k none small 2>/dev/null; then
    trap 'kill $(jobs -p) 2>/dev/null; umount small; rm -rf "$folder"' EXIT
    head -c $((limit * 1024)) /dev/zero >small/filler
    run --steps 3 --out small/out
    [ $status = 2 ] && error_is 'E_DISK_FULL small/out' &&
        ! grep -q '"step"' small/out/log.jsonl
    result $? "room for a checkpoint is asked for before the first step" "status $status: $said"
    rm -rf small/out
    run --steps 4 --save-every 2 --out small/out --backup-dir also/so
    [ $status = 0 ] && [ "$(basename "$(newest also/so)")" = step-00000004 ] &&
        [ -z "$(newest small/out)" ] &&
        grep -q '^saved also/so/checkpoints/step-00000004' <<<"$said"
    result $? "--backup-dir has what --out has no room for" "status $status: $said"
    run --steps 6 --out small/out --resume auto
    also=$(hash_of <<<"$said")
    [ $status = 0 ] && grep -q 'resumed after step 4' <<<"$said" && [ -n "$also" ] &&
        run --steps 6 --out g3 && [ "$also" = "$(hash_of <<<"$said")" ]
    result $? "--resume auto finds it there" "status $status: $said"

    # A disk that fills up while a run trains: what the log lacks at the end is an error.
    rm -rf small/filler small/out
    ln -s ../small.said small/log.said # which has room
    in_background small/log --steps 1000000 --backup-dir also/log
    head -c $((4096 * limit)) /dev/zero >small/filler 2>/dev/null
    until_true 400 grep -q 'its lines wait in memory' small/log.said
    kill -TERM $pid
    ends 20 && [ $status = 2 ] && [ -n "$(newest also/log)" ] && [ -z "$(newest small/log)" ] &&
        grep -q 'the checkpoint is still written to also/log/checkpoints' small/log.said &&
        error_is 'E_FILE_WRITE small/log/' "$(<small/log.said)"
    result $? "a disk that fills up does not keep --backup-dir from its checkpoint" \
        "status $status: $(cat small/log.said)"
    rm -rf small/*

    # Room for bytes, and none for the last file: only the thread that writes a snapshot learns it.
    run --steps 2 --out g4
    mount -t tmpfs -o "remount,size=1g,nr_inodes=$(($(find small g4 | wc -l) - 1))" none small
    run --steps 8 --save-every 2 --save-async --out small/g4 --backup-dir also/g4
    [ $status = 0 ] && grep -q 'step 2 is not saved: .*No space left' <<<"$said" &&
        diff <(grep '^saved' <<<"$said") <(printf 'saved also/g4/checkpoints/step-%08d\n' 4 6 8)
    result $? "--backup-dir has what could not be written meanwhile" "status $status: $said"
else
    result 0 "a disk without room # SKIP this machine mounts no tmpfs for us"
fi

# ---- less of a stack than libraries want ----

said=$(ulimit -s 64 && "$train" "${tiny[@]}" --out stack --steps 1 2>&1)
status=$?
[ $status = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] && error_is 'E_STACK_LIMIT ulimit -s 64'
result $? "a stack that is too small is refused" "status $status: $said"

# ---- minutes and millions ----

run --out late --steps 2 --save-every 30M
[ $status = 0 ] &&
    [ "$(grep -c -- '--save-every 30000000: the run ends at step 2' <<<"$said")" = 1 ]
result $? "a run that would save only at its end says so" "status $status: $said"
mkdir -p behind && ln -s ../elsewhere behind/lock
run --out behind --steps 1
[ $status = 2 ] && [ ! -e elsewhere ] &&
    [ "$(wc -l <<<"$said")" = 1 ] && error_is 'E_LOCK_FILE --out behind: behind/lock'
result $? "a link in the place of the lock is refused" "status $status: $said"

echo "1..$count"
exit $failed
