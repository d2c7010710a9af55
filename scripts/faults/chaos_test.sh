#!/bin/bash
# Bad days at random: episodes of tiny runs of ./train in one folder, of random stages, tiers, ranks
# (threads, processes), each disturbed: killed, stopped, sent signals, started twice, its disk full,
# its calls failed, its checkpoints and cache flipped, links planted where it writes, the power cut;
# or its model is asked, and killed while it answers.
#
#   scripts/faults/chaos_test.sh SECONDS [SEED]      the same seed makes the same choices
#
# After each run: the newest intact checkpoint is no older than it was, nor than what was promised;
# status 0 means that it can be gone on from; no signal but one that was sent ended it; no other run
# trained beside one that has the lock; nothing outside of --out, --cache and --nvme-path was
# touched; no checkpoint is torn and newer than the newest intact one, and behind short writes none
# is torn at all. At the end of an episode a run without a disturbance comes to the weights of one
# that never had any, and the log has each step once. What goes wrong is printed with the command
# that repeats the episode (moments of kills are as near as a machine can). DISTURBANCES="kill flip
# ..." has some kinds alone, and LIMIT the seconds after which a run hangs (25; more where others
# use the machine). The last line is `N runs in M episodes: K violations`; status 0 if none. Needs
# pgrep (procps).
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/trial.sh
. tests/lib/swarm_grids.sh
DISTURBANCES=${DISTURBANCES:-kill kill signal stop second fault fault fault full_disk flip
    flip_of_the_cache links power power answer}
limit=${1:?how many seconds?} seed=${2:-$((RANDOM * 32768 + RANDOM))}
begun=$EPOCHSECONDS runs=0 episodes=0 violations=0

one_of() { # one_of WORD...; sets chosen
    shift $((RANDOM % $#))
    chosen=$1
}

violation() { # violation TEXT
    violations=$((violations + 1))
    echo "VIOLATION in episode $episode, run $run ($what, status $status, lag $lag): $1"
    echo "    EPISODE=$episode scripts/faults/chaos_test.sh $limit $seed"
    echo "    ${launch[*]} ./train ${args[*]}"
    sed 's/^/    | /' "$work/said" | tail -n 12
}

intact() { "$helpers/intact" "$work/out" 2>/dev/null || echo 0; }
damaged() { "$helpers/intact" "$work/out" damaged | sort; }

# ---- what is run ----

# The episode's shape, which a resume may not change.
choose_shape() {
    one_of 1 1 2 3 && ranks=$chosen
    one_of 3 7 20 && every=$chosen
    one_of 0 1 2 && keep=$chosen
    one_of 60 120 && steps=$chosen
    one_of no no yes && late=$chosen
    fixed_pair=''
    start=0 fresh_cache='' recover=() lag=0 gpus=1 exports=''
    shape=("${tiny[@]}" --save-every $every --keep $keep)
    one_of plain plain places rows stages replicas wires any adapters
    grid=$chosen fixed=()
    "shape_of_$grid"
    shape+=("${fixed[@]}")
}

# What it may change, chosen anew for each run.
choose_run() {
    launch=() args=("${shape[@]}") lag=0
    choose_grid
    one_of at_once at_once in_the_background
    if [ $chosen = at_once ]; then
        args+=(--no-save-async) # else it is the run's before
    else
        args+=(--save-async) lag=$every
    fi
    if [ $ranks -gt 1 ]; then
        one_of threads threads processes
        if [ $chosen = processes ] && can_run mpirun; then
            launch=(mpirun -np $ranks)
        else
            args+=(--ranks $ranks)
        fi
    elif [ $grid = any ]; then
        args+=(--ranks 1) # else it is the run's before
    fi
    one_of none none cpu nvme
    [ $late = no ] || one_of cpu nvme
    [ $chosen != nvme ] || can_run nvme || chosen=cpu
    [ $chosen = none ] || args+=(--offload-optimizer $chosen)
    [ $late = no ] || args+=(--delay-update)
    [ $chosen != nvme ] || args+=(--nvme-path "$folder/nvme")
}

# Some time, or until the log has some more lines.
a_moment() {
    local lines=0 wanted i
    one_of time lines
    if [ $chosen = time ]; then
        sleep 0.$((RANDOM % 5))$((RANDOM % 10))
        return
    fi
    [ ! -e "$work/out/log.jsonl" ] || lines=$(wc -l <"$work/out/log.jsonl")
    wanted=$((RANDOM % 40 + 1))
    for ((i = 0; i < 40; i++)); do
        sleep 0.01
        [ ! -e "$work/out/log.jsonl" ] ||
            [ "$(wc -l <"$work/out/log.jsonl")" -lt $((lines + wanted)) ] || break
    done
}

# ---- disturbances; each runs the program once, and sets status and may (what is right) ----

by_nothing() { run_in "$work" -- --steps $steps --resume auto; }

by_kill() {
    begin_job
    a_moment
    signal_one KILL
    finish_job
    may='*'
}

by_signal() {
    one_of TERM INT HUP QUIT USR1 USR2 XCPU
    what+=" $chosen"
    local name=$chosen
    begin_job
    a_moment
    signal_one "$name"
    finish_job
    # Before it has made a step, or when its work is done, a signal may just end it.
    grep -aqE '^step +[0-9]' "$work/said" && [ -z "$(hash_in "$work/said")" ] || may='*'
    [ ${#launch[@]} = 0 ] || may='*' # the launcher has a word in it
}

by_stop() {
    begin_job
    a_moment
    signal_one STOP
    sleep 0.3
    signal_all CONT
    finish_job
}

# A run that is stopped between its first step and its end has the lock for certain.
has_the_lock() {
    signal_all STOP
    [ ${#of[@]} -gt 0 ] && grep -aqE '^step +[0-9]' "$work/said" &&
        ! grep -aqE '^(train:|weights hash)' "$work/said"
}

by_second() {
    local second held=no
    begin_job
    a_moment
    one_of yes no
    [ $chosen = no ] || ! has_the_lock || held=yes
    timeout -s KILL 40 "$train" "${args[@]}" --ranks $ranks --out "$work/out" \
        --cache "$work/cache" --steps $steps --resume auto >"$work/second" 2>&1 </dev/null
    second=$?
    signal_all CONT
    finish_job
    [ $second = 0 ] || [ $second = 2 ] || violation "the second run ended with status $second"
    [ $held = no ] || [ $second = 2 ] || violation "a second run trained beside one with the lock"
}

by_fault() {
    local class how
    one_of open read write write write write write write write fsync rename unlink mkdir close \
        dir stat malloc thread io_uring
    class=$chosen
    case $class in
    read | write) one_of ENOSPC EIO tear tear tear kill kill-torn ;;
    *) one_of ENOSPC EIO EACCES ENOMEM kill kill-after ;;
    esac
    how=$chosen
    one_of 20 100 500 # the first calls are those of beginning and of the first save
    local n=$((RANDOM % chosen + 1)) victim=$((RANDOM % ranks)) most=1
    [ $how != tear ] || most=30 # a disk that does halves does more than one
    what+=" $class $n $how"
    # Of processes it happens to one: each that it happens to would have a line.
    run_in "$work" LD_PRELOAD="$libfault" FAULT_CLASS=$class FAULT_AT=$n FAULT_FOR=$most \
        FAULT_DO=$how FAULT_HURRY=100 FAULT_LOG="$work/log" ${launch:+FAULT_RANK=$victim} -- \
        --steps $steps --resume auto
    [[ $how != kill* ]] || may='*'
}

by_full_disk() {
    local n=$((RANDOM % 600 + 1))
    what+=" from write $n on"
    begin_job LD_PRELOAD="$libfault" FAULT_CLASS=write FAULT_AT=$n FAULT_DO=ENOSPC FAULT_FOR=0
    sleep 2 # it may wait for room, until it is told to end
    signal_one TERM
    finish_job
    may='*'
}

by_flip() {
    local newest file
    newest=$(find "$work/out/checkpoints" -maxdepth 1 -name 'step-*' -type d | sort | tail -n 1)
    one_of "$newest"/*.state && file=$chosen
    [ -f "$file" ] || {
        by_nothing
        return
    }
    cp -p "$file" "$work/unflipped"
    flip "$file"
    before=$(intact)
    # The only one that is left cannot be fallen back from: that is refused, rightly.
    [ "$before" -gt 0 ] || cp -p "$work/unflipped" "$file"
    before=$(intact)
    by_nothing
}

by_flip_of_the_cache() {
    one_of "$work"/cache/*/*.bin && flip "$chosen"
    by_nothing
    if [ $status = 2 ]; then # refused, by name; then the user removes it
        grep -aq 'train: .*cache' "$work/said" || violation "a flip in the cache is not named"
        rm -r "$work"/cache/text-*
    fi
}

by_links() {
    local name
    mkdir -p "$work/out/checkpoints"
    name=$(printf 'step-%08d' $((every * (RANDOM % (steps / every) + 1))))
    [ -e "$work/out/checkpoints/$name" ] ||
        ln -s "$folder/elsewhere" "$work/out/checkpoints/$name"
    what+=" $name"
    [ -e "$work/out/checkpoints/writing" ] ||
        ln -s "$folder/elsewhere" "$work/out/checkpoints/writing"
    run_in "$work" -- --steps $steps --resume auto
    find "$work/out/checkpoints" -maxdepth 1 -type l -delete
    before=$(intact)
}

# At some moment of a run; what was not forced to the disk by then may be gone (powercuts.sh).
by_power() {
    local moments
    [ ${#launch[@]} = 0 ] || args+=(--ranks $ranks) # one process writes the record
    launch=()
    rm -rf "$work".* "$work/said"
    cp -r "$work" "$work.before"
    run_in "$work" LD_PRELOAD="$libfault" FAULT_RECORD="$work.record" FAULT_BELOW="$work" -- \
        --steps $steps --resume auto
    rm "$work/said"
    moments=$("$helpers/powercut" "$work.record" "$work" "$work.before")
    # Half of the cuts come right behind a rename, when a thing has its name and little else.
    one_of any any $("$helpers/powercut" "$work.record" "$work" "$work.before" renames)
    one_of any $chosen
    [ $chosen != any ] || chosen=$((RANDOM % moments + 1))
    local moment=$chosen
    one_of ordered nasty
    set -- $moment $chosen $((RANDOM + 2))
    what+=" after operation $1 of $moments, $2, seed $3"
    "$helpers/powercut" "$work.record" "$work" "$work.before" "$@" "$work.after" >"$work.said"
    rm -rf "$work"
    mv "$work.after" "$work"
    mv "$work.said" "$work/said"
    may='*'
}

# Its model answers prompts, until it is killed or done; then it goes on where it was killed.
by_answer() {
    local sums prompts=6 lines i grid_ranks=(--ranks $ranks) # a launcher's are in no config.json
    [ $grid != any ] || grid_ranks=()
    if [ "$before" = 0 ] ||
        { [ $grid = any ] && ! grep -q '"given":.*"ranks"' "$work/out/config.json"; }; then
        by_nothing
        return
    fi
    sums=$(sums_of_out)
    for i in 1 2; do
        timeout -s KILL 40 "$train" --out "$work/out" --cache "$work/cache" --resume auto \
            "${grid_ranks[@]}" --sample-only --prompts "$folder/prompts.jsonl" --answers "$work.answers" \
            --sample-tokens 100 --batch $((RANDOM % 3 + 1)) --temperature 0 \
            >"$work/said" 2>&1 </dev/null &
        job=$!
        sleep 0.$((RANDOM % 10))$((RANDOM % 10))
        [ $i = 2 ] || signal_one KILL
        finish_job 2>/dev/null
    done
    [ "$sums" = "$(sums_of_out)" ] || violation "an answer changed --out"
    lines=$(grep -c '"finish_reason":"[a-z]*"}$' "$work.answers" 2>/dev/null)
    [ "$lines" = $prompts ] || violation "${lines:-0} of $prompts are answered"
    rm -f "$work.answers"
    may='*'
}

sums_of_out() { find "$work/out" -type f -exec cksum {} + 2>/dev/null | sort; }

flip() { # flip FILE: one bit of it
    local bytes at old
    bytes=$(stat -c %s "$1" 2>/dev/null) && [ "$bytes" -gt 0 ] || return
    at=$(((RANDOM * 32768 + RANDOM) % bytes))
    what+=" byte $at of ${1#"$work/"}"
    old=$(od -An -tu1 -j $at -N 1 "$1")
    printf "\\x$(printf %x $((old ^ 1 << RANDOM % 8)))" |
        dd of="$1" bs=1 seek=$at conv=notrunc status=none
}

# ---- runs that are watched while they run ----

begin_job() {
    rm -f "$work/said" # another run may still have it open
    : >"$work/said"
    (
        LIMIT=40
        run_in "$work" "$@" -- --steps $steps --resume auto
        exit $status
    ) &
    job=$!
}

finish_job() {
    wait $job
    status=$?
}

signal_all() { # signal_all NAME: to the run's processes
    find_processes
    [ ${#of[@]} = 0 ] || kill -"$1" "${of[@]}" 2>/dev/null
}

signal_one() { # signal_one NAME
    find_processes
    [ ${#of[@]} = 0 ] || kill -"$1" "${of[RANDOM % ${#of[@]}]}" 2>/dev/null
}

find_processes() { # sets of
    mapfile -t of < <(pgrep -f -- "--out $work/out " | while read -r p; do
        [ "$(readlink "/proc/$p/exe")" != "$train" ] || echo "$p"
    done)
}

# ---- what must be so ----

# Of a job whose launcher has ended, the last process may take a moment more.
check_ended() {
    local i
    for ((i = 0; i < 100; i++)); do
        find_processes
        [ ${#of[@]} -gt 0 ] || return
        sleep 0.05
    done
    violation "its processes ${of[*]} have not ended"
}

last_loss() {
    sed -n 's/^{"step":[0-9]*,"loss":\([0-9.e+-]*\).*/\1/p' "$work/out/log.jsonl" | tail -n 1
}

check_run() {
    local now lines
    check_ended
    now=$(intact)
    # The log has steps of earlier runs too, from which this one may have had to go back.
    sed -nE 's#^step +([0-9]+)/.*#{"step":\1,"loss"}#p' "$work/said" >"$work.steps"
    promised_by "$work.steps" "$work/said"
    case $what in # no call failed (a short one is gone on with), and nothing was damaged
    kill* | signal* | stop* | second* | power* | *' tear')
        [ "$now" -ge "$promised" ] || violation "step $promised was saved, now step $now is intact"
        ;;
    esac
    # What has a checkpoint's name is whole: at the least, nothing newer than the newest is torn.
    torn=$(comm -13 <(echo "$torn_before") <(damaged))
    [[ $what = *' tear' && $status = 0 ]] || torn=$(awk -v now="$now" '$1 > now' <<<"$torn")
    [ -z "$torn" ] || [[ $what = 'flip '* ]] || violation "not intact: step ${torn//$'\n'/ }"
    [ "$now" -ge "$before" ] || violation "step $before was intact before it, now step $now is"
    [[ $may == '*' ]] || [ $status = 0 ] || [ $status = 2 ] || violation "status $status"
    lines=$(grep -a '^train: ' "$work/said" | grep -avc 'lost the process of rank')
    [ "$lines" -le 1 ] || violation "more than one line"
    if [ $status = 0 ] && [ "$may" != '*' ] && [ "$now" -lt $steps ]; then
        grep -aq "stopped after step $now" "$work/said" || violation "status 0, and step $now"
    fi
    # The launcher's own files lie in ompi* (Open MPI 4) and prterun* (5).
    touched=$(find "$folder" -newer "$folder/stamp" -type f ! -path "$work/*" ! -path "$work.*" \
        ! -path "$folder/ompi*" ! -path "$folder/prterun*" ! -path "$folder/nvme/*" \
        ! -path "$folder/stamp")
    [ -z "$touched" ] || violation "touched: $touched"
    [ "$(cat "$folder/elsewhere/rank-0000.state" 2>/dev/null)" = precious ] ||
        violation "what a link leads to is gone"
}

run_episode() { # run_episode NUMBER
    episode=$1 run=0 before=0
    RANDOM=$((seed % 32768 + episode))
    work=$folder/episode
    rm -rf "$work"
    mkdir -p "$work" "$folder/nvme" "$folder/elsewhere"
    echo precious >"$folder/elsewhere/rank-0000.state"
    mkdir -p "$work/cache"
    [ ! -e "$folder/machine.txt" ] || cp "$folder/machine.txt" "$work/cache"
    choose_shape
    local key="$ranks $steps $late ${fixed[*]} ${fixed_pair:-}"
    launch=() args=("${shape[@]}" --ranks $ranks --zero 1)
    [ $grid != stages ] || args+=(--zero $fixed_pair)
    [ $late = no ] || args+=(--offload-optimizer cpu --delay-update)
    [ $grid != any ] || args+=(--ranks 1)
    if [ -z "${hashes[$key]:-}" ]; then
        run_in "$work" -- --steps $steps
        hashes[$key]=$(hash_in "$work/said")
        losses[$key]=$(last_loss)
        rm -rf "$work/out"
    fi
    reference=${hashes[$key]} loss=${losses[$key]}
    [ $grid != any ] || reference=any
    local rounds=$((RANDOM % 6 + 1))
    for ((run = 1; run <= rounds; run++)); do
        choose_run
        if [ "$before" = $steps ]; then # done: another begins
            rm -rf "$work/out"
            before=0
        fi
        # shellcheck disable=SC2086 # words
        one_of $DISTURBANCES
        [ -d "$work/out/checkpoints" ] || [ $chosen != flip ] || chosen=kill
        ls "$work"/cache/text-* >/dev/null 2>&1 || [ $chosen != flip_of_the_cache ] || chosen=fault
        what=$chosen may='' second=''
        touch "$folder/stamp"
        torn_before=$(damaged)
        "by_$chosen"
        runs=$((runs + 1))
        check_run
        before=$(intact)
        [ "${VERBOSE:-}" ] && echo "  $episode.$run $what: status $status, step $before"
    done
    what='at the end' promised=$before may=''
    choose_run
    [ ${#launch[@]} = 0 ] || args+=(--ranks $ranks) # recover_in starts no launcher
    LIMIT=40 recover_in "$work"
    runs=$((runs + 1))
    [ "$verdict" = ok ] || violation "$verdict: $detail"
    [ "$verdict" != ok ] || awk -v a="$(last_loss)" -v b="$loss" \
        'BEGIN { exit !(a - b < 0.01 * b && b - a < 0.01 * b) }' ||
        violation "the last loss is $(last_loss), not $loss"
    # What the machine can do is measured once, however busy it is.
    sed 's/ again$//' "$work/cache/machine.txt" >"$folder/machine.txt"
}

for i in {1..6}; do
    echo "{\"prompt\": \"question $i\"}"
done >"$folder/prompts.jsonl"
declare -A hashes losses
echo "seed $seed"
for ((k = ${EPISODE:-1}; EPOCHSECONDS - begun < limit; k++)); do
    run_episode $k
    episodes=$((episodes + 1))
    [ -z "${EPISODE:-}" ] || break
done
echo "$runs runs in $episodes episodes: $violations violations"
[ $violations = 0 ]
