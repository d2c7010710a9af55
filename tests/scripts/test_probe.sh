#!/bin/bash
# What the build makes of a machine: where scripts/dev/probe.sh finds the CUDA Toolkit's static
# run-time library, in toolkits that are made up; which GPUs it compiles CUDA for; and that WERROR=
# lets warnings pass in every compiler.
# Speaks TAP for scripts/dev/run_tests.sh.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
folder=$(mktemp -d -t test_probe.XXXXXX)
trap 'rm -rf "$folder"' EXIT

# toolkit FOLDER...: a toolkit with the library in these folders.
toolkit() {
    rm -rf "$folder/cuda" "$folder/build"
    mkdir -p "$folder/cuda/bin" "$folder/cuda/include" "$folder/cuda/lib64" "$folder/cuda/lib"
    touch "$folder/cuda/include/cublasLt.h"
    printf '#!/bin/bash\necho "Cuda compilation tools, release 12.4"\n' >"$folder/cuda/bin/nvcc"
    chmod +x "$folder/cuda/bin/nvcc"
    local f
    for f in "$@"; do
        mkdir -p "$folder/cuda/$f"
        touch "$folder/cuda/$f/libcudart_static.a"
    done
}

# finds WHERE FOLDER...: that a toolkit with these is linked from the folder WHERE; none: no CUDA.
finds() {
    toolkit "${@:2}"
    PATH=$folder/cuda/bin:$PATH bash scripts/dev/probe.sh "$folder/build" gcc "" \
        "dnnl spm curl mpi uring pcre2 nccl" "90" >"$folder/said" 2>&1
    if [ "$1" = none ]; then
        grep -q '^HAVE_CUDA := none$' "$folder/build/features.mk"
    else
        grep -q '^HAVE_CUDA := yes$' "$folder/build/features.mk" && grep -qE \
            "^LIBS_CUDA := -L$folder/cuda/$1 -lcudart_static " "$folder/build/features.mk"
    fi
    result $? "the run-time library in ${*:2}: from $1" \
        "$(cat "$folder/said" "$folder/build/features.mk")"
}
finds lib64 lib64
finds lib lib
finds targets/x86_64-linux/lib targets/x86_64-linux/lib
finds lib64 lib64 lib targets/x86_64-linux/lib
finds none

# smi LINE...: a machine whose nvidia-smi says that; without lines it fails, as without a GPU.
smi() {
    printf '%s\n' "$@" >"$folder/cuda/bin/says"
    printf '#!/bin/bash\n[ $# = 2 ] && cat %q\nexit %d\n' "$folder/cuda/bin/says" $(($# ? 0 : 9)) \
        >"$folder/cuda/bin/nvidia-smi"
    chmod +x "$folder/cuda/bin/nvidia-smi"
}

# targets WHAT WORDS WANT MAKE_ARGUMENT...: that make with these compiles CUDA for the targets WANT,
# and the table says so in WORDS.
targets() {
    local words=$2
    PATH=$folder/cuda/bin:$PATH env -u MAKEFLAGS -u MAKEOVERRIDES -u CUDA_ARCHS -u WITHOUT \
        make -n BUILD="$folder/build" "${@:4}" >"$folder/said" 2>&1
    [ "$(sed -n 's/^ARCHS := *//p' "$folder/build/features.mk")" = "$3" ] &&
        grep -q "^CUDA  *$words" "$folder/build/features.txt" &&
        [ "$(grep -c '^HAVE_CUDA := yes$' "$folder/build/features.mk")" = $((${#3} > 0)) ]
    result $? "$1: ${3:-no CUDA}" "$(cat "$folder/said" "$folder/build/features."{mk,txt})"
}
all="80 86 89 90 90a 100 120"
toolkit lib64
smi
targets "nvcc and no GPU" "left out .*'make cuda'" "" train
targets "the same, make cuda" "12.4 .*for $all, as asked for" "$all" cuda
targets "the same, CUDA_ARCHS=all" "12.4 .*as asked for" "$all" train CUDA_ARCHS=all
targets "the same, CUDA_ARCHS=86" "12.4 .*for 86, as asked for" 86 train CUDA_ARCHS=86
targets "the same, MODE=gpu" "12.4 .*as asked for" "$all" MODE=gpu all
targets "the same, MODE=cusim" "12.4 .*as asked for" "$all" MODE=cusim all
targets "the same, the registers' table" "12.4 .*as asked for" "$all" registers
smi 9.0 9.0 8.6 10.0
targets "the GPUs that are here" "12.4 .*which is here" "86 90a 100" train
targets "others than are here" "12.4 .*for 80, as asked for" 80 train CUDA_ARCHS=80
targets "a GPU, and WITHOUT=cuda" "not found" "" train WITHOUT=cuda
targets "a GPU, and the address sanitizer" "not found" "" MODE=asan all
smi 7.5
targets "a GPU that is too old" "left out" "" train
toolkit
PATH=$folder/cuda/bin:$PATH make -n BUILD="$folder/build" cuda >"$folder/said" 2>&1
[ $? = 2 ] && grep -q 'make cuda: no CUDA Toolkit is found' "$folder/said"
result $? "make cuda without a toolkit says what is missing" "$(cat "$folder/said")"

# flags MODE [WERROR=]: the flags of all compilers.
flags() {
    env -u MAKEFLAGS -u MAKEOVERRIDES -u WERROR \
        make -pn BUILD="$folder/flags" MODE="$1" "${@:2}" features 2>/dev/null |
        grep -E '^((C|CXX|CUSIM)_FLAGS|NVCC_WARNINGS) :='
}
toolkit lib64
PATH=$folder/cuda/bin:$PATH
[ "$(flags cusim | grep -cE -- '-Werror|-Werror all-warnings')" = 4 ] &&
    flags cusim | grep -q '^NVCC_WARNINGS.* -Werror all-warnings '
result $? "warnings are errors to gcc, g++, clang++ and nvcc" "$(flags cusim)"
[ "$(flags cusim WERROR= | wc -l)" = 4 ] && ! flags cusim WERROR= | grep -qE 'Werror|all-warnings'
result $? "WERROR= lets them pass" "$(flags cusim WERROR=)"

echo "1..$count"
exit $failed
