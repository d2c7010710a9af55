# What test scripts that run ./train begin with: source this file. It makes $folder, with a cache of
# its own, which goes at the end with what the script started in the background.
#
# TRAIN names the program (default ./train).
train=$(realpath "${TRAIN:-./train}")
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/known_speeds.sh"
. "${BASH_SOURCE%/*}/tap.sh"
. "${BASH_SOURCE%/*}/small_text.sh"

hash_of() { sed -n 's/^weights hash: //p'; } # of the run whose output it reads
