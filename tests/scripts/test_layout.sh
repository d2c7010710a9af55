#!/bin/bash
# scripts/dev/check_layout.sh must find each kind of fault. A small tree that follows all rules is
# written aside; it passes; then each rule is broken once, alone, and the check must name the file
# and the rule. Speaks TAP for scripts/dev/run_tests.sh.
set -u
here=$PWD
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
count=0 failed=0

report() { # report STATUS NAME: one line of TAP
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        failed=1
    fi
}

file() { # file PATH LINE...: writes it
    mkdir -p "$(dirname "$tree/$1")"
    printf '%s\n' "${@:2}" >"$tree/$1"
}

comment="// What this file is for."
fresh_tree() {
    rm -rf "${tree:?}"/* "$tree"/.ci
    file train.c "$comment" '#include "zero/step.h"' '#include "data/text/data.h"'
    file model/model.c "$comment" '#include "kernels/base.h"' '#include "model/model.h"'
    file model/model.h "$comment"
    file zero/step.c "$comment" '#include <string.h>' '#include "model/model.h"'
    file zero/open.c "$comment" 'int f(int stage) {' '    return stage == 3;' '}'
    file zero/grad.c "$comment" '#include "model/params.h"' 'static const int one = 1;'
    file data/text/download.c "$comment" '#include <curl/curl.h>' '#include "kernels/base.h"'
    file data/text/spm.cc "$comment"
    file kernels/base.c "$comment" 'int a = E_BAD;' 'int b = E_WORSE;'
    file kernels/error_ids.h "$comment" '// ---- kernels ----' 'ERROR_ID(BAD)' 'ERROR_ID(WORSE)'
    file kernels/cpu/norm.c "$comment" '#include <immintrin.h>' 'void f(void) {' \
        '#pragma omp parallel' '}' '#if A' 'int a;' '#endif'
    file tests/test_x.c "$comment" 'static int calls;' 'check("E_BAD"); check("E_WORSE 7");'
    file scripts/x.sh '#!/bin/bash' '# What it is for.'
    file Makefile '# Builds.' 'ALL := model step open grad download norm base train spm test_x'
    file README.md 'zero.c'
    file .ci/run '#!/bin/bash' '# Runs all checks.'
}

fresh_tree
message=$(bash scripts/dev/check_layout.sh "$tree")
report $? "a tree that follows the rules passes: $message"

# broken NAME FILE PATTERN: the tree as it stands must give exactly one fault, in FILE, matching
# PATTERN.
broken() {
    local said status
    said=$(cd "$here" && bash scripts/dev/check_layout.sh "$tree")
    status=$?
    [ $status = 1 ] && grep -q "^$2:[0-9]*: .*$3" <<<"$said" && grep -q ' 1 fault$' <<<"$said"
    status=$?
    report $status "$1"
    [ $status = 0 ] || sed 's/^/# /' <<<"$said"
    fresh_tree
}

append() { # append PATH LINE...
    printf '%s\n' "${@:2}" >>"$tree/$1"
}

file stray.txt 'x'
broken "a stray file at the top" stray.txt "top level"
file data/extra.cc "$comment"
append Makefile 'MORE := extra'
broken "a second C++ file" data/extra.cc "data/text/spm.cc alone"
file kernels/gpu.cu "$comment"
append Makefile 'MORE := gpu'
broken "CUDA code in a wrong folder" kernels/gpu.cu "kernels/cuda"
file model/lost.c "$comment"
broken "a file that the Makefile does not name" model/lost.c "no list"

append model/model.c '#include "zero/step.h"'
broken "model includes zero" model/model.c "downward"
append kernels/base.c '#include "model/model.h"'
broken "kernels includes model" kernels/base.c "downward"
append data/text/download.c '#include "kernels/tier.h"'
broken "data includes more of kernels than base.h, dtype.h, flag.h" data/text/download.c "downward"
append data/text/download.c '#include "model/config.h"'
broken "data includes model" data/text/download.c "downward"
append zero/grad.c '#include "model/model.h"'
broken "zero besides step.c includes model/model.h" zero/grad.c "downward"
append zero/grad.c '#include "zero/offload/move.h"'
broken "the core includes offload" zero/grad.c "downward"
append data/text/download.c '#include "data/log/log.h"'
broken "text includes log" data/text/download.c "downward"
file zero/offload/move.h "$comment" 'struct Mover {' 'int x;' '};' 'int move_in(struct Mover *m);'
append zero/grad.c 'int move_in(int);'
broken "the core names a function of offload's headers" zero/grad.c "move_in is of another room"
file zero/offload/move.h "$comment" 'struct Mover {' 'int x;' '};'
append zero/grad.c 'struct Mover;'
broken "the core names a struct of offload's headers" zero/grad.c "Mover is of another room"
append model/model.h '#include "model/params.h"'
file model/params.h "$comment" '#include "model/model.h"'
broken "two files include each other" "model/[a-z]*" "a circle of includes: model/"
append zero/step.c "$(yes '// x' | head -n 440)"
append zero/grad.c "$(yes '// x' | head -n 440)"
file zero/opt.c "$comment" "$(yes '// x' | head -n 340)"
append Makefile 'MORE := opt'
broken "the files in which ZeRO is learned have more than 1060 lines" zero "at most 1060"
append train.c '#include "tests/lib/values.h"'
broken "train.c includes tests" train.c "downward"
append model/model.c '#include "kernels/cpu/cpu.h"'
broken "a backend's inside is included from outside" model/model.c "downward"
append model/model.c '#include "model.h"'
broken "an include without its folder" model/model.c "by its path"

append model/model.c '#include <cuda_runtime.h>'
broken "a CUDA header" model/model.c "kernels/cuda"
append zero/grad.c '#include <mpi.h>'
broken "mpi.h" zero/grad.c "comm/mpi"
append zero/grad.c '#include <liburing.h>'
broken "liburing.h" zero/grad.c "nvme_ring"
append model/model.c '#include <immintrin.h>'
broken "intrinsics outside kernels/cpu" model/model.c "kernels/cpu"
append kernels/base.c '#include <omp.h>'
broken "omp.h outside kernels/cpu" kernels/base.c "kernels/cpu"
append kernels/base.c '    #pragma omp parallel for'
broken "an OpenMP pragma outside kernels/cpu" kernels/base.c "OpenMP"
append data/text/download.c '#include <zlib.h>'
broken "zlib outside data/unpack_gz.c" data/text/download.c "data/unpack_gz.c"
append train.c '#include <curl/curl.h>'
broken "libcurl outside data/text/download.c" train.c "data/text/download.c"

append kernels/cpu/norm.c 'void g(int a,' '       int b) {' '#ifdef X' '}'
broken "#ifdef inside a function" kernels/cpu/norm.c "#if inside"
append zero/grad.c 'int g(int stage) {' '    return stage == 3;' '}'
broken "a stage told apart outside the planner" zero/grad.c "stage"
append zero/grad.c 'int g(struct P *p) {' '    return p->stage >= 2;' '}'
broken "a stage compared by >=" zero/grad.c "stage"
append model/model.c 'static int calls;'
broken "a mutable global" model/model.c "global"

file tests/test_x.c "$comment" 'check("E_BAD"); return E_WORSE;'
broken "an id that no test asserts" kernels/error_ids.h "E_WORSE is asserted by no test"
file kernels/base.c "$comment" 'int a = E_BAD;'
broken "an id that no error has" kernels/error_ids.h "E_WORSE is said nowhere"
file kernels/error_ids.h "$comment" '// ---- kernels ----' 'ERROR_ID(WORSE)' 'ERROR_ID(BAD)'
broken "ids that are not sorted" kernels/error_ids.h "E_BAD stands behind E_WORSE"

append model/model.c 'void g(void) {' "$(yes '    g();' | head -n 69)" '}'
broken "a function of 71 lines" model/model.c "function of 71 lines"
append model/model.c 'void g(void) {' "$(yes '    g();' | head -n 68)" '}'
message=$(bash scripts/dev/check_layout.sh "$tree")
report $? "a function of 70 lines passes"
fresh_tree
file model/model.c 'int x(void);'
broken "a file without an opening comment" model/model.c "opens without"
file scripts/x.sh '#!/bin/bash' 'true'
broken "a script without an opening comment" scripts/x.sh "opens without"
: >"$tree/model/model.h"
broken "an empty file" model/model.h "empty"

append model/model.c "// TO""DO"
broken "an unfinished place" model/model.c "unfinished"
append model/model.c "$(printf '\tint x;')"
broken "a tab" model/model.c "tab"
append model/model.c 'int x; '
broken "white space at the end of a line" model/model.c "white space"

echo "1..$count"
exit $failed
