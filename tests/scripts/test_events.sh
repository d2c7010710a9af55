#!/bin/bash
# scripts/events_table.sh must notice when docs/events.md is not what the source says. A copy of the
# source passes; then it is broken in one way at a time, and the check must name the fault. Speaks
# TAP for scripts/run_tests.sh.
set -u
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
count=0 failed=0

fresh_tree() {
    rm -rf "${tree:?}"/*
    cp -r --parents scripts/{events_table,help}.sh docs/events.md kernels zero data model train.c \
        tests/zero "$tree"
}

report() { # report STATUS NAME SAID: one line of TAP
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        sed 's/^/# /' <<<"$3"
        failed=1
    fi
}

fresh_tree
said=$("$tree/scripts/events_table.sh" --check 2>&1)
report $? "docs/events.md is what the source says" "$said"

# broken NAME FILE SCRIPT PATTERN: with FILE changed by sed's SCRIPT the check must fail, and say
# something that matches PATTERN.
broken() {
    local said status
    sed -i "$3" "$tree/$2"
    said=$("$tree/scripts/events_table.sh" --check 2>&1)
    status=$?
    ! cmp -s "$2" "$tree/$2" && [ $status = 1 ] && grep -q -- "$4" <<<"$said"
    report $? "$1" "status $status: $said"
    fresh_tree
}

broken "an event that nobody records" zero/step.c \
    '/device_record(d, QUEUE_COMPUTE, z->settings_used)/d' '"settings used": nobody records it'
broken "an event that nobody waits for" zero/reports.c \
    '/device_wait(d, QUEUE_COMM, z->word_sent)/d' '"word sent": nobody waits for it'
broken "a mark that nobody records" zero/offload/activations.c \
    '/mark_record(&slot->arrived/d' '"layer arrived": nobody records it'
broken "an event that is opened and not used" zero/offload/activations.c \
    's|^    k->made = device_open.*|&\n    k->next = device_open_event(z->device, "second");|' \
    'activations.c:[0-9]*: "second": nobody records it'
broken "an event without a sentence" zero/run/feed.c '/^\/\/ .*tokens drained/d' \
    '"tokens drained": no essay says'
broken "a sentence without an event" zero/open.c 's/"clipped"/"cut"/' \
    'a row for "clipped", which nobody opens'
broken "an event that no test leaves out" tests/zero/test_gpu_train.c \
    's/"ranks met"/"group updated"/' '"ranks met": no test says'
broken "a test of an event that is not opened" tests/zero/test_nccl_watch.c \
    's/"collective ended"/"collective over"/' '"collective over", which nobody opens'
broken "an event without a name" zero/comm/thread.c 's|; // ranks met|;|' \
    'an event without a name is opened'
broken "a wait for an event that cannot be told" zero/offload/move.c \
    's|; // group updated|;|' 'move.c:[0-9]*: which event is this?'
broken "a wait in a queue of which no essay speaks" zero/opt.c \
    's/device_wait(d, QUEUE_COMPUTE, z->reported)/device_wait(d, QUEUE_IN, z->reported)/' \
    '"reported": no essay has in behind its arrow'
broken "another sentence than the page has" zero/param.c 's/before its group has come/too soon/' \
    '^+.*a unit reads a slot too soon'
broken "another function that waits" zero/step.c 's/^static void send_settings/static void send/' \
    '^+.*`send`'

echo "1..$count"
exit $failed
