#!/bin/bash
# Holds the source against the rules of its layout, and prints each fault as file:line: rule.
#
#   scripts/dev/check_layout.sh [ROOT]      status 0: no fault
#
# The rules, in the order of the checks below: what lies at the top; which way includes go, between
# rooms too, and that none go in a circle; which folder may use CUDA, MPI, intrinsics, OpenMP,
# libcurl and C++; that the Makefile and not #ifdef selects code; that stages are told apart in the
# planner alone; that the core of ZeRO is short and names nothing of other dimensions; that the ids
# of errors are sorted, said and asserted by tests; how long functions are; and plain
# form. They rely on clang-format having laid out the C code: a function ends at the first "}" in
# column 1.
#
# Called by .ci/run.
set -eu
. "${0%"${0##*/}"}../help.sh"
cd "${1:-.}"
export LC_ALL=C

# Files that are or could become part of the repository.
list_files() {
    if [ "$(git rev-parse --show-prefix 2>/dev/null || echo none)" = "" ]; then
        git ls-files --cached --others --exclude-standard | while read -r f; do
            [ ! -f "$f" ] || echo "$f"
        done
    else
        find . -path ./.git -prune -o -path ./build -prune -o -path ./out -prune -o -type f -print |
            sed 's|^\./||' | grep -vx train
    fi | sort
}

list_files >"${TMPDIR:-/tmp}/layout.$$"
trap 'rm -f "${TMPDIR:-/tmp}/layout.$$"' EXIT

# shellcheck disable=SC2016
awk '
function fault(message) {
    print file ":" line ": " message
    faults++
}

# ---- what lies at the top ----
function check_place(    top) {
    top = file
    sub(/\/.*/, "", top)
    if (top !~ /^(train\.c|model|zero|data|kernels|scripts|tests|docs|Makefile|README\.md|\..*)$/)
        fault("does not belong at the top level; its folders are model zero data kernels scripts" \
              " tests docs")
    if (file ~ /\.(cc|cpp|cxx)$/ && file != "data/text/spm.cc" && folder != "tests")
        fault("C++ belongs in data/text/spm.cc alone")
    if (file ~ /\.cuh?$/ && file !~ /^kernels\/cuda\// && folder != "tests")
        fault("CUDA code belongs in kernels/cuda/")
}

# tests/tests.mk names every test, so that none is forgotten. The rest is built because it is there.
function check_listed(    name) {
    name = file
    sub(/.*\//, "", name)
    sub(/\.[a-z]*$/, "", name)
    if (makefile !~ ("[ \t/,]" name "([ \t.,)\n]|$)"))
        fault("is in no list of tests/tests.mk")
}

function read_makefile(    text) {
    while ((getline text < "tests/tests.mk") > 0)
        makefile = makefile text "\n"
    close("tests/tests.mk")
}

# ---- includes ----
# Rooms from the bottom up: a room includes those below it, and itself.
function height(path) {
    sub(/\/[^\/]*$/, "", path)
    sub(/^data\/(bpe|chat)$/, "data/text", path) # these as one, as there is no circle of files
    sub(/^data\/deepspeed$/, "data/flags", path) # and these
    if (path ~ /^zero/)
        return index("zero/comm zero zero/master zero/qlora zero/wire zero/hpz zero/replica zero/tp " \
            "zero/pipe zero/offload zero/trace zero/process zero/settings zero/checkpoint zero/weights " \
            "zero/rank zero/train zero/plan ", path " ")
    return index("data data/text data/eval data/hf data/peft data/llmc data/flags data/log ",
        path " ")
}

function may_include(target,    to) {
    to = target
    sub(/\/.*/, "", to)
    if (target ~ /^kernels\/cpu\// && file !~ /^kernels\/cpu\//)
        return 0
    if (target ~ /^kernels\/cuda\// && file !~ /^kernels\/cuda\//)
        return 0
    if (file == "train.c")
        return to ~ /^(zero|model|data|kernels)$/
    if (folder == "docs") # it has a zero/ of its own
        return to ~ /^(model|data|kernels)$/
    # The walk runs units and a rank owns a model; the rest of zero/ sees groups alone.
    if (to == "model" &&
        file ~ /^zero\/((step|results)\.c|pipe\/pipe\.c|rank\/(generate\.[ch]|rank(\.[ch]|_step\.c)))$/)
        return 1
    if (folder == to && (folder == "zero" || folder == "data"))
        return height(target) <= height(file)
    if (folder == "zero")
        return to == "kernels" || target ~ /^model\/(params|config|presets|grad|work)\.h$/
    if (folder == "model")
        return to ~ /^(model|kernels)$/
    if (folder == "data")
        return target ~ ("^kernels/(atomic_file|base|batch|dtype|flag|folder|hash|log_step|lora|" \
            "nearest|show|weights)[.]h$")
    return folder == to
}

# A .c and its .h are one node of the graph of includes.
function node(path) {
    sub(/\.[a-z]*$/, "", path)
    return path
}

function add_edge(target,    from, to) {
    from = node(file)
    to = node(target)
    if (from != to && !((from, to) in edge)) {
        edge[from, to] = 1
        next_of[from] = next_of[from] " " to
    }
}

# Files that include each other in a circle can only be understood together.
function find_circle(from, path,    list, i, n) {
    state[from] = 1
    n = split(next_of[from], list, " ")
    for (i = 1; i <= n; i++)
        if (state[list[i]] == 1) {
            file = from
            line = 0
            fault("a circle of includes:" path " " list[i])
        } else if (!state[list[i]]) {
            find_circle(list[i], path " " list[i])
        }
    state[from] = 2
}

# ---- the core of ZeRO ----
# Core code names nothing that the headers of offload and of other dimensions declare.
function note_words(text,    word) {
    while (match(text, /[A-Za-z_][A-Za-z_0-9]*/)) {
        word = substr(text, RSTART, RLENGTH)
        if (!((file, word) in core_word))
            core_word[file, word] = line
        text = substr(text, RSTART + RLENGTH)
    }
}

function note_declared(text,    word) {
    if (text ~ /^(struct|enum) [A-Za-z]+ \{/ && text !~ /;$/) {
        split(text, word, " ")
        declared[word[2]] = 1
    } else if (text ~ /^[a-z][^(;=]*\(/) {
        sub(/\(.*/, "", text)
        sub(/.*[ *]/, "", text)
        declared[text] = 1
    }
}

function check_core(    place, word) {
    for (place in core_word) {
        split(place, word, SUBSEP)
        if (word[2] in declared) {
            file = word[1]
            line = core_word[place]
            fault(word[2] " is of another room; what the core calls is handed to it")
        }
    }
    file = "zero"
    line = 0
    if (path_lines > 988)
        fault("the files in which ZeRO is learned have " path_lines " lines; at most 988")
    if (core_lines > 2136)
        fault("the files of the core have " core_lines " lines; at most 2136")
}

function check_include(text,    target) {
    target = text
    sub(/^#[ \t]*include[ \t]*["<]/, "", target)
    sub(/[">].*/, "", target)
    if (folder == "tests")
        return
    if (text ~ /^#[ \t]*include[ \t]*"/) {
        if (file == "train.c" && target == "features_found.h")
            return
        if (target !~ /\//)
            fault("include \"" target "\" by its path from the top of the repository")
        else if (!may_include(target))
            fault("must not include " target "; includes go downward only")
        else
            add_edge(target)
        return
    }
    if (target ~ /^(cuda|cublas|curand|nvml|nvtx|nccl)/ && file !~ /^kernels\/cuda\// &&
        file != "zero/comm/nccl.c")
        fault("<" target "> belongs in kernels/cuda/ and zero/comm/nccl.c")
    if (target == "mpi.h" && file !~ /^zero\/comm\/mpi(_watch\.c|_end\.h|\.c)$/)
        fault("<mpi.h> belongs in zero/comm/mpi.c, mpi_watch.c and their header")
    if (target == "pcre2.h" && file != "data/bpe/regex.c")
        fault("<pcre2.h> belongs in data/bpe/regex.c")
    if (target == "liburing.h" && file != "zero/offload/nvme_ring.c")
        fault("<liburing.h> belongs in zero/offload/nvme_ring.c")
    if (target ~ /intrin\.h$|^cpuid\.h$|^omp\.h$|dnnl/ && file !~ /^kernels\/cpu\//)
        fault("<" target "> belongs in kernels/cpu/")
    if (target ~ /^(zlib|zstd)/ && file !~ /^data\/unpack_(gz|zst)\.c$/)
        fault("<" target "> belongs in data/unpack_gz.c and unpack_zst.c")
    if (target ~ /^curl\// && file != "data/text/download.c")
        fault("<" target "> belongs in data/text/download.c")
}

# ---- the ids of errors ----
function note_id(text) {
    if (text ~ /^\/\/ ----/)
        id_before = ""
    if (!sub(/^ERROR_ID\(/, "E_", text))
        return
    sub(/\)/, "", text)
    if (text <= id_before)
        fault(text " stands behind " id_before "; the ids of a room are sorted")
    id_before = text
    id_line[text] = line
}

# A test asserts what stands behind a quote, alone or with a value: "E_UTF8 byte 7"; and a script a
# bare word, too.
function note_said(text,    behind, id) {
    behind = folder != "tests" ? "[^A-Z0-9_]" : is_c ? "\"" : "[\"\047 =]"
    while (match(text, behind "E_[A-Z0-9_]+")) {
        id = substr(text, RSTART + 1, RLENGTH - 1)
        id_said[folder == "tests", id] = 1
        text = substr(text, RSTART + RLENGTH)
    }
}

function check_ids(    id) {
    file = "kernels/error_ids.h"
    for (id in id_line) {
        line = id_line[id]
        if (!((0, id) in id_said))
            fault(id " is said nowhere")
        if (!((1, id) in id_said))
            fault(id " is asserted by no test")
    }
}

# ---- code ----
function check_code(text,    code, told_apart) {
    code = text
    gsub(/"([^"\\]|\\.)*"/, "\"\"", code)
    sub(/\/\/.*/, "", code)
    if (code ~ /#[ \t]*pragma[ \t]+omp|_Pragma\(""\)/ && file !~ /^kernels\/(cpu|cuda)\// &&
        folder != "tests")
        fault("OpenMP belongs in kernels/cpu/")
    told_apart = code
    gsub(/stage (>=|<) 0/, "", told_apart) # a check of the range
    if (told_apart ~ /stage[ \t]*(==|!=|<|>)=?[ \t]*[0-9]|switch \(.*stage\)/ &&
        file != "zero/open.c" && folder != "tests")
        fault("only zero/open.c tells stages apart; read the stage table")
    if (code ~ /^static [^(]*(;|=)/ && code !~ /const|_Static_assert|sig_atomic_t/ &&
        file != "kernels/base.c" && file != "zero/process/request.c" && folder != "tests")
        fault("a mutable global; state hangs off a struct")
    if (in_define) {
        in_define = code ~ /\\$/
        return
    }
    if (code ~ /^#/) {
        if (in_function && code ~ /^#[ \t]*(if|ifdef|ifndef|elif|else|endif)/)
            fault("#if inside a function; let the Makefile choose a file")
        in_define = code ~ /\\$/
        return
    }
    check_function(code)
}

function check_function(code) {
    if (in_function) {
        if (code !~ /^}/)
            return
        in_function = 0
        if (line - start + 1 > 70) {
            line_kept = line
            line = start
            fault("a function of " (line_kept - start + 1) " lines; at most 70")
            line = line_kept
        }
        return
    }
    if (code ~ /^[A-Za-z_]/)
        start = line
    if (code ~ /\)[^=;]*\{$/)
        in_function = 1
}

# ---- form ----
function columns(text) {
    gsub(/[\200-\277]/, "", text) # the bytes of a character but its first
    return length(text)
}

function check_form(text) {
    if (text ~ /\t/ && file !~ /Makefile$|\.mk$/)
        fault("a tab; four spaces")
    if (file ~ /\.(c|h|cu|cuh|cc)$/ && text ~ /^ *\/\// && columns(text) > 100)
        fault("a comment past column 100") # clang-format wraps code alone
    if (text ~ /[ \t]$/)
        fault("white space at the end of the line")
    if (text ~ /(TO)(DO)|(FIX)(ME)/)
        fault("an unfinished place; finish it or leave it out")
}

function check_opening(text) {
    if (is_c && text !~ /^\/[\/*]/)
        fault("opens without a comment that says what the file is for")
    if (!is_c && text !~ /^(#|""")/)
        fault("opens without a comment that says what the file is for")
}

function check_file(    text) {
    folder = file
    if (!sub(/\/.*/, "", folder))
        folder = ""
    line = in_function = in_define = 0
    is_c = file ~ /\.(c|h|cc|cu|cuh)$/
    check_place()
    if (file ~ /^tests\/.*\.(c|cu)$/ && file !~ /^tests\/cusim\/(probes.cu|real.c)$/)
        check_listed()
    if (!is_c && file !~ /\.(sh|py|awk|gp|mk)$|(^|\/)Makefile$|^\.ci\/run$/)
        return
    files++
    while ((getline text < file) > 0) {
        line++
        if (line == 1 || (line == 2 && text_before ~ /^#!/))
            check_opening(text)
        text_before = text
        check_form(text)
        if (file == "kernels/error_ids.h")
            note_id(text)
        else if (index(text, "E_"))
            note_said(text)
        if (!is_c)
            continue
        if (text ~ /^#[ \t]*include/)
            check_include(text)
        check_code(text)
        if (file ~ /^zero\/([^\/]*|(offload|wire|hpz|replica|tp|pipe)\/.*h)$/) {
            sub(/\/\/.*/, "", text)
            if (file ~ /^zero\/.*\//)
                note_declared(text)
            else
                note_words(text)
        }
    }
    close(file)
    if (file ~ /^zero\/((zero|hop|shard|slots)\.h|(step|stages|chain|param|grad|opt|slots)\.c)$/)
        path_lines += line
    if (file ~ /^zero\/[^\/]*$/)
        core_lines += line
    if (line == 0)
        fault("an empty file")
}

BEGIN {
    read_makefile()
}
{
    file = $0
    check_file()
}
END {
    check_core()
    check_ids()
    for (from in next_of)
        if (!state[from])
            find_circle(from, " " from)
    print "layout: " files " files, " faults + 0 (faults == 1 ? " fault" : " faults")
    exit faults > 0
}
' "${TMPDIR:-/tmp}/layout.$$"
