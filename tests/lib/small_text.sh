# A small English text for runs of ./train in scripts, the same on every machine: source this file,
# then `small_text LINES >FILE`.
small_text() {
    local i
    for ((i = 1; i <= $1; i++)); do
        echo "In line $i the quick brown fox number $((i * 7919 % 1000)) jumps over the lazy dog."
    done
}
