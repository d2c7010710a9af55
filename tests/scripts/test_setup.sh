#!/bin/bash
# scripts/setup.sh on machines that this one is not: dpkg-query, apt-get, apt-cache, sudo and id are
# small stand-ins on the PATH that write down how they were called. Speaks TAP for
# scripts/dev/run_tests.sh.
# shellcheck disable=SC2016 # the stand-ins expand their variables themselves
set -u
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
count=0 failed=0

report() { # report STATUS NAME: one line of TAP, and what setup said if it failed
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
        return
    fi
    echo "not ok $count - $2"
    sed 's/^/# /' "$bin/said" "$bin/calls"
    failed=1
}

stub() { # stub NAME SCRIPT
    printf '#!/bin/bash\n%s\n' "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}

# A machine: the file "installed" holds its packages, "known" those of its release.
everything="gcc g++ make libc6-dev pkg-config ca-certificates libdnnl-dev libsentencepiece-dev
libcurl4-openssl-dev libcjson-dev libopenmpi-dev openmpi-bin liburing-dev libpcre2-dev zlib1g-dev
libzstd-dev
libcmocka-dev clang libomp-dev clang-format gnuplot-nox python3 python3-numpy procps patch jq ccache
openssl fortunes libclang-rt-19-dev"
fresh_machine() {
    tr ' ' '\n' <<<"$everything" >"$bin/known"
    cp "$bin/known" "$bin/installed"
    : >"$bin/calls"
    echo 0 >"$bin/uid"
}

stub dpkg-query 'bin=${0%/*}
shift 3
for p; do
    grep -qx -- "$p" "$bin/installed" && echo "installed $p " && continue
    echo "not-installed $p " # of names that it has met in another package
done
exit 1'
stub apt-cache 'bin=${0%/*}
case $1 in
policy) grep -qx -- "$2" "$bin/known" && echo "  Candidate: 1.0" || echo "  Candidate: (none)" ;;
depends) echo "  Depends: clang-19" ;;
esac'
stub apt-get 'bin=${0%/*}
echo "apt-get $*" >>"$bin/calls"
while [ $# -gt 0 ] && [ "$1" != install ]; do shift; done
for p in "${@:2}"; do
    case $p in
    -*) ;;
    *) [ -e "$bin/broken" ] || echo "$p" >>"$bin/installed" ;;
    esac
done
[ ! -e "$bin/broken" ]'
stub id 'cat "${0%/*}/uid"'
for tool in bash env grep sed cat mktemp rm tail head readlink; do
    ln -s "$(command -v $tool)" "$bin/$tool"
done

setup() { # setup ARGUMENT...: sets status; output in $bin/said
    PATH=$bin bash scripts/setup.sh "$@" >"$bin/said" 2>&1 </dev/null
    status=$?
}
lacks() { # lacks PACKAGE...: takes them off the machine
    local p
    for p in "$@"; do
        sed -i "/^$p\$/d" "$bin/installed"
    done
}
calls() { cat "$bin/calls"; }

fresh_machine
setup --test
[ $status = 0 ] && [ ! -s "$bin/calls" ] && grep -q "nothing is missing" "$bin/said"
report $? "nothing is missing: nothing is installed"

fresh_machine
lacks libdnnl-dev
setup
[ $status = 0 ] && calls | grep -q "install.* libdnnl-dev$" && ! calls | grep -q libcjson
report $? "only what is missing is installed"

fresh_machine
lacks libdnnl-dev
setup --check
[ $status = 1 ] && [ ! -s "$bin/calls" ] && grep -q "missing: libdnnl-dev$" "$bin/said"
report $? "--check names what is missing and installs nothing"

fresh_machine
lacks libcmocka-dev python3-numpy fortunes
setup --check
report $status "packages of the tests are not missed without --test"
setup --check --test
[ $status = 1 ] && grep -q "libcmocka-dev.*python3-numpy.*fortunes" "$bin/said"
report $? "they are missed with it"

fresh_machine
lacks pkg-config gnuplot-nox
sed -i 's/^pkg-config$/pkgconf/; s/^gnuplot-nox$/gnuplot/' "$bin/known"
setup --test
[ $status = 0 ] && calls | grep -q "install.* pkgconf gnuplot$"
report $? "a package goes by the name that this release has"

fresh_machine
lacks libclang-rt-19-dev clang
setup --test
[ $status = 0 ] && calls | grep -q "install.* clang libclang-rt-19-dev$"
report $? "the sanitizers' library is that of the release's clang"

fresh_machine
lacks libcjson-dev libdnnl-dev
sed -i '/libdnnl-dev/d' "$bin/known"
setup
[ $status = 1 ] && grep -q "no package libdnnl-dev" "$bin/said" && ! calls | grep -q " install "
report $? "a package that the release lacks is named, and nothing is installed"

fresh_machine
lacks libcjson-dev
touch "$bin/broken"
setup
rm "$bin/broken"
[ $status = 1 ] && grep -q "could not install: libcjson-dev" "$bin/said"
report $? "a failed installation is an error"

fresh_machine
lacks libcjson-dev pkg-config
echo 1000 >"$bin/uid"
setup
[ $status = 1 ] && [ ! -s "$bin/calls" ] && grep -q "neither root nor has sudo" "$bin/said" &&
    grep -q "apt-get install -y pkg-config libcjson-dev$" "$bin/said"
report $? "without root and sudo: the command to give to someone else"

stub sudo '[ "$1" = -n ] && exit 0
echo "sudo $*" >>"${0%/*}/calls"
exec "$@"'
fresh_machine
lacks libcjson-dev
echo 1000 >"$bin/uid"
setup
[ $status = 0 ] &&
    calls | grep -q "^sudo env DEBIAN_FRONTEND=noninteractive apt-get .*libcjson-dev$"
report $? "with sudo it is used"

fresh_machine
printf '%s\n' python3-venv fio >>"$bin/known"
setup --bench
[ $status = 0 ] && calls | grep -q "install.* python3-venv fio$"
report $? "--bench brings what benchmarks compare with"

setup --bogus
[ $status = 1 ] && grep -q "unknown argument '--bogus'" "$bin/said"
report $? "an unknown argument is refused"

rm "$bin/apt-get"
setup
[ $status = 1 ] && grep -q "no Debian or Ubuntu" "$bin/said"
report $? "a machine without apt is told what to install by hand"

echo "1..$count"
exit $failed
