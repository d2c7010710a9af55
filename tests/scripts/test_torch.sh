#!/bin/bash
# scripts/dev/torch.sh on machines that are made up: Pythons with and without PyTorch, pip that can
# or cannot install it, and apt-get are stand-ins that write down how they were called. Speaks TAP.
# shellcheck disable=SC2016 # the stand-ins expand their variables themselves
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
torch=$(cd "${BASH_SOURCE%/*}/../../scripts/dev" && pwd)/torch.sh
export AT=$folder

# A Python: it has PyTorch if a file of its name and .torch lies beside it. `-m venv` makes another
# one, and pip gives that one PyTorch unless PIP=no.
mkdir "$folder/bin"
cat >"$folder/python" <<'P'
#!/bin/bash
echo "${0#"$AT"/} $*" >>"$AT/calls"
case "$*" in
*find_spec*) [ -e "$0.torch" ] ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$AT/python" "$3/bin/python" ;;
*"pip install"*) [ "${PIP:-yes}" = yes ] && touch "$0.torch" ;;
*) false ;;
esac
P
printf '#!/bin/bash\necho "apt-get $*" >>"$AT/calls"\n' >"$folder/bin/apt-get"
printf '#!/bin/bash\necho "${USER_ID:-0}"\n' >"$folder/bin/id"
chmod +x "$folder/python" "$folder"/bin/*
cp "$folder/python" "$folder/bin/python3"

# torch FUNCTION NAME=VALUE...: sets status and got (the Python); said holds what was said. Debian's
# own Python is this machine's, and is not asked here.
torch() {
    : >"$folder/calls"
    got=$(env -u PYTHON XDG_CACHE_HOME="$folder/cache" PATH="$folder/bin:$PATH" "${@:2}" bash -c '
        . <(sed "s|/usr/bin/python3|$AT/debian/python3|" "$0")
        '"$1"' >"$AT/said" 2>&1; status=$?; echo "$python"; exit $status' "$torch")
    status=$?
    got=${got#"$folder"/}
}
seen() { echo "status $status, python $got" && cat "$folder/said" "$folder/calls"; }

torch torch_find
[ $status = 1 ] && [ "$got" = python3 ] && grep -q "no PyTorch here: set PYTHON" "$folder/said"
result $? "none has it: told in a line" "$(seen)"

cp "$folder/python" "$folder/mine"
torch torch_find PYTHON="$folder/mine"
[ $status = 1 ] && [ "$got" = mine ] && grep -q "PYTHON=.*mine has no PyTorch" "$folder/said"
result $? "PYTHON without it: told, and no other is taken" "$(seen)"
torch torch_install PYTHON="$folder/mine"
[ $status = 1 ] && [ "$got" = mine ] && ! grep -q 'install\|venv' "$folder/calls"
result $? "nor is anything installed for it" "$(seen)"
touch "$folder/mine.torch"
torch torch_install PYTHON="$folder/mine"
[ $status = 0 ] && [ "$got" = mine ]
result $? "PYTHON with it" "$(seen)"

torch torch_install PIP=no
[ $status = 1 ] && grep -q '^apt-get .*install python3-torch' "$folder/calls"
result $? "pip cannot: Debian's package is tried, and its absence told" "$(seen)"
torch torch_install PIP=no USER_ID=1000
[ $status = 1 ] && ! grep -q '^apt-get' "$folder/calls"
result $? "but not by one who is not root" "$(seen)"
torch torch_install
[ $status = 0 ] && [ "$got" = cache/zero.c/torch/bin/python ] &&
    grep -q 'pip install .*torch.*whl/cpu' "$folder/calls"
result $? "pip installs it into the cache, from the index without CUDA" "$(seen)"
torch torch_install
[ $status = 0 ] && [ "$got" = cache/zero.c/torch/bin/python ] && ! grep -q pip "$folder/calls"
result $? "the next time it is there" "$(seen)"

rm -r "$folder/cache"
touch "$folder/bin/python3.torch"
torch torch_find
[ $status = 0 ] && [ "$got" = python3 ]
result $? "the path's python3" "$(seen)"
rm "$folder/bin/python3.torch"
mkdir "$folder/debian"
cp "$folder/python" "$folder/debian/python3"
touch "$folder/debian/python3.torch"
torch torch_find
[ $status = 0 ] && [ "$got" = debian/python3 ]
result $? "Debian's" "$(seen)"

echo "1..$count"
exit $failed
