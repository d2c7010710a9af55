#!/bin/bash
# What only a GPU can show, as one report in Markdown. GPU time is scarce: in this order.
#
#   scripts/gpu_check.sh build OUTDIR ARCHS   without a GPU: what all others need is built for it
#                                             (ARCHS: "90", "80 90") in build/brought, to be carried
#   scripts/gpu_check.sh smoke OUTDIR         a minute: writes OUTDIR/gpu_smoke.md, green or red
#   scripts/gpu_check.sh tests OUTDIR         writes OUTDIR/gpu_tests.md
#   scripts/gpu_check.sh bench OUTDIR         writes OUTDIR/gpu_bench.md
#   scripts/gpu_check.sh offload OUTDIR       writes OUTDIR/gpu_offload.md
#
# The last three start only where OUTDIR/gpu_smoke.md is green for this source and such a GPU;
# FORCE=1 goes on all the same, and the report says so.
#
# Needs bash, make, gcc, nvcc and the driver, or the driver alone where a build was brought along;
# Python with PyTorch for comparisons with it (PYTHON, or what torch.sh finds). cuBLASLt may also
# come with PyTorch's packages. DEPS=DIR names a folder of unpacked Debian packages
# (DIR/usr/include, DIR/usr/lib/x86_64-linux-gnu) where cJSON, cmocka or liburing are not installed.
# Builds for the GPU that is there, in build/gpu, within BUILD_LIMIT seconds. Nothing is fetched.
#
# Each part has a time limit and a section in the report. A part that fails is reported, and the
# others still run; after a build that failed none does. All parts end within LIMIT seconds (default
# 480; smoke: 60, times PATIENCE) after the build, and with each all that it started (gpu/lib.sh).
# Status 0: no part failed, and no ratio is below its target. 1: otherwise. 2: bad arguments. 130:
# interrupted.
#
# The modes are in gpu/smoke.sh, tests.sh, bench.sh and offload.sh; gpu/build.sh has the programs.
# shellcheck disable=SC2034,SC2154 # shared with gpu/*.sh
set -u
. "${0%"${0##*/}"}help.sh"
export LC_ALL=C
mode=${1:-} out=${2:-}
case $mode in
build) [ $# = 3 ] && [[ $3 =~ ^[0-9]+a?(\ [0-9]+a?)*$ ]] ;;
smoke | tests | bench | offload) [ $# = 2 ] ;;
*) false ;;
esac || {
    echo "usage: scripts/gpu_check.sh smoke|tests|bench|offload OUTDIR" >&2
    echo "       scripts/gpu_check.sh build OUTDIR ARCHS (such as \"90\", or \"80 90\")" >&2
    exit 2
}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.." || exit 2
report=$out/gpu_$mode.md
work=$(mktemp -d -t gpu_check.XXXXXX)
SECONDS=0
. scripts/torch.sh
torch_find 2>/dev/null # without it, parts that compare with it say so
for name in lib build smoke tests bench offload; do
    # shellcheck source=/dev/null
    . "scripts/gpu/$name.sh"
done
trap clean_up EXIT
for name in INT TERM HUP; do
    # shellcheck disable=SC2064
    trap "interrupt $name" $name
done

# ---- what is here ----

nvcc=$(command -v nvcc || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") || nvcc=''
archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
[ "$mode" != build ] || archs=${3//90a/90}
if [ -z "$archs" ] || { [ "$mode" = build ] && [ -z "$nvcc" ]; }; then
    [ "$mode" = build ] && what=nvcc || what=GPU
    echo "gpu_check: no $what on this machine: nothing was run, and no report was written" >&2
    exit 1
fi
source_hash=$(hash_source)
force=''
case $mode in
tests | bench | offload)
    if ! is_green "$out/gpu_smoke.md" "$archs"; then
        [ "${FORCE:-}" = 1 ] || {
            echo "gpu_check: $out/gpu_smoke.md is not green for this source and GPU: run" \
                "scripts/gpu_check.sh smoke $out first, or force $mode with FORCE=1" >&2
            exit 1
        }
        force="FORCE=1: $out/gpu_smoke.md is not green for this source and GPU."
    fi
    ;;
esac
{
    echo "# GPU $mode"
    echo
    echo "Written by \`scripts/gpu_check.sh $mode\` on $(date -u +%F)."
    echo "Source $source_hash on sm_${archs// / sm_}."
    echo "$force"
} >"$report"
folders=$(torch_libraries)
export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ -n "${DEPS:-}" ]; then # the compiler, and so probe.sh, finds them as if they were installed
    libraries=$(cd "$DEPS/usr/lib/x86_64-linux-gnu" && pwd)
    headers=$(cd "$DEPS/usr/include" && pwd)
    export CPATH=$headers${CPATH:+:$CPATH} LIBRARY_PATH=$libraries${LIBRARY_PATH:+:$LIBRARY_PATH}
    export LD_LIBRARY_PATH=$libraries:$LD_LIBRARY_PATH
fi

# ---- the parts ----

export nvcc python work report source_hash
if [ "$mode" = build ]; then
    build_mode "$archs"
else
    # Smoke builds the most by far: the others find nearly everything made.
    [ "$mode" = smoke ] && build_limit=400 || build_limit=100
    prepare_build "$mode" "$archs" "${BUILD_LIMIT:-$build_limit}"
    export bin train=$bin/train
    [ "$mode" = smoke ] || deadline=$((SECONDS + ${LIMIT:-480}))
    "${mode}_mode"
    last_check
fi
printf '\n%d parts passed, %d failed, %d s.\n' "$passed" "$failed" $SECONDS >>"$report"
[ "$mode" != smoke ] || smoke_verdict
echo "gpu_check: $passed parts passed, $failed failed: $report"
[[ $stop_reason != interrupted* ]] || exit 130
[ "$failed" = 0 ]
