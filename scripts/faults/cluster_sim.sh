#!/bin/bash
# A cluster on one machine: 8 nodes as network namespaces, each with a host name, a link of
# limited rate and a disk of its own, and jobs of ./train over all of them with mpirun.
#
#   scripts/faults/cluster_sim.sh              8 nodes of 2 ranks, links of 1 Gbit/s
#   NODES=4 PER_NODE=4 RATE=200mbit scripts/faults/cluster_sim.sh
#
# A switch (a bridge) joins the nodes' links (veth), and a token bucket limits them, both ways. Each
# link and each node's loopback count bytes. A setting runs twice, with 2 and with 6 steps: what the
# longer run sent more is that of 4 steps, without start, validation and checkpoints. It stands
# beside the plan's bytes: those to other nodes, which a link carried, and those to ranks of the
# same node, on the loopback. TCP, IP and MPI add their headers. A ratio below 1 or above 1.10, a
# weights hash other than that of thread ranks, or a rank's file on another disk, is a failure. The
# last line is `N settings: M as planned`; status 0 if all are.
#
# --out is one path, and on each node another folder: a mount that only it sees.
#
# Needs root (it makes namespaces and mounts, and takes them away at its end), iproute2, util-linux
# and Open MPI. TRAIN names another program than ./train. Some five minutes on two cores.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 2
nodes=${NODES:-8} per_node=${PER_NODE:-2} rate=${RATE:-1gbit}
train=$(realpath "${TRAIN:-./train}")
die() { echo "cluster_sim: $*" >&2; exit 2; }

[ "$(id -u)" = 0 ] || die "this makes network namespaces and mounts: expected root (sudo $0)"
command -v ip >/dev/null && command -v tc >/dev/null || die "no ip: scripts/setup.sh --nodes"
command -v unshare >/dev/null || die "no unshare: scripts/setup.sh --nodes"
command -v mpirun >/dev/null || die "no mpirun: scripts/setup.sh"
[ -x "$train" ] || die "no program $train: run make, or set TRAIN"

folder=$(mktemp -d)
export HOME=${HOME:-/tmp} XDG_CACHE_HOME=$folder/cache
name() { echo "zero$$-$1"; } # of a node's namespace; 0: the switch's
clean_up() {
    for ((k = 0; k <= nodes; k++)); do ip netns del "$(name $k)" 2>/dev/null; done
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 2' INT TERM HUP

# ---- the cluster ----

# A bucket that loses nothing: what was lost would be sent, and counted, twice.
limit() { ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst 256k limit 256m; }

build() {
    local k node switch
    switch=$(name 0)
    ip netns add "$switch" && ip -n "$switch" link add bridge type bridge &&
        ip -n "$switch" link set bridge up || return
    for ((k = 1; k <= nodes; k++)); do
        node=$(name $k)
        ip netns add "$node" &&
            ip -n "$switch" link add "port$k" type veth peer name eth0 netns "$node" &&
            ip -n "$switch" link set "port$k" master bridge up &&
            ip -n "$node" address add "10.77.0.$k/24" dev eth0 &&
            ip -n "$node" link set lo up && ip -n "$node" link set eth0 up &&
            limit "$node" eth0 && limit "$switch" "port$k" &&
            mkdir -p "$folder/disk$k" || return
    done
    mkdir -p "$folder/out"
}

# What mpirun starts in place of ssh: the command in the namespaces of the node of that address,
# where the path of --out is that node's own disk.
cat >"$folder/agent" <<END
#!/bin/bash
k=\${1##*.}
shift
exec ip netns exec "zero$$-\$k" unshare -u -m bash -c '
    echo node'\$k' >/proc/sys/kernel/hostname &&
    mount --bind "$folder/disk'\$k'" "$folder/out" && eval "\$1"' bash "\$*"
END
chmod +x "$folder/agent"

hosts=
for ((k = 1; k <= nodes; k++)); do hosts+=,10.77.0.$k:$per_node; done
launcher=(mpirun --allow-run-as-root --bind-to none --oversubscribe -np $((nodes * per_node))
    --host "${hosts#,}" --map-by slot --mca plm rsh --mca plm_rsh_agent "$folder/agent"
    --mca plm_rsh_no_tree_spawn 1 --mca pml ob1 --mca btl tcp,self
    --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24
    --mca orte_tmpdir_base "$folder" -x XDG_CACHE_HOME)

job() { # job ARGUMENT...: of ./train, on all nodes, begun on the first
    timeout -k 5 120 "$folder/agent" 10.77.0.1 "$(printf '%q ' "${launcher[@]}" "$train" "$@")" 2>&1
}

sent() { # sent DEVICE: bytes that the nodes have sent with it
    local k
    for ((k = 1; k <= nodes; k++)); do
        ip netns exec "$(name $k)" cat "/sys/class/net/$1/statistics/tx_bytes"
    done | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# ---- what is run ----

model=(--device cpu --dtype fp32 --data random --vocab 4000 --layers 3 --channels 128 --heads 4
    --seq-len 32 --batch 1 --threads 1 --log-every 0 --val-batches 1 --no-tensorboard)

planned() { # planned KEY FLAG...: of a rank's step, in bytes
    local key=$1
    shift
    "$train" "${model[@]}" --ranks $((nodes * per_node)) --node-size "$per_node" "$@" --plan \
        --json | sed -n "s/^\t\t\"$key\":\t\([0-9]*\).*/\1/p" | tail -n 1
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { print b ? sprintf("%.3f", a / b) : "-" }'; }
is_near_one() { awk -v r="$1" 'BEGIN { exit !(r == "-" || (r >= 1 && r <= 1.10)) }'; }
mib() { awk -v b="$1" 'BEGIN { printf "%.2f", b / 1048576 }'; }

# For each number of steps: bytes on links and loopbacks, then the weights hash.
count() { # count STEPS FLAG...
    local steps=$1 far near said
    shift
    rm -rf "$folder"/disk*/*
    far=$(sent eth0) near=$(sent lo)
    said=$(job "${model[@]}" --no-check-comm --node-size "$per_node" --steps "$steps" \
        --out "$folder/out" "$@") || { grep '^train: ' <<<"$said" >&2; return 1; }
    echo "$(($(sent eth0) - far)) $(($(sent lo) - near)) ${said##*weights hash: }"
}

total=0 right=0
setting() { # setting FLAG...
    local all far_plan near_plan few many few_far few_near many_far many_near
    local hash want verdict far near apart
    total=$((total + 1))
    few=$(count 2 "$@") && many=$(count 6 "$@") || { echo "| $* | failed |"; return; }
    read -r few_far few_near hash <<<"$few"
    read -r many_far many_near hash <<<"$many"
    want=$("$train" "${model[@]}" --ranks $((nodes * per_node)) --node-size "$per_node" --steps 6 \
        --out "$folder/threads" "$@" 2>&1 | sed -n 's/^weights hash: //p')
    rm -rf "$folder/threads"
    all=$(planned sum "$@")
    far_plan=$(($(planned far "$@") * per_node * nodes))
    near_plan=$((all * per_node * nodes - far_plan))
    apart=$(ls "$folder"/disk*/checkpoints/step-00000006/*.state | wc -l)
    apart+=" $(ls "$folder"/disk$nodes/checkpoints/step-00000006/*.state | wc -l)"
    many_far=$(((many_far - few_far) / 4)) many_near=$(((many_near - few_near) / 4))
    far=$(ratio $many_far $far_plan) near=$(ratio $many_near $near_plan)
    verdict=yes
    is_near_one "$far" && is_near_one "$near" && [ "$hash" = "$want" ] && [ -n "$want" ] &&
        [ "$apart" = "$((nodes * per_node)) $per_node" ] ||
        verdict="NO ($hash, threads have $want; files in all and on the last node: $apart)"
    [ "$verdict" != yes ] || right=$((right + 1))
    echo "| \`$*\` | $(mib $far_plan) | $(mib $many_far) | $far |" \
        "$(mib $near_plan) | $(mib $many_near) | $near | $verdict |"
}

build || die "cannot make the nodes: the kernel lacks namespaces, veth, bridge or tbf, or refuses"
echo "$nodes nodes of $per_node ranks, links of $rate; MiB a step, all ranks together"
echo
echo "| flags | to other nodes: planned | on the links | ratio | inside nodes: planned |" \
    "on loopbacks | ratio | as planned, and the hash of threads |"
echo "|---|---|---|---|---|---|---|---|"
setting --zero 0
setting --zero 1
setting --zero 2
setting --zero 3
setting --zero 3 --zero-shard-size "$per_node"
setting --zero 3 --zero-hpz-partition-size "$per_node"
setting --zero 3 --zero-quantized-weights
setting --zero 3 --zero-quantized-weights --zero-quantized-gradients
setting --zero 1 --tp "$per_node"
setting --zero 3 --tp "$per_node" --sequence-parallel
echo
echo "$total settings: $right as planned"
[ $right = $total ]
