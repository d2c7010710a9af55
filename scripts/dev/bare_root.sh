# A bare machine: Debian as debootstrap makes it, in a folder, with nothing in it but what apt
# itself needs, and a copy of this repository in /root/zero.c.
#
# Needs root, debootstrap, git, a mirror of Debian ($MIRROR, else the one that this machine's apt
# uses), and 3 GB in $BARE_DIR (default: a new folder in /var/tmp). Sets work, for roots, and logs
# ($BARE_LOGS, default out/bare), the folder for what is printed; sets the traps of EXIT, INT and
# TERM. Sourced by bare_machine_test.sh and brought_test.sh, at the top of the repository.
# shellcheck shell=bash
# shellcheck disable=SC2154 # root and as_is are the caller's

die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || die "needs debootstrap (apt-get install debootstrap)"
# shellcheck disable=SC2016 # apt-get fills in $(REPO_URI)
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
    'Origin: Debian' 'Component: main' 2>/dev/null | head -n 1)}
[ -n "$mirror" ] || die "this machine's apt names no mirror of Debian; set MIRROR=URL"
logs=${BARE_LOGS:-out/bare} work=${BARE_DIR:-} mounted=()
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

make_root() { # make_root RELEASE: in $root; as_is=yes copies the files as they lie here
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
    # Its own name, as every machine has it: without, each mpirun asks the network for 10 s.
    printf '127.0.0.1 localhost %s\n' "$(uname -n)" >"$root/etc/hosts"
    if [ "$as_is" = yes ]; then
        mkdir "$root/root/zero.c"
        git ls-files -z --cached --others --exclude-standard |
            xargs -0 -I{} find {} -maxdepth 0 -print0 |
            tar cf - --null -T - | tar xf - -C "$root/root/zero.c"
    else
        git clone -q "file://$PWD" "$root/root/zero.c"
    fi
}

end_root() {
    umount "$root/dev/shm" "$root/dev/pts" "$root/proc"
    [ -n "${BARE_DIR:-}" ] || rm -rf --one-file-system "$root"
}

inside() { # inside LOG COMMAND: as on a new machine, without this one's environment
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
        bash -c "cd /root/zero.c && $2" </dev/null >"$1" 2>&1 &
    wait $! # a signal ends this wait, where it would not end the command
}
