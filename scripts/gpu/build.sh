# Where scripts/gpu_check.sh has its programs from: make, or a build that was brought along.
#
#   scripts/gpu_check.sh build OUTDIR ARCHS     anywhere with nvcc; writes build/brought
#
# GPU time is too scarce to compile in, and a machine with a GPU may lack what that takes.
# build/brought holds what all modes need, and is the folder to carry to such a machine, where the
# source is: stripped programs, cut in three at the section that holds the kernels, which is the
# same in nearly all of them and so is kept once (pieces/HASH.gz), and the libraries that a bare
# Ubuntu 24.04 lacks, libgomp too (portable.sh looks). It may have BROUGHT_MIB (48); the last line
# says what it has. Its manifest says what it was made of: a hash of the source, the GPUs'
# architectures, the compilers. A mode takes it if the source is the same, the GPU is one of these
# and the programs start there; make is not called then. Else it builds, and the report says why.
# scripts/dev/brought_test.sh tries it.
#
# Libraries that no run on a GPU needs are left out of either build (WITHOUT names others).
# Sourced; see lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with lib.sh and gpu_check.sh

brought=$PWD/build/brought build_words=none

# What a build depends on, as one number; the same with and without git.
hash_source() {
    find Makefile train.c scripts/dev/probe.sh data kernels model tests zero -type f \
        \( -name '*.[chS]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name Makefile -o -name '*.mk' \
        -o -name probe.sh \) 2>/dev/null | sort | xargs sha256sum | sha256sum | cut -c 1-16
}

programs_of() { # programs_of MODE: below build/gpu, one a line
    [ "$1" != build ] || { for_all_modes && return; }
    printf '%s\n' train tests/gpu_smoke
    case $1 in
    smoke)
        printf 'tests/%s\n' test_cuda_ptx bench_attention
        [ ! -e tests/bench/step_kernels.c ] || echo tests/step_kernels
        ;;
    tests) { kernel_tests && run_tests; } | sed 's|^|tests/|' ;;
    bench) printf 'tests/%s\n' bench_attention bench_cuda ;;
    esac
}

for_all_modes() {
    local m
    for m in smoke tests bench offload; do
        programs_of $m
    done | sort -u
}

# A target named with its letter (90a) also gets the kernels that 9.0 alone runs (CU_90a in the
# Makefile; none now).
set_make() { # set_make ARCHS: features.mk says what there are rules for
    local targets
    targets=$(sed -E 's/\b90a?\b/90a/g' <<<"$1")
    make=(make -s "-j${JOBS:-$(nproc)}" MODE=gpu "CUDA_ARCHS=$targets"
        "WITHOUT=${WITHOUT-dnnl spm curl mpi pcre2 zlib zstd}")
    "${make[@]}" features >/dev/null 2>&1
    no_uring=yes
    ! grep -qs 'HAVE_URING := yes' build/gpu/features.mk || no_uring=''
}

# Sets bin: the folder of the programs.
build_here() { # build_here MODE ARCHS LIMIT
    local programs
    bin=$PWD/build/gpu
    set_make "$2"
    readarray -t programs < <(programs_of "$1")
    build_words="made here, for sm_$2${why:-}"
    run_needed "$1" Build "$3" "${make[@]}" "${programs[@]/#/build/gpu/}"
}

# ---- a build that was brought along ----

manifest() { # manifest WORD: what follows it
    sed -n "s|^$1 ||p" "$brought/manifest"
}

unpack() { # unpack PROGRAM: from its pieces, into build/brought/bin
    local hash pieces to=$brought/bin/$1
    read -r hash pieces < <(manifest "program $1")
    [ -n "$hash" ] || { echo "it has no $1" && return; }
    mkdir -p "${to%/*}"
    # shellcheck disable=SC2086
    (cd "$brought/pieces" && gzip -dc $pieces) >"$to" 2>/dev/null
    [ "$(sha256sum <"$to" | cut -d ' ' -f 1)" = "$hash" ] || echo "its $1 is damaged"
    chmod +x "$to"
    ldd "$to" 2>&1 | grep -m 1 'not found' | sed "s|^[ \t]*|$1 does not start: |"
}

# why_not_brought MODE ARCHS: why it cannot be used; nothing where it can.
why_not_brought() {
    local said program
    [ "$(manifest source)" = "$source_hash" ] || {
        echo "it is of another source ($(manifest source), here $source_hash)"
        return
    }
    [[ " $(manifest archs) " == *" $2 "* ]] || {
        echo "it is for sm_$(manifest archs | sed 's/ /, sm_/g'), this GPU is sm_$2"
        return
    }
    no_uring=''
    manifest "program tests/test_gpu_offload" | grep -q . || no_uring=yes
    while read -r program; do
        said=$(unpack "$program")
        [ -z "$said" ] || { echo "$said" && return; }
    done < <(programs_of "$1")
    said=$("$brought/bin/train" --version 2>&1) ||
        echo "train does not start: $(head -n 1 <<<"$said")"
}

# Sets bin, and build_words, a line for the report; stop_reason where there is none.
prepare_build() { # prepare_build MODE ARCHS LIMIT
    local why='' libraries=$LD_LIBRARY_PATH
    if [ -e "$brought/manifest" ]; then
        export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$brought/lib
        why=$(why_not_brought "$1" "$2")
        if [ -z "$why" ]; then
            bin=$brought/bin
            no_uring=$(manifest "program tests/test_gpu_offload" | grep -q . || echo yes)
            build_words="brought along, for sm_$(manifest archs): $(manifest nvcc); $(manifest gcc)"
            return
        fi
        export LD_LIBRARY_PATH=$libraries
        why="; that which was brought along is not used: $why"
    fi
    if [ -z "$nvcc" ]; then
        stop_reason="there is no nvcc, and no build that fits was brought along$why"
        return
    fi
    build_here "$@"
}

# ---- the mode `build` ----

keep_piece() { # keep_piece FILE: prints its name among the pieces
    local name
    name=$(sha256sum <"$1" | cut -c 1-16).gz
    [ -e "$brought/pieces/$name" ] || gzip -9 -n <"$1" >"$brought/pieces/$name" || return 1
    echo "$name"
}

# The section that holds the kernels: its place in the file and its size.
kernels_in() { # kernels_in FILE
    local from size
    read -r from size < <(readelf -SW "$1" 2>/dev/null | sed -n \
        's/.* \.nv_fatbin  *PROGBITS  *[0-9a-f]*  *\([0-9a-f]*\)  *\([0-9a-f]*\) .*/0x\1 0x\2/p')
    echo $((from)) $((size))
}

# pack PROGRAM: its line of the manifest. What kernels a test has of its own come before those that
# train has, too, since the linker takes them first.
pack() {
    local file=$work/stripped from size common pieces
    strip -o "$file" "build/gpu/$1" || return 1
    read -r from size < <(kernels_in "$file")
    read -r _ common < <(kernels_in build/gpu/train)
    if [ "$common" -gt 0 ] && [ "$common" -lt "$size" ]; then
        from=$((from + size - common)) size=$common
    fi
    head -c "$from" "$file" >"$work/a"
    tail -c "+$((from + 1))" "$file" | head -c "$size" >"$work/b"
    tail -c "+$((from + size + 1))" "$file" >"$work/c"
    pieces="$(keep_piece "$work/a") $(keep_piece "$work/b") $(keep_piece "$work/c")" || return 1
    echo "program $1 $(sha256sum <"$file" | cut -d ' ' -f 1) $pieces" >>"$brought/manifest"
    # The C library and the compiler's own are those of the machine.
    ldd "build/gpu/$1" 2>/dev/null |
        sed -nE 's,.* => (.*/lib(cjson|cmocka|uring|gomp)\.so[^ ]*) .*,\1,p' |
        xargs -r cp -Lt "$brought/lib"
}

# Whether build/brought is small enough to be carried; what it has, as a line.
weigh() {
    local bytes most=${BROUGHT_MIB:-48}
    bytes=$(du -sb "$brought" | cut -f 1)
    printf 'build/brought: %s MiB, at most %d: ' \
        "$(awk "BEGIN { printf \"%.1f\", $bytes / 2^20 }")" "$most"
    if [ "$bytes" -le $((most << 20)) ]; then
        echo "carry this folder to the GPU, beside the source" && return
    fi
    # A piece by the first program that has it, and how many others have.
    (cd "$brought" && du -b lib/* pieces/*) 2>/dev/null | awk '
        NR == FNR { for (i = 4; i <= NF; i++) if (!n["pieces/" $i]++) of["pieces/" $i] = $2 }
        NR == FNR { next }
        { other = n[$2] > 1 ? sprintf(" and %d more", n[$2] - 1) : "" }
        { print $1, sprintf("%.1f %s%s", $1 / 2^20, $2 in of ? of[$2] : $2, other) }
    ' <(grep '^program ' "$brought/manifest") - | sort -rn | head -n 6 | cut -d ' ' -f 2- |
        paste -sd , | sed 's/^/too large to carry; most is in: /; s/,/, /g'
    return 1
}

pack_all() { # pack_all ARCHS PROGRAM...
    local program programs=("${@:2}")
    programs=("${programs[@]/#/build/gpu/}")
    mkdir -p "$brought/pieces" "$brought/lib"
    {
        echo "source $source_hash"
        echo "archs $1"
        echo "nvcc $("$nvcc" --version | tail -n 2 | head -n 1)"
        echo "gcc $(gcc --version | head -n 1)"
        echo "made $(date -u +%F) of commit $(git rev-parse --short HEAD 2>/dev/null || echo none)"
    } >"$brought/manifest"
    for program in "${@:2}"; do
        pack "$program" || { echo "$program cannot be packed" && return 1; }
    done
    cat "$brought/manifest"
    scripts/gpu/portable.sh "$brought/lib" "${programs[@]}" || return 1
    weigh
}
export -f manifest keep_piece kernels_in pack weigh pack_all

build_mode() { # build_mode ARCHS
    local programs
    export brought
    rm -rf "$brought" # an old one is not carried by mistake
    build_here build "$1" "${BUILD_LIMIT:-3600}"
    readarray -t programs < <(programs_of build)
    run_needed build Packed 300 pack_all "$1" "${programs[@]}"
    results build | tail -n 1
}
