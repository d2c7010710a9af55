#!/bin/bash
# Installs the packages that zero.c needs on Debian 12 and 13 and Ubuntu 22.04 and 24.04.
#
#   scripts/setup.sh           to build and run
#   scripts/setup.sh --test    and to test: cmocka, clang and its sanitizers, clang-format, gnuplot,
#                              Python with numpy, jq, ccache
#   scripts/setup.sh --bench   and what benchmarks compare with: fio for the NVMe tier, and Python's
#                              venv, into which scripts/dev/torch.sh installs PyTorch
#   scripts/setup.sh --nodes   and for nodes simulated on one machine (scripts/faults/cluster_sim.sh)
#   scripts/setup.sh --text    and English text to train on where the network is closed
#   scripts/setup.sh --check   only prints what is missing (also with --test); status 1 if any
#
# What is installed already is left alone, and when nothing is missing nothing is run but one
# dpkg-query. It never asks: as root it installs, with sudo it uses that, otherwise it prints the
# command to give to someone who may. Called by scripts/quickstart.sh and scripts/test.sh.
set -eu
. "${0%"${0##*/}"}help.sh"

# One package a word. Where releases name a thing differently: the names by preference, between
# bars.
build_packages="gcc g++ make libc6-dev pkg-config|pkgconf ca-certificates
    libdnnl-dev libsentencepiece-dev libcurl4-openssl-dev libcjson-dev libopenmpi-dev openmpi-bin
    liburing-dev libpcre2-dev zlib1g-dev libzstd-dev"
test_packages="libcmocka-dev clang libomp-dev clang-format gnuplot-nox|gnuplot procps patch
    openssl python3 python3-numpy jq ccache"
text_packages="fortunes"
node_packages="iproute2 util-linux"
bench_packages="python3 python3-venv fio"

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

check=no wanted=$build_packages
for argument in "$@"; do
    case $argument in
    --check) check=yes ;;
    --test) wanted+=" $test_packages $text_packages compiler-rt" ;;
    --bench) wanted+=" $bench_packages" ;;
    --nodes) wanted+=" $node_packages" ;;
    --text) wanted+=" $text_packages" ;;
    *) die "unknown argument '$argument'; expected --check, --test, --bench, --nodes or --text" ;;
    esac
done

command -v apt-get >/dev/null ||
    die "this is no Debian or Ubuntu. Install by hand: C and C++ compilers with OpenMP, make,
    pkg-config, oneDNN, SentencePiece, libcurl, cJSON, Open MPI, liburing, PCRE2, zlib, libzstd; for
    tests cmocka, clang, clang-format, gnuplot, Python with numpy, jq, ccache."

# The sanitizers' libraries carry the version of clang in their name: that of the clang that is
# there, or of the one that the package "clang" would bring.
clang_version() {
    local path
    if path=$(command -v clang); then
        # Its place says it, unless something stands before it, such as ccache.
        [[ $(readlink -f "$path") =~ llvm-([0-9]+) ||
            $(clang --version) =~ clang\ version\ ([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
    else
        apt-cache depends clang 2>/dev/null |
            sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1
    fi
}

# Sets missing to those of $wanted of which no name is installed.
find_missing() {
    local installed package name v packages=$wanted
    if [[ $wanted == *compiler-rt* ]]; then
        v=$(clang_version)
        packages=${wanted/compiler-rt/${v:+libclang-rt-$v-dev|libclang-common-$v-dev}}
    fi
    # dpkg-query fails if it does not know a name, and still lists the others.
    # shellcheck disable=SC2086
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Provides}\n' ${packages//|/ } \
        2>/dev/null | sed -n '/^installed /{s/^installed / /; s/[,]/ /g; s/$/ /p}') || true
    missing=
    for package in $packages; do
        for name in ${package//|/ }; do
            [[ $installed == *" $name "* ]] && continue 2
        done
        missing+=" $package"
    done
}

# available NAME: apt could install it.
available() {
    [[ $(apt-cache policy "$1" 2>/dev/null) == *"Candidate: "[^\(]* ]]
}

# Turns each word of $missing into the first of its names that this release has.
choose_names() {
    local package name
    chosen=()
    for package in $missing; do
        for name in ${package//|/ }; do
            available "$name" && chosen+=("$name") && continue 2
        done
        die "this release has no package ${package//|/ or } (--help names releases that do). On Ubuntu:
    add-apt-repository universe"
    done
}

find_missing
if [ -z "$missing" ]; then
    say "nothing is missing"
    exit 0
fi
if [ $check = yes ]; then
    say "missing:${missing//|/ or }"
    say "without --check, this script installs what is missing"
    exit 1
fi

# The first name of each package in $missing, for someone to type.
first_names() {
    local package
    for package in $missing; do
        printf ' %s' "${package%%|*}"
    done
}

as_root=()
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        as_root=(sudo)
    else
        die "packages are missing, and this user is neither root nor has sudo. As root:
    apt-get update && apt-get install -y$(first_names)"
    fi
fi

say "installing${missing//|/ or }"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${apt[@]}" update >"$log" 2>&1 || {
    cat "$log" >&2
    say "some package lists could not be refreshed; going on with those that are there"
}
find_missing # only now is a release's clang known on a machine without package lists
choose_names
"${apt[@]}" install -y --no-install-recommends "${chosen[@]}" >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    die "apt-get could not install: ${chosen[*]}; its last lines above say why"
}
find_missing
[ -z "$missing" ] || die "still missing after the installation:$missing; install them by hand"
say "done"
