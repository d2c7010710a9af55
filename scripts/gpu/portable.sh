#!/bin/bash
# Whether programs start on a bare Ubuntu 24.04, or newer: one that has nothing but what apt itself
# needs, and NVIDIA's driver. For a build that is carried to a machine with a GPU.
#
#   scripts/gpu/portable.sh FOLDER PROGRAM...     a line for each fault; status 1 if there is one
#
# A fault is, of a program or of a library in FOLDER, which travels along: a library that it needs
# and that is neither there nor in such an Ubuntu; and a symbol of a newer version than Ubuntu's
# glibc, libstdc++ or libgcc has. What is no ELF file is passed over.
#
# libgomp is no part of a bare Ubuntu: it travels. Called by build.sh and
# scripts/dev/brought_test.sh.
set -u
. "${0%"${0##*/}"}../help.sh"
folder=${1:?a folder} faults=0
shift

# shellcheck disable=SC2016 # awk's
rules='
BEGIN {
    n = split("libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2 " \
              "libutil.so.1 ld-linux-x86-64.so.2 libstdc++.so.6 libgcc_s.so.1", name, " ")
    for (i = 1; i <= n; i++)
        there[name[i]] = 1
    n = split(travels, name, " ")
    for (i = 1; i <= n; i++)
        there[name[i]] = 1
    newest["GLIBC"] = "2.39"
    newest["GLIBCXX"] = "3.4.33"
    newest["CXXABI"] = "1.3.15"
    newest["GCC"] = "14.0.0"
}
function is_above(a, b,    x, y, i, n) {
    n = split(a, x, ".")
    split(b, y, ".")
    for (i = 1; i <= n && x[i] + 0 == y[i] + 0; i++)
        ;
    return i <= n && x[i] + 0 > y[i] + 0
}
$1 == "NEEDED" && !($2 in there) {
    print file ": needs " $2 ", which neither travels nor is in a bare Ubuntu 24.04"
}
$1 ~ /^0x/ && match($4, /_[0-9][0-9.]*$/) {
    kind = substr($4, 1, RSTART - 1)
    if (kind in newest && is_above(substr($4, RSTART + 1), newest[kind]))
        print file ": needs " $4 ", Ubuntu 24.04 has " kind "_" newest[kind]
}'

travels=$(cd "$folder" && echo *)
for file in "$@" "$folder"/*; do
    [ -f "$file" ] && [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
    read_file=$(objdump -p "$file") || exit 1
    said=$(awk -v file="${file##*/}" -v travels="$travels" "$rules" <<<"$read_file")
    [ -z "$said" ] || { echo "$said" && faults=1; }
done
exit $faults
