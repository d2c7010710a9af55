#!/bin/bash
# The commands of README.md and docs/ run, and print what is shown behind them, up to numbers.
#
# A command is an indented line that begins with ./train, mpirun or scripts/view.sh (or `make -j && ./train`). Indented
# lines behind it, up to the next command, are lines that it prints; where "$ " stands before the command they are all
# that it prints (shown_commands.sh). Commands of a page run in a folder with README.md and the files that pages name,
# those with "$ " behind the others, and else in order. One that has a comment above its block,
#
#     <!-- not run: WHY -->            such as slow, gpu, cluster, data of others
#
# is not run, but its flags are looked up; nor is one with `...` in it. Below a comment
# <!-- one weights hash --> all runs of the block must print the same. The pages add-a-*.md are
# test_exercises.sh's, docs/learn is test_chapters.sh's, and gpu_*.md are reports. TRAIN names the program.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
. tests/lib/shown_commands.sh
repository=$PWD
export LC_ALL=C.UTF-8 MPI_LIMIT=

# ---- the files that pages name ----

make_files() {
    local i
    mkdir -p "$folder/page/docs"
    cd "$folder/page" || exit 1
    ln -s "$train" train
    ln -s "$repository/scripts" scripts
    ln -s "$repository/docs/clusters" docs/clusters
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
plain_commands() { # plain_commands PAGE
    awk '
        /^ *<!-- not run: .* -->$/ { mark = $0; sub(/.*not run: /, "", mark); sub(/ -->/, "", mark); next }
        /^ *<!-- one weights hash -->$/ { mark = "one hash"; next }
        /^ *$/ { dollar = 0; next }
        !/^    / && !/^ *<!--/ { mark = ""; open = 0; dollar = 0; next }
        /^    \$ / { dollar = 1; open = 0 }
        dollar { next }
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

alike() { # what is shown, and what is printed, without numbers
    sed -E 's/([0-9]+[hm])*[0-9]+s left/# left/; s/[0-9a-f]{16}/#/g; s/[0-9]+([.,][0-9]+)*(e[+-][0-9]+)?[kMG]?/#/g; s/ +/ /g'
}

# Every flag of a command exists, by this name.
flags_exist() { # flags_exist COMMAND
    local word flag
    for word in $1; do
        flag=${word%%=*} flag=${flag#--} flag=${flag#no-}
        [[ $word != --?* ]] || [[ $word = --bind-to || $word = --allow-run-as-root ]] ||
            "$train" --help "$flag" 2>/dev/null | grep -qE -- "^  --(\[no-\])?$flag( |$)" || {
            echo "no flag $word"
            return 1
        }
    done
}

not_run() { # not_run NAME COMMAND MARK
    local said
    said=$(flags_exist "${2#*./train}")
    result $? "$1 (not run: ${3:-a form})" "$said"
}

try() { # try PAGE:LINE COMMAND SHOWN MARK: a command with "$ "
    local said name="${1#"$repository"/}: ${2:0:60}"
    if [ "$4" ] || [[ $2 = *...* ]]; then
        [[ $2 != *./train* ]] || not_run "$name" "$2" "$4"
        return
    fi
    ! skipped "$name" "$2" || return
    said=$(timeout 100 bash -c "$2" 2>&1 </dev/null)
    result $? "$name" "$(tail -n 5 <<<"$said")"
    [ ! "$3" ] || is_shown "$said" "$3"
    result $? "$name prints what is shown" "shown:
$3
said:
$said"
}

check_page() { # check_page PAGE
    local line mark command name shown said hash=
    while IFS='|' read -r line mark command; do
        name="$1:$line: ${command:0:60}"
        mapfile -t shown < <(sed -n "/^$line|/,/^[0-9]/ s/^>//p" <<<"$commands")
        if [[ ! $mark = @(|one hash) ]] || [[ $command = *...* ]]; then
            not_run "$name" "$command" "$mark"
            continue
        fi
        ! skipped "$name" "$command" || continue
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
    lines=$(alike <<<"$2")
    for line in "${shown[@]}"; do
        grep -qxF -- "$(alike <<<"$line")" <<<"$lines"
        result $? "$1 prints: $line" "$2"
    done
}

make_files
for page in README.md "$repository"/docs/*.md; do
    [[ $page != */gpu_*.md && $page != */add-a-*.md ]] && [ -e "$repository/${page#"$repository"/}" ] || continue
    rm -rf out
    [[ $page != */models.md ]] ||
        ./train --data README.md --tokenizer byte --steps 2 >/dev/null 2>&1
    commands=$(plain_commands "$repository/${page#"$repository"/}")
    [ -z "$commands" ] || check_page "${page#"$repository"/}"
    commands_of "$repository/${page#"$repository"/}"
done
echo "1..$count"
exit $failed
