#!/bin/bash
# Every command that a script uses is there when the script runs: it is one of those that every
# Debian has, or belongs to a package that scripts/setup.sh installs and the script calls set-up for
# it, or the script looks for it first (`command -v NAME`, or a use with 2>/dev/null), or it says in
# its first lines what it "Needs". Speaks TAP for scripts/dev/run_tests.sh.
#
# Tests run after `scripts/setup.sh --test`. Files of scripts/gpu are parts of gpu_check.sh, whose
# first lines count for them.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Packages that Debian calls essential or required, and what scripts use of them.
always="awk basename bash cat chmod chroot cmp comm cp cut date diff dirname dpkg-query du env find
    grep gzip head iconv id ldd ln ls mkdir mkfifo mktemp mv nproc od paste perl readlink realpath
    rm sed seq setsid sha256sum sleep sort tail tar tee timeout touch tr wc xargs yes apt-get
    apt-cache apt-config mount umount chown dd mkfs prlimit stat sync truncate uname"
# What else scripts use, and whose it is. binutils come with gcc; mpicc with the library.
packages="make:make gcc:gcc strip:gcc objcopy:gcc objdump:gcc readelf:gcc c++filt:gcc
    pkg-config:pkg-config clang:clang clang++:clang gnuplot:gnuplot-nox python3:python3
    ps:procps pgrep:procps pkill:procps mpirun:openmpi-bin mpicc:libopenmpi-dev fio:fio
    git:git patch:patch"

# installed_by FLAG...: the packages that scripts/setup.sh installs with them.
installed_by() {
    local list
    for list in build ${1:+test} ${1:+bench}; do
        [ $list = build ] || [[ $* == *--$list* ]] || continue
        sed -n "/^${list}_packages=/{:a; p; /\"\$/q; n; ba}" scripts/setup.sh
    done
}

# set_up_for FILE SCRIPT: the packages that are there when it runs. Make starts probe.sh.
set_up_for() {
    local flags
    case $1 in
    tests/* | scripts/dev/run_tests.sh) installed_by --test ;;
    scripts/dev/probe.sh) installed_by ;;
    *)
        flags=$(grep -oE '^ *scripts/setup\.sh( --[a-z]+)*' "$2") && installed_by "$flags"
        ;;
    esac
}

# copes_without COMMAND FILE PACKAGE: it looks for the command, or what it uses first says nothing
# where that is missing, or its first lines name it or its package among what it needs.
copes_without() {
    local file files=("$2") word="(^|[^A-Za-z0-9_./-])$1([^A-Za-z0-9_./-]|\$)"
    [[ $2 != scripts/gpu/* ]] || files+=(scripts/gpu_check.sh)
    for file in "${files[@]}"; do
        grep -qE "(command -v|type -P) +$1\\b" "$file" && return
        sed -n '2,/^[^#]/p' "$file" | tr -d '#\n' | grep -qE "Needs [^.]*\\b($1|$3)\\b" && return
        grep -E "$word" "$file" | grep -vE '^ *#' | head -n 1 | grep -q '2>/dev/null' && return
    done
    return 1
}

# commands_missing FILE...: a line for each command that might be missing.
commands_missing() {
    local file known command package there
    known=$(for file; do awk -f tests/lib/commands.awk "$file"; done | sed -n 's/.* \(.*\)()$/\1/p')
    known=" $always $known $(compgen -bk) "
    known=" ${known//$'\n'/ } "
    for file; do
        there=" $(set_up_for "$file" "$file" | tr '"|\n=' '    ') "
        while read -r command; do
            [[ $known != *" $command "* ]] || continue
            package=$(tr -s ' \n' '\n' <<<"$packages" | sed -n "s/^${command//+/[+]}://p")
            [ -z "$package" ] || [[ $there != *" $package "* ]] || continue
            copes_without "$command" "$file" "${package:-$command}" || echo "$file: $command"
        done < <(awk -f tests/lib/commands.awk "$file" | cut -d ' ' -f 2 | grep -v '()$' | sort -u)
    done
}

readarray -t files < <(ls scripts/*.sh scripts/*/*.sh .ci/run tests/*.sh tests/*/*.sh)
seen=$(commands_missing "${files[@]}")
[ -z "$seen" ]
result $? "each command of ${#files[@]} scripts is there when it is called, or not needed" "$seen"

# ---- that this would be seen ----

# finds WHAT WANT LINE...: a script of these lines uses WANT, which may be missing ("" for none).
finds() {
    local seen
    printf '%s\n' '#!/bin/bash' "${@:3}" >"$folder/x.sh"
    seen=$(cd "$folder" && ln -sfn "$OLDPWD/tests" tests && ln -sfn "$OLDPWD/scripts" scripts &&
        commands_missing x.sh | xargs)
    [ "$seen" = "${2:+x.sh: $2}" ]
    result $? "$1" "$seen"
}
finds "a tool that nobody installs" frobnicate 'frobnicate | cat'
finds "within a substitution, in quotes" frobnicate 'echo "it says $(frobnicate x)"'
finds "behind what runs it" frobnicate 'timeout -k 5 10 frobnicate'
finds "and behind a condition" frobnicate 'if ! frobnicate; then echo; fi'
finds "not in comments, quotes and here-documents" "" '# frobnicate' \
    "echo 'frobnicate' \"x; frob\"" 'cat <<END' 'frobnicate' 'END'
finds "a tool that is looked for" "" 'command -v frobnicate >/dev/null || exit 1' 'frobnicate'
finds "a tool that it names" "" '# Needs root, frobnicate and time.' 'frobnicate'
finds "make without set-up" make 'make test'
finds "make after set-up" "" 'scripts/setup.sh || exit 1' 'make test'
finds "ps needs the set-up of tests" ps 'scripts/setup.sh || exit 1' 'ps'
finds "ps after it" "" 'scripts/setup.sh --test || exit 1' 'ps'
finds "fio needs the set-up of benchmarks" fio 'scripts/setup.sh --test || exit 1' 'fio'
finds "a function is no command of a package" "" 'frobnicate() { cat; }' 'frobnicate'

# ---- --help ----

# Those that people start; the others are sourced, or started by make.
seen=''
for file in scripts/*.sh scripts/{dev,bench,faults}/*.sh; do
    case $file in
    scripts/dev/bare_root.sh | scripts/bench/bars.sh | scripts/dev/families.sh | scripts/bench/figures.sh | \
        scripts/help.sh | scripts/dev/proc_tag.sh) continue ;;
    scripts/dev/probe.sh | scripts/dev/run_tests.sh | scripts/dev/torch.sh) continue ;;
    esac
    said=$(timeout 10 bash "$file" --help 2>&1) && [ "$said" = "$(
        sed -n '2,/^[^#]/p' "$file" | grep '^#' | grep -v '^# shellcheck' | sed 's/^# \{0,1\}//'
    )" ] || seen+="$file: $(head -n 1 <<<"$said")"$'\n'
done
[ -z "$seen" ]
result $? "each script says with --help what is at its head" "$seen"

# ---- make without cmocka ----

cat >"$folder/cc" <<'END'
#!/bin/bash
[[ $* != *libcmocka.so* ]] || exec echo libcmocka.so
exec gcc "$@"
END
chmod +x "$folder/cc"
for goal in bench test quick; do
    seen=$(env -u MAKEFLAGS -u MAKEOVERRIDES \
        make -n CC="$folder/cc" WITHOUT=cuda BUILD="$folder/build" $goal 2>&1 >/dev/null)
    [ "$(grep -c 'cmocka is missing, which .*: scripts/setup.sh --test' <<<"$seen")" = 1 ]
    result $? "make $goal without cmocka says so in a line" "$(tail -n 5 <<<"$seen")"
done

echo "1..$count"
exit $failed
