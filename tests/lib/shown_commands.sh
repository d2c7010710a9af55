# Commands that a page shows, and what they print: source this file, with train, folder and result
# (own_folder.sh). The test defines try, and alike if lines need only be alike.
#
# A command is an indented line that begins with "$ ", and goes on behind a line that ends in a
# backslash; what it prints is the indented lines behind it. "..." stands for any text in a line,
# and a line of it alone for any lines; without such a line there are no others, but for what only the
# first run on a machine says: that it measures this, and encodes the text.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
. "${BASH_SOURCE%/*}/can_run.sh"
. "${BASH_SOURCE%/*}/mpi_env.sh"

alike() { cat; } # a filter, of what is printed and of what is shown

said_by_all() { alike | grep -v -e '^measuring this machine;' -e '^tokens: .* encoded in'; }

is_shown() { # is_shown SAID SHOWN
    local said=() shown=() line at=0 any=''
    mapfile -t said < <(printf %s "$1" | said_by_all)
    mapfile -t shown < <(printf %s "$2" | said_by_all)
    for line in "${shown[@]}"; do
        if [ "${line// /}" = ... ]; then
            any=yes
            continue
        fi
        while ! matches "${said[at]-}" "$line"; do
            [ $any ] || return 1
            at=$((at + 1))
            [ $at -lt ${#said[@]} ] || return 1
        done
        at=$((at + 1)) any=''
    done
    [ ${#shown[@]} -gt 0 ] && { [ $at = ${#said[@]} ] || [ $any ]; }
}
matches() { # matches LINE SHOWN
    [[ $2 == *...* ]] || { [ "$1" = "$2" ] && return 0 || return 1; }
    [[ $1 == "${2%%...*}"*"${2##*...}" ]]
}

# A skipped result for a command that cannot run here.
skipped() { # skipped NAME COMMAND
    local needs
    case $2 in
    *mpirun*) needs=mpirun ;;
    *nvme*) needs=nvme ;;
    *) return 1 ;;
    esac
    ! can_run $needs || return 1
    count=$((count + 1))
    echo "ok $count # SKIP $1: no ${needs/nvme/liburing, or no disk below $folder}"
}

# Calls try PAGE:LINE COMMAND SHOWN MARK for each; the mark is WHY of a comment above the block:
# <!-- not run: WHY -->.
commands_of() { # commands_of PAGE
    local line command='' shown='' open='' mark='' number=0 at=0
    while IFS= read -r line; do
        number=$((number + 1))
        if [ "$open" ]; then
            command+=$'\n'$line
        elif [[ $line == '    $ '* ]]; then
            [ ! "$command" ] || try "$1:$at" "$command" "$shown" "$mark"
            command=${line#'    $ '} shown='' at=$number
        elif [ "$command" ] && [[ $line == '    '* ]]; then
            shown+=${line#'    '}$'\n'
        else
            [ ! "$command" ] || try "$1:$at" "$command" "$shown" "$mark"
            command=''
            case $line in
            '<!-- not run: '*) mark=${line#'<!-- not run: '} mark=${mark%' -->'} ;;
            '') ;;
            *) mark='' ;;
            esac
        fi
        [ "$command" ] && [ ! "$shown" ] && [[ $line == *\\ ]] && open=yes || open=''
    done < <(cat "$1" && echo)
}
