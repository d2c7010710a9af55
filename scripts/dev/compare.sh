#!/bin/bash
# Where two runs part: which flags differ, and the first step whose bits do.
#
#   scripts/dev/compare.sh OUT1 OUT2      each a folder that ./train --out wrote
#
# Compared are, of the steps that both logs have, the loss and the gradient's norm, which log.jsonl
# has with all their digits, and the weights' hashes where both runs have them (--hash-every N). A
# step's loss is that of the weights before it, and its hash that of the weights behind it. Flags,
# from config.json, are only told: runs with other ranks or stages may have the same bits. A value
# that is not finite is null in a log, and equal to another.
#
# Status 0: equal in all that both have. 1: they part. 2: bad input, and one line that says what.
set -u
. "${0%"${0##*/}"}../help.sh"
export LC_ALL=C

die() {
    echo "compare.sh: $*" >&2
    exit 2
}

[ $# = 2 ] || die "usage: scripts/dev/compare.sh OUT1 OUT2, each a folder that ./train --out wrote"
work=$(mktemp -d) || die "cannot make a folder for temporary files"
trap 'rm -rf "$work"' EXIT

# "step kind value" of each step's loss and norm, and of each hash; then a last line, "whole". What
# follows the last newline is of a line that is still being written, and not looked at.
read_log() {
    local torn=0
    [ "$(tail -c 1 "$1" | wc -l)" = 1 ] || torn=$(tail -n 1 "$1" | wc -c)
    head -c "-$torn" "$1" |
        awk '
        function value(name,    at, rest) {
            at = index($0, "\"" name "\":")
            if (!at) return ""
            rest = substr($0, at + length(name) + 3)
            sub(/^ */, "", rest)
            gsub(/"/, "", rest)
            sub(/[,}].*/, "", rest)
            return rest
        }
        { step = value("step") }
        $0 !~ /^\{.*\}$/ || step !~ /^[0-9]+$/ {
            print "line " NR
            exit
        }
        value("loss") != "" {
            print step, "loss", value("loss")
            print step, "grad_norm", value("grad_norm")
        }
        value("weights_hash") != "" { print step, "weights_hash", value("weights_hash") }'
}

# "name value" of each flag; which of them were given is no flag.
read_config() {
    awk '
    /^[ \t]*"[a-z0-9-]+" *:/ {
        name = $0
        sub(/^[ \t]*"/, "", name)
        sub(/".*/, "", name)
        value = $0
        sub(/^[^:]*:[ \t]*/, "", value)
        sub(/,? *$/, "", value)
        if (name != "out" && name != "given") print name, value
    }' "$1" | sort
}

i=0
for out in "$@"; do
    i=$((i + 1))
    [ -d "$out" ] || die "$out is no folder; expected one that ./train --out wrote"
    for file in log.jsonl config.json; do
        if [ ! -f "$out/$file" ] || [ ! -r "$out/$file" ]; then
            die "$out/$file is missing, or cannot be read"
        fi
    done
    read_log "$out/log.jsonl" >"$work/log.$i"
    bad=$(sed -n 's/^line //p' "$work/log.$i")
    [ -z "$bad" ] || die "$out/log.jsonl: line $bad is no JSON object with a step"
    [ -s "$work/log.$i" ] || die "$out/log.jsonl holds no step"
    read_config "$out/config.json" >"$work/config.$i"
    [ -s "$work/config.$i" ] || die "$out/config.json holds no flag"
done

awk '
FNR == NR { first[$1] = substr($0, length($1) + 2); next }
{
    second[$1] = substr($0, length($1) + 2)
}
END {
    for (name in first) all[name]
    for (name in second) all[name]
    for (name in all) {
        a = name in first ? first[name] : "(none)"
        b = name in second ? second[name] : "(none)"
        if (a != b) print "  --" name " " a " | " b
    }
}' "$work/config.1" "$work/config.2" | sort >"$work/flags"
# Steps come in their order in both logs.
awk -v one="$1" -v two="$2" '
FNR == NR { value[$1, $2] = $3; next }
($1, $2) in value {
    kind = $2 == "weights_hash" ? "hash" : "step"
    if (value[$1, $2] != $3) {
        if (!(kind in parts) || $1 + 0 < parts[kind]) {
            parts[kind] = $1 + 0
            how[kind] = $2 " " value[$1, $2] " | " $3
        }
        next
    }
    if ($2 == "loss") next # its norm comes next
    count[kind]++
    if (!(kind in parts) && $1 + 0 > upto[kind]) upto[kind] = $1 + 0
}
function tell(kind, what) {
    if (!(kind in parts)) {
        if (count[kind])
            printf "%s: equal up to step %d (%d compared)\n", what, upto[kind], count[kind]
        return
    }
    printf "%s: part at step %d: %s", what, parts[kind], how[kind]
    print upto[kind] ? "; equal up to step " upto[kind] : ""
}
END {
    if (!count["step"] && !("step" in parts) && !count["hash"] && !("hash" in parts)) exit 2
    tell("step", "losses and norms")
    tell("hash", "weights")
    if (!count["hash"] && !("hash" in parts))
        print "weights: not compared; --hash-every N in both runs logs their hashes"
    exit ("step" in parts) || ("hash" in parts)
}' "$work/log.1" "$work/log.2" >"$work/steps"
status=$?
[ $status != 2 ] || die "the two logs have no step in common"

if [ -s "$work/flags" ]; then
    echo "flags that differ:"
    cat "$work/flags"
else
    echo "the same flags, but for --out"
fi
cat "$work/steps"
exit $status
