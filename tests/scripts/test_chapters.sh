#!/bin/bash
# The chapters of docs/learn say what is so: each command that they show is run and prints what
# they show, each line of C that they quote is in the source, each link leads to a file, and none is
# longer than 700 words.
#
# A command is an indented line that begins with "$ ", and goes on behind a line that ends in a
# backslash; what it prints is the indented lines behind it. "..." stands for any text in a line,
# and a line of it alone for any lines; without such a line there are no others, but for what only the
# first run on a machine says: that it measures this, and encodes the text.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
tree=$PWD
mkdir -p "$folder/place/build/release"
ln -s "$train" "$folder/place/train"
ln -s "$(dirname "$train")/zero_in_200_lines" "$folder/place/build/release/zero_in_200_lines"
cp README.md "$folder/place"
"$train" --version | grep -q 'liburing  *[0-9]' && disk=yes || disk=''

is_shown() { # is_shown SAID SHOWN
    local said=() shown=() line at=0 any=''
    mapfile -t said < <(printf %s "$1" | grep -v -e '^measuring this machine;' -e '^tokens: .* encoded in')
    mapfile -t shown < <(printf %s "$2")
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

try() { # try PAGE COMMAND SHOWN
    local said
    case $2 in
    '' | make\ *) return ;; # the test has built it
    *nvme*) [ $disk ] || return ;;
    esac
    said=$(cd "$folder/place" && timeout 300 bash -c "$2" 2>&1)
    is_shown "$said" "$3"
    result $? "$1: ${2:0:60}" "$2
shown:
$3
said:
$said"
}

commands_of() { # commands_of PAGE
    local line command='' shown='' open=''
    while IFS= read -r line; do
        if [ "$open" ]; then
            command+=$'\n'$line
        elif [[ $line == '    $ '* ]]; then
            try "$1" "$command" "$shown"
            command=${line#'    $ '} shown=''
        elif [ "$command" ] && [[ $line == '    '* ]]; then
            shown+=${line#'    '}$'\n'
        else
            try "$1" "$command" "$shown"
            command=''
        fi
        [ "$command" ] && [ ! "$shown" ] && [[ $line == *\\ ]] && open=yes || open=''
    done < <(cat "$1" && echo)
}

quotes_of() { # quotes_of PAGE: lines of C that are nowhere in the source
    local line
    sed -n '/^```c$/,/^```$/{/^```/d;p}' "$1" | while IFS= read -r line; do
        grep -rqxF --include='*.[ch]' -- "$line" zero model kernels docs/learn || echo "$line"
    done
}

links_of() { # links_of PAGE: those that lead nowhere; pictures are made with the viewer
    local link
    grep -o '](\(\.\./\)*[^)#:]*)' "$1" | tr -d ']()' | while read -r link; do
        [ -e "$(dirname "$1")/$link" ] || echo "$link"
    done
}

for page in docs/learn/*.md; do
    words=$(wc -w <"$page")
    [ "$words" -le 700 ]
    result $? "$page: at most 700 words" "$words"
    wrong=$(quotes_of "$page")
    [ -z "$wrong" ]
    result $? "$page: what it quotes is in the source" "$wrong"
    wrong=$(links_of "$page")
    [ -z "$wrong" ]
    result $? "$page: its links lead to files" "$wrong"
    commands_of "$page"
done
[ "$tree" = "$PWD" ] && [ $count -gt 50 ]
result $? "the commands of all chapters were found" "$count results"

echo "1..$count"
exit $failed
