# PyTorch, for scripts that compare with it. Sourced by bench_cpu.sh, bench_offload.sh, bench_gpu.sh
# and gpu_check.sh, all of which set `python` with it:
#
#   torch_find       the first Python that has PyTorch: that of $PYTHON and no other where that
#                    variable is set; an earlier torch_install's; python3 of the path; Debian's
#   torch_install    the same, and where none has it, it is installed: by pip into a virtual
#                    environment in the cache, else, by root, as Debian's python3-torch
#
# Both return 1, with the reason on standard error, where there is none; `python` is then $PYTHON or
# python3, so that what is run with it says that torch is missing. Where a GPU is lent, nothing is
# fetched: scripts for GPUs call torch_find alone.
# shellcheck shell=bash

torch_cache=${XDG_CACHE_HOME:-${HOME:-$PWD/out}/.cache}/zero.c

# Importing it takes seconds; whether it is there, none.
torch_has() { # torch_has PYTHON
    "$1" -c 'import importlib.util, sys
sys.exit(importlib.util.find_spec("torch") is None)' >/dev/null 2>&1
}

torch_version() { "$python" -c 'import torch; print(torch.__version__)' 2>/dev/null || echo none; }

torch_find() {
    if [ -n "${PYTHON:-}" ]; then
        python=$PYTHON
        torch_has "$python" && return
        echo "PYTHON=$PYTHON has no PyTorch" >&2
        return 1
    fi
    for python in "$torch_cache/torch/bin/python" python3 /usr/bin/python3; do
        torch_has "$python" && return
    done
    python=python3
    echo "no PyTorch here: set PYTHON to a python3 that has torch" >&2
    return 1
}

# The index of CPU-only wheels first: those of the usual index bring some gigabytes of CUDA.
torch_by_pip() {
    local venv=$torch_cache/torch pip
    command -v python3 >/dev/null && mkdir -p "$torch_cache" && python3 -m venv "$venv" || return 1
    pip=("$venv/bin/python" -m pip install -q --timeout 20 --retries 1 torch numpy)
    "${pip[@]}" --index-url https://download.pytorch.org/whl/cpu || "${pip[@]}"
}

torch_by_apt() {
    [ "$(id -u)" = 0 ] && DEBIAN_FRONTEND=noninteractive apt-get -qy install python3-torch
}

torch_install() {
    local log
    torch_find 2>/dev/null && return
    [ -z "${PYTHON:-}" ] || { torch_find; return; }
    echo "installing PyTorch into $torch_cache/torch"
    log=$(mktemp)
    torch_by_pip >"$log" 2>&1 || {
        tail -n 3 "$log" >&2
        echo "pip cannot; trying Debian's python3-torch" >&2
        torch_by_apt >"$log" 2>&1 || tail -n 3 "$log" >&2
    }
    rm -f "$log"
    torch_find
}

# The folders of NVIDIA's libraries that PyTorch's packages carry, each nvidia/NAME/lib, between
# colons; nothing where there are none.
torch_libraries() {
    "$python" -c '
import glob, nvidia
print(":".join(f for p in nvidia.__path__ for f in sorted(glob.glob(p + "/*/lib"))))' 2>/dev/null
}
