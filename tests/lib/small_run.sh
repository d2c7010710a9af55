# A small run in a folder of its own, for a test script of what surrounds one: source this file. It
# goes into the folder, where text.txt is trained on, and takes it away at the end.
. "${BASH_SOURCE%/*}/own_folder.sh"
export LC_ALL=C
cd "$folder" || exit 1

small_text 400 >text.txt
tiny=(--device cpu --dtype fp32 --data text.txt --tokenizer byte --layers 1 --heads 1 --channels 16
    --seq-len 16 --batch 2 --threads 1 --log-every 0)

# run ARGUMENT...: in the foreground; what it said is in `said`, its exit status in `status`.
run() {
    said=$(timeout 120 "$train" "${tiny[@]}" "$@" 2>&1)
    status=$?
}

# until_true TIMES COMMAND...: tries it until it is true, 20 times a second.
until_true() {
    local i times=$1
    shift
    for ((i = 0; i < times; i++)); do
        "$@" 2>/dev/null && return
        sleep 0.05
    done
    return 1
}
