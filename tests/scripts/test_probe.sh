#!/bin/bash
# What the build makes of a machine: where scripts/probe.sh finds the CUDA Toolkit's static run-time
# library, in toolkits that are made up; and that WERROR= lets warnings pass in every compiler.
# Speaks TAP for scripts/run_tests.sh.
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
    PATH=$folder/cuda/bin:$PATH bash scripts/probe.sh "$folder/build" gcc "" \
        "dnnl spm curl mpi uring nccl" >"$folder/said" 2>&1
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

# flags MODE [WERROR=]: the flags of all compilers.
flags() {
    env -u MAKEFLAGS -u MAKEOVERRIDES -u WERROR \
        make -pn BUILD="$folder/flags" MODE="$1" "${@:2}" features 2>/dev/null |
        grep -E '^((C|CXX|CUSIM)_FLAGS|NVCC_WARNINGS) :='
}
toolkit lib64
PATH=$folder/cuda/bin:$PATH
[ "$(flags gpu | grep -cE -- '-Werror|-Werror all-warnings')" = 4 ] &&
    flags gpu | grep -q '^NVCC_WARNINGS.* -Werror all-warnings '
result $? "warnings are errors to gcc, g++, clang++ and nvcc" "$(flags gpu)"
[ "$(flags gpu WERROR= | wc -l)" = 4 ] && ! flags gpu WERROR= | grep -qE 'Werror|all-warnings'
result $? "WERROR= lets them pass" "$(flags gpu WERROR=)"

echo "1..$count"
exit $failed
