#!/bin/bash
# The commands of README.md and docs/ run, and print what is shown behind them, up to numbers.
#
# A command is an indented line that begins with ./train, mpirun or scripts/view.sh (or `make -j && ./train`). Indented
# lines behind it, up to the next command, are what it prints. Commands of a page run in order, in a
# folder with README.md and the files that pages name. One that has a comment above its block,
#
#     <!-- not run: WHY -->            such as slow, gpu, cluster, data of others
#
# is not run, but its flags are looked up; nor is one with `...` in it. Below a comment
# <!-- one weights hash --> all runs of the block must print the same. The pages add-a-*.md are
# test_exercises.sh's, docs/learn is test_chapters.sh's, and gpu_*.md are reports. TRAIN names the program.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
. tests/lib/mpi_env.sh
train=$(realpath "${TRAIN:-build/release/train}")
repository=$PWD folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LC_ALL=C.UTF-8 XDG_CACHE_HOME=$folder/home MPI_LIMIT=

# ---- the files that pages name ----

make_files() {
    local i
    mkdir -p "$folder/page/docs"
    cd "$folder/page" || exit 1
    ln -s "$train" train
    ln -s "$repository/scripts" scripts
    cp "$repository/README.md" .
    head -c 20000 "$repository/docs/training.md" >text.txt
    cp text.txt new.txt
    head -n 4 "$repository/tests/fixtures/eval/items.jsonl" >hellaswag_val.jsonl
    for i in {1..40}; do
        printf '{"messages": [{"role": "user", "content": "What is %d and 1? Say it in one word, or a number."}, ' "$i"
        printf '{"role": "assistant", "content": "%d."}]}\n' $((i + 1))
    done >train.jsonl
    head -n 10 train.jsonl >heldout.jsonl
    sed 's/, {"role": "assistant".*/]}/' heldout.jsonl >asked.jsonl
    printf '{"frage": "Was ist das?", "antwort": "Ein Satz %d."}\n' {1..40} >faq.jsonl
    echo '{"train_batch_size": 4, "zero_optimization": {"stage": 2}}' >ds_config.json
    ./train --data train.jsonl --tokenizer "$repository/tests/fixtures/bpe/smollm" \
        --chat-template chatml --family llama --layers 1 \
        --heads 2 --channels 32 --seq-len 128 --steps 1 --batch 1 --out folder \
        --export hf:DIR >"$folder/said" 2>&1
    rm -rf folder
}

# ---- pages ----

# Lines "LINE|MARK|COMMAND", and behind each what it prints, with > in front.
commands_of() { # commands_of PAGE
    awk '
        /^ *<!-- not run: .* -->$/ { mark = $0; sub(/.*not run: /, "", mark); sub(/ -->/, "", mark); next }
        /^ *<!-- one weights hash -->$/ { mark = "one hash"; next }
        /^ *$/ { next }
        !/^    / && !/^ *<!--/ { mark = ""; open = 0; next }
        {
            text = $0
            sub(/^ +/, "", text)
            if (joined) { command = command " " text }
            else if (text ~ /^(make -j.* && )?(\.\/train|mpirun|for|scripts\/view.sh) /) {
                command = text; at = FNR
            } else { if (open) print ">" text; next }
            joined = command ~ /\\$/ || (command ~ /^for / && command !~ / done$/)
            sub(/ *\\$/, "", command)
            sub(/; do .*--out.*[0-9a-z]$/, "&;", command)
            if (joined) next
            sub(/^make -j.* && /, "", command)
            print at "|" mark "|" command
            open = 1
        }' "$1"
}

without_numbers() { sed -E 's/[0-9a-f]{16}/#/g; s/[0-9]+([.,][0-9]+)*(e[+-][0-9]+)?k?/#/g; s/ +/ /g'; }

# Every flag of a command exists.
flags_exist() { # flags_exist COMMAND
    local word
    for word in $1; do
        [[ $word != --?* ]] || [[ $word = --bind-to || $word = --allow-run-as-root ]] ||
            "$train" --help "${word#--}" >/dev/null 2>&1 || {
            echo "no flag $word"
            return 1
        }
    done
}

check_page() { # check_page PAGE
    local line mark command name shown said hash=
    while IFS='|' read -r line mark command; do
        name="$1:$line: ${command:0:60}"
        mapfile -t shown < <(sed -n "/^$line|/,/^[0-9]/ s/^>//p" <<<"$commands")
        if [[ ! $mark = @(|one hash) ]] || [[ $command = *...* ]]; then
            said=$(flags_exist "${command#*./train}")
            result $? "$name (not run: ${mark:-a form})" "$said"
            continue
        fi
        said=$(timeout 100 bash -c "$command" 2>&1 </dev/null)
        result $? "$name" "$(tail -n 5 <<<"$said")"
        [ ${#shown[@]} = 0 ] || shown_in "$name" "$said"
        [ "$mark" = "one hash" ] || continue
        hash=$(grep '^weights hash: ' <<<"$hash"$'\n'"$said" | sort -u)
        [ -n "$hash" ] && [ "$(wc -l <<<"$hash")" = 1 ]
        result $? "$name: one weights hash" "$hash"
    done < <(grep -v '^>' <<<"$commands")
}

shown_in() { # shown_in NAME SAID: all of shown
    local line lines
    lines=$(without_numbers <<<"$2")
    for line in "${shown[@]}"; do
        grep -qxF -- "$(without_numbers <<<"$line")" <<<"$lines"
        result $? "$1 prints: $line" "$2"
    done
}

make_files
for page in README.md "$repository"/docs/*.md; do
    [[ $page != */gpu_*.md && $page != */add-a-*.md ]] && [ -e "$repository/${page#"$repository"/}" ] || continue
    rm -rf out
    [[ $page != */models.md ]] ||
        ./train --data README.md --tokenizer byte --steps 2 >/dev/null 2>&1
    commands=$(commands_of "$repository/${page#"$repository"/}")
    [ -z "$commands" ] || check_page "${page#"$repository"/}"
done
echo "1..$count"
exit $failed
