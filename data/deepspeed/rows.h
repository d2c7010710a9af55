// The rows of keys: see deepspeed.h. A row is key, types, verdict, flag, what to say, keys inside.
#ifndef DATA_DEEPSPEED_ROWS_H
#define DATA_DEEPSPEED_ROWS_H
#include "data/deepspeed/deepspeed.h"

#include <cjson/cJSON.h>

struct DsRow {
    const char *key; // its path; "a|b" stands for two names of one key
    // What its value may be besides null and "auto": b true or false, i a whole number, n a number,
    // t a text, l a list, o an object, O an object that is on without an "enabled", E one that is
    // on where an "enabled" inside it is, * anything.
    const char *kinds;
    enum DsVerdict verdict; // DS_REFUSED: where the value is on; else it is not applicable
    const char *flag;       // DS_HONOURED: whose value it is; NULL: it takes part in others
    const char *why;        // the reason, or what to use instead
    // Keys of an object that has the verdict for all of them, a space between two; "*": whatever
    // they are.
    const char *inner;
    double most; // DS_REFUSED: a number up to this is off
};

struct DsTable {
    const char *title;
    const struct DsRow *rows;
    size_t n;
};

extern const struct DsRow ds_train_rows[], ds_zero_rows[], ds_rest_rows[];
extern const size_t ds_train_count, ds_zero_count, ds_rest_count;

// All rows: the last table's are of flags that have a key of their own (Flag.deepspeed).
enum { DS_FLAGS = 3, DS_TABLES };
struct DsTables {
    struct DsTable table[DS_TABLES];
    struct DsRow *of_flags; // owned
};
struct DsTables ds_tables_open(const struct Flag *flags, size_t n);
void ds_tables_close(struct DsTables *t);

// The row of a key path; *inside: it is one of the keys inside the row's. NULL: it has none.
const struct DsRow *ds_row(const struct DsTables *t, const char *key, bool *inside);

// Whether the row, inside of which the key path lies, lists its keys; else any key may be there.
bool ds_lists_inside(const struct DsRow *row, const char *key);

// A key path that a person may have meant by one that has no row. free() it; NULL: none is near.
char *ds_nearest(const struct DsTables *t, const char *key);

// Whether a value of a DS_REFUSED row is one that is refused.
bool ds_is_on(const struct DsRow *row, const cJSON *value);

// Whether a value has one of the types that a row allows. `text` is what it should be, for the
// error line.
bool ds_fits(const struct DsRow *row, const cJSON *value, char *text, size_t bytes);

// Whether DeepSpeed refuses a key path without a row, because it knows all keys of that object.
bool ds_is_closed(const char *key);

bool ds_is_auto(const cJSON *value);

// A text, a number, or true or false, as a flag has it. free() it.
char *ds_text(const cJSON *value);

// Any value as the file could have it, of which a person sees the beginning. free() it.
char *ds_print(const cJSON *value);

const char *ds_verdict_name(enum DsVerdict verdict);

#endif
