// One line of JSON, read from left to right without a tree.
//
// A line of a JSONL file may be 64 MiB long; as a tree of cJSON it would take gigabytes where it is
// nothing but commas, a "\u0000" would end a text in silence, and memory that is refused would look
// like a fault of the line. Here nothing is allocated: a string is put right in its own place, so
// that its escapes are gone and a zero byte lies behind it. The line is used up by that.
//
// Strict as RFC 8259: no bare control characters, no lone surrogates, nothing behind the value; and
// no "\u0000", which no text has. The caller has looked for invalid UTF-8 and zero bytes. Used by
// line.c and form_file.c.
#ifndef DATA_CHAT_SCAN_H
#define DATA_CHAT_SCAN_H
#include <stdbool.h>
#include <stddef.h>

// Text inside the line; a zero byte lies behind it. text NULL: there is none.
struct JsonSlice {
    char *text;
    size_t bytes;
};

struct Scan {
    char *at, *end;
    const char *wrong; // what the first fault was; NULL: none so far. Then nothing matches any more
};

// Whether it is that text, of the same length.
bool piece_is(const struct JsonSlice *piece, const char *text);

// Begins a line of so many bytes.
struct Scan scan_line(char *line, size_t bytes);

// Notes a fault, unless there is one already. Returns false.
bool scan_fail(struct Scan *s, const char *wrong);

// Takes this character, behind white space, if it is the next one.
bool scan_consume(struct Scan *s, char c);

// The same, but it has to be there: else it is a fault, and false.
bool scan_expect(struct Scan *s, char c, const char *wrong);

// A string; any other value is the fault `wrong`.
bool scan_text(struct Scan *s, struct JsonSlice *text, const char *wrong);

// The next member's name, with its colon; false at the object's end, or a fault. *first is true
// before the first call behind the "{".
bool scan_member(struct Scan *s, bool *first, struct JsonSlice *name);

// The same of a list: is there another value?
bool scan_value(struct Scan *s, bool *first);

// Any one value, passed over. *null: was it null? NULL: nobody asks.
bool scan_skip(struct Scan *s, bool *null);

// What the next value is, by its first character: "null", "a list", ...; NULL: a text, or nothing
// that JSON knows. Takes nothing.
const char *scan_other(struct Scan *s);

// Only white space may be left. True: that is so, and there was no fault.
bool scan_done(struct Scan *s);

#endif
