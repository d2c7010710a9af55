# The grids of scripts/faults/chaos_test.sh, which sources this file: what the ranks of an episode
# are to each other, and what of it may differ from run to run. They read ranks and chosen, and set
# ranks, late, fixed (flags of all runs of the episode), fixed_pair (the first of the two ZeRO
# stages whose results are the same), replicas (of a shard), and args.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154

# What the weights depend on. Ranks that are data-parallel have a sequence each.
shape_of_plain() { :; }
shape_of_places() {
    one_of 2 4 && ranks=$chosen
    fixed=(--heads 2 --layers 3 --tp 2)
}
shape_of_rows() {
    shape_of_places
    fixed+=(--sequence-parallel)
}
shape_of_stages() {
    one_of 2 4 && ranks=$chosen
    fixed=(--heads 2 --layers 4 --tie off --pp 2 --global-batch 4)
    one_of 1 2
    [ $ranks = 2 ] || [ $chosen = 1 ] || fixed+=(--tp 2)
    fixed_pair=$((RANDOM % 2 * 2)) # stages 0 and 1 add micro-batches up in another order than 2, 3
}
shape_of_replicas() {
    ranks=4
    one_of 1 2
    fixed=(--zero-shard-size $chosen)
    one_of 1 2
    [ $chosen = 1 ] || fixed=(--heads 2 --tp 2 --zero-shard-size 1)
}
shape_of_wires() {
    one_of 2 4 && ranks=$chosen
    one_of --zero-quantized-weights --zero-quantized-gradients both
    fixed=($chosen --node-size 2)
    [ $chosen != both ] ||
        fixed=(--zero-quantized-weights --zero-quantized-gradients --node-size $ranks)
}
shape_of_adapters() {
    one_of 2 4 && ranks=$chosen
    one_of none int8 nf4
    fixed=(--layers 3 --lora-rank 4 --lora-dropout 0.1 --base-dtype $chosen)
}
# Each run has another grid, whose results are the same to rounding. A grid of as many ranks, places
# and stages is asked for the same shards, so whether there are replicas is the episode's.
shape_of_any() {
    late=no
    one_of on off
    fixed=(--heads 2 --layers 4 --tie $chosen --global-batch 4)
    one_of 1 2
    replicas=$chosen
}

# The grid of one run, and its ZeRO stage.
choose_grid() {
    local stages="0 1 2 3"
    case $grid in
    stages) stages="$fixed_pair $((fixed_pair + 1))" ;;
    replicas | wires) stages="1 2 3" ;;
    any) choose_any_grid ;; # which says stages, too
    esac
    # shellcheck disable=SC2086 # words
    one_of $stages
    args+=(--zero $chosen)
    if [[ $grid == plain || $grid == wires ]] && [ $ranks -gt 1 ]; then
        [ $chosen = 3 ] && one_of 0 1 $ranks || chosen=0
        args+=(--zero-hpz-partition-size $chosen)
    elif [ $grid = places ]; then
        one_of none parts
        if [ $chosen = none ]; then
            args+=(--no-partition-activations)
        else
            args+=(--recompute block --partition-activations --prefetch 0)
        fi
    elif [ $grid = stages ]; then
        one_of none cpu
        args+=(--offload-activations $chosen --prefetch 0)
    fi
}

# Said in full: what is not said is the last run's.
choose_any_grid() {
    local rows=--no-sequence-parallel
    one_of 1 2 4 && ranks=$chosen
    case $ranks in # places and stages
    1) chosen="1 1" ;;
    2) one_of "1 1" "2 1" "1 2" ;;
    4) one_of "1 1" "2 1" "1 2" "1 4" "2 2" ;;
    esac
    # shellcheck disable=SC2086 # words
    set -- $chosen $((ranks / ${chosen/ / \/ }))
    set -- "$1" "$2" $(($3 > 1 ? $3 / replicas : 1)) # ranks that shards are cut over
    one_of no yes
    [ $chosen = no ] || [ "$1" = 1 ] || rows=--sequence-parallel
    args+=(--tp "$1" --pp "$2" --zero-shard-size "$3" $rows)
    [ $(($1 * $2 * $3)) = $ranks ] || stages="1 2 3" # there are replicas
}
