#!/bin/bash
# Training waits for no reader: standard output and standard error that are full, stopped or closed
# cost neither a step nor a checkpoint nor the way out, and what was printed and dropped is counted.
# What is asked for on standard output comes whole, however slow its reader is. Speaks TAP.
#
# TRAIN names the program (default ./train).
set -u
train=${TRAIN:-./train}
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/lib/tap.sh"
. "${BASH_SOURCE%/*}/lib/small_text.sh"

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

full_pipe
"$train" "${tiny[@]}" --steps 60 --out "$folder/a" >&7 2>"$folder/said" &
pid=$!
wait_for_steps "$folder/a" 60
result $? "training goes on while nobody reads standard output" "$(steps_of "$folder/a") steps"
kill -TERM $pid # it has ended, and waits for the reader
end_within 5
[ $status = 0 ] && [ -e "$folder/a/checkpoints/step-00000060/rank-0000.state" ]
result $? "and SIGTERM ends the wait for its reader" "status $status: $(cat "$folder/said")"

for which in output error outputs; do
    full_pipe
    out=$folder/b-$which
    case $which in
    output) "$train" "${tiny[@]}" --steps 900000 --out "$out" >&7 2>"$folder/said" & ;;
    error) "$train" "${tiny[@]}" --steps 900000 --out "$out" >"$folder/said" 2>&7 & ;;
    outputs) "$train" "${tiny[@]}" --steps 900000 --out "$out" >&7 2>&1 & ;;
    esac
    pid=$!
    wait_for_steps "$out" 20
    kill -TERM $pid
    end_within 8
    last=$(tail -n 2 "$out/log.jsonl" | sed -n 's/^{"step":\([0-9]*\),"loss".*/\1/p')
    [ $status = 0 ] && [ "${last:-0}" -ge 20 ] &&
        [ -e "$out/checkpoints/step-$(printf %08d "${last:-0}")/rank-0000.state" ]
    result $? "SIGTERM saves and ends with 0 while the standard $which hang" \
        "status $status, step ${last:-none}: $(ls "$out/checkpoints")"
done

# A line that is refused, with standard error full: the one line is for whoever reads.
full_pipe
"$train" "${tiny[@]}" --steps 3 --out "$folder/a" 2>&7 >/dev/null &
pid=$!
sleep 1
said=$(head -c 65537 <&7 | tr -d '\0'; timeout 1 cat <&7)
end_within 5
[ $status = 2 ] && error_is 'E_OUT_HOLDS_RUN --resume'
result $? "a refused run says why as soon as somebody reads" "status $status: $said"

# What was dropped is counted. Lines of the prompt, which each sample repeats, fill the buffer.
prompt=$(head -c 20000 "$text")
loud=("${tiny[@]}" --steps 90 --sample-every 1 --sample-tokens 1 --prompt "$prompt")
"$train" "${loud[@]}" --out "$folder/whole" >"$folder/lines" 2>/dev/null
pipe
"$train" "${loud[@]}" --out "$folder/c" >&7 2>/dev/null &
pid=$!
wait_for_steps "$folder/c" 90
sleep 0.5
exec 8<"$folder/pipe" # a reader for itself, which sees the end
exec 7>&-
cat <&8 >"$folder/came" &
end_within 20
wait
exec 8<&-
# dropped_of FILE: how many lines it says it lacks, less those that say it.
dropped_of() {
    local told='dropped: the reader of standard output was too slow'
    sed -n "s/^\([0-9]*\) lines* [a-z]* $told\$/\1/p" "$1" |
        awk '{ all += $1; n++ } END { print all - n }'
}
# A disk that is busy may be too slow a reader, too.
dropped=$(dropped_of "$folder/came") came=$(wc -l <"$folder/came")
whole=$(($(wc -l <"$folder/lines") + $(dropped_of "$folder/lines")))
[ $status = 0 ] && [ "$dropped" -gt 0 ] && [ $((came + dropped)) = "$whole" ] &&
    [ "$(tail -n 1 "$folder/came")" = "$(tail -n 1 "$folder/lines")" ]
result $? "lines that nobody read in time are counted, and the last are there" \
    "status $status, $dropped dropped, $came of $whole came; $(tail -n 1 "$folder/came")"
grep -avE '^saved|tok/s|dropped: |^  (process|all|sum|.*[0-9]\.[0-9][0-9])' "$folder/came" |
    grep -avxFf "$folder/lines" >"$folder/torn"
[ ! -s "$folder/torn" ]
result $? "and no line is torn" "$(head -n 3 "$folder/torn")"
[ "$(steps_of "$folder/c")" = 90 ]
result $? "log.jsonl has them all"

if command -v python3 >/dev/null; then
    cat >"$folder/terminal.py" <<'P'
"""Starts a command on a terminal that nobody reads, once it is full; prints its process."""
import os, pty, subprocess, sys, time
ours, theirs = pty.openpty()
fill = os.open(os.ttyname(theirs), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
try:
    while True:
        os.write(fill, b"x" * 100)
except BlockingIOError:
    pass
os.close(fill)
p = subprocess.Popen(sys.argv[1:], stdout=theirs, stderr=theirs, env=dict(os.environ, TERM="xterm"))
print(p.pid, flush=True)
status = p.wait()
print("status", status, flush=True)
P
    python3 "$folder/terminal.py" "$train" "${tiny[@]}" --steps 900000 --out "$folder/terminal" \
        >"$folder/said" &
    helper=$!
    wait_for_steps "$folder/terminal" 50
    pid=$(head -n 1 "$folder/said")
    kill -TERM "$pid"
    for _ in $(seq 80); do
        grep -q '^status' "$folder/said" && break
        sleep 0.1
    done
    grep -qx 'status 0' "$folder/said" && [ -d "$folder/terminal/checkpoints" ]
    result $? "a terminal that is stopped stops neither training nor SIGTERM" \
        "$(cat "$folder/said")"
    kill -9 "$pid" 2>/dev/null
    wait $helper
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
refused "a trace to no name" 'E_FILE_KIND --trace*/*folder' --trace "$folder/" --out "$folder/g"

echo "1..$count"
exit $failed
