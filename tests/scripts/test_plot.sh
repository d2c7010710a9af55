#!/bin/bash
# scripts/bench/plot.sh on logs that are whole, short, broken or missing. The SVG holds its texts as
# text, so what was drawn can be looked up there. Speaks TAP for scripts/dev/run_tests.sh.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
count=0 failed=0

report() { # report STATUS NAME: one line of TAP, and what the script said if it failed
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
        return
    fi
    echo "not ok $count - $2"
    sed 's/^/# /' "$dir/said"
    failed=1
}

make_run() { # make_run FOLDER STEPS: losses 5/step, validation every 10th step, one loss null
    mkdir -p "$1"
    awk -v n="$2" 'BEGIN {
        for (i = 1; i <= n; i++) {
            loss = i == 5 ? "null" : 5 / i
            printf "{\"step\":%d,\"loss\":%s,\"grad_norm\":1,\"lr\":1e-4,\"step_ms\":3}\n", i, loss
            if (i % 10 == 0) printf "{\"step\":%d,\"val_loss\":%g}\n", i, 6 / i
        }
    }' >"$1/log.jsonl"
}

plot() { # plot ARGUMENT...: the script's status; its output is in said
    bash scripts/bench/plot.sh "$@" >"$dir/said" 2>&1
}

is_png() {
    [ "$(head -c 8 "$1" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] &&
        [ "$(wc -c <"$1")" -gt 5000 ]
}

refused() { # refused TEXT ARGUMENT...: status 2 and one line with TEXT
    local text=$1
    shift
    plot "$@"
    [ $? = 2 ] && grep -qF -- "$text" "$dir/said" && [ "$(wc -l <"$dir/said")" = 1 ]
}

make_run "$dir/first" 200
make_run "$dir/it's b_2" 30

plot "$dir/first" && is_png "$dir/first/loss.png" && grep -q '>training<' "$dir/first/loss.svg" &&
    grep -q '>validation<' "$dir/first/loss.svg" &&
    grep -q '>loss (nats per token)<' "$dir/first/loss.svg" &&
    [ "$(cat "$dir/said")" = "$dir/first/loss.svg"$'\n'"$dir/first/loss.png" ]
report $? "one run gives an SVG and a PNG with both curves"

mkdir "$dir/pictures"
plot -o "$dir/pictures" "$dir/first" "$dir/it's b_2" && is_png "$dir/pictures/loss.png" &&
    grep -q '>first: training<' "$dir/pictures/loss.svg" &&
    grep -Eq "b_2: validation<" "$dir/pictures/loss.svg"
report $? "two runs in one picture, a quote in a name included"

mkdir "$dir/one"
echo '{"step":1,"loss":2.5}' >"$dir/one/log.jsonl"
plot "$dir/one" && is_png "$dir/one/loss.png"
report $? "a log of one step"

refused "$dir/none is not a folder" "$dir/none"
report $? "a missing folder is named"
refused "$dir/pictures/log.jsonl is missing" "$dir/pictures"
report $? "a folder without a log is named"
mkdir "$dir/null"
echo '{"step":1,"loss":null}' >"$dir/null/log.jsonl"
refused "$dir/null/log.jsonl has no losses" "$dir/null" && [ ! -e "$dir/null/loss.svg" ]
report $? "a log without a finite loss is named, and nothing is drawn"
refused "usage"
report $? "no argument gives the usage"
refused "unknown option -x" -x
report $? "an unknown option is named"

bash=$(command -v bash)
PATH=$dir "$bash" scripts/bench/plot.sh "$dir/first" >"$dir/said" 2>&1
[ $? = 2 ] && grep -q 'gnuplot is missing; install the package gnuplot-nox' "$dir/said"
report $? "a machine without gnuplot is told the package"

echo "1..$count"
exit $failed
