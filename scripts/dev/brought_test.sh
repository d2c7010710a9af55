#!/bin/bash
# Whether the build that scripts/gpu_check.sh build has packed works where there is nothing else: in
# Debian 12 as debootstrap makes it, without a compiler, without cJSON and cmocka, and with a glibc
# (2.36) that is older than that of Ubuntu 24.04.
#
#   scripts/gpu_check.sh build OUTDIR 90      then
#   scripts/dev/brought_test.sh                   a minute or two
#
# All programs must start there, and `scripts/gpu_check.sh smoke` must use them, up to the line that
# says that there is no GPU; nvidia-smi, which must name one before, is made up. And no program may
# need more than a bare Ubuntu 24.04 has (scripts/gpu/portable.sh).
#
# Needs what bare_root.sh needs. The last line is `N passed, N failed`. What was printed, and the
# report, is kept in $BARE_LOGS (default out/bare).
# shellcheck disable=SC2154 # bare_root.sh and build.sh share theirs
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
[ -e build/brought/manifest ] || {
    echo "brought_test.sh: no build/brought: scripts/gpu_check.sh build OUTDIR ARCHS makes it" >&2
    exit 1
}
# shellcheck disable=SC2034 # for make_root: the build is of the files as they are
as_is=yes
. tests/lib/tally.sh
. scripts/dev/bare_root.sh
. scripts/gpu/build.sh
root=$work/brought
copy=$root/root/zero.c
log=$logs/brought.log

make_root bookworm
status=$?
result $status "a bare root with the source"
[ $status = 0 ] || { tally_end; exit 1; }
mkdir -p "$copy/build/brought" && cp -r build/brought/{lib,manifest,pieces} "$copy/build/brought/"
archs=$(manifest archs)
cat >"$root/usr/local/bin/nvidia-smi" <<END
#!/bin/sh
case \$* in
*compute_cap*) echo ${archs%% *} | sed 's/.\$/.&/' ;;
*) exit 9 ;;
esac
END
chmod +x "$root/usr/local/bin/nvidia-smi"
inside /dev/null 'command -v gcc || command -v nvcc || command -v make || command -v python3 ||
    ls /usr/lib/x86_64-linux-gnu | grep -E "^lib(cjson|cmocka|gomp|uring)\.so"'
result $((! $?)) "it has no compiler, no make, no Python, and none of the libraries that travel"

# shellcheck disable=SC2016 # the root's shell expands them
inside "$log" '. scripts/gpu/build.sh
    export LD_LIBRARY_PATH=build/brought/lib
    manifest program | while read -r name _; do
        said=$(unpack "$name")
        [ -z "$said" ] || { echo "$said" && exit 1; }
    done && build/brought/bin/train --version'
result $? "all $(manifest program | wc -l) programs unpack there and find their libraries ($log)"
readarray -t programs < <(manifest program | sed "s|^\([^ ]*\) .*|$copy/build/brought/bin/\1|")
scripts/gpu/portable.sh build/brought/lib "${programs[@]}"
result $? "none of them needs more than a bare Ubuntu 24.04 has"

# shellcheck disable=SC2016
inside "$log" 'PATH=$PATH:/usr/local/bin scripts/gpu_check.sh smoke /root/out'
cp "$root/root/out/gpu_smoke.md" "$logs/brought_smoke.md"
grep -q '^Build: brought along, for sm_' "$logs/brought_smoke.md"
result $? "gpu_check.sh smoke uses them"
grep -q 'GPU 0 of 0 cannot be used (CUDA: .*): check by nvidia-smi' "$logs/brought_smoke.md"
result $? "and says that there is no GPU"
end_root
tally_end
