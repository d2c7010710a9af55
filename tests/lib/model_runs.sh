# Runs of ./train with somebody's model, for test scripts: source this file. The models are the
# fixtures in $models.
models=$PWD/tests/fixtures/hf
. "${BASH_SOURCE%/*}/own_folder.sh"
usual=(--device cpu --dtype fp32 --data random --seq-len 17 --batch 1 --threads 1 --no-tensorboard)

run() { # run ARGUMENT...: a fresh run
    rm -rf "$folder/out"
    timeout 60 "$train" "${usual[@]}" --out "$folder/out" "$@" 2>&1
}
# on DATA: from here on the usual runs have these.
on() {
    usual[5]=$1
}

# refused NAME ERROR ARGUMENT...: one line "train: ..." with that error, status 2, and no folder.
refused() {
    local name=$1 error=$2 said status
    shift 2
    said=$(run --steps 1 "$@")
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        error_is "$error" && ! grep -q '^step ' <<<"$said" &&
        ! ls -d "$folder"/new* >/dev/null 2>&1
    result $? "$name" "status $status: $said"
}
broken() { # broken FILE SED: a copy of qwen3's with FILE changed
    rm -rf "$folder/bad"
    cp -r "$models/qwen3" "$folder/bad"
    sed -i "$2" "$folder/bad/$1"
}
