#!/bin/bash
# Compiles a file of kernels for the simulator, by way of LLVM's code, in which kernels.awk tells of
# each access how it is aligned, and puts launch bounds where the simulator finds them.
#
#   tests/cusim/compile.sh FLAG ... -c FILE.cu -o FILE.o
#
# What clang knows of the alignment of copies, its calls for ThreadSanitizer would hide.
set -eu
flags=("${@:1:$#-4}") source=${*: -3:1} object=${*: -1}
code=${object%.o}.ll
trap 'rm -f "$code" "$code.awk"' EXIT
clang++ -x c++ "${flags[@]}" -mllvm -tsan-instrument-memintrinsics=0 -S -emit-llvm \
    -MT "$object" -MF "${object%.o}.d" "$source" -o "$code"
awk -f tests/cusim/kernels.awk "$code" >"$code.awk"
clang++ -x ir -O1 -Xclang -disable-llvm-passes -c "$code.awk" -o "$object"
