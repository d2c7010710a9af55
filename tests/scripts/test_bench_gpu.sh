#!/bin/bash
# scripts/bench/bench_gpu.sh on a machine that is made up: nvidia-smi, python (with PyTorch,
# torchrun and the products), ./train, mpirun and llm.c's train_gpt2cu are small stand-ins that
# write down how they were called. So each figure's place in the table can be looked at, and what
# becomes of parts that fail or hang. Speaks TAP.
# shellcheck disable=SC2016 # the stand-ins expand their variables themselves
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "${BASH_SOURCE%/*}/../lib/tap.sh"
export AT=$folder

program() { # program FILE: made of standard input
    mkdir -p "$(dirname "$1")"
    { echo '#!/bin/bash' && cat; } >"$1"
    chmod +x "$1"
}

mkdir -p "$folder/scripts" "$folder/docs" "$folder/llm.c"
(cd "${BASH_SOURCE%/*}/../.." &&
    cp --parents scripts/bench/{bench_gpu,figures}.sh scripts/help.sh scripts/dev/torch.sh "$folder")
program "$folder/bin/make" <<'P'
echo "make $*" >>"$AT/calls"
echo no compiler
exit ${MAKE_STATUS:-0}
P
program "$folder/bin/nvidia-smi" <<'P'
case "$*" in
*name*) for ((i = 0; i < ${CARDS:-1}; i++)); do echo "${CARD:-NVIDIA H100 80GB HBM3}"; done ;;
*compute_cap*) echo 9.0 ;;
*driver*) echo 570.1 ;;
esac
[ "${CARDS:-1}" != 0 ]
P
# The nth run of a program takes the nth of its milliseconds, and all after them the last.
program "$folder/bin/next" <<'P'
n=$(cat "$AT/count.$1" 2>/dev/null || echo 0)
echo $((n + 1)) >"$AT/count.$1"
set -- "${@:2}"
echo "${@:$((n < $# ? n + 1 : $#)):1}"
P
program "$folder/bin/hang" <<'P'
sleep 200 &
echo "$$ $!" >>"$AT/pids"
wait
P
program "$folder/bin/python" <<'P'
case "$*" in
*torch.__version__*) echo 2.9 ;;
*nvidia*) exit 1 ;;
*matmul*)
    echo "matmul $*" >>"$AT/calls"
    echo "m 1 n 1 k 1: forward, dx, dw 9 9 9 TFLOP/s"
    echo "sustained 600.0 TFLOP/s" ;;
*speed*)
    echo "torch $* on $CUDA_VISIBLE_DEVICES" >>"$AT/calls"
    stage=1
    [[ $* != *"--fsdp 3"* ]] || stage=3
    case ${TORCH:-good} in
    hang) hang ;;
    full) echo "PyTorch gpt2 batch 16: out of memory"; echo "Traceback | of torchrun"; exit 1 ;;
    none) echo "ModuleNotFoundError: No module named 'torch'" >&2; exit 1 ;;
    mute) echo "Warning: nothing"; exit 0 ;;
    esac
    echo "PyTorch gpt2 batch 16: 99 tokens/s, $(next torch.$stage ${TORCH_MS:-48}).0 ms, 1.0 GiB" ;;
esac
P
# As ./train does, it goes on after the steps that are wanted, and saves when it is told to end.
program "$folder/build/gpu/train" <<'P'
echo "train $*" >>"$AT/calls"
[ -z "${TRAIN_HANGS:-}" ] || hang
[ -z "${TRAIN_FAILS:-}" ] || { echo; echo "train: CUDA is | out of order"; echo; exit 3; }
while [ "$1" != --out ]; do shift; done
mkdir -p "$2"
ms=$(next train ${TRAIN_MS:-40})
for i in {1..16}; do # the first four warm up
    echo "{\"step\":$i,\"loss\":1,\"step_ms\":$((i < 5 ? 9000 : ms)).0}"
done >"$2/log.jsonl"
trap 'echo saved >>"$AT/calls"; exit' TERM
hang
P
program "$folder/bin/mpirun" <<'P'
echo "mpirun $*" >>"$AT/calls"
while [ "$1" != -np ]; do shift; done
exec "${@:3}"
P
llmc() { # llmc: builds it
    program "$folder/llm.c/train_gpt2cu" <<'P'
echo "llmc $*" >>"$AT/calls"
while [ "$1" != -i ]; do shift; done
od -An -td4 -N 12 "$2" | tr -s ' ' >>"$AT/shard"
od -An -v -tu2 -w2 -j 1024 "$2" | sort -n | tail -n 1 >>"$AT/shard"
wc -c <"$2" >>"$AT/shard"
echo "val loss 11.0"
for i in {1..16}; do
    printf 'step %4d/16 | loss 11.0 (+nanz)| norm 1.0 (+nanz)| lr 1e-04 ' $i
    printf '| %s ms | 41.9%% bf16 MFU | 9 tok/s\n' $((i < 5 ? 9000 : 50)).00
done
P
}

# bench NAME=VALUE... [-- ARGUMENT...]: status in $status, output in said, the table in $table
table=$folder/docs/bench_gpu.md
bench() {
    local settings=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do settings+=("$1") && shift; done
    rm -f "$folder"/count.* "$folder/calls" "$folder/pids" "$folder/shard" "$table"
    touch "$folder/calls"
    env -u CUDA_VISIBLE_DEVICES MODELS=gpt2 ROUNDS=1 PYTHON="$folder/bin/python" \
        PATH="$folder/bin:$PATH" TMPDIR="$folder" "${settings[@]}" \
        timeout -k 5 100 bash "$folder/scripts/bench/bench_gpu.sh" "${@:2}" >"$folder/said" 2>&1
    status=$?
}
seen() { cat "$folder/said" "$folder/calls"; }
has() { grep -qF -- "$1" "$table"; }
called() { grep -cE -- "$1" "$folder/calls"; }
gone() { # nothing that was started is left, but for zombies that nobody looks after
    local pid
    while read -r pid; do
        ! grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" || return 1
    done < <(tr ' ' '\n' <"$folder/pids")
    [ -z "$(find "$folder" -mindepth 1 -maxdepth 1 -name 'tmp.*')" ]
}

# ---- arguments ----

refused() { # refused NAME WORDS NAME=VALUE... -- ARGUMENT...: one line, status 2, nothing is run
    local name=$1 words=$2
    shift 2
    bench "$@"
    [ $status = 2 ] && [ "$(wc -l <"$folder/said")" = 1 ] && [ ! -s "$folder/calls" ] &&
        grep -qF -- "$words" "$folder/said"
    result $? "refused: $name" "status $status: $(seen)"
}
refused "an unknown argument" "'--fast': expected --gpus" -- --fast
refused "an argument without its value" "--gpus: expected a value" -- --gpus
refused "no GPUs" "--gpus '0': expected 1 to 8" -- --gpus 0
refused "more GPUs than may be seen" "has 2" CARDS=8 CUDA_VISIBLE_DEVICES=4,6 -- --gpus 3
refused "a peak that is no number" "--peak-tflops 'much'" -- --peak-tflops much
refused "a folder that is not there" "--out '/no/such/file'" -- --out /no/such/file
refused "a model nobody knows" "MODELS: 'gpt5': expected gpt2" MODELS="gpt2 gpt5"
refused "a batch of none" "BATCHES: '0'" BATCHES="8 0"
refused "a stage that is none" "ZERO: '4': expected stages, 0 to 3" ZERO="1 4"

bench CARDS=0
[ $status = 1 ] && [ "$(cat "$folder/said")" = \
    "bench_gpu: there is no GPU here (nvidia-smi names none)" ] && [ ! -e "$table" ]
result $? "no GPU: one line, status 1" "$(seen)"
bench MAKE_STATUS=2
[ $status = 1 ] && grep -q "no compiler" "$folder/said" && [ ! -e "$table" ]
result $? "a build that fails: what it said, status 1" "$(seen)"

# ---- one GPU ----

# 16 x 1024 tokens in 40 ms; 803,261,952 FLOPs a token, of 989.4 and of 600 TFLOP/s.
bench ROUNDS=1
[ $status = 0 ] && has "| gpt2 | 16 | ./train, stage 0 | 409600 | 40.0 | 33.3% | 54.8% | 1.200 |" &&
    has "| gpt2 | 16 | PyTorch, compiled | 341333 | 48.0 | 27.7% | 45.7% | 1.000 |" &&
    has "989.4 TFLOP/s, dense bf16 of 'NVIDIA H100 80GB HBM3'" && has "600.0 TFLOP/s on one GPU" &&
    [ "$(grep -c '^| gpt2' "$table")" = 2 ]
result $? "one GPU: figures, MFU, share of products, ratio" "$(seen)"
[ "$(called '^make .*MODE=gpu CUDA_ARCHS=90')" = 1 ] && [ "$(called '^torch .*--fsdp|run')" = 0 ] &&
    [ "$(called '^torch .*--seconds 270 on 0$')" = 1 ] &&
    [ "$(called '^train .*--autotune .*--model gpt2 --batch 16 --ranks 1 --zero 0')" = 1 ]
result $? "what was run for it" "$(seen)"
[ "$(called '^saved')" = 0 ] && gone
result $? "./train is ended before it can save, and nothing is left" "$(seen)"

bench ROUNDS=3 TRAIN_MS="40 100 50" TORCH_MS="48 48 100"
[ $status = 0 ] && has "./train, stage 0 | 327680 | 50.0 |" && has "| 45.7% | 1.000 |" &&
    has "compiled | 341333 | 48.0 |" && grep -q 'stage 0.* 1.200 |$' "$table"
result $? "medians of rounds; the ratio is the median of the rounds' ratios" "$(cat "$table")"
[ "$(grep -oE '^(train|torch)' "$folder/calls" | tr '\n' ' ')" = \
    "train torch torch train train torch " ]
result $? "the programs take turns, and even rounds go backwards" "$(seen)"

bench MODELS="gpt2 gpt2-xl" BATCHES="8 4"
[ $status = 0 ] && [ "$(grep -c '^| gpt2' "$table")" = 8 ] && has "| gpt2-xl | 4 | ./train" &&
    [ "$(called '^matmul .*gpt2-xl 8')" = 1 ] &&
    has "| gpt2-xl | 8 | ./train, stage 0 | 204800 | 40.0 | 203.2% |"
result $? "each model and batch has its lines" "$(cat "$table")"

bench CARD="NVIDIA GTX 9999"
[ $status = 0 ] && has "unknown for 'NVIDIA GTX 9999': give --peak-tflops" &&
    has "| 409600 | 40.0 | - | 54.8% | 1.200 |"
result $? "a card whose peak is unknown has no MFU" "$(cat "$table")"
bench CARD="NVIDIA GTX 9999" -- --peak-tflops 400 --out "$folder/other.md"
[ $status = 0 ] && [ ! -e "$table" ] && grep -q '400 TFLOP/s (--peak-tflops)' "$folder/other.md" &&
    grep -q '| 40.0 | 82.3% |' "$folder/other.md"
result $? "--peak-tflops and --out" "$(seen)"
bench CARD="NVIDIA GeForce RTX 4090"
has "Peak of a GPU: 165.2 TFLOP/s, dense"
result $? "the peak of another card" "$(cat "$table")"

# ---- several GPUs ----

bench CARDS=2 TRAIN_MS="40 41 42 43"
[ $status = 0 ] && [ "$(grep -c '^| gpt2' "$table")" = 6 ] &&
    has "./train, stage 0 | 819200 | 40.0 | 33.3% | 54.8% | 1.200 |" &&
    has "./train, stage 3 | 762047 | 43.0 | 30.9% | 51.0% | 1.116 |" &&
    has "PyTorch, compiled, FSDP2 as stage 2 | 682667 | 48.0 | 27.7% | 45.7% | 1.000 |" &&
    has "FSDP2 as stage 3 |" && has "2 x NVIDIA H100"
result $? "two GPUs: all stages, and FSDP2 as stage 2 and 3" "$(cat "$table")"
[ "$(called '^train .*--ranks 2 --zero [0-3]')" = 4 ] && [ "$(called \
    '^torch -m torch.distributed.run .*--nproc-per-node 2 .*py speed .*--fsdp [23] on 0,1$')" = 2 ]
result $? "torchrun has a process for each" "$(seen)"
bench CARDS=8 ZERO="3" TRAIN_MS=40 CUDA_VISIBLE_DEVICES=5,3,1 -- --gpus 2
[ $status = 0 ] && [ "$(grep -c '^| gpt2' "$table")" = 2 ] && [ "$(called 'on 5,3$')" = 1 ] &&
    has "./train, stage 3 | 819200 | 40.0 | 33.3% | 54.8% | 1.200 |"
result $? "--gpus, ZERO, and GPUs that were chosen before" "$(seen)"

# ---- llm.c ----

bench LLMC="$folder/llm.c"
[ $status = 0 ] && has "| gpt2 | 16 | llm.c | not run: there is no $folder/llm.c/train_gpt2cu |"
result $? "llm.c that is not there is said, and is no failure" "$(cat "$table")"
llmc
bench LLMC="$folder/llm.c"
[ $status = 0 ] && has "| gpt2 | 16 | llm.c | 327680 | 50.0 | 26.6% | 43.9% | 0.960 |" &&
    [ "$(called '^llmc -e d12 .*-b 16 -t 1024 -d 16384 -x 16 .*-r 0 -z 0')" = 1 ]
result $? "llm.c has its line" "$(seen)"
# Random tokens: the largest of 32,769 is near 0x7f7f, and seldom less than this.
read -r -d '' magic version tokens largest bytes <"$folder/shard"
[ "$magic $version $tokens $bytes" = "20240520 1 32769 66562" ] && [ "$largest" -gt 32000 ] &&
    [ "$largest" -le 32639 ]
result $? "its shard: header, tokens of the vocabulary, as many as it says" "$(cat "$folder/shard")"
bench LLMC="$folder/llm.c" CARDS=2 ZERO=1
[ $status = 0 ] && has "llm.c | 655360 | 50.0 |" &&
    [ "$(called '^mpirun .*-np 2 .*train_gpt2cu .*-d 32768 .*-z 1')" = 1 ]
result $? "llm.c on two GPUs, at its stage 1" "$(seen)"

# ---- what fails or hangs ----

bench ROUNDS=3 TRAIN_FAILS=1
[ $status = 1 ] && has "./train, stage 0 | failed, status 3: train: CUDA is  out of order | |" &&
    [ "$(called '^train')" = 1 ] && has "compiled | 341333 | 48.0 | 27.7% | 45.7% | 1.000 |"
result $? "./train that fails: its last line, once, and the others run" "$(seen)"
bench TORCH=full
[ $status = 1 ] && has "compiled | failed, status 1: PyTorch gpt2 batch 16: out of memory |" &&
    has "| 54.8% | - |"
result $? "PyTorch without enough memory: its own line, and no ratio" "$(seen)"
bench TORCH=none
[ $status = 1 ] && has "compiled | failed, status 1: ModuleNotFoundError: No module named 'torch' |"
result $? "no PyTorch" "$(seen)"
bench TORCH=mute
[ $status = 1 ] && has "compiled | no figure: Warning: nothing |"
result $? "PyTorch that says nothing" "$(seen)"
bench TORCH=hang PART_SECONDS=2 CARDS=2 ZERO=3
[ $status = 1 ] && has "FSDP2 as stage 3 | not done after 2 s |" && has "stage 3 | 819200 |" && gone
result $? "PyTorch that hangs is ended with what it started, and the others run" "$(seen)"
bench TRAIN_HANGS=1 PART_SECONDS=2
[ $status = 1 ] && has "stage 0 | not done after 2 s |" && gone
result $? "./train that hangs, likewise" "$(seen)"

echo "an older table" >"$folder/older.md"
rm -f "$folder/pids"
env MODELS=gpt2 TRAIN_HANGS=1 PYTHON="$folder/bin/python" PATH="$folder/bin:$PATH" \
    TMPDIR="$folder" bash "$folder/scripts/bench/bench_gpu.sh" --out "$folder/older.md" \
    >"$folder/said" 2>&1 &
for _ in {1..100}; do
    [ -s "$folder/pids" ] && break
    sleep 0.1
done
kill -TERM $!
wait $!
status=$?
[ $status = 130 ] && gone && [ "$(cat "$folder/older.md")" = "an older table" ]
result $? "told to end: so does what it started, and the older table stays" "$status: $(seen)"

echo "1..$count"
exit $failed
