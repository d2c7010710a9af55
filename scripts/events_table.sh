#!/bin/bash
# Writes docs/events.md: every event and mark, who records it, who waits for it, what happens
# without it, and which test leaves it out and notices. All of it is read from the source.
#
#   scripts/events_table.sh            writes docs/events.md
#   scripts/events_table.sh --check    status 1, and the difference, where it is not what the
#                                      source says; 1 too for each fault below
#   scripts/events_table.sh --print    to standard output
#
# Where it comes from:
#   names    the string that an event is opened with (device_open_event, mark_open, zero_open_mark);
#            of slots, those of struct SlotsSpec; of an event without, the comment on that line
#   calls    device_record and mark_record; device_wait, mark_wait, device_sync_event and
#            device_event_done. Which event they mean is told by struct and field, as declared in
#            the same function. Where that leaves more than one (slots) those count that the file's
#            essay speaks of, or that begin with the variable's name; where it leaves none (a
#            pointer that is handed in) a comment on the line of the call names them
#   without  rows of the essays that files open with:
#              //   in -> comm   word sent   what happens without it
#            who records, who waits, two spaces, the name, two spaces, the sentence, which may go on
#            in the next line. More rows of one event add up
#   shown    the lists in tests that begin with a line "// Events left out by NAME OF TEST:" and end
#            with "};": names, or kinds such as "wait by comm: word sent". The test itself holds its
#            list against what it left out and what noticed
#
# Faults: an event that nobody records, or nobody waits for, or that has no sentence or no test; a
# row or a test of an event that is not opened; a queue that the rows do not name; a call whose
# event cannot be told. Called by scripts/check_layout.sh. Read next: docs/events.md.
set -eu
. "${0%"${0##*/}"}help.sh"
cd "$(dirname "$0")/.."
export LC_ALL=C
page=docs/events.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT

sources() { # structs are declared before they are used
    find kernels zero data model -name '*.h' | sort
    ls zero/*.c
    find zero/* kernels data model train.c -mindepth 1 -name '*.c' \
        ! -path kernels/event.c ! -path kernels/mark.c | sort -r
    grep -l '^ *// Events left out by ' tests/*/*.c | sort
}

head_of_page() {
    cat <<'TEXT'
# Events

Four queues run side by side on a device, four more on the host where state is offloaded, and
events alone order them ([device.h](../kernels/device.h), [mark.h](../kernels/mark.h)). These are
all of them, under the names that traces (`--trace`) and tests show. `scripts/events_table.sh`
writes this page from the source; `scripts/check_layout.sh` fails where the two differ. The tests
of the last column leave each record and each wait out, one at a time, and fail where nothing
notices, or where the events that they left out are not those of this page.

| event | from → to | recorded by | waited for by | without it | shown by |
|---|---|---|---|---|---|
TEXT
}

# shellcheck disable=SC2016
table() {
    sources | xargs awk '
function fault_at(where, message) {
    print where ": " message >"/dev/stderr"
    faults++
}

function fault(message) {
    fault_at(FILENAME ":" FNR, message)
}

function trim(s) {
    gsub(/^[ \t]+|[ \t]+$/, "", s)
    return s
}

# ---- types: the struct and the field that an expression ends with ----

function note_fields(text,    type, list, n, i) {
    sub(/\/\/.*/, "", text)
    if (text !~ /^    (const )?struct [A-Za-z]+ [^{]*;/)
        return
    sub(/^    (const )?struct /, "", text)
    type = text
    sub(/ .*/, "", type)
    sub(/^[A-Za-z]+ /, "", text)
    n = split(text, list, ",")
    for (i = 1; i <= n; i++) {
        gsub(/[*; ]|\[.*/, "", list[i])
        field[in_struct, list[i]] = type
    }
}

# Variables and parameters of the function at hand; what a pointer to an event begins as.
function note_variables(text,    rest, pair, value) {
    rest = text
    while (match(rest, /struct [A-Za-z]+ \**[a-z_0-9]+/)) {
        split(substr(rest, RSTART + 7, RLENGTH - 7), pair, " ")
        gsub(/\*/, "", pair[2])
        variable[function_name, pair[2]] = pair[1]
        rest = substr(rest, RSTART + RLENGTH)
        if (pair[1] ~ /^(Mark|Event)$/ && match(rest, /^ = [^;]*;/)) {
            value = substr(rest, 4, RLENGTH - 4)
            begins[function_name, pair[2]] = value
        }
    }
}

# "&z->state[g].updated" gives "GroupState.updated"; one that cannot be told gives "".
function type_of(text,    part, n, type, i) {
    text = trim(text)
    gsub(/^[&*]+/, "", text)
    while (gsub(/\[[^][]*\]/, "", text) || gsub(/\([^()]*\)/, "@", text))
        ;
    gsub(/->/, ".", text)
    n = split(text, part, ".")
    if (n == 1 && text ~ /@$/)
        return event_of_function[FILENAME, substr(text, 1, length(text) - 1)]
    if (n == 1)
        return (function_name, text) in begins ? type_of(begins[function_name, text]) : ""
    if (part[1] ~ /@$/) {
        sub(/@$/, "", part[1])
        type = (FILENAME, part[1]) in returned ? returned[FILENAME, part[1]] : returned[part[1]]
    } else {
        type = variable[function_name, part[1]]
    }
    for (i = 2; i < n; i++)
        type = field[type, part[i]]
    return type == "" ? "" : type "." part[n]
}

# ---- names ----

function open_as(key, name, where) {
    if (!(name in opened)) {
        opened[name] = where
        order[++count] = name
    }
    if (index("," names_of[key] ",", "," name ",") == 0)
        names_of[key] = names_of[key] (names_of[key] == "" ? "" : ",") name
}

function strings_as(key, text, where) {
    while (match(text, /"[^"]*"/)) {
        open_as(key, substr(text, RSTART + 1, RLENGTH - 2), where)
        text = substr(text, RSTART + RLENGTH)
    }
}

function note_open(text,    target, key) {
    target = text
    if (text ~ /mark_open\(|zero_open_mark\(/) {
        sub(/.*(mark_open|zero_open_mark)\((z, )?/, "", target)
        sub(/,.*/, "", target)
    } else {
        sub(/ = .*/, "", target)
    }
    key = type_of(target)
    if (text ~ /mark_names\[/) {
        slot_key[++slot_keys] = key
        return
    }
    sub(/.*(event|mark|open)\(/, "", text)
    if (key == "")
        fault("an event of no struct is opened: " target)
    else if (text ~ /"/)
        strings_as(key, text, FILENAME ":" FNR)
    else if (text ~ /\/\/ /)
        open_as(key, trim(substr(text, index(text, "// ") + 3)), FILENAME ":" FNR)
    else
        fault("an event without a name is opened")
}

# The names of marks in a struct SlotsSpec, in the order in which a slot opens them.
function note_spec(text,    list, n, i) {
    match(text, /\{("[^"]*"|NULL), .*\}/)
    text = substr(text, RSTART + 1, RLENGTH - 1)
    gsub(/[{};]/, "", text)
    n = split(text, list, ", ")
    specs++
    for (i = 1; i <= n; i++)
        spec[specs, i] = list[i]
    spec_place[specs] = FILENAME ":" FNR
}

# ---- rows of essays, and lists of tests ----

function note_row(text,    part) {
    text = substr(text, 6)
    if (split(text, part, /   */) != 3) {
        fault("a row of events wants who -> whom, name and sentence, with two spaces between")
        return
    }
    row = trim(part[2])
    split(part[1], part, " -> ")
    row_place[row] = row_place[row] == "" ? FILENAME ":" FNR : row_place[row]
    from[row] = from[row] ", " part[1]
    to[row] = to[row] ", " part[2]
    essay[FILENAME] = essay[FILENAME] "," row ","
    sub(/^.* -> [a-z, \047]+   */, "", text)
    sub(/^[^ ]+( [^ ]+)*   */, "", text)
    add_sentence(row, text, "; ")
}

function add_sentence(name, text, between) {
    if (sentence[name] == "")
        sentence[name] = text
    else if (between == " " || !index("; " sentence[name] "; ", "; " text "; "))
        sentence[name] = sentence[name] between text
}

function note_shown(text,    name) {
    while (match(text, /"[^"]*"/)) {
        name = substr(text, RSTART + 1, RLENGTH - 2)
        text = substr(text, RSTART + RLENGTH)
        sub(/^(record|wait|sync) by .*: /, "", name)
        shown_place[name] = FILENAME ":" FNR
        if (!index(shown[name], "`" test "`"))
            shown[name] = shown[name] (shown[name] == "" ? "" : ", ") "`" test "`"
    }
    if (text ~ /};/)
        test = ""
}

# ---- records and waits: kept until all names are known ----

function note_call(text,    what, arguments, list, n, i, c) {
    what = text ~ /_record\(/ ? "record" : "wait"
    c = ++calls
    call_place[c] = FILENAME ":" FNR
    call_file[c] = FILENAME
    call_what[c] = what
    call_function[c] = function_name
    sub(/^[^"]*_(record|wait|sync_event|event_done)\(/, "", text)
    if (match(text, /\/\/ .*/)) {
        call_named[c] = substr(text, RSTART + 3)
        text = substr(text, 1, RSTART - 1)
    }
    if (match(text, /QUEUE_[A-Z]+/))
        call_queue[c] = tolower(substr(text, RSTART + 6, RLENGTH - 6))
    while (gsub(/\([^()]*\)/, "@", text))
        ;
    n = split(text, list, /, | \? | : /)
    for (i = 1; i <= n; i++) {
        gsub(/^[&*]+|\).*/, "", list[i])
        key = type_of(list[i])
        if (key != "")
            call_key[c] = call_key[c] " " key
        if (key ~ /^Slot\./) {
            call_variable[c] = list[i]
            sub(/->.*/, "", call_variable[c])
        }
    }
}

# Of the names that a field has in several structs Slots those that this call can mean. The two that
# a staging buffer has are opened by one line, and both meant.
function choose(c, names,    list, n, i, by_essay, by_variable, left) {
    n = split(names, list, ",")
    if (n == 1 || opened[list[1]] == opened[list[n]])
        return names
    for (i = 1; i <= n; i++) {
        if (index(list[i], call_variable[c] " ") == 1)
            by_variable = by_variable "," list[i]
        if (index(essay[call_file[c]], "," list[i] ","))
            by_essay = by_essay "," list[i]
    }
    left = by_variable != "" ? by_variable : by_essay
    return split(substr(left, 2), list, ",") == 1 ? list[1] : ""
}

# The events that a call can mean, with commas between; "": it cannot be told.
function names_meant(c,    keys, n, i, names, chosen) {
    names = call_named[c]
    gsub(/, /, ",", names)
    n = names == "" ? split(call_key[c], keys, " ") : 0
    for (i = 1; i <= n; i++) {
        if (names_of[keys[i]] == "") # the device, or a condition
            continue
        chosen = choose(c, names_of[keys[i]])
        if (chosen == "")
            return ""
        names = names (names == "" ? "" : ",") chosen
    }
    return names
}

function resolve(c,    name, n, i, side) {
    n = split(names_meant(c), name, ",")
    if (n == 0)
        fault_at(call_place[c], "which event is this? A comment on the line must tell")
    for (i = 1; i <= n; i++) {
        if (!(name[i] in opened))
            fault_at(call_place[c], "no event is opened as \"" name[i] "\"")
        side = (call_what[c] == "record" ? from[name[i]] : to[name[i]]) ","
        if (name[i] in sentence && call_queue[c] != "" && side !~ ("[ ,]" call_queue[c] ","))
            fault_at(call_place[c], "\"" name[i] "\": no essay has " call_queue[c] \
                     (call_what[c] == "record" ? " before" : " behind") " its arrow")
        add_place(call_what[c] SUBSEP name[i], call_file[c], call_function[c])
    }
}

function add_place(key, file, name) {
    if (index(place[key] " ", "`" name "`"))
        return
    if (last_file[key] == file)
        place[key] = place[key] ", `" name "`"
    else
        place[key] = place[key] (place[key] == "" ? "" : "; ") file " `" name "`"
    last_file[key] = file
}

# ---- one pass over every file ----

FNR == 1 {
    in_struct = function_name = test = row = ""
    in_spec = 0
}
/^ *\/\/ Events left out by .*:$/ {
    test = $0
    sub(/.* left out by /, "", test)
    sub(/:$/, "", test)
    next
}
FILENAME ~ /^tests\// {
    if (test != "")
        note_shown($0)
    next
}
/^\/\/   [a-z][a-z, \047]* -> [a-z]/ {
    note_row($0)
    next
}
row != "" && /^\/\/            / {
    add_sentence(row, trim(substr($0, 3)), " ")
    next
}
{
    row = ""
}
/^struct [A-Za-z]+ \{/ {
    in_struct = $2
}
/^}/ {
    in_struct = function_name = ""
}
in_struct != "" {
    note_fields($0)
    next
}
/^[a-z].*\(/ && !/^typedef/ {
    function_name = $0
    sub(/\(.*/, "", function_name)
    split(function_name, word, " ")
    type = function_name
    sub(/.*[ *]/, "", function_name)
    if (match(type, /struct [A-Za-z]+ \*/)) {
        type = substr(type, RSTART + 7, RLENGTH - 9)
        returned[function_name] = returned[FILENAME, function_name] = type
    }
    delete_variables = 1
}
delete_variables {
    for (name in variable)
        delete variable[name]
    for (name in begins)
        delete begins[name]
    delete_variables = 0
}
function_name != "" {
    note_variables($0)
}
returned[FILENAME, function_name] ~ /^(Mark|Event)$/ && /^    return &/ {
    sub(/;.*/, "")
    event_of_function[FILENAME, function_name] = type_of(substr($0, 12))
}
/struct SlotsSpec [a-z]+ = \{/ {
    in_spec = 1
}
in_spec && /\{("[^"]*"|NULL), / {
    note_spec($0)
    in_spec = 0
}
/^ .*(device_open_event|mark_open|zero_open_mark|ops->event_open)\(/ {
    if (function_name != "zero_open_mark")
        note_open($0)
}
/^ .*(device_record|mark_record|device_wait|mark_wait|device_sync_event|device_event_done)\(/ {
    note_call($0)
}
END {
    for (i = 1; i <= specs; i++)
        for (k = 1; k <= slot_keys; k++)
            strings_as(slot_key[k], spec[i, k], spec_place[i])
    for (c = 1; c <= calls; c++)
        resolve(c)
    for (i = 1; i <= count; i++) {
        name = order[i]
        problem = !(("record", name) in place) ? "nobody records it" : \
                  !(("wait", name) in place) ? "nobody waits for it" : \
                  sentence[name] == "" ? "no essay says what happens without it" : \
                  shown[name] == "" ? "no test says that it leaves it out" : ""
        if (problem != "")
            fault_at(opened[name], "\"" name "\": " problem)
        printf "| %s | %s → %s | %s | %s | %s | %s |\n", name, merged(from[name]), merged(to[name]),
               place["record", name], place["wait", name], sentence[name], shown[name]
    }
    for (name in sentence)
        if (!(name in opened))
            fault_at(row_place[name], "a row for \"" name "\", which nobody opens")
    for (name in shown)
        if (!(name in opened))
            fault_at(shown_place[name], "\"" name "\", which nobody opens")
    exit faults > 0
}

# ", in, out, in" gives "in, out".
function merged(text,    list, n, i, out) {
    n = split(substr(text, 3), list, ", ")
    for (i = 1; i <= n; i++)
        if (index(", " out ",", ", " list[i] ",") == 0)
            out = out (out == "" ? "" : ", ") list[i]
    return out
}
'
}

status=0
head_of_page >"$new"
table >>"$new" || status=1
case ${1:-} in
--check)
    diff -u "$page" "$new" || {
        echo "$page: is not what the source says; scripts/events_table.sh writes it"
        status=1
    }
    ;;
--print) cat "$new" ;;
'') [ $status = 1 ] || cp "$new" "$page" ;;
*)
    echo "$0: unknown: $1" >&2
    exit 2
    ;;
esac
exit $status
