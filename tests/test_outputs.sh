#!/bin/bash
# Standard output and standard error whose reader hangs hold up a run, but not its end by a signal;
# a slow reader gets all lines, and closed descriptors cost nothing. What is asked for on standard
# output comes whole. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/lib/own_folder.sh"

text=$folder/text.txt
small_text 400 >"$text"
tiny=(--device cpu --dtype fp32 --data "$text" --tokenizer byte --layers 2 --heads 2 --channels 32
    --seq-len 32 --batch 4 --threads 1 --log-every 1)

# A pipe that nobody reads, open as 7; full, it has no room for a byte.
pipe() {
    rm -f "$folder/pipe"
    mkfifo "$folder/pipe"
    exec 7<>"$folder/pipe"
}
full_pipe() {
    pipe
    head -c 65536 /dev/zero >&7
}

steps_of() { grep -c '"loss"' "$1/log.jsonl" 2>/dev/null; }

wait_for_steps() { # wait_for_steps OUT STEPS
    for _ in $(seq 400); do
        [ "$(steps_of "$1")" -ge "$2" ] 2>/dev/null && return
        sleep 0.1
    done
    false
}

# Waits for $pid, at most SECONDS; sets status (none: it had to be killed).
end_within() {
    local i
    for ((i = 0; i < $1 * 10; i++)); do
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
    done
    if kill -9 $pid 2>/dev/null; then
        wait $pid 2>/dev/null
        status=none
    else
        wait $pid
        status=$?
    fi
}

# ---- readers that hang ----

# wait_until_blocked OUT: its log grows no longer, for its lines fill the pipe.
wait_until_blocked() {
    local before=-1
    wait_for_steps "$1" 20 || return
    for _ in $(seq 60); do
        [ "$(steps_of "$1")" = "$before" ] && return
        before=$(steps_of "$1")
        sleep 0.5
    done
    false
}

# stopped NAME OUT: it was blocked, and its last step is saved.
stopped() {
    local last
    last=$(tail -n 2 "$2/log.jsonl" | sed -n 's/^{"step":\([0-9]*\),"loss".*/\1/p')
    [ $blocked = 0 ] && [ "$status" = 0 ] && [ "${last:-0}" -ge 20 ] &&
        [ -e "$2/checkpoints/step-$(printf %08d "${last:-0}")/rank-0000.state" ]
    result $? "$1" "blocked $blocked, status $status, step ${last:-none}: $(ls "$2/checkpoints")"
}

for which in output outputs; do
    pipe
    out=$folder/b-$which
    case $which in
    output) "$train" "${tiny[@]}" --steps 900000 --out "$out" >&7 2>"$folder/said" & ;;
    outputs) "$train" "${tiny[@]}" --steps 900000 --out "$out" >&7 2>&1 & ;;
    esac
    pid=$!
    wait_until_blocked "$out"
    blocked=$?
    kill -TERM $pid
    end_within 8
    stopped "SIGTERM saves and ends with 0 while the standard $which hang" "$out"
done

# A line that is refused, with standard error full: the one line is for whoever reads.
full_pipe
"$train" "${tiny[@]}" --steps 3 --out "$folder/b-output" 2>&7 >/dev/null &
pid=$!
sleep 1
said=$(head -c 65537 <&7 | tr -d '\0'; timeout 1 cat <&7)
end_within 5
[ $status = 2 ] && error_is 'E_OUT_HOLDS_RUN --resume'
result $? "a refused run says why as soon as somebody reads" "status $status: $said"

# A pipe holds some 700 of these lines.
"$train" "${tiny[@]}" --steps 1500 --out "$folder/whole" 2>/dev/null | (sleep 3 && cat) \
    >"$folder/came"
[ "${PIPESTATUS[*]}" = "0 0" ] && [ "$(grep -c '^step .*tok/s' "$folder/came")" = 1500 ] &&
    tail -n 1 "$folder/came" | grep -q '^weights hash: '
result $? "a slow reader gets all lines" "$(tail -n 3 "$folder/came")"

if command -v python3 >/dev/null; then
    cat >"$folder/terminal.py" <<'P'
"""Starts a command on a terminal, stops that (Ctrl-S) after some steps, prints the process."""
import os, pty, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
ours, theirs = pty.openpty()
p = subprocess.Popen(sys.argv[1:], stdout=theirs, stderr=theirs, env=dict(os.environ, TERM="dumb"))
seen = b""
while seen.count(b"tok/s") < 30:
    seen += os.read(ours, 1000)
os.write(ours, b"\x13")
print(p.pid, flush=True)
print("status", p.wait(), flush=True)
P
    python3 "$folder/terminal.py" "$train" "${tiny[@]}" --steps 900000 --out "$folder/terminal" \
        >"$folder/said" &
    pid=$!
    wait_until_blocked "$folder/terminal"
    blocked=$?
    kill -INT "$(head -n 1 "$folder/said")"
    end_within 8
    status=$(sed -n 's/^status //p' "$folder/said")
    stopped "SIGINT saves and ends with 0 while a terminal is stopped" "$folder/terminal"
    kill -9 "$(head -n 1 "$folder/said")" 2>/dev/null
else
    echo "ok $((count += 1)) - a terminal # SKIP there is no python3"
fi

# ---- results come whole ----

"$train" --help all >"$folder/help"
"$train" --help all | (sleep 0.5 && cat) | cmp -s - "$folder/help"
result $? "--help comes whole"
sample=(--out "$folder/whole" --resume auto --sample-only --sample-tokens 5
    --prompt "$(head -c 20000 "$text" | tr '\n' ' ')$(head -c 100000 /dev/zero | tr '\0' x)")
"$train" "${sample[@]}" >"$folder/sample" 2>/dev/null
"$train" "${sample[@]}" 2>/dev/null | (sleep 1 && cat) | cmp -s - "$folder/sample"
[ "${PIPESTATUS[*]}" = "0 0 0" ] && [ "$(wc -c <"$folder/sample")" -gt 120000 ]
result $? "a sample of more than a pipe holds comes whole" "$(wc -c <"$folder/sample")"

# ---- closed descriptors ----

json() { awk '!/^\{"step":.*\}$/ { exit 1 }' "$1/log.jsonl" && [ "$(steps_of "$1")" = 5 ]; }
for closed in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
    rm -rf "$folder/d"
    eval '"$train" "${tiny[@]}" --steps 5 --trace "$folder/trace" --out "$folder/d"' \
        '>/dev/null 2>/dev/null' "$closed"
    status=$?
    [ $status = 0 ] && json "$folder/d" && [ -e "$folder/d/checkpoints/step-00000005" ] &&
        head -n 1 "$folder/trace" | grep -q '^{' && head -n 1 "$folder/d/config.json" | grep -q '^{'
    result $? "a run with $closed trains as ever, and its files hold what is theirs" \
        "status $status: $(cat "$folder/d/log.jsonl")"
done
for result in "--help" "--version" "--plan --data random --model tiny" \
    "--out $folder/whole --resume auto --sample-only"; do
    # shellcheck disable=SC2086
    said=$("$train" $result 2>&1 >&-)
    status=$?
    [ $status = 2 ] && error_is E_STDOUT
    result $? "${result%% *}: a result that goes nowhere is told" "status $status: $said"
done

# ---- places that are no files ----

# refused NAME ERROR ARGUMENT...: at once, in one line, with nothing made.
refused() {
    local name=$1 error=$2 said status
    shift 2
    said=$(timeout 20 "$train" "${tiny[@]}" --steps 2 --cache "$folder/unused" "$@" 2>&1)
    status=$?
    [ $status = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] && [ ! -e "$folder/unused" ] &&
        error_is "$error"
    result $? "refused: $name" "status $status: $said"
    rm -rf "$folder/unused"
}
echo precious >"$folder/precious"
for name in log.jsonl config.json memory.json; do
    for kind in pipe folder device link; do
        rm -rf "$folder/e"
        mkdir "$folder/e"
        place=$folder/e/$name
        case $kind in
        pipe) mkfifo "$place" ;;
        folder) mkdir "$place" ;;
        device) mknod "$place" c 1 3 2>/dev/null || continue ;;
        link) ln -s "$folder/precious" "$place" ;;
        esac
        refused "a $kind as $name" "E_FILE_KIND --out*$name" --out "$folder/e"
    done
done
[ "$(cat "$folder/precious")" = precious ]
result $? "and what a link leads to is as it was"
mkdir "$folder/f"
ln "$folder/precious" "$folder/f/log.jsonl"
"$train" "${tiny[@]}" --steps 2 --out "$folder/f" >/dev/null 2>&1
[ $? = 0 ] && [ "$(cat "$folder/precious")" = precious ] && [ "$(steps_of "$folder/f")" = 2 ]
result $? "a log begins as a file of its own, whoever else had the old one"
mkfifo "$folder/fifo"
refused "a trace over the root" 'E_FILE_KIND --trace /*folder' --trace / --out "$folder/g"
refused "a trace over a folder" 'E_FILE_KIND --trace*folder' --trace "$folder" --out "$folder/g"
refused "a trace into a pipe" 'E_FILE_KIND --trace*fifo*pipe' \
    --trace "$folder/fifo" --out "$folder/g"
refused "two traces in one file" 'E_TRACE_ZERO --trace-zero' \
    --trace "$folder/t" --trace-zero "$folder/t" --out "$folder/g"
refused "a trace to no name" 'E_FILE_KIND --trace*/*folder' --trace "$folder/" --out "$folder/g"

echo "1..$count"
exit $failed
