#!/bin/bash
# ./train and names that come from outside: links in a folder of data are followed, and what is
# passed over is told; no name reaches the terminal with what it would obey, none is cut short; and
# a URL's password is written down nowhere. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/fresh_runs.sh"

text=$folder/text.txt
small_text 400 >"$text"
small_text 100 | tr a-m n-z >"$folder/other.txt"
tiny=(--device cpu --dtype fp32 --tokenizer byte --layers 1 --heads 2 --channels 32 --seq-len 32
    --batch 4 --threads 1 --steps 1 --no-tensorboard)
usual=("${tiny[@]}")

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
refused "a link to nothing" "E_DATA_LINK --data $folder/nowhere/b.txt" --data "$folder/nowhere"
ln -s .. "$folder/back/up"
refused "a link back" "E_DATA_LINK --data $folder/back/up/back" --data "$folder/back"
ln -s self "$folder/itself/self"
refused "a link to itself" "E_DATA_LINK --data $folder/itself/self" --data "$folder/itself"
touch "$folder/nothing/.hidden.txt"
refused "a folder with hidden files alone" E_FILE_EMPTY --data "$folder/nothing"

echo '{"text": "one and two"}' >"$folder/line.jsonl"
mkdir "$folder/lines"
ln -s ../line.jsonl "$folder/lines/a.jsonl"
touch "$folder/lines/.b.jsonl"
said=$(run --data "$folder/lines" --val-data "$folder/lines" 2>&1)
[ -n "$(hash_of <<<"$said")" ] && grep -q "^--data .*lines: passed over: 1 hidden, 0 " <<<"$said"
result $? "JSONL may be linked, too" "$said"

# ---- control characters ----
esc=$(printf '\033[31m')
# escaped NAME ERROR ARGUMENT...: refused with the name as it may be shown, and no control byte.
escaped() {
    refused "$@"
    shift 2
    ! run "$@" 2>&1 | tr -d '\n\t' | grep -qP '[\x00-\x1f\x7f]'
    result $? "and no byte of it is obeyed"
}
escaped "an escape in --data" 'E_DATA_NO_MATCH --data none\\x1b\[31m' --data "none$esc"
escaped "an escape in --init" 'E_FILE_READ --init hf:\\x1b\[31m' --data random --init "hf:$esc"
printf '{"lay\\u001b[31mers": 3}' >"$folder/odd.json"
escaped "a key of --config" 'E_CONFIG_KEY "lay\\x1b\[31mers"' --config "$folder/odd.json"
touch "$folder/file"
escaped "an escape in --out" 'E_NOT_A_FOLDER x\\x1b\[31m' --data "$text" --out "$folder/file/x$esc"
tiny=()
escaped "a key of --cluster" 'E_CLUSTER_FILE "lay\\x1b\[31mers"' --plan --cluster "$folder/odd.json"
mkdir "$folder/model"
cp "${BASH_SOURCE%/*}/../fixtures/hf/llama/config.json" "$folder/model"
index=$folder/model/model.safetensors.index.json
printf '{"weight_map": {"x": "\\u001b[31m"}}' >"$index"
escaped "a shard's name" 'E_FILE_READ /\\x1b\[31m' --data random --init "hf:$folder/model"
cp "${BASH_SOURCE%/*}/../fixtures/hf/llama/"*.safetensors "$folder/model"
sed 's/00001-of-00007.safetensors/&\\u0000x/' \
    "${BASH_SOURCE%/*}/../fixtures/hf/llama/model.safetensors.index.json" >"$index"
refused "a shard's name with a zero byte" 'E_ZERO_BYTE index.json' \
    --data random --init "hf:$folder/model"
tiny=("${usual[@]}")
printf '{"data": "%s\\u0000x"}' "$text" >"$folder/odd.json"
refused "a value of --config with one" 'E_ZERO_BYTE odd.json' --config "$folder/odd.json"
cp "$text" "$folder/broken"$'\n'name
refused "a line break in --data" E_FLAG_LINE_BREAK \
    --data "$folder/broken"$'\n'name

# ---- passwords ----
(cd "$folder/copies" && exec python3 -u -m http.server --bind 127.0.0.1 0 >"$folder/served" 2>&1) &
server=$!
for _ in $(seq 100); do
    port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$folder/served")
    [ -z "$port" ] || break
    sleep 0.1
done
where=//user:secret@127.0.0.1:$port
said=$(run --data "http:$where/c.txt?token=secret" 2>&1)
error_is "E_URL_STATUS --data http://\*\*\*@127.0.0.1:$port/c.txt\?\*\*\*:*404" &&
    [[ $said != *secret* ]]
result $? "a URL's password and query are not told" "$said"
url="http:$where/a.txt?token=secret"
said=$(run --data "$url" --save-every 1 2>&1)
[ -n "$(hash_of <<<"$said")" ] && ! grep -rq secret "$folder/out" "$XDG_CACHE_HOME" &&
    [ -z "$(find "$XDG_CACHE_HOME" -name '*secret*')" ] && [[ $said != *secret* ]]
result $? "and written down nowhere" "$said; $(grep -rl secret "$folder/out" "$XDG_CACHE_HOME")"
said=$("$train" --out "$folder/out" --resume auto --steps 2 2>&1)
[ $? = 2 ] &&
    error_is 'E_URL_SECRET --data*--data'
result $? "a resume that needs them says so" "$said"
said=$("$train" --out "$folder/out" --resume auto --steps 2 --data "$url" 2>&1)
[ -n "$(hash_of <<<"$said")" ] && grep -q '^resumed after step 1' <<<"$said"
result $? "and takes them from the line" "$said"

rm -rf "$XDG_CACHE_HOME/zero.c/downloads" "$folder/elsewhere"
mkdir "$folder/elsewhere"
ln -s "$folder/elsewhere" "$XDG_CACHE_HOME/zero.c/downloads"
refused "a link in the cache" 'E_CACHE_UNSAFE --cache*/zero.c: downloads' --data "$url"
[ -z "$(ls -A "$folder/elsewhere")" ]
result $? "and nothing is written through it" "$(ls -A "$folder/elsewhere")"

echo "1..$count"
exit $failed
