# Makes the simulator's calls in LLVM's code of a file of kernels: clang's text in, to be compiled
# out. (Makefile, COMPILE_CU.)
#
# Behind each call that clang makes for ThreadSanitizer stands the access itself, which says how its
# address is aligned: by its type, so that a struct of alignas(16) says 16 though it is read as two
# halves. The call is given that number, for a GPU faults where it is not so. Copies and sets of
# memory say the same of both their addresses.
#
# Annotations (include/cusim/language.h: what is a kernel, and its launch bounds) are for tools that
# read this text; here they become data, in a section of which resources.cc reads them.

# The alignment that the operands' attributes in `text` say; none: 1.
function alignment(text) {
    if (!match(text, /^[a-z_() 0-9]*align [0-9]+/))
        return 1
    text = substr(text, RSTART, RLENGTH)
    sub(/.*align /, "", text)
    return text
}

# What follows the nth pointer that is an operand.
function operand(text, n) {
    while (n-- > 0 && match(text, /[(,] ?(i8\*|ptr) /))
        text = substr(text, RSTART + RLENGTH)
    return text
}

/^target datalayout/ { pointer = "i8*" }
/^(define|declare) .*[(, ]ptr[, )]/ { pointer = "ptr" }

/^@llvm.global.annotations = / {
    sub(/^[^ ]* = appending/, "@cusim_kernel_notes = internal")
    sub(/"llvm.metadata"/, "\"cusim_kernels\", align 8")
}
/^@\.[a-z]/ { sub(/, section "llvm.metadata"/, "") }

/ call void @__tsan_(unaligned_)?(read|write|read_write)[0-9]+\(/ {
    call = $0
    if (getline <= 0 || !/ (load|store) .*, align [0-9]+/) {
        print "kernels.awk: no access follows: " call >"/dev/stderr"
        exit failed = 1
    }
    match($0, /, align [0-9]+/)
    align = substr($0, RSTART + 8, RLENGTH - 8)
    sub(/@__tsan_unaligned_/, "@__tsan_", call)
    match(call, /[0-9]+\(/)
    bytes = substr(call, RSTART, RLENGTH - 1)
    sub(/[0-9]+\(/, "(i32 " bytes ", i32 " align ", ", call)
    sub(/@__tsan_/, "@cusim_", call)
    print call
}
/ call void @llvm.mem(cpy|move|set)\./ {
    to = alignment(operand($0, 1))
    from = / @llvm.memset/ ? "" : ", i32 " alignment(operand($0, 2))
    sub(/@llvm.mem(cpy|move)[^(]*/, "@cusim_copy")
    sub(/@llvm.memset[^(]*/, "@cusim_set")
    sub(/, i1 (false|true)\)/, ", i32 " to from ")")
}
/ call .*@(llvm.mem(cpy|move|set)|__tsan_[a-z_]*(read|write))/ {
    print "kernels.awk: an access of another form: " $0 >"/dev/stderr"
    exit failed = 1
}
{ print }

END {
    if (failed)
        exit 1
    print "declare void @cusim_read(i32, i32, " pointer ")"
    print "declare void @cusim_write(i32, i32, " pointer ")"
    print "declare void @cusim_read_write(i32, i32, " pointer ")"
    print "declare void @cusim_copy(" pointer ", " pointer ", i64, i32, i32)"
    print "declare void @cusim_set(" pointer ", i8, i64, i32)"
}
