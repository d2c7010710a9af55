#!/bin/bash
# ./train on JSONL: several sources on one line, in config.json and on a resume; epochs; a plan that
# prepares nothing; and lines that say why not. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/fresh_runs.sh"

tiny=(--device cpu --dtype fp32 --layers 2 --heads 2 --channels 32 --seq-len 64 --batch 2
    --log-every 1 --threads 1 --no-tensorboard --tokenizer byte)
examples() { # examples N LETTER
    for ((i = 0; i < $1; i++)); do
        printf '{"prompt": "%s%d", "completion": "%s is the answer to %d"}\n' "$2" "$i" "$2" \
            $((i * i))
    done
}
go_on() {
    timeout 60 "$train" --out "$folder/out" --resume auto "$@"
}
# says NAME PATTERN: $said holds it.
says() {
    grep -qE -- "$2" <<<"$said"
    result $? "$1" "$said"
}
a=$folder/a.jsonl
b=$folder/b.jsonl
examples 60 a >"$a"
examples 40 b >"$b"

said=$(run --data "$a" --epochs 1 --plan 2>&1)
says "a plan says what an epoch needs" '--epochs 1: .* known once the data are prepared'
[ ! -e "$folder/cache/zero.c" ] || ! ls "$folder"/cache/zero.c/examples-* >/dev/null 2>&1
result $? "and prepares nothing"

refused "a plan of JSONL with --tokenizer ids" 'E_TOKENIZER_DATA --data*a.jsonl is JSONL' \
    --plan --data "$a" --tokenizer ids
echo '[]' >"$folder/form.json"
refused "a plan with a broken --chat-template" 'E_CHAT_TEMPLATE_FILE form.json: byte 1' \
    --plan --data "$a" --chat-template "$folder/form.json"
refused "a plan with an unknown --chat-template" 'E_CHAT_TEMPLATE --chat-template nobody' \
    --plan --data "$a" --chat-template nobody
refused "a plan whose --cache is a file" "E_CACHE_FOLDER --cache*a.jsonl" \
    --plan --data "$a" --cache "$a"
tr -d '"' <"$a" >"$folder/plain.txt"
refused "a plan of text with --tokenizer ids" 'E_TOKENIZER_DATA plain.txt is text' \
    --plan --data "$folder/plain.txt" --tokenizer ids

# ---- epochs ----
said=$(run --data "$a" --epochs 2 2>&1)
sequences=$(sed -n 's/^examples: sequences of .*: \([0-9]*\),.*/\1/p' <<<"$said")
steps=$(((2 * sequences + 1) / 2))
says "two epochs have their steps" \
    "^--epochs 2 makes --steps $steps of 2 sequences; an epoch has $sequences sequences"
says "which are made" "^step *$steps/$steps "
whole=$(hash_of <<<"$said")
[ "$whole" = "$(run --data "$a" --steps $steps 2>&1 | hash_of)" ]
result $? "and are those of --steps"
run --data "$a" --epochs 1 >/dev/null 2>&1
said=$(go_on 2>&1)
says "a resume keeps the epochs" "^--epochs 1 makes "
said=$(go_on --epochs 2 2>&1)
says "and may have more" "^step *$steps/$steps "
[ "$(hash_of <<<"$said")" = "$whole" ]
result $? "with the bits of a run that never stopped" "$said"
said=$(go_on --steps $((steps + 1)) 2>&1)
says "or steps instead" "^step *$((steps + 1))/$((steps + 1)) "
said=$(run --data "$a" --epochs 1 --batch 1 --global-batch $((sequences - 1)) 2>&1)
says "the last step of an epoch that does not fill it is made, too" '^step *2/2 '

# ---- several sources ----
said=$(run --data "$a:3" --data "$b" --steps 4 2>&1)
says "two sources train" '^weights hash: '
whole=$(hash_of <<<"$said")
grep -qF "\"$a:3\\n$b\"" "$folder/out/config.json"
result $? "config.json has both" "$(grep '"data"' "$folder/out/config.json")"
run --data "$a:3" --data "$b" --steps 2 >/dev/null 2>&1
said=$(go_on --steps 4 2>&1)
[ "$(hash_of <<<"$said")" = "$whole" ]
result $? "a resume goes on with both" "$said"
said=$(go_on --steps 5 --data "$a:2" --data "$b" 2>&1)
error_is 'E_CHECKPOINT_IDENTITY text of --data'
result $? "and not with other weights" "$said"
said=$(run --data "$b" --data "$a:3" --steps 4 2>&1)
[ "$(hash_of <<<"$said")" != "$whole" ]
result $? "their order matters"
echo words >"$folder/d.jsonl:3"
refused "a file of the very name, which is no JSONL" 'E_DATA_KINDS d.jsonl:3*JSONL' \
    --data "$folder/d.jsonl:3" --data "$a"

# ---- names of their own ----
sed 's/"prompt"/"frage"/; s/"completion"/"antwort"/' "$a" >"$folder/own.jsonl"
refused "members that nobody knows" 'E_EXAMPLE_KIND "frage", "antwort"' --data "$folder/own.jsonl"
whole=$(run --data "$a" --steps 3 2>&1 | hash_of)
said=$(run --data "$folder/own.jsonl" --data-map prompt=frage,completion=antwort --steps 2 2>&1)
says "a map names them" '^--data .*own.jsonl: prompt and completion; line 1, '
said=$(go_on --steps 3 2>&1)
[ "$(hash_of <<<"$said")" = "$whole" ]
result $? "a resume keeps it, and makes what the known names make" "$said"
said=$(go_on --sample-only --sample-tokens 1 2>&1)
result $? "and a sample needs no data" "$said"
refused "a map of text" 'E_DATA_MAP --data-map text=a*text' \
    --data "${BASH_SOURCE[0]}" --data-map text=a

# ---- packing ----
said=$(run --data "$a" --steps 1 2>&1)
packed=$(sed -n 's/^examples: sequences of .*: \([0-9]*\),.*/\1/p' <<<"$said")
says "packing tells how full" \
    "^examples: sequences of --seq-len 64 to train on: $packed, [0-9.]+% full"
said=$(run --data "$a" --steps 1 --pack off 2>&1)
says "without it each example has its own" '^examples: sequences of --seq-len 64 to train on: 54,'
said=$(run --data "$a" --steps 1 --seq-len 16 2>&1)
says "what is cut is told" \
    '^examples: cut to --seq-len 16: [0-9]+ of 60; targets that count and are lost .*: [0-9]+'
mkdir "$folder/many"
cp "$a" "$b" "$folder/many"
said=$(run --data "$folder/many" --steps 1 2>&1)
says "a folder of JSONL is one source" '^examples: 100, of '
cp "${BASH_SOURCE[0]}" "$folder/many/script"
refused "a folder with others" 'E_DATA_KINDS /script' --data "$folder/many"
refused "two kinds" 'E_DATA_KINDS a.jsonl*/script' --data "$a" --data "$folder/many/script"
mkfifo "$folder/p.jsonl"
refused "a pipe" 'E_DATA_PIPE p.jsonl' --data "$folder/p.jsonl"
refused "random among others" E_DATA_KINDS --data "$a" --data random
cp "$a" "$folder/a.json"
refused "examples in a file that is named .json, which validates text" \
    'E_DATA_KINDS --val-data*a.json' --data "$0" --val-data "$folder/a.json"
{ printf '[' && paste -sd , "$a" && printf ']\n'; } >"$folder/list.json"
whole=$(run --data "$a" --steps 2 2>&1 | hash_of)
cp "$a" "$folder/a.ndjson"
cp "$a" "$folder/upper.JSONL"
for name in a.json list.json a.ndjson upper.JSONL; do
    said=$(run --data "$folder/$name" --steps 2 2>&1)
    [ "$(hash_of <<<"$said")" = "$whole" ]
    result $? "$name is read as a.jsonl is" "$said"
done
mkdir "$folder/lists"
head -n 30 "$folder/a.json" >"$folder/lists/a.json"
said=$(run --data "$folder/lists" --steps 1 2>&1)
says "a folder of .json" '^examples: 30, of '
cp "$b" "$folder/lists"
said=$(run --data "$folder/lists" --steps 1 2>&1)
says "and of both" '^examples: 70, of '
sed '3s/"prompt"/"promt"/' "$a" | paste -sd , | sed 's/.*/[\n&\n]/' >"$folder/wrong.json"
refused "an element" 'E_EXAMPLE_KIND wrong.json: element 3 (line 2)' --data "$folder/wrong.json"
cp "$a" "$folder/a.txt"
refused "or .txt" 'E_DATA_LOOKS_JSON object' --data "$folder/a.txt"
refused "or from a pipe" 'E_DATA_LOOKS_JSON object' --data <(cat "$a")
printf '{"a": %s}\n' {1..99} >"$folder/config.json"
refused "any .json" 'E_EXAMPLE_KIND config.json: value 1 (line 1)' --data "$folder/config.json"

# ---- packed ----
whole=$(run --data "$a" --val-data "$b" --steps 3 2>&1 | hash_of)
gzip -c "$a" >"$folder/p.jsonl.gz"
{ head -n 9 "$b" | gzip -c && tail -n +10 "$b" | gzip -1 -c; } >"$folder/v.jsonl.gz"
said=$(run --data "$folder/p.jsonl.gz" --val-data "$folder/v.jsonl.gz" --steps 2 2>&1)
says "packed lines are told by their own name" 'p.jsonl.gz: prompt and completion; line 1, '
said=$(go_on --steps 3 2>&1)
[ "$(hash_of <<<"$said")" = "$whole" ]
result $? "and train as what is in them, over a resume" "$said"
mkdir "$folder/mixed"
cp "$folder/p.jsonl.gz" "$b" "$folder/mixed"
gzip -c "$folder/list.json" >"$folder/mixed/list.json.gz"
said=$(run --data "$folder/mixed" --steps 1 2>&1)
says "a folder of packed ones, and others" '^examples: 160, of '
said=$(run --data "file://$folder/p.jsonl.gz" --steps 1 2>&1)
says "packed behind a URL" '^weights hash: '
long=$(printf 'long-%.0s' {1..40}).jsonl.gz
cp "$folder/p.jsonl.gz" "$folder/$long"
said=$(run --data "file://$folder/$long" --steps 1 2>&1)
says "and by a long name" 'prompt and completion; line 1, '
head -c 100 "$folder/p.jsonl.gz" >"$folder/cut.jsonl.gz"
refused "cut short" 'E_UNPACK_CUT cut.jsonl.gz: byte 100' --data "$folder/cut.jsonl.gz"
mkdir "$folder/texts" "$folder/packed"
cat tests/*/*.sh | head -c 30000 >"$folder/texts/a.txt"
head -c 5000 docs/tests.md >"$folder/texts/b"
gzip -c "$folder/texts/a.txt" >"$folder/packed/a.txt.gz"
cp "$folder/texts/b" "$folder/packed"
head -c 9000 /dev/zero | gzip -c >"$folder/packed/no-text.gz"
whole=$(run --data "$folder/texts" --steps 1 2>&1 | hash_of)
said=$(run --data "$folder/packed" --steps 1 2>&1)
[ "$(hash_of <<<"$said")" = "$whole" ] && grep -q 'left out 1 file that is no text' <<<"$said"
result $? "a folder of text, packed" "$said"
said=$(run --data "$folder/packed/a.txt.gz" --steps 1 2>&1)
says "a packed text" '^weights hash: '
cp "$folder/cut.jsonl.gz" "$folder/packed/c.txt.gz"
refused "a packed text in a folder that is cut short" 'E_UNPACK_CUT c.txt.gz: byte 100' \
    --data "$folder/packed"
cp "$folder/p.jsonl.gz" "$folder/p.txt.gz"
refused "packed text that is examples" 'E_DATA_LOOKS_JSON p.txt.gz' --data "$folder/p.txt.gz"
mkdir "$folder/text"
cp "$folder/config.json" "$folder/text"
cp "$a" "$folder/text/a.txt"
{ echo && cat "$a"; } >"$folder/letters"
for name in letters text; do
    said=$(run --data "$folder/$name" --steps 1 2>&1)
    says "other JSON is text: $name" '^weights hash: '
done
printf '{"text": "good"}\n{"text": \n' >"$folder/bad.jsonl"
refused "a broken line" 'E_JSON_SYNTAX bad.jsonl: line 2' --data "$folder/bad.jsonl"
printf '\n{"prompt": "a",\n"completion": "b"}\n' >"$folder/spread.jsonl"
refused "an object over several lines" 'E_JSON_SYNTAX spread.jsonl: line 2: *NAME.json' \
    --data "$folder/spread.jsonl"
echo "1..$count"
exit $failed
