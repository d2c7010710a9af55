# A run of some ranks beside its plan, for tests of grids (test_replicas.sh, test_tensor.sh): source
# this file behind mpi_jobs.sh, and set `model`.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # its tests read them; mpi_jobs.sh and they set them

# train RANKS ARGUMENT...: as threads; `said`, `status`, and `hash` of the weights.
train() {
    rm -rf "$folder/out"
    said=$("$train" "${model[@]}" --steps 3 --ranks "$1" --out "$folder/out" "${@:2}" 2>&1)
    status=$?
    hash=$(grep '^weights hash' <<<"$said")
}

# resumed NAME ARGUMENT...: the run in $folder/out goes on so, to the hash that is wanted.
resumed() {
    said=$("$train" --out "$folder/out" --resume auto "${@:2}" 2>&1)
    [ -n "$want" ] && [ "$(grep '^weights hash' <<<"$said")" = "$want" ]
    result $? "$1" "$want; $said"
}

# refused NAME ERROR RANKS ARGUMENT...: one line, with that error.
refused() {
    train "${@:3}"
    [ $status = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] && error_is "$2"
    result $? "refused: $1" "$status: $said"
}

# compare RANKS ARGUMENT...: what the next ones are to be.
compare() {
    train "$@"
    want=$hash validated=$(grep 'validation loss' <<<"$said")
    [ $status = 0 ] && [ -n "$want" ] && exact
    result $? "$1 ranks, ${*:2}: three steps to compare with, bytes as predicted" "$said"
}

# same RANKS ARGUMENT...: has the hash that is wanted, the loss of validation, and the bytes.
same() {
    train "$@"
    [ $status = 0 ] && [ -n "$want" ] && [ "$hash" = "$want" ] &&
        [ "$(grep 'validation loss' <<<"$said")" = "$validated" ] && exact
    result $? "$1 ranks, ${*:2}: the same hash, bytes as predicted" "$want; $said"
}

# processes RANKS ARGUMENT...: have the hash that is wanted.
processes() {
    said=$(job "$1" "$train" "${model[@]}" --steps 3 "${@:2}" --out "$folder/job")
    [ -n "$want" ] && [ "$(grep '^weights hash' <<<"$said")" = "$want" ]
    result $? "$1 processes, ${*:2}: the hash of threads" "$want; $said"
    rm -rf "$folder/job"
}

# Each count of memory.json: predicted = measured.
exact() {
    python3 - "$folder/out/memory.json" <<'END'
import json, sys
plan = json.load(open(sys.argv[1]))
measured = plan["measured"]
for what in "tiers", "traffic":
    assert plan[what] == measured[what], (plan[what], measured[what])
END
}
