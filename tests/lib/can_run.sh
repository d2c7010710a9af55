# Whether a run can be tried here: source this file. It reads train, the program, and folder, which
# lies on the disk that runs offload to.
# shellcheck shell=bash
# shellcheck disable=SC2154

has_library() { # has_library NAME: as ./train --version calls it
    "$train" --version | grep -qE "^$1 +[0-9]"
}

has_disk() { [ "$(stat -f -c %T "$folder")" != tmpfs ]; }

can_run() { # can_run SCENARIO: with the libraries that the program was built with, in $folder
    case $1 in
    nvme) has_library liburing && has_disk ;;
    mpirun*) has_library OpenMPI && command -v mpirun >/dev/null ;;
    tokenizer) has_library SentencePiece ;;
    lists) has_library zlib ;;
    packed) has_library libzstd ;;
    pattern) has_library PCRE2 ;;
    gpu-nvme) has_library CUDA && has_library liburing && has_disk ;;
    nccl-mpirun) has_library NCCL && has_library OpenMPI && command -v mpirun >/dev/null ;;
    nccl*) has_library NCCL ;;
    gpu*) has_library CUDA ;;
    esac
}
