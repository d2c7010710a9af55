# Speeds of this machine, as if they had been measured: source this file where XDG_CACHE_HOME is set
# to a cache of the test's own, and folder to where its runs offload. What is measured beside other
# programs is in doubt (data/log/machine.h), so each run of ./train would measure again, for a
# second or two. No training is faster than these. test_machine.c and test_edges.sh have what is
# measured.
# shellcheck shell=bash
mkdir -p -m 700 "$XDG_CACHE_HOME/zero.c"
awk -v cpu="$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)" -v cores="$(nproc)" \
    -v folder="$(realpath "$folder")" '
    function know(name) { print name "|" (cpu ? cpu : "unknown CPU") "|1e15" }
    function update(format, gradients, moments, master, where, n) {
        for (n = 256; n <= 2 ^ 22; n *= 2)
            know("AdamW B/s, " format ", gradients " gradients ", moments " moments ", master " master \
                ", of " n ", " where)
    }
    BEGIN {
        split("fp32 bf16 fp16", format)
        split("fp32 split bf16", masters)
        ntable = split("oracle base avx2 avx512 avx512bf16 amx", table)
        for (t = 1; t <= ntable; t++)
            for (threads = 1; threads <= cores; threads++) {
                where = threads " threads, " table[t]
                for (f = 1; f <= 3; f++)
                    know("matmul FLOP/s, " format[f] ", " where)
                update("fp32", "fp32", "fp32", "fp32", where)
                for (f = 2; f <= 3; f++)
                    for (m = 1; m <= 3; m++) {
                        update(format[f], format[f], "fp32", masters[m], where)
                        update(format[f], "fp32", "fp32", masters[m], where)
                    }
            }
        know("copy B/s, to the device, cpu")
        know("copy B/s, from the device, cpu")
        for (d = 1; d <= 2; d++) {
            how = ", blocks of 1048576, 16 at once"
            know("disk B/s, read, " folder (d == 1 ? "" : "/nvme") how)
            know("disk B/s, written, " folder (d == 1 ? "" : "/nvme") how)
        }
    }' >"$XDG_CACHE_HOME/zero.c/machine.txt"
