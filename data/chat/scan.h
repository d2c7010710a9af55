// Reads a line of JSON from left to right, without building a tree.
//
// A line of a JSONL file may be 64 MiB long. As a tree of cJSON a line of commas would take
// gigabytes, a "\u0000" would silently end a text, and a failed allocation would look like a fault
// of the line. Here nothing is allocated: strings are unescaped in place, and end in a zero byte.
// So the line's bytes change.
//
// Strict as RFC 8259: no bare control characters, no lone surrogates, nothing after the value; and
// no "\u0000", which no text has. The caller has checked for invalid UTF-8 and zero bytes. Used by
// all of this folder that reads JSON.
#ifndef DATA_CHAT_SCAN_H
#define DATA_CHAT_SCAN_H
#include <stdbool.h>
#include <stddef.h>

// Text inside the line, which ends in a zero byte. text NULL: there is none.
struct JsonSlice {
    char *text;
    size_t bytes;
};

struct Scan {
    char *at, *end;
    const char *wrong; // the first fault, after which nothing matches; NULL: none so far
};

// True if the slice is this text.
bool slice_is(const struct JsonSlice *slice, const char *text);

// Begins to read a line of so many bytes.
struct Scan scan_line(char *line, size_t bytes);

// Notes a fault, unless there is one already. Returns false.
bool scan_fail(struct Scan *s, const char *wrong);

// Skips white space, and reads this character if it is the next one.
bool scan_consume(struct Scan *s, char c);

// Reads this character; another one is the fault `wrong`, and false.
bool scan_expect(struct Scan *s, char c, const char *wrong);

// Reads a string; any other value is the fault `wrong`.
bool scan_text(struct Scan *s, struct JsonSlice *text, const char *wrong);

// Reads the next member's name and colon; false at the object's end, or a fault. *first must be
// true for the first call after the "{".
bool scan_member(struct Scan *s, bool *first, struct JsonSlice *name);

// Reads up to the next value of a list; false at the list's end, or a fault. *first: as above.
bool scan_value(struct Scan *s, bool *first);

// Skips a value. *null: it was null; `null` may be NULL.
bool scan_skip(struct Scan *s, bool *null);

// Returns the type of the next value if it is no text, by its first character: "null", "a list",
// ...; NULL: a text, or no JSON. Reads only white space.
const char *scan_other_type(struct Scan *s);

// Checks that only white space is left. True: so it is, and there was no fault.
bool scan_done(struct Scan *s);

#endif
