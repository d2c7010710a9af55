#!/bin/bash
# Runs the two commands of the README on bare machines: Debian 12 and 13 as debootstrap makes them,
# with nothing in them but what apt itself needs, and a fresh clone of this repository.
#
#   scripts/dev/bare_machine_test.sh [--as-is] [RELEASE ...]      default: bookworm trixie
#
# --as-is copies the files as they lie here, committed or not, in place of a clone. Needs root,
# debootstrap, git, 3 GB in $BARE_DIR (default: a new folder in /var/tmp) and a mirror of Debian:
# $MIRROR, else the one that this machine's apt uses. The last line is `N passed, N failed`. What
# the commands printed is kept in $BARE_LOGS (default out/bare).
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
as_is=no
if [ "${1:-}" = --as-is ]; then
    as_is=yes
    shift
fi
releases=("$@")
[ $# -gt 0 ] || releases=(bookworm trixie)
. tests/lib/tally.sh
. scripts/dev/bare_root.sh

# The sample must be text: valid UTF-8, words of letters, of which at least 60% occur in what was
# learned from.
sample_is_text() { # sample_is_text SAMPLE TEXT
    local words
    words() { grep -aoE '[A-Za-z]{2,}' "$1" | tr '[:upper:]' '[:lower:]'; }
    iconv -f utf-8 -t utf-8 "$1" >/dev/null || return
    words=$(words "$1" | wc -l)
    [ "$words" -ge 20 ] &&
        [ "$(words "$1" | grep -cxFf <(words "$2" | sort -u))" -ge $((words * 6 / 10)) ]
}

# The closing line, and at most 2.65 bits per byte of the last tenth of the text, on any machine. A
# byte that is predicted by nothing but how often it occurs costs 4.8.
quickstart_learned() { # quickstart_learned LOG
    tail -n 1 "$1" | grep -Eq '^quickstart: done in [0-9]+ min [0-9]+ s$' || return 1
    sed -n 's/^bits per byte of .* -> \([0-9.]*\)$/\1/p' "$1" |
        awk '{ bits = $1 } END { exit !(bits > 0 && bits <= 2.65) }'
}

for release in "${releases[@]}"; do
    echo "== $release"
    root=$work/$release
    make_root "$release"
    status=$?
    result $status "$release: a bare root with a fresh copy of the source"
    [ $status = 0 ] || continue
    inside /dev/null 'command -v gcc || command -v nvcc || command -v python3'
    result $((! $?)) "$release: it has no compiler, no nvcc and no Python"
    log=$logs/$release.quickstart.log
    inside "$log" scripts/quickstart.sh
    result $? "$release: scripts/quickstart.sh ends with status 0"
    quickstart_learned "$log"
    result $? "$release: $(grep -aE '^(bits per byte of|time  )' "$log" || echo 'no bits per byte')"
    sample_is_text "$root/root/zero.c/out/quickstart/sample.txt" "$root"/root/zero.c/out/cache/*.txt
    result $? "$release: the sample is text"
    log=$logs/$release.test.log
    inside "$log" scripts/test.sh
    status=$?
    [ $status = 0 ] && tail -n 1 "$log" | grep -Eq '^[1-9][0-9]* passed, 0 failed$'
    result $? "$release: scripts/test.sh: $(tail -n 1 "$log")"
    end_root
done
tally_end
