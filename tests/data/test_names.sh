#!/bin/bash
# ./train and names that come from outside: links in a folder of data are followed, and what is
# passed over is told. Speaks TAP.
#
# TRAIN names the program (default ./train).
set -u
train=$(realpath "${TRAIN:-./train}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/../lib/tap.sh"
. "${BASH_SOURCE%/*}/../lib/small_text.sh"

text=$folder/text.txt
small_text 400 >"$text"
small_text 100 | tr a-m n-z >"$folder/other.txt"
tiny=(--device cpu --dtype fp32 --tokenizer byte --layers 1 --heads 2 --channels 32 --seq-len 32
    --batch 4 --threads 1 --steps 1 --no-tensorboard)

run() { # run ARGUMENT...: a fresh run
    rm -rf "$folder/out"
    timeout 60 "$train" "${tiny[@]}" --out "$folder/out" "$@"
}
hash_of() {
    sed -n 's/^weights hash: //p'
}
# refused NAME PATTERN ARGUMENT...: a last line "train: ..." that matches, status 2.
refused() {
    local name=$1 pattern=$2 said status
    shift 2
    said=$(run "$@" 2>&1 >/dev/null)
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        tail -n 1 <<<"$said" | grep -qE -- "^train: .*$pattern"
    result $? "refused: $name" "status $status: $said"
}

# ---- links ----
# same NAME FOLDER [PATTERN]: trained on as the copies are, with a line that matches or none.
same() {
    local said
    said=$(run --data "$2" 2>&1)
    [ -n "$want" ] && [ "$(hash_of <<<"$said")" = "$want" ] &&
        if [ -n "${3:-}" ]; then grep -qE -- "$3" <<<"$said"; else
            ! grep -q 'passed over' <<<"$said"
        fi
    result $? "$1" "$said (wanted: $want)"
}
mkdir "$folder"/{copies,links,deep,mixed,nowhere,back,itself,nothing}
cp "$text" "$folder/copies/a.txt"
cp "$folder/other.txt" "$folder/copies/b.txt"
want=$(run --data "$folder/copies" 2>/dev/null | hash_of)
ln -s "$text" "$folder/links/a.txt"
ln -s ../other.txt "$folder/links/b.txt"
same "links are followed" "$folder/links"
ln -s "$folder/links" "$folder/deep/folder"
same "and so are links to folders" "$folder/deep"
cp -P "$folder/links/a.txt" "$folder/mixed"
cp "$folder/other.txt" "$folder/mixed/b.txt"
mkdir "$folder/mixed/.git"
mkfifo "$folder/mixed/c"
cp "$text" "$folder/mixed/.git/more.txt"
cp "$text" "$folder/mixed/.more.txt"
same "what is passed over is told" "$folder/mixed" \
    "^--data $folder/mixed: passed over: 2 hidden, 1 that is a pipe, a socket or a device$"
cp "$text" "$folder/nowhere"
ln -s gone "$folder/nowhere/b.txt"
refused "a link to nothing" \
    "--data $folder/nowhere/b.txt: it is a link that leads to nothing: No such" \
    --data "$folder/nowhere"
ln -s .. "$folder/back/up"
refused "a link back" "--data $folder/back/up.*: it is a link back to .*; remove it" \
    --data "$folder/back"
ln -s self "$folder/itself/self"
refused "a link to itself" "--data $folder/itself/self: it is a link .*: Too many levels" \
    --data "$folder/itself"
touch "$folder/nothing/.hidden.txt"
refused "a folder with hidden files alone" "there is no text in it" --data "$folder/nothing"

echo '{"text": "one and two"}' >"$folder/line.jsonl"
mkdir "$folder/lines"
ln -s ../line.jsonl "$folder/lines/a.jsonl"
touch "$folder/lines/.b.jsonl"
said=$(run --data "$folder/lines" --val-data "$folder/lines" 2>&1)
[ -n "$(hash_of <<<"$said")" ] && grep -q "^--data .*lines: passed over: 1 hidden, 0 " <<<"$said"
result $? "JSONL may be linked, too" "$said"

echo "1..$count"
exit $failed
