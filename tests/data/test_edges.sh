#!/bin/bash
# ./train and what lies about its data: pipes are trained on whole, devices refused before they are
# read, a shard that is cut while it is read costs a line and not a signal, and planted links and
# caches of others are left alone. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/fresh_runs.sh"

text=$folder/text.txt
small_text 400 >"$text"
tiny=(--device cpu --dtype fp32 --tokenizer byte --layers 2 --heads 2 --channels 32 --seq-len 32
    --batch 4 --log-every 1 --threads 1 --steps 3 --no-tensorboard)

# same NAME: what is in $said is a run with the hash of the file.
same() {
    [ -n "$want" ] && [ "$(hash_of <<<"$said")" = "$want" ]
    result $? "$1" "$said (wanted: $want)"
}

# ---- pipes ----
want=$(run --data "$text" 2>/dev/null | hash_of)
said=$(run --data <(cat "$text") 2>&1)
same "a pipe is trained on whole"
said=$(run --data /dev/stdin --cache "$folder/other" 2>&1 < <(cat "$text"))
same "and so is standard input, with a fresh cache"
said=$(run --data /dev/stdin 2>&1 <"$text")
same "standard input may be a file"
mkfifo "$folder/pipe"
timeout 20 cat "$text" >"$folder/pipe" &
pid=$!
said=$(run --data "$folder/pipe" 2>&1)
same "and a named pipe"
kill $pid 2>/dev/null
pid=
want=$(run --data "$text" --val-data "$text" 2>/dev/null | hash_of)
said=$(run --data <(cat "$text") --val-data <(cat "$text") 2>&1)
same "two pipes, one to validate on"
refused "an empty pipe" 'E_DATA_PIPE --data /dev/fd/' --data <(true)

ids=$folder/ids.bin # 40,000 ids below 256, as a shard
perl -e 'print pack("l<256", 20240520, 1, 40000, (0) x 253);
    print pack("S<*", map { $_ * 7 % 251 } 1..40000)' >"$ids"
refused "shards in a pipe" E_DATA_PIPE --data <(cat "$ids")
if command -v mpirun >/dev/null && "$train" --version | grep -qE '^OpenMPI +[0-9]'; then
    . "${BASH_SOURCE%/*}/../lib/mpi_env.sh"
    said=$(timeout -k 5 60 mpirun -np 2 "$train" "${tiny[@]}" --out "$folder/out" \
        --data "$folder/pipe" 2>&1)
    [ "$(grep -c '^train: ' <<<"$said")" = 1 ] && error_is 'E_DATA_PIPE --data*pipe'
    result $? "refused: a pipe for several processes" "$said"
fi

# ---- what is no file ----
refused "a device without an end" 'E_FILE_KIND --data /dev/zero' --data /dev/zero
mkdir "$folder/fold" && printf 'abc\xff' >"$folder/fold/x.txt"
refused "a file of a folder to validate on" 'E_UTF8 --val-data*fold/x.txt: byte 3' --data "$text" \
    --val-data "$folder/fold"
printf 'GIF89a\x80\x02\xe0' >"$folder/some.gif"
refused "what is no text to validate on" 'E_UTF8 --val-data *some.gif: byte 6' \
    --data "$text" --val-data "$folder/some.gif"
said=$("$train" --plan --device cpu --data "$text" --val-data "$folder/some.gif" 2>&1)
[ $? = 2 ] && error_is 'E_UTF8 --val-data *some.gif: byte 6'
result $? "refused: and in a plan that reads the text" "$said"
refused "a device to validate on" 'E_FILE_KIND --val-data /dev/zero' --data "$text" \
    --val-data /dev/zero
refused "a pipe as a tokenizer" 'E_FILE_KIND --tokenizer*p.model' --data "$text" \
    --tokenizer "$(mkfifo "$folder/p.model" && echo "$folder/p.model")"
refused "a pipe as a configuration" 'E_FILE_KIND pipe' --data "$text" --config "$folder/pipe"
mkdir "$folder/texts" "$folder/shards"
cp "$text" "$folder/texts"
mkfifo "$folder/texts/pipe"
said=$(run --data "$folder/texts" 2>&1)
[ -n "$(hash_of <<<"$said")" ]
result $? "a pipe in a folder of texts is passed over" "$said"
cp "$ids" "$folder/shards"
mkfifo "$folder/shards/a.bin"
refused "a pipe in a folder of shards" 'E_FILE_KIND shards/a.bin' --data "$folder/shards"

# ---- what is too large ----
# large NAME FILE BYTES ARGUMENT...: a file of so many bytes is refused, by a line and no signal.
large() {
    local name=$1 file=$2 bytes=$3 said status
    shift 3
    truncate -s "$bytes" "$file"
    said=$(timeout 60 "$train" --device cpu --out "$folder/out" "$@" 2>&1)
    status=$?
    rm -f "$file"
    [ $status = 2 ] &&
        error_is "E_FILE_TOO_LARGE ${file##*/}*$((bytes - 1)) bytes"
    result $? "too large: $name" "status $status: $said"
}
mkdir "$folder/model"
cp "${BASH_SOURCE%/*}/../fixtures/hf/llama/"*.safetensors "$folder/model"
large "a model's configuration" "$folder/model/config.json" 1048577 --init "hf:$folder/model" \
    --data "$ids"
cp "${BASH_SOURCE%/*}/../fixtures/hf/llama/config.json" "$folder/model"
large "the index of its shards" "$folder/model/model.safetensors.index.json" 67108865 \
    --init "hf:$folder/model" --data "$ids"
cp "${BASH_SOURCE%/*}/../fixtures/bpe/llama3/tokenizer.json" "$folder/model"
large "what is beside a tokenizer" "$folder/model/tokenizer_config.json" 67108865 --data "$text" \
    --tokenizer "$folder/model"
echo '{"prompt": "a", "completion": "b"}' >"$folder/asked.jsonl"
large "a template" "$folder/form.json" 1048577 --data "$folder/asked.jsonl" --tokenizer byte \
    --chat-template "$folder/form.json"

# ---- a shard that is cut while it is read ----
cp "$ids" "$folder/cut.bin"
timeout 60 "$train" "${tiny[@]}" --steps 1000000 --data "$folder/cut.bin" --out "$folder/long" \
    >"$folder/said" 2>&1 &
pid=$!
for _ in $(seq 300); do
    grep -q 'step *3/' "$folder/said" && break
    sleep 0.1
done
truncate -s 3000 "$folder/cut.bin"
wait $pid
status=$?
pid=
said=$(tail -n 5 "$folder/said")
[ $status = 2 ] && error_is 'E_FILE_CHANGED --data*cut.bin*3000'
result $? "a shard that is cut costs a line, and no signal" "status $status: $said"

# ---- links and owners ----
echo precious >"$folder/victim"
mkdir -p "$folder/planted"
ln -s "$folder/victim" "$folder/planted/config.json.tmp"
ln -s "$folder/victim" "$folder/planted/memory.json.tmp"
ln -s "$folder/victim" "$folder/cache/zero.c/machine.txt.tmp"
rm -f "$folder/cache/zero.c/machine.txt"
said=$(run --data "$text" --out "$folder/planted" 2>&1)
[ -n "$(hash_of <<<"$said")" ] && [ "$(cat "$folder/victim")" = precious ]
result $? "links planted beside files lead nowhere" "$said"

# ---- what is waited for ----
waits="^measuring this machine; the results are kept in $folder/fresh/machine.txt\$"
said=$(run --data "$text" --cache "$folder/fresh" 2>&1)
[ "$(grep -c "$waits" <<<"$said")" = 1 ] &&
    [ "$(grep -m 1 -E "$waits|^memory" <<<"$said" | grep -c "$waits")" = 1 ]
result $? "a measurement is told before it is made" "$said"
sed -i 's/ again$//' "$folder/fresh/machine.txt"
said=$(run --data "$text" --cache "$folder/fresh" 2>&1)
[ -n "$(hash_of <<<"$said")" ] && ! grep -q "$waits" <<<"$said"
result $? "and what is kept is not" "$said"
if "$train" --version | grep -qE '^SentencePiece +[0-9]'; then
    for want in 1 0; do
        said=$(run --data "$text" --cache "$folder/fresh" --tokenizer train:300 2>&1)
        [ "$(grep -c '^tokenizer: learning 300 pieces from 0.0 MB of text$' <<<"$said")" = $want ]
        result $? "a tokenizer that is learned is told $want times" "$said"
    done
fi

[ "$(stat -c %a "$folder/cache/zero.c")" = 700 ]
result $? "the cache is its user's alone" "$(ls -ld "$folder/cache/zero.c")"
foreign=/
if [ "$(id -u)" = 0 ]; then
    foreign=$folder/foreign
    mkdir "$foreign"
    chown 54321 "$foreign"
fi
refused "a cache of another user" "E_CACHE_UNSAFE --cache $foreign*--cache DIR" \
    --data "$text" --cache "$foreign"
refused "a cache that cannot be made" 'E_FILE_WRITE /proc/none' --data "$text" --cache /proc/none
mkdir "$folder/small"
if mount -t tmpfs -o size=16k,mode=700 none "$folder/small" 2>/dev/null; then
    refused "a cache on a full disk" "E_FILE_WRITE --cache $folder/small" \
        --data "$text" --cache "$folder/small"
    [ -z "$(ls -A "$folder/small")" ]
    result $? "and nothing is left in it" "$(ls -AR "$folder/small")"
    mount -o remount,ro "$folder/small"
    refused "a cache that is read-only" 'E_CACHE_FOLDER --cache' \
        --data "$text" --cache "$folder/small"
    umount "$folder/small"
fi

# ---- prepared beforehand ----
said=$(run --data "$text" --cache "$folder/before" --prepare-only 2>/dev/null)
[ ! -e "$folder/out" ] && [[ $said = "prepared: "*" a vocabulary of 256, for --steps "*"$folder/before/text-"* ]]
result $? "--prepare-only prints where the shards lie, and leaves --out alone" "$said"
want=$(run --data "$text" 2>/dev/null | hash_of)
said=$(run --data "$text" --cache "$folder/before" 2>&1)
same "and the run encodes nothing"
! grep -q '^tokens: ' <<<"$said"
result $? "at all" "$said"
said=$(run --data "$text" --cache "$folder/before" --prepare-only --steps 7 --global-batch 24)
[[ $said = *" for --steps 7, --global-batch 24: "* ]]
result $? "and says for how many samples" "$said"
said=$("$train" --device cpu --data "$text" --seq-len 32 --prepare-only --epochs 2 2>/dev/null)
[[ $said = *" for --epochs 2: "* ]]
result $? "or epochs" "$said"
refused "random data, prepared" 'E_ONLY_CONFLICT --prepare-only' --data random --prepare-only
said=$("$train" --init "hf:${BASH_SOURCE%/*}/../fixtures/hf/gpt2" --prepare-only 2>&1)
[ $? = 2 ] && error_is 'E_DATA_MISSING --data'
result $? "refused: a model without data, prepared" "$said"
refused "data alone, and a sample" 'E_ONLY_CONFLICT --prepare-only' --data "$text" --prepare-only \
    --sample-only --resume auto

# ---- litter ----
old=$folder/cache/zero.c/text-0123456789abcdef.Ab3dE6
mkdir "$old"
head -c 100000 /dev/zero >"$old/train.bin"
said=$(run --data "$text" 2>&1)
[ ! -e "$old" ] && grep -q -- '--cache: removed .*text-0123456789abcdef.Ab3dE6 (0.1 MB)' <<<"$said"
result $? "what a killed run has left aside is removed" "$said"

echo "1..$count"
exit $failed
