# Processes that are known by a mark: a variable in their environment, which every child inherits,
# also one with a session of its own. Sourced by run_tests.sh and gpu_check.sh, which set a mark for
# what they start, so that nothing outlives it.
# shellcheck shell=bash

marked() { # marked NAME VALUE: the processes with that in their environment
    grep -lzsxF "$1=$2" /proc/[0-9]*/environ | cut -d / -f 3
}

end_marked() { # end_marked NAME VALUE SIGNAL: ends them; 1 if some stay
    local i pids none=0
    for i in {1..60}; do
        pids=$(marked "$1" "$2")
        if [ -z "$pids" ]; then # twice, once there were some: in an exec there is no environment
            none=$((none + 1))
            [ "$i" != 1 ] && [ $none != 2 ] || return 0
        elif none=0 && [ "$3" = TERM ] && [ "$i" -le 20 ]; then
            # shellcheck disable=SC2086
            [ "$i" != 1 ] || kill -TERM $pids 2>/dev/null
        else
            # shellcheck disable=SC2086
            kill -KILL $pids 2>/dev/null
        fi
        sleep 0.1
    done
    return 1
}
