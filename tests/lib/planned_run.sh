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
