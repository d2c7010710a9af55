#!/bin/bash
# scripts/gpu/portable.sh on programs and libraries of a few lines: symbols of a version that a bare
# Ubuntu 24.04 has, or has not yet; libraries that are there, travel, or are missing. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
portable=$(realpath "${BASH_SOURCE%/*}/../../scripts/gpu/portable.sh")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
mkdir made lib

link() { # link SOURCE ARGUMENT...
    gcc -nostdlib -Wl,--no-as-needed -x c - -x none "${@:2}" <<<"$1"
}

library() { # library SONAME VERSION [LIBRARY]: has thing() of that version, and needs LIBRARY
    echo "$2 { global: thing; };" >map
    link 'int thing(void) { return 0; }' -shared -fPIC "-Wl,-soname,$1" -Wl,--version-script=map \
        -o "made/$1" ${3:+"made/$3"}
}

# said STATUS TEXT SONAME [VERSION]: of a program that needs thing() of that version from SONAME
said() {
    local status text
    [ $# = 3 ] || library "$3" "$4"
    link 'int thing(void); void _start(void) { thing(); }' -no-pie -o program "made/$3" \
        -Wl,--allow-shlib-undefined -Wl,-rpath-link,made
    text=$("$portable" lib program script 2>&1)
    status=$?
    [ $status = "$1" ] && [ "$text" = "$2" ]
    result $? "${4:-} of $3: ${2:-no fault}" "status $status, said: $text"
}

echo '#!/bin/sh' >script
said 0 "" libc.so.6 GLIBC_2.39
said 1 "program: needs GLIBC_2.40, Ubuntu 24.04 has GLIBC_2.39" libc.so.6 GLIBC_2.40
said 0 "" libc.so.6 GLIBC_2.4
said 0 "" libc.so.6 GLIBC_2.3.4
said 0 "" libstdc++.so.6 GLIBCXX_3.4.33
said 1 "program: needs GLIBCXX_3.4.34, Ubuntu 24.04 has GLIBCXX_3.4.33" libstdc++.so.6 \
    GLIBCXX_3.4.34
said 1 "program: needs GCC_15.0.0, Ubuntu 24.04 has GCC_14.0.0" libgcc_s.so.1 GCC_15.0.0

missing="which neither travels nor is in a bare Ubuntu 24.04"
said 1 "program: needs libgomp.so.1, $missing" libgomp.so.1 GOMP_4.0
cp made/libgomp.so.1 lib/
said 0 "" libgomp.so.1
library libold.so.1 OLD_1
library libnew.so.9 NEW_9.9 libold.so.1
cp made/libnew.so.9 lib/
said 1 "libnew.so.9: needs libold.so.1, $missing" libnew.so.9
cp made/libold.so.1 lib/
said 0 "" libnew.so.9

echo "1..$count"
exit $failed
