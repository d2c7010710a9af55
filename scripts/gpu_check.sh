#!/bin/bash
# What only a GPU can show, as reports in Markdown. GPU time is scarce: in this order.
#
#   scripts/gpu_check.sh build OUTDIR ARCHS   without a GPU: what all others need is built for it
#                                             (ARCHS: "90", "80 90") in build/brought, to be carried
#   scripts/gpu_check.sh all OUTDIR [REPORTS]       all below, as far as LIMIT seconds suffice
#   scripts/gpu_check.sh smoke OUTDIR [REPORTS]     does it work at all? OUTDIR/gpu_smoke.md
#   scripts/gpu_check.sh bench OUTDIR [REPORTS]     how fast, against PyTorch? gpu_bench.md
#   scripts/gpu_check.sh tests OUTDIR [REPORTS]     does it compute the right thing? gpu_tests.md
#   scripts/gpu_check.sh offload OUTDIR [REPORTS]   what does offload cost? gpu_offload.md
#   scripts/gpu_check.sh list                 without a GPU: every part with its limit
#
# A call works LIMIT seconds at most (default 540, the build included), may be killed at any moment,
# and is made again until its status is not 3: each time with the OUTDIR that came back last as
# REPORTS. What the reports in OUTDIR and REPORTS have for this source and such a card is carried
# over, so that the newest OUTDIR has all, and is not done again: for that, take an empty folder.
# Bench, tests and offload do first what is left of smoke, and nothing where that is RED: FORCE=1
# goes on all the same. Four calls are enough for `all`.
#
# Each part has a time limit and a section in the report of its mode, and all that it starts ends
# with it (gpu/lib.sh). A part that is late is "slow" and tried once more; what is wrong is "RED".
# The last lines, which OUTDIR/gpu_summary.md has too, are the ratios and what did not pass.
#
# Status 0: all is done, nothing is RED or slow, and no ratio is below its target. 1: otherwise. 2:
# bad arguments or REPORTS. 3: not complete yet, call again. 130: interrupted.
#
# Needs bash, make, gcc, nvcc and the driver, or the driver alone where a build was brought along;
# Python with PyTorch for comparisons with it (PYTHON, or what torch.sh finds). cuBLASLt may also
# come with PyTorch's packages. DEPS=DIR names a folder of unpacked Debian packages
# (DIR/usr/include, DIR/usr/lib/x86_64-linux-gnu) where cJSON, cmocka or liburing are not installed.
# Builds for the GPU that is there, in build/gpu, within BUILD_LIMIT seconds. Nothing is fetched.
#
# The modes are in gpu/smoke.sh, bench.sh, tests.sh and offload.sh; gpu/build.sh has the programs.
# shellcheck disable=SC1090,SC2034,SC2154 # shared with gpu/*.sh
set -u
. "${0%"${0##*/}"}help.sh"
export LC_ALL=C
SECONDS=0
mode=${1:-} out=${2:-} reports=${3:-}
case $mode in
build) [ $# = 3 ] && [[ $3 =~ ^[0-9]+a?(\ [0-9]+a?)*$ ]] && reports='' modes=build ;;
all) [[ $# =~ [23] ]] && modes="smoke bench tests offload" ;;
smoke) [[ $# =~ [23] ]] && modes=smoke ;;
bench | tests | offload) [[ $# =~ [23] ]] && modes="smoke $mode" ;;
list) [ $# = 1 ] ;;
*) false ;;
esac || {
    echo "usage: scripts/gpu_check.sh all|smoke|bench|tests|offload OUTDIR [REPORTS] | list |" \
        'build OUTDIR ARCHS (such as "90", or "80 90")' >&2
    exit 2
}
[[ ${LIMIT:-540} =~ ^[0-9]+$ ]] || {
    echo "gpu_check: LIMIT=$LIMIT: give a number of seconds" >&2
    exit 2
}
if [ -n "$reports" ]; then
    [ -n "$(ls "$reports"/gpu_*.md 2>/dev/null)" ] || {
        echo "gpu_check: no report is in $reports: give a folder that came back, or none" >&2
        exit 2
    }
    reports=$(cd "$reports" && pwd)
fi
[ "$mode" = list ] || { mkdir -p "$out" && out=$(cd "$out" && pwd); } || exit 2
cd "$(dirname "$0")/.." || exit 2
. scripts/dev/torch.sh
for name in lib commands build smoke bench tests offload; do
    # shellcheck source=/dev/null
    . "scripts/gpu/$name.sh"
done
for name in smoke bench tests offload; do
    "${name}_plan"
done
if [ "$mode" = list ]; then
    for i in "${!part_mode[@]}"; do
        echo "${part_limit[i]} s ${part_mode[i]}, ${part_name[i]}"
    done
    exit
fi
work=$(mktemp -d -t gpu_check.XXXXXX)
running=$out/gpu_running.log
trap clean_up EXIT
for name in INT TERM HUP; do
    # shellcheck disable=SC2064
    trap "interrupt $name" $name
done

# ---- what is here ----

torch_find 2>/dev/null # without it, parts that compare with it say so
nvcc=$(command -v nvcc || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") || nvcc=''
if [ "$mode" = build ]; then
    archs=${3//90a/90} card="sm_${archs// / sm_}"
    [ -n "$nvcc" ] || archs=''
else
    card=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
    archs=${card##*, } archs=${archs//./} card="sm_$archs, ${card%, *}"
fi
if [ -z "$archs" ]; then
    what=GPU how="run this where one is"
    [ "$mode" != build ] || what=nvcc how="install the CUDA Toolkit"
    echo "gpu_check: no $what on this machine: nothing was run or reported; $how" >&2
    exit 1
fi
source_hash=$(hash_source)
source_line="Source $source_hash on $card."
folders=$(torch_libraries)
export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ -n "${DEPS:-}" ]; then # the compiler, and so probe.sh, finds them as if they were installed
    libraries=$(cd "$DEPS/usr/lib/x86_64-linux-gnu" && pwd)
    headers=$(cd "$DEPS/usr/include" && pwd)
    export CPATH=$headers${CPATH:+:$CPATH} LIBRARY_PATH=$libraries${LIBRARY_PATH:+:$LIBRARY_PATH}
    export LD_LIBRARY_PATH=$libraries:$LD_LIBRARY_PATH
fi

# ---- the parts ----

export nvcc python work out source_hash
if [ "$mode" = build ]; then
    build_mode "$archs"
else
    call_s=${LIMIT:-540} deadline=$call_s
    for name in smoke bench tests offload; do
        [ -z "$reports" ] || read_report $name "$reports"
        read_report $name "$out"
    done
    for name in "${!header[@]}"; do
        write_report "$name"
    done
    run_parts
fi
conclude
