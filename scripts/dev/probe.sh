#!/bin/bash
# Finds the libraries of this machine for the Makefile, which runs it at the start of every build:
#
#   scripts/dev/probe.sh BUILD_FOLDER COMPILER FLAGS
#       ["dnnl spm curl zlib zstd pcre2 mpi uring cuda nccl" ["80 90a"]]
#
# (the last two: libraries to pass over as if they were not there; the targets of CUDA's kernels,
# where they are not to be those of the GPUs that are here)
#
# writes into BUILD_FOLDER
#   features.mk      HAVE_..., LIBS_... and ARCHS, which choose files and flags
#   features.txt     the table for people: library, version found, package to install, use
#   features_found.h the same table as a C string, for ./train --version
#   stamp            compiler and flags; objects depend on it
#   stamp_cuda       CUDA's compiler and targets; its objects depend on it
# each only if it changes, so that a build without news compiles nothing. Says "ok", or why a build
# is impossible. The table goes to standard error whenever it is new.
#
# A library counts as found when the compiler sees its header and its linker file: some 20 ms each.
set -u
build=$1 cc=$2 flags=$3 without=" ${4:-} " asked=${5:-}
mkdir -p "$build" || { echo "cannot create $build"; exit 0; }
# $cc may hold arguments ("ccache gcc"), so it is split on purpose here and below.
# shellcheck disable=SC2086
$cc --version >/dev/null 2>&1 || {
    echo "there is no C compiler '$cc' (run scripts/setup.sh, or: apt-get install build-essential)"
    exit 0
}

# write_if_changed FILE: standard input becomes FILE unless FILE is the same already. 0: it was
# written.
write_if_changed() {
    cat >"$1.new"
    if cmp -s "$1.new" "$1"; then
        rm -f "$1.new"
        return 1
    fi
    mv "$1.new" "$1"
}

# macros HEADER: all macros after including it; fails when there is no such header.
macros() {
    echo "#include <$1>" | $cc -E -dM -x c - 2>/dev/null
}

has_library() {
    [[ $($cc -print-file-name="$1") == */* ]]
}

# value MACRO: its value among the macros on standard input, without quotes.
value() {
    awk -v name="$1" '$1 == "#define" && $2 == name { gsub(/"/, "", $3); print $3; exit }'
}

wanted() {
    [[ $without != *" $1 "* ]]
}

package_version() {
    pkg-config --modversion "$1" 2>/dev/null || echo found
}

find_dnnl() {
    local m
    have_dnnl=none libs_dnnl='' version=''
    wanted dnnl && m=$(macros oneapi/dnnl/dnnl_version.h) && has_library libdnnl.so || return
    local major
    major=$(value DNNL_VERSION_MAJOR <<<"$m")
    [[ $major == [23] ]] || return
    have_dnnl=$major libs_dnnl=-ldnnl
    version=$major.$(value DNNL_VERSION_MINOR <<<"$m").$(value DNNL_VERSION_PATCH <<<"$m")
}

find_spm() {
    have_spm=none libs_spm='' version=''
    wanted spm && has_library libsentencepiece.so && has_library libsentencepiece_train.so || return
    # shellcheck disable=SC2086
    echo '#include <sentencepiece_trainer.h>' | $cc -E -x c++ - >/dev/null 2>&1 || return
    have_spm=yes libs_spm="-lsentencepiece -lsentencepiece_train"
    version=$(package_version sentencepiece)
}

find_curl() {
    local m
    have_curl=none libs_curl='' version=''
    wanted curl && m=$(macros curl/curlver.h) && has_library libcurl.so || return
    have_curl=yes libs_curl=-lcurl version=$(value LIBCURL_VERSION <<<"$m")
}

find_zlib() {
    local m
    have_zlib=none libs_zlib='' version=''
    wanted zlib && m=$(macros zlib.h) && has_library libz.so || return
    have_zlib=yes libs_zlib=-lz version=$(value ZLIB_VERSION <<<"$m")
}

find_zstd() {
    local m
    have_zstd=none libs_zstd='' version=''
    wanted zstd && m=$(macros zstd.h) && has_library libzstd.so || return
    have_zstd=yes libs_zstd=-lzstd version=$(value ZSTD_VERSION_MAJOR <<<"$m")
    version+=.$(value ZSTD_VERSION_MINOR <<<"$m").$(value ZSTD_VERSION_RELEASE <<<"$m")
}

find_cjson() {
    local m
    version=
    m=$(macros cjson/cJSON.h) && has_library libcjson.so || return
    version=$(value CJSON_VERSION_MAJOR <<<"$m").$(value CJSON_VERSION_MINOR <<<"$m")
    version=$version.$(value CJSON_VERSION_PATCH <<<"$m")
}

find_header() { # find_header HEADER LIBRARY_FILE PKG_CONFIG_NAME
    version=
    macros "$1" >/dev/null && has_library "$2" && version=$(package_version "$3")
}

find_uring() {
    have_uring=none libs_uring='' version=''
    wanted uring && find_header liburing.h liburing.so liburing && [[ -n $version ]] || return
    have_uring=yes libs_uring=-luring
}

find_pcre2() {
    have_pcre2=none libs_pcre2='' version=''
    wanted pcre2 && has_library libpcre2-8.so || return
    version=$(echo '#include <pcre2.h>' | $cc -DPCRE2_CODE_UNIT_WIDTH=8 -E -dM -x c - 2>/dev/null |
        awk '$2 ~ /^PCRE2_(MAJOR|MINOR)$/ { v[$2] = $3 }
             END { if (length(v)) print v["PCRE2_MAJOR"] "." v["PCRE2_MINOR"] }')
    [[ -n $version ]] && have_pcre2=yes libs_pcre2=-lpcre2-8
}

# Open MPI lies in folders of its own, and its compiler wrapper knows them (where it has a home).
find_mpi() {
    local HOME=${HOME:-/tmp}
    export HOME
    have_mpi=none libs_mpi='' flags_mpi='' version=''
    wanted mpi && command -v mpicc >/dev/null || return
    flags_mpi=$(mpicc --showme:compile 2>/dev/null) && libs_mpi=$(mpicc --showme:link) || return
    # shellcheck disable=SC2086
    version=$(echo '#include <mpi.h>' | $cc $flags_mpi -E -dM -x c - 2>/dev/null |
        awk '$2 ~ /^OMPI_(MAJOR|MINOR|RELEASE)_VERSION$/ { v[$2] = $3 }
             END { if (length(v)) print v["OMPI_MAJOR_VERSION"] "." v["OMPI_MINOR_VERSION"] "." \
                                        v["OMPI_RELEASE_VERSION"] }')
    [[ -n $version ]] && have_mpi=yes || libs_mpi='' flags_mpi=''
}

# The targets for the GPUs of this machine: "86 90a". Kernels need 8.0 at least.
find_gpus() {
    timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
        awk -F . '/^[0-9]+[.][0-9] *$/ && $1 >= 8 { print $1 $2 + 0 ($0 + 0 == 9 ? "a" : "") }' |
        sort -nu | tr '\n' ' ' | sed 's/ $//'
}

# What is compiled for, and why: archs, and cuda_use for the table. Without a GPU and unasked there
# is no CUDA in the build: its kernels take minutes to compile.
choose_archs() {
    archs=$asked
    [[ -n $archs ]] && cuda_use="GPU; for $archs, as asked for" && return
    archs=$(find_gpus)
    [[ -n $archs ]] && cuda_use="GPU; for $archs, which is here" && return
    have_cuda=none libs_cuda=''
    cuda_use="GPU; $version is installed, but no GPU: 'make cuda' builds it all the same"
    version='left out'
}

# The CUDA Toolkit: its compiler, its static run-time library, and the header of cuBLASLt, which is
# opened at run time.
find_cuda() {
    have_cuda=none cuda_home='' libs_cuda='' version=''
    archs='' cuda_stamp='' cuda_use="GPU; without it the CPU only"
    local nvcc folder libraries
    wanted cuda || return
    nvcc=$(command -v nvcc || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") || return
    folder=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    [[ -f $folder/include/cublasLt.h ]] || return
    for libraries in "$folder/lib64" "$folder/lib" "$folder/targets"/*/lib; do
        [[ -f $libraries/libcudart_static.a ]] && break
    done
    [[ -f $libraries/libcudart_static.a ]] || return
    have_cuda=yes cuda_home=$folder libs_cuda="-L$libraries -lcudart_static -ldl -lrt"
    version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
    cuda_stamp="$nvcc $version"
    choose_archs
}

# Only NCCL's header: the library is opened at run time.
find_nccl() {
    local header left_out=''
    [[ $version == 'left out' ]] && left_out=$version
    have_nccl=none version=$left_out
    [[ $have_cuda == yes ]] && wanted nccl || return
    for header in "$cuda_home/include/nccl.h" /usr/include/nccl.h; do
        [[ -f $header ]] || continue
        have_nccl=yes
        version=$(awk '$2 ~ /^NCCL_(MAJOR|MINOR|PATCH)$/ { v[++n] = $3 }
                       END { print v[1] "." v[2] "." v[3] }' "$header")
        return
    done
}

row() { # row LIBRARY PACKAGE USE: one line of the table, with the version that a find_... left
    printf '%-14s %-11s %-24s %s\n' "$1" "${version:-not found}" "$2" "$3"
}

find_dnnl
table=$(row oneDNN libdnnl-dev "matrix products; without it own loops, slower")
find_spm
table+=$'\n'$(row SentencePiece libsentencepiece-dev "tokenizer; without it bytes or token shards")
find_curl
table+=$'\n'$(row libcurl libcurl4-openssl-dev "download; without it local files only")
find_zlib
table+=$'\n'$(row zlib zlib1g-dev "data in .gz; without it such are refused")
find_zstd
table+=$'\n'$(row libzstd libzstd-dev "data in .zst; without it such are refused")
find_cjson
cjson=$version
table+=$'\n'$(row cJSON libcjson-dev "configuration and logs; required")
find_header cmocka.h libcmocka.so cmocka
table+=$'\n'$(row cmocka libcmocka-dev "the tests; required for them")
find_uring
table+=$'\n'$(row liburing liburing-dev "offload to NVMe; without it to the CPU only")
find_pcre2
table+=$'\n'$(row PCRE2 libpcre2-dev "patterns of tokenizers; without it four of them")
find_mpi
table+=$'\n'$(row OpenMPI libopenmpi-dev "ranks as processes; without it threads only")
find_cuda
table+=$'\n'$(row CUDA nvidia-cuda-toolkit "$cuda_use")
find_nccl
table+=$'\n'$(row NCCL libnccl-dev "between GPUs; without it one GPU a node")
[[ -n $cjson ]] || {
    printf '%s\n' "$table" >&2
    echo "cJSON is not found, and is needed (scripts/setup.sh, or: apt-get install libcjson-dev)"
    exit 0
}
table=$(printf '%-14s %-11s %-24s %s\n' library found package use)$'\n'$table

write_if_changed "$build/features.mk" <<END
HAVE_DNNL := $have_dnnl
LIBS_DNNL := $libs_dnnl
HAVE_SPM := $have_spm
LIBS_SPM := $libs_spm
HAVE_CURL := $have_curl
LIBS_CURL := $libs_curl
HAVE_ZLIB := $have_zlib
LIBS_ZLIB := $libs_zlib
HAVE_ZSTD := $have_zstd
LIBS_ZSTD := $libs_zstd
HAVE_MPI := $have_mpi
LIBS_MPI := $libs_mpi
HAVE_URING := $have_uring
LIBS_URING := $libs_uring
HAVE_PCRE2 := $have_pcre2
LIBS_PCRE2 := $libs_pcre2
FLAGS_MPI := $flags_mpi
HAVE_CUDA := $have_cuda
CUDA_HOME := $cuda_home
LIBS_CUDA := $libs_cuda
HAVE_NCCL := $have_nccl
ARCHS := $archs
END
{
    echo "// Made by scripts/dev/probe.sh."
    echo "#define FEATURE_TABLE \\"
    sed 's/["\\]/\\&/g; s/.*/    "&\\n" \\/; $ s/ \\$//' <<<"$table"
} | write_if_changed "$build/features_found.h"
write_if_changed "$build/features.txt" <<<"$table" && printf '%s\n' "$table" >&2
write_if_changed "$build/stamp_cuda" <<<"$cuda_stamp | $archs"
write_if_changed "$build/stamp" <<<"$($cc --version | head -1) | $cc | $flags"
echo ok
