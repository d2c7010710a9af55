#!/bin/bash
# ./train as a user meets it: bad input is one clear line and status 2 with nothing left behind,
# signals save and end with 0, and a resumed run is the run that never stopped. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/lib/own_folder.sh"

text=$folder/text.txt
small_text 400 >"$text"
# On every machine the same: without these two, the machine chooses.
here=(--device cpu --dtype fp32)
tiny=("${here[@]}" --data "$text" --tokenizer byte --layers 2 --heads 2 --channels 32 --seq-len 32
    --batch 4 --log-every 0)

# refused NAME ERROR ARGUMENT...: one line "train: ..." with that error, status 2, no --out folder.
# (What was done before the fault was found, "tokens: ...", may stand above it.)
refused() {
    local name=$1 error=$2 said status out=$folder/refused
    shift 2
    said=$(timeout 60 "$train" --out "$out" "$@" 2>&1 >/dev/null)
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] && [ ! -e "$out" ] &&
        error_is "$error"
    result $? "refused: $name" "status $status: $said"
    rm -rf "$out"
}

refused "no data" 'E_DATA_MISSING --data' --steps 1
said=$("$train")
[ $? = 2 ] && [ "$said" = "$("$train" --help)" ]
result $? "without a flag: the short help" "$said"
refused "a sample of no run, before its data" 'E_ONLY_CHECKPOINT --sample-only' --sample-only
refused "a sample of no run in --out" 'E_RUN_MISSING --sample-only*/refused' \
    --sample-only --resume auto
refused "data that is not there" 'E_FILE_READ /no/such' --data /no/such
refused "channels that heads do not divide" 'E_HEADS --channels 32*--heads 3' "${tiny[@]}" --heads 3
refused "a model nobody knows" 'E_MODEL_NAME --model gpt5*mean gpt2?' "${tiny[@]}" --model gpt5
no_gpu=$("$train" --version | awk '/^CUDA/ { print $2 + 0 ? "E_GPU_MISSING" : "E_BUILD_LACKS" }')
refused "a trace in no folder" 'E_FILE_WRITE --trace*none/t.json' \
    "${tiny[@]}" --trace "$folder/none/t.json"
refused "a trace of no step" 'E_ONLY_CONFLICT --trace' \
    "${tiny[@]}" --resume auto --sample-only --trace t.json
refused "a trace of memory in no folder" 'E_FILE_WRITE --trace-zero*none/t.json' \
    "${tiny[@]}" --trace-zero "$folder/none/t.json"
refused "a trace of memory of no step" 'E_ONLY_CONFLICT --trace-zero' \
    "${tiny[@]}" --resume auto --sample-only --trace-zero t.json
refused "kernels nobody knows" 'E_KERNELS_NAME sse9' "${tiny[@]}" --kernels sse9
refused "a run larger than the device" 'E_MEMORY --device-mem' "${tiny[@]}" --device-mem 100k
refused "a sample without a checkpoint" 'E_ONLY_CHECKPOINT --sample-only*--resume' \
    "${tiny[@]}" --sample-only
refused "a config that is not there" 'E_FILE_READ /no/config' "${tiny[@]}" --config /no/config
refused "an address that is none" 'E_URL_BROKEN http://' --data "http://" --tokenizer byte
printf 'short' >"$folder/short.txt"
head -c 400 "$text" >"$folder/forty.txt"
printf 'good text \xff\xfe and bad' >"$folder/latin.txt"
# of NAME: the tiny run's arguments, with that file of the folder for its text.
of() {
    other=("${tiny[@]/#$text/$folder/$1}")
}
of short.txt
refused "a text shorter than a sequence" E_DATA_TOO_SMALL "${other[@]}"
of forty.txt
refused "a sequence longer than the text, with the longest that it has" \
    'E_DATA_TOO_SMALL 40 tokens*--seq-len 39' "${other[@]}" --seq-len 40
refused "a text that is not UTF-8, with the place" 'E_UTF8 latin.txt*10' \
    --data "$folder/latin.txt" --tokenizer byte
refused "a tokenizer that is not there" 'E_FILE_READ no.model' "${tiny[@]}" --tokenizer /no.model

: >"$folder/cut.bin"
# A folder that cannot be made is found before the text is prepared.
# early NAME ERROR ARGUMENT...: refused before any text is prepared, and any table printed.
early() {
    local name=$1 error=$2 said status
    shift 2
    said=$("$train" "${tiny[@]}" --cache "$folder/unused" "$@" 2>&1)
    status=$?
    [ $status = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] && [ ! -e "$folder/unused" ] &&
        error_is "$error"
    result $? "refused before anything is prepared: $name" "status $status: $said"
    rm -rf "$folder/unused"
}
early "a device that is not here" "$no_gpu --device cuda" --device cuda
early "sizes past all memory" E_SHAPE_RANGE --batch 60000 --seq-len 500 --channels 4M --heads 16k \
    --layers 1000
early "a disk that is not there" 'E_NVME_PATH --nvme-path /no/such' \
    --offload-param nvme --nvme-path /no/such
early "a batch, with the counts of ranks that share the step" \
    'E_GLOBAL_BATCH --global-batch 12*8*--global-batch 8 or 16*--ranks 1 or 3' \
    --batch 4 --ranks 2 --global-batch 12
early "a prompt that is not UTF-8" 'E_UTF8 --prompt: byte 1 (0xff)' --prompt $'a\xff'
early "a checkpoint that is not there" 'E_CHECKPOINT_MISSING --resume /no/such' \
    --resume /no/such --out "$folder/none"
early "an --out that is a file" "E_NOT_A_FOLDER --out $folder/cut.bin" --out "$folder/cut.bin"
early "an --out below a file" "E_NOT_A_FOLDER --out $folder/cut.bin/x: $folder/cut.bin" \
    --out "$folder/cut.bin/x"
echo '{"min-lr": 1}' >"$folder/min-lr.json"
early "a value with the file that it is from" \
    'E_MIN_LR --min-lr 1*--lr 0.0006*(--lr: the default; --min-lr: from *min-lr.json)' \
    --config "$folder/min-lr.json"
said=$("$train" "${tiny[@]}" --steps 1 --out /proc/none 2>&1 >/dev/null)
[ $? = 2 ] && error_is 'E_FILE_WRITE --out*/proc/none'
result $? "refused: an --out that cannot be written" "$said"

# ---- runs ----

run() { timeout 120 "$train" "${tiny[@]}" "$@"; }

said=$(run --steps 12 --out "$folder/whole" 2>/dev/null)
whole=$(hash_of <<<"$said")
[ -n "$whole" ] && [ "$(grep -cx "saved $folder/whole/checkpoints/step-00000012" <<<"$said")" = 1 ]
result $? "a run ends with the checkpoint that it saved, and its weights' hash" "$whole: $said"
# A token is a byte here, and a bit is ln 2 nats.
grep '^step 12  validation loss .* bits per byte  (all [0-9]* sequences)$' <<<"$said" |
    awk '{ off = $5 / log(2) - $8; over = $7 / exp($5) - 1
        exit !($6 == "perplexity" && off < 2e-4 && off > -2e-4 && over < 2e-4 && over > -2e-4) }' &&
    grep -q '"val_loss":[0-9.]*,"perplexity":[0-9.]*,"bits_per_byte":[0-9.]*}$' \
        "$folder/whole/log.jsonl"
result $? "and with perplexity and bits per byte of the whole validation part" "$said"
run --steps 6 --out "$folder/parts" >/dev/null 2>&1
said=$("$train" --steps 12 --out "$folder/parts" --resume auto 2>&1)
[ "$(hash_of <<<"$said")" = "$whole" ]
result $? "6 steps, resume, 6 steps: the bits of 12 steps" "$said"
grep -qx 'resumed after step 6 (ranks 1, micro-batches 1)' <<<"$said" &&
    ! grep -q 'shards nothing' <<<"$said"
result $? "and it says from where it goes on" "$said"
again=$("$train" --steps 12 --out "$folder/parts" --resume auto 2>&1)
[ "$(hash_of <<<"$again")" = "$whole" ] && ! grep -q '^saved' <<<"$again" &&
    grep -qx 'step 12 of 12 is done already; --steps N trains on' <<<"$again"
result $? "a run that has ended says that there is nothing to do" "$again"
[ "$(grep -c '"loss"' "$folder/parts/log.jsonl")" = 12 ]
result $? "the resumed log has every step once" "$(cat "$folder/parts/log.jsonl")"

said=$(run --steps 12 --out "$folder/parts" 2>&1 >/dev/null)
[ $? = 2 ] && error_is 'E_OUT_HOLDS_RUN --resume'
result $? "refused: an --out that holds a checkpoint, without --resume" "$said"
# Other ranks and another stage: the same sequences, from the same weights.
run --steps 4 --ranks 2 --zero 3 --batch 2 --out "$folder/ranks" >/dev/null 2>&1
for change in "--ranks 1 --batch 4" "--ranks 2 --zero 1" "--ranks 4 --zero 2" "--ranks 1"; do
    rm -rf "$folder/reshaped"
    cp -r "$folder/ranks" "$folder/reshaped"
    # shellcheck disable=SC2086
    said=$("$train" --steps 8 $change --out "$folder/reshaped" --resume auto 2>&1)
    grep -q '^weights hash' <<<"$said" && grep -q '^resumed after step 4' <<<"$said"
    result $? "resumed with $change" "$said"
done
# When the tenth is known, the step behind it is under way.
said=$(run --ranks 2 --steps 30 --lr 1000 --clip 0 --eps 1e-30 --beta2 0 --out "$folder/wild" 2>&1)
[ $? = 2 ] && [ "$(grep -c 'is not finite, the update was skipped' <<<"$said")" = 11 ] &&
    error_is 'E_DIVERGED 10*--lr'
result $? "fault_09: updates that are not finite are skipped on all ranks; ten of them end it" \
    "$said"
# fp16, with a scale so large that it is halved on the way, across a resume.
fp16=(--dtype fp16 --loss-scale 16Mi --loss-scale-hysteresis 2)
said=$(run "${fp16[@]}" --steps 12 --out "$folder/fp16" 2>&1)
fp16_whole=$(hash_of <<<"$said")
grep -q '^step 1: .* skipped, the loss scale stays at 16777216 (.*sis 1 left)$' <<<"$said" &&
    grep -q '^step 2: .* skipped, the loss scale is halved to 8388608$' <<<"$said" &&
    ! grep -q -- -nan <<<"$said" && grep -q '^step  *12/12  loss [0-9.]*  norm [0-9.]' <<<"$said"
result $? "fp16 finds its loss scale, and tells of it" "$said"
said=$(grep '"loss":' "$folder/fp16/log.jsonl")
[ "$(grep -c '"loss_scale":16777216,' <<<"$said")" = 2 ] &&
    grep -q '^{"step":3,.*"loss_scale":8388608,' <<<"$said" &&
    [ "$(grep -c '"loss_scale":' <<<"$said")" = 12 ]
result $? "and logs it with each step" "$said"
run "${fp16[@]}" --steps 5 --out "$folder/fp16-parts" >/dev/null 2>&1
said=$("$train" --steps 12 --out "$folder/fp16-parts" --resume auto 2>&1)
[ "$fp16_whole" ] && [ "$(hash_of <<<"$said")" = "$fp16_whole" ]
result $? "fp16 resumed is fp16 that never stopped" "$fp16_whole: $said"
said=$(run --steps 20 --dtype fp16 --out "$folder/fp16-parts" --resume auto \
    --loss-scale-window 4 2>&1)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY --loss-scale-window 1000'
result $? "refused: a resume with another --loss-scale-window, by name" "$said"
said=$(run --dtype fp16 --loss-scale 4 --steps 40 --lr 1000 --out "$folder/fp16-wild" 2>&1)
[ $? = 2 ] && grep -q 'the loss scale stays at 1, its minimum$' <<<"$said" &&
    error_is 'E_DIVERGED 10'
result $? "fp16 gives up at the least loss scale alone" "$said"
said=$(run --steps 20 --out "$folder/parts" --resume auto --lr 1e-4 2>&1 >/dev/null)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY --lr'
result $? "refused: a resume with another --lr, by name" "$said"
said=$(run --steps 20 --out "$folder/parts" --resume auto --channels 64 2>&1 >/dev/null)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY --channels'
result $? "refused: a checkpoint of another model, by name" "$said"

said=$(run --steps 20 --out "$folder/parts" --resume auto --kernels base 2>&1 >/dev/null)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY --kernels'
result $? "refused: a resume with other kernels, by name" "$said"
early "a resume past its end" 'E_STEPS_DONE --steps 3' --steps 3 --out "$folder/parts" --resume auto
said=$(run --steps 20 --out "$folder/parts" --resume "$folder/parts/checkpoints/step-00000006" \
    2>&1 >/dev/null)
[ $? = 2 ] && error_is E_RESUME_LATER
result $? "refused: an older checkpoint while --out holds a later one" "$said"
said=$(run --out "$folder/nothing" --resume auto --sample-only 2>&1 >/dev/null)
[ $? = 2 ] && error_is E_CHECKPOINT_MISSING && [ ! -e "$folder/nothing" ]
result $? "refused: a sample of a run without a checkpoint" "$said"
run --steps 30 --out "$folder/pipe" --log-every 1 2>/dev/null | head -n 3 >/dev/null
[ -e "$folder/pipe/checkpoints/step-00000030" ]
result $? "a reader that goes away does not end the run" "$(ls "$folder/pipe/checkpoints")"

# Without --tokenizer and --seq-len the text chooses, and config.json remembers.
head -c 2000 "$text" >"$folder/short.txt"
said=$("$train" "${here[@]}" --data "$folder/short.txt" --model gpt2 --layers 1 --heads 2 \
    --channels 32 --steps 2 --zero 3 --out "$folder/fits" 2>&1)
[ $? = 0 ] && grep -q '^tokenizer: byte (chosen for 2 KiB of text)$' <<<"$said" &&
    grep -q '^--seq-len 128 instead of 1024: there are 200 tokens' <<<"$said" &&
    grep -q '"tokenizer":.*"byte"' "$folder/fits/config.json" &&
    grep -q '"seq-len":.*128' "$folder/fits/config.json" &&
    [ "$(grep -c -- '^--zero 3 with one rank shards nothing; raise --ranks' <<<"$said")" = 1 ]
result $? "a short text has bytes and short sequences" "$said"
planned=$("$train" "${here[@]}" --data "$folder/short.txt" --model gpt2 --layers 1 --heads 2 \
    --channels 32 --plan 2>&1)
line=$(grep '^--seq-len ' <<<"$said")
[ "$line" ] && grep -qx -- "$line" <<<"$planned"
result $? "and its plan says so in the same words" "$planned"
said=$("$train" --steps 3 --out "$folder/fits" --resume auto 2>&1)
[ $? = 0 ] && ! grep -q 'chosen for' <<<"$said" && grep -q '^resumed after step 2' <<<"$said"
result $? "and a resumed run keeps them" "$said"

# ---- what nobody names ----

# word OUT FLAG: what the run's config.json has for it.
word() { sed -n "s/^[ \t]*\"$2\":[ \t]*\"\(.*\)\",*$/\1/p" "$1/config.json"; }
usual=("${tiny[@]:${#here[@]}}")
said=$("$train" "${usual[@]}" --steps 3 --out "$folder/usual" 2>/dev/null)
chosen=$(hash_of <<<"$said")
device=$(word "$folder/usual" device) dtype=$(word "$folder/usual" dtype)
[ "$(grep -c "^device: $device (chosen), dtype: $dtype (chosen)$" <<<"$said")" = 1 ] &&
    [[ $device =~ ^(cpu|cuda)$ ]] && [[ $dtype =~ ^(fp32|bf16)$ ]]
result $? "device and dtype are chosen, told, and kept in config.json" "$device, $dtype: $said"
want=fp32
grep -q '^flags.*avx512_bf16' /proc/cpuinfo && want=bf16
said=$("$train" "${usual[@]}" --device cpu --plan 2>&1
    "$train" "${usual[@]}" --kernels oracle --plan 2>&1)
[ "$(grep '^device: ' <<<"$said")" = "device: cpu, dtype: $want (chosen)
device: cpu (chosen), dtype: fp32 (chosen)" ]
result $? "on a CPU what it multiplies natively, with kernels that make use of it" "$want: $said"
named=$("$train" "${usual[@]}" --device "$device" --dtype "$dtype" --steps 3 \
    --out "$folder/named" 2>/dev/null)
grep -qx "device: $device, dtype: $dtype" <<<"$named" &&
    [ "$chosen" ] && [ "$(hash_of <<<"$named")" = "$chosen" ]
result $? "named, they are the same run" "$named"
# A checkpoint of fp32 on a machine that would choose bf16, without and with its config.json.
said=$("$train" "${usual[@]}" --steps 14 --out "$folder/parts" --resume auto 2>&1)
grep -qx 'device: cpu, dtype: fp32' <<<"$said" && grep -q '^weights hash' <<<"$said" &&
    [ "$(word "$folder/parts" dtype)" = fp32 ]
result $? "a resumed run keeps the fp32 that it was told" "$said"
rm "$folder/parts/config.json"
said=$("$train" "${usual[@]}" --steps 16 --out "$folder/parts" --resume auto 2>&1)
grep -qx "device: cpu (the checkpoint's), dtype: fp32 (the checkpoint's)" <<<"$said" &&
    grep -q '^weights hash' <<<"$said" && [ "$(word "$folder/parts" dtype)" = fp32 ]
result $? "and takes it from the checkpoint where no file says it" "$said"
said=$("$train" "${usual[@]}" --dtype bf16 --steps 18 --out "$folder/parts" --resume auto 2>&1)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY "--dtype fp32"'
result $? "refused: a resume with another --dtype, by name" "$said"
said=$("$train" --help dtype; "$train" --help device)
grep -q -- '--dtype fp32|bf16|fp16|auto' <<<"$said" &&
    grep -q -- '--device cpu|cuda|auto' <<<"$said" &&
    [ "$(grep -c '(default auto)' <<<"$said")" = 2 ]
result $? "--help shows that both are chosen" "$said"

again=$("$train" --config "$folder/whole/config.json" --out "$folder/again" 2>&1 | hash_of)
[ "$again" = "$whole" ]
result $? "--config repeats a run" "$again"

sample=(--out "$folder/whole" --resume auto --sample-only --prompt "In line" --sample-tokens 20)
"$train" "${sample[@]}" >"$folder/sample" 2>"$folder/said"
status=$?
# The prompt, 20 bytes, a newline, and no word more.
[ $status = 0 ] && [ "$(head -c 7 "$folder/sample")" = "In line" ] &&
    [ "$(wc -c <"$folder/sample")" = 28 ] && ! grep -qE '^(memory|parameters)' "$folder/said"
result $? "a sample from a saved checkpoint, alone on standard output, without training" \
    "status $status: $(cat "$folder/sample" "$folder/said")"
twice=$("$train" "${sample[@]}" 2>/dev/null)
[ "$(cat "$folder/sample")" = "$twice" ]
result $? "the same seed gives the same sample" "$twice"

# The newest checkpoint is damaged: the one before is used, and it is said.
run --steps 8 --save-every 4 --out "$folder/damaged" >/dev/null 2>&1
printf X | dd of="$folder/damaged/checkpoints/step-00000008/rank-0000.state" bs=1 seek=5000 \
    conv=notrunc 2>/dev/null
said=$("$train" --steps 12 --out "$folder/damaged" --resume auto 2>&1)
[ "$(hash_of <<<"$said")" = "$whole" ] && grep -q 'step-00000008.*damaged' <<<"$said" &&
    grep -q 'after step 4' <<<"$said"
result $? "a damaged checkpoint is refused and the one before used" "$said"

# Signals: the first saves and ends with 0; a resume then completes the same run.
# (A shell starts what is in the background with INT and QUIT ignored, and so it would stay.)
for signal in INT TERM; do
    out=$folder/signal-$signal
    env --default-signal setsid "$train" "${tiny[@]}" --steps 200000 --out "$out" \
        >"$folder/said" 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        [ -s "$out/log.jsonl" ] && break
        sleep 0.05
    done
    kill -$signal $pid
    wait $pid
    status=$?
    step=$(ls "$out/checkpoints" 2>/dev/null | sed 's/step-0*//')
    [ $status = 0 ] && [ "${step:-0}" -gt 0 ] && grep -q '^weights hash' "$folder/said" &&
        grep -q "^saved $out/checkpoints/step-0*$step$" "$folder/said"
    result $? "SIG$signal saves and ends with status 0" \
        "status $status, step ${step:-none}: $(tail -n 3 "$folder/said")"
done

# A second signal ends at once, in the middle of a step of a second or more.
env --default-signal setsid "$train" "${tiny[@]}" --channels 512 --layers 12 --seq-len 256 \
    --batch 16 --steps 9 --out "$folder/twice" >"$folder/said" 2>&1 &
pid=$!
for _ in $(seq 400); do
    [ -e "$folder/twice/log.jsonl" ] && break
    sleep 0.05
done
sleep 2
kill -INT $pid
sleep 0.2
kill -INT $pid
wait $pid
status=$?
[ $status = 130 ] && [ ! -e "$folder/twice/checkpoints" ]
result $? "a second Ctrl-C ends at once" "status $status: $(tail -n 3 "$folder/said")"

# An --out on a full disk.
if mkdir "$folder/small" && mount -t tmpfs -o size=300k none "$folder/small" 2>/dev/null; then
    said=$(run --steps 3 --out "$folder/small/out" 2>&1 >/dev/null)
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        error_is E_DISK_FULL && [ ! -e "$folder/small/out/checkpoints" ]
    result $? "a full disk is one line, status 2 and no half checkpoint" "status $status: $said"
    umount "$folder/small"
else
    echo "ok $((count += 1)) - a full disk # SKIP tmpfs cannot be mounted here"
fi

said=$("$train" --help)
[ $? = 0 ] && [ "$(awk 'length > 100' <<<"$said" | wc -l)" = 0 ] &&
    grep -q -- '--recompute' <<<"$said"
result $? "--help fits 100 columns" "$said"
said=$("$train" --help all; "$train" --help memory; "$train" --help lr)
[ $? = 0 ] && [ "$(awk 'length > 100' <<<"$said" | wc -l)" = 0 ] &&
    [ "$(grep -c -- '^  --device-mem' <<<"$said")" = 2 ] &&
    [ "$(grep -c -- '^  --lr' <<<"$said")" = 2 ]
result $? "--help all, of a topic, and of one flag" "$said"
[ "$("$train" -h)" = "$("$train" --help)" ] &&
    [ "$("$train" --help --prefetch 3)" = "$("$train" --help prefetch)" ] &&
    [ "$("$train" -h --zero)" = "$("$train" --help zero)" ] && "$train" --help --no-such >/dev/null
result $? "-h is --help, and a flag that follows is its topic"
"$train" --help max-new-tokens | grep -q -- '--sample-tokens' &&
    "$train" --help generate | grep -q -- '--seed' && "$train" --help ctx-size | grep -q -- '--seq-len'
result $? "--help knows what others call the flags of sampling"
said=$("$train" --help memori 2>&1)
[ $? = 2 ] && error_is 'E_HELP_TOPIC --help memori'
result $? "refused: a topic that is none" "$said"
said=$("$train" --help)
# The examples, as printed, one after the other, but that of somebody's model.
mkdir "$folder/examples"
cp README.md "$folder/examples"
ln -s "$(realpath "$train")" "$folder/examples/train"
sed -n '/hf:/!s/^  \(\.\/train .*\)$/\1/p' <<<"$said" >"$folder/examples/lines"
said=$(cd "$folder/examples" && bash -e lines 2>&1)
status=$?
[ $status = 0 ] && [ "$(wc -l <"$folder/examples/lines")" = 3 ]
result $? "help's examples work as printed" "status $status: $said"
"$train" --version | grep -q oneDNN
result $? "--version lists the libraries"

echo "1..$count"
exit $failed
