#!/bin/bash
# The chapters of docs/learn say what is so: each command that they show is run and prints what
# they show, each line of C that they quote is in the source, each link leads to a file, and none is
# longer than 700 words.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
. tests/lib/shown_commands.sh
tree=$PWD
mkdir -p "$folder/place/build/release"
ln -s "$train" "$folder/place/train"
ln -s "$(dirname "$train")/zero_in_200_lines" "$folder/place/build/release/zero_in_200_lines"
cp README.md "$folder/place"

try() { # try PAGE:LINE COMMAND SHOWN
    local said
    [[ $2 != make\ * ]] || return # the test has built it
    ! skipped "$1: ${2:0:60}" "$2" || return
    said=$(cd "$folder/place" && timeout 300 bash -c "$2" 2>&1 </dev/null)
    is_shown "$said" "$3"
    result $? "$1: ${2:0:60}" "$2
shown:
$3
said:
$said"
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
