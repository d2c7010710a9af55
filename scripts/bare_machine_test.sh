#!/bin/bash
# Runs the two commands of the README on bare machines: Debian 12 and 13 as debootstrap makes them,
# with nothing in them but what apt itself needs, and a fresh clone of this repository.
#
#   scripts/bare_machine_test.sh [--as-is] [RELEASE ...]      default: bookworm trixie
#
# --as-is copies the files as they lie here, committed or not, in place of a clone. Needs root,
# debootstrap, git, 3 GB in $BARE_DIR (default: a new folder in /var/tmp) and a mirror of Debian:
# $MIRROR, else the one that this machine's apt uses. The last line is `N passed, N failed`. What
# the commands printed is kept in $BARE_LOGS (default out/bare).
set -u
. "${0%"${0##*/}"}help.sh"
cd "$(dirname "$0")/.." || exit 1
repository=$PWD
as_is=no
if [ "${1:-}" = --as-is ]; then
    as_is=yes
    shift
fi
releases=("$@")
[ $# -gt 0 ] || releases=(bookworm trixie)
logs=${BARE_LOGS:-out/bare}
work=${BARE_DIR:-}
. tests/lib/tally.sh
mounted=()

die() { printf 'bare machine test: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || die "needs debootstrap (apt-get install debootstrap)"
# shellcheck disable=SC2016 # apt-get fills in $(REPO_URI)
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
    'Origin: Debian' 'Component: main' 2>/dev/null | head -n 1)}
[ -n "$mirror" ] || die "this machine's apt names no mirror of Debian; set MIRROR=URL"
mkdir -p "$logs" "${work:=$(mktemp -d /var/tmp/bare.XXXXXX)}"

# What runs in the roots still, of a test that was interrupted.
end_all() {
    local p
    for p in /proc/[0-9]*; do
        case $(readlink "$p/root" 2>/dev/null) in
        "$work"/*) kill -KILL "${p#/proc/}" 2>/dev/null ;;
        esac
    done
}

cleanup() {
    local m
    end_all
    for m in "${mounted[@]}"; do
        umount -l "$m" 2>/dev/null
    done
    [ -n "${BARE_DIR:-}" ] || rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

make_root() { # make_root RELEASE
    rm -rf --one-file-system "${root:?}"
    debootstrap --variant=minbase "$1" "$root" "$mirror" >"$logs/$1.debootstrap.log" 2>&1 ||
        return 1
    # How this machine reaches its mirror and names.
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    apt-config dump | grep -i '^Acquire::[a-z:]*proxy' >"$root/etc/apt/apt.conf.d/90proxy"
    # Terminals and /proc, as every machine has them.
    mount -t proc proc "$root/proc" || return 1
    mounted+=("$root/proc")
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts" || return 1
    mounted+=("$root/dev/pts")
    mkdir -p "$root/dev/shm" && mount -t tmpfs tmpfs "$root/dev/shm" || return 1
    mounted+=("$root/dev/shm")
    chmod 666 "$root/dev/ptmx"
    if [ $as_is = yes ]; then
        mkdir "$root/root/zero.c"
        git ls-files -z --cached --others --exclude-standard |
            xargs -0 -I{} find {} -maxdepth 0 -print0 |
            tar cf - --null -T - | tar xf - -C "$root/root/zero.c"
    else
        git clone -q "file://$repository" "$root/root/zero.c"
    fi
}

inside() { # inside LOG COMMAND: as on a new machine, without this one's environment
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
        bash -c "cd /root/zero.c && $2" </dev/null >"$1" 2>&1 &
    wait $! # a signal ends this wait, where it would not end the command
}

# The sample must be text: words of letters, valid UTF-8.
sample_is_text() {
    iconv -f utf-8 -t utf-8 "$1" >/dev/null && [ "$(grep -aoE '[A-Za-z]{2,}' "$1" | wc -l)" -ge 20 ]
}

# The closing line, and at most 2.35 bits per byte of the last tenth of the text. A byte that is
# predicted by nothing but how often it occurs costs 4.8.
quickstart_learned() { # quickstart_learned LOG
    tail -n 1 "$1" | grep -Eq '^quickstart: done in [0-9]+ min [0-9]+ s$' || return 1
    sed -n 's/^bits per byte of .* -> \([0-9.]*\)$/\1/p' "$1" |
        awk '{ bits = $1 } END { exit !(bits > 0 && bits <= 2.35) }'
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
    sample_is_text "$root/root/zero.c/out/quickstart/sample.txt"
    result $? "$release: the sample is text"
    log=$logs/$release.test.log
    inside "$log" scripts/test.sh
    status=$?
    [ $status = 0 ] && tail -n 1 "$log" | grep -Eq '^[1-9][0-9]* passed, 0 failed$'
    result $? "$release: scripts/test.sh: $(tail -n 1 "$log")"
    umount "$root/dev/shm" "$root/dev/pts" "$root/proc"
    [ -n "${BARE_DIR:-}" ] || rm -rf --one-file-system "$root"
done
tally_end
