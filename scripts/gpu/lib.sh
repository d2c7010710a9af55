# The parts of scripts/gpu_check.sh, and what is known of them. For all modes; sourced.
#
# A part is a mode, a name, a limit in seconds and a command. All modes put theirs into one list, in
# the order of worth, which is at the same time what `gpu_check.sh list` prints and what tests look
# at. What became of a part is its section in the report of its mode, and nowhere else: a call reads
# the reports that it finds, runs the parts that they do not have, and writes them again.
#
#   passed, not run (what it needs is not there), RED (a wrong result): it is done
#   slow      it did not end within its limit: a later call tries it once more, last; slow twice: so
#             it is
#   cut       the call ended before it did: a later call tries it again
#
# The machine may be taken away at any moment. So a report is written beside its place and renamed;
# a part's section says "cut" from its begin; and standard output has a line when the report has it.
#
# GPU time is scarce and a GPU has memory for one ./train at a time, so nothing may outlive its
# part. What a part starts is known by a mark in its environment (proc_tag.sh). At the part's end,
# or at its limit, all that bear the mark are ended: SIGTERM and a short wait, or SIGKILL at once
# where what is ended may be ./train, which would save a checkpoint of gigabytes first.
#
# Read next: build.sh and commands.sh, then smoke.sh, bench.sh, tests.sh, offload.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with gpu_check.sh and the modes

. scripts/dev/proc_tag.sh
. scripts/bench/figures.sh

run_mark=$$.$(date +%s) timer='' keeper=''
stop_reason='' # why the parts that are left do not run
deadline=''    # in SECONDS; empty: none
running=''     # the file with the output of the part that runs
declare -A part_of=() header=()
part_mode=() part_name=() part_limit=() part_command=() part_word=() part_tries=() part_text=()

# ---- processes ----

interrupt() { # the trap of INT, TERM and HUP
    stop_reason="interrupted by SIG$1"
    echo "gpu_check: $stop_reason" >&2
    [ -z "$timer" ] || kill -KILL "$timer" 2>/dev/null # run_limited waits no longer
}

# run_limited SECONDS SIGNAL COMMAND...: its output is in $running. Sets status (124: it ran into
# the limit) and behind: how many processes it had left. SIGNAL: the first they get.
run_limited() {
    local most=$1 signal=$2 pid
    shift 2
    behind=''
    sleep "$most" >/dev/null 2>&1 &
    timer=$!
    # In a shell of its own, so that the command may be a function.
    GPU_CHECK_RUN=$run_mark setsid bash -c '"$@"' part "$@" >"$running" 2>&1 </dev/null &
    pid=$!
    wait -n $pid $timer # a trapped signal ends it, too
    status=$?
    if [ -n "$stop_reason" ]; then
        status=130
    elif ! kill -0 $timer 2>/dev/null; then # it was the timer that ended
        status=124
        if ! kill -0 $pid 2>/dev/null; then # wait -n passes over what has ended before it
            wait $pid
            status=$?
        fi
    else
        behind=$(marked GPU_CHECK_RUN "$run_mark" | wc -l)
    fi
    { # by a signal that it cannot take for its parent's, before it is another program
        kill -KILL $timer
        [ "$behind" = 0 ] || end_marked GPU_CHECK_RUN "$run_mark" "$signal"
        wait $pid $timer
    } 2>/dev/null
    timer=''
}

# One process has the GPU open as long as this shell lives: each further one opens it sooner, and no
# setting of the GPU is changed for that. Where this shell is killed, which runs no trap, what its
# part had started is ended from here.
start_keeper() {
    # shellcheck disable=SC2016
    setsid bash -c 'tail --pid="$1" -s 0.2 -f /dev/null | "$2" hold
        . scripts/dev/proc_tag.sh
        end_marked GPU_CHECK_RUN "$3" KILL' keep $$ "$bin/tests/gpu_smoke" "$run_mark" \
        >/dev/null 2>&1 </dev/null &
    keeper=$!
}

# The EXIT trap, of this shell alone: a signal that finds a child before it is another program runs
# its parent's traps there, where `return` does nothing.
clean_up() {
    if [ "$BASHPID" = $$ ]; then
        end_marked GPU_CHECK_RUN "$run_mark" KILL
        [ -z "$keeper" ] || { kill -KILL -- "-$keeper" && wait "$keeper"; } 2>/dev/null
        rm -rf "$work"
    fi
}

# ---- parts and their sections ----

plan() { # plan MODE NAME LIMIT COMMAND...
    local i=${#part_mode[@]}
    part_of["$1 $2"]=$i part_mode[i]=$1 part_name[i]=$2 part_limit[i]=$3
    part_command[i]=$(printf '%q ' "${@:4}") part_word[i]='' part_tries[i]=0 part_text[i]=''
}

new_header() { # new_header MODE
    header[$1]="# GPU $1

Written by \`scripts/gpu_check.sh\` on $(date -u +%F).
$source_line
Build: $build_words.${FORCE:+ FORCE=$FORCE.}"
}

write_report() { # write_report MODE
    local i
    {
        printf '%s\n' "${header[$1]}"
        for i in "${!part_mode[@]}"; do
            [ "${part_mode[i]}" != "$1" ] || [ -z "${part_word[i]}" ] ||
                printf '\n## %s\n\n%s\n' "${part_name[i]}" "${part_text[i]}"
        done
    } >"$out/new" && mv "$out/new" "$out/gpu_$1.md" # whole at every moment
}

# The last lines of a file, indented, so that none can be taken for a line of the report.
indented() {
    [ ! -e "$1" ] || tail -n 400 "$1" | tr -cd '\11\12\40-\176\200-\377' | sed 's/^/    /'
}

# tell PART WORD TIME [WHY]: its section, with the last lines that it printed.
tell() {
    local i=$1
    part_word[i]=$2
    told="${part_mode[i]}, ${part_name[i]}: $2, $3 s (limit ${part_limit[i]} s,"
    told+=" try ${part_tries[i]})${4:+, $4}"
    # shellcheck disable=SC2016
    part_text[i]=$(printf '%s\n\n`%s`\n\n' "$told" "${part_command[i]% }" && indented "$running")
    write_report "${part_mode[i]}"
}

# run_part PART MOST [SIGNAL]: within MOST seconds. Its line is on standard output at the end.
run_part() {
    local i=$1 most=$2 begin=${EPOCHREALTIME/[.,]/} command why='' word=RED time
    local was=${part_word[i]}
    part_tries[i]=$((part_tries[i] + 1))
    rm -f "$running"
    tell "$i" cut 0 "the call ended here"
    echo "gpu_check: ${part_mode[i]}, ${part_name[i]}" >&2
    eval "command=(${part_command[i]})"
    run_limited "$most" "${3:-KILL}" "${command[@]}"
    case $status in
    0) word=passed ;;
    77) word="not run" ;;
    124)
        word=slow
        [ "$was" != slow ] || word="slow twice"
        [ "$most" -ge "${part_limit[i]}" ] || word=cut why="no more was left of the call"
        ;;
    130) word=cut why=$stop_reason ;;
    137) why="killed, status 137 (no memory?)" ;;
    *) why="status $status" ;;
    esac
    [ "${behind:-0}" = 0 ] || why+="${why:+, }left $behind processes behind, which were ended"
    time=$(((${EPOCHREALTIME/[.,]/} - begin) / 100000))
    tell "$i" "$word" "$((time / 10)).$((time % 10))" "$why"
    rm -f "$running"
    echo "$told"
}

# run_needed MODE NAME LIMIT COMMAND...: a part that no later call takes over, and without which no
# other can run.
run_needed() {
    local i=${#part_mode[@]} most=$3
    [ -z "$stop_reason" ] || return
    plan "$@"
    new_header "$1"
    [ -z "$deadline" ] || [ "$most" -le $((deadline - SECONDS)) ] || most=$((deadline - SECONDS))
    run_part "$i" "$most" TERM
    [ "${part_word[i]}" = passed ] || stop_reason=${stop_reason:-"$told"}
}

is_done() { # is_done PART
    [[ ${part_word[$1]} =~ ^(passed|not run|RED|slow twice)$ ]]
}

# ---- reports of earlier calls ----

# read_report MODE FOLDER: takes over what it has, if it is of this source and card.
read_report() {
    local file=$2/gpu_$1.md lines name at next i text
    local told='(passed|not run|slow( twice)?|cut|RED), [0-9.]+ s \(limit [0-9]+ s, try ([0-9]+)\)'
    [ -e "$file" ] || return 0
    readarray -t lines <"$file"
    [[ ${lines[0]:-} == "# GPU $1" && ${lines[3]:-} == "Source "* ]] || bad_report "$file" 1
    if [ "${lines[3]}" != "$source_line" ]; then
        echo "gpu_check: $file is of another source or card: it is not carried over" >&2
        return
    fi
    printf -v text '%s\n' "${lines[@]:0:5}"
    header[$1]=${text%$'\n'}
    for ((at = 6; at < ${#lines[@]}; at = next)); do
        name=${lines[at]#"## "}
        [[ ${lines[at]} == "## "* && ${lines[at + 2]:-} =~ ^"$1, $name: "$told ]] ||
            bad_report "$file" $((at + 1))
        for ((next = at + 3; next < ${#lines[@]}; next++)); do
            [[ ${lines[next]} != "## "* ]] || break
        done
        i=${part_of["$1 $name"]:-}
        [ -n "$i" ] || continue # no part of today's plan
        part_word[i]=${BASH_REMATCH[1]} part_tries[i]=${BASH_REMATCH[3]}
        # All but the empty line before the next title; what it printed before it was cut.
        printf -v text '%s\n' "${lines[@]:at + 2:next - at - 2 - (next < ${#lines[@]})}"
        part_text[i]=${text%$'\n'}
        [[ $text != *"the call ended here"* ]] ||
            part_text[i]=${part_text[i]/ended here/ended}$'\n\n'$(indented "$2/gpu_running.log")
    done
}

bad_report() { # bad_report FILE LINE
    echo "gpu_check: $1, line $2: not what gpu_check wrote; give a folder that came back whole" >&2
    exit 2
}

# ---- a call ----

# The parts that are left of this call's modes, in the order in which they are tried: those that
# were too slow once come last, and those that a call's end has cut twice or more with them.
parts_left() {
    local i tries
    for i in "${!part_mode[@]}"; do
        if [[ " $modes " != *" ${part_mode[i]} "* ]] || is_done "$i"; then
            continue
        fi
        tries=${part_tries[i]}
        [ "${part_word[i]}" != cut ] || tries=$((tries - 1))
        echo "$tries $i"
    done | sort -s -n -k 1,1 | cut -d ' ' -f 2
}

# Whether time is left for a part. One that no call has time for gets what is left.
fits() { # fits PART
    most=${part_limit[$1]}
    [ "$most" -le "$call_s" ] || most=$((deadline - SECONDS))
    [ "$most" -gt 0 ] && [ "$most" -le $((deadline - SECONDS)) ]
}

# Sets stop_reason where smoke forbids the others; fails where it is not yet known.
smoke_allows() {
    local i
    for i in "${!part_mode[@]}"; do
        [ "${part_mode[i]}" = smoke ] || continue
        [ -n "${part_word[i]}" ] || return
        [ "${part_word[i]}" != RED ] || [ "${FORCE:-}" = 1 ] || {
            stop_reason="smoke is RED; FORCE=1 goes on all the same"
            return
        }
    done
}

run_parts() {
    local i mode most
    declare -A ready=()
    for i in $(parts_left); do
        mode=${part_mode[i]}
        [ "$mode" = smoke ] || smoke_allows || continue
        fits "$i" || continue
        if [ -z "$stop_reason" ] && [ -z "${ready[$mode]:-}" ]; then
            # Smoke builds the most by far: the others find nearly everything made.
            prepare_build "$mode" "$archs" "${BUILD_LIMIT:-400}"
            [ -z "$stop_reason" ] || break
            new_header "$mode"
            ready[$mode]=yes
            export bin no_uring train=$bin/train
            [ -n "$keeper" ] || start_keeper
            fits "$i" || continue
        fi
        [ -z "$stop_reason" ] || break
        run_part "$i" "$most"
    done
}

# ---- the end ----

# A line for each mode of this call, the ratios, and the parts that did not pass: 40 lines at most.
# Sets below, left, red and slow, the numbers of what is not as it should be.
summary() {
    local mode i word words bad=() all
    local -A n
    below=0 left=0 red=0 slow=0
    for mode in $modes; do
        n=() all=0
        for i in "${!part_mode[@]}"; do
            [ "${part_mode[i]}" = "$mode" ] || continue
            word=left
            ! is_done "$i" || word=${part_word[i]}
            n[$word]=$((${n[$word]:-0} + 1)) all=$((all + 1))
            [[ $word =~ passed|left ]] || bad+=("${part_text[i]%%$'\n'*}")
        done
        words="${n[passed]:-0} of $all parts passed"
        [ "${n[passed]:-0}" != $all ] || words="green, $all parts"
        for word in RED "slow twice" "not run" left; do
            words+=${n[$word]:+, ${n[$word]} $word}
        done
        echo "- $mode: $words"
        pending=${n[left]:-0} word="slow twice"
        red=$((red + ${n[RED]:-0})) slow=$((slow + ${n[$word]:-0})) left=$((left + pending))
        [[ ! $mode =~ bench|offload ]] || "${mode}_ratios"
    done
    [ ${#bad[@]} = 0 ] || printf -- '- %s\n' "${bad[@]:0:8}"
    [ ${#bad[@]} -le 8 ] || echo "- and $((${#bad[@]} - 8)) more parts that did not pass"
    words="$red RED, $slow slow, $below ratios below target or not measured, $left parts left"
    if [ -n "$stop_reason" ]; then
        words+=": $stop_reason"
    elif [ $left != 0 ]; then
        words+=": call again, with this folder as REPORTS"
    fi
    echo "- $words"
}

# The last lines of the report and of standard output, and the exit status.
conclude() {
    summary >"$work/summary"
    { printf '# GPU summary\n\n%s\n\n' "$source_line" && cat "$work/summary"; } >"$out/new" &&
        mv "$out/new" "$out/gpu_summary.md"
    cat "$work/summary"
    [[ $stop_reason != interrupted* ]] || exit 130
    # A build that the call's end cut goes on in the next.
    [[ -n $stop_reason && $stop_reason != *": cut, "* ]] || [ "$left" = 0 ] || exit 3
    [ "$((red + slow + below + left))" = 0 ]
}
