// The rows of keys: see deepspeed.h. A row is key, types, verdict, flag, reason, keys inside.
#ifndef DATA_DEEPSPEED_ROWS_H
#define DATA_DEEPSPEED_ROWS_H
#include "data/deepspeed/deepspeed.h"

#include <cjson/cJSON.h>

struct DsRow {
    const char *key; // its path; "a|b" stands for two names of one key
    // The types of its value besides null and "auto": b true or false, i a whole number, n a
    // number, t a text, l a list, o an object, O an object that is on without an "enabled", E one
    // that is on if an "enabled" inside it is, * anything.
    const char *kinds;
    enum DsVerdict verdict; // DS_REFUSED: a value that is on is; one that is off is not applicable
    const char *flag;       // DS_HONOURED: the flag with this value; NULL: it shares in others
    const char *why;        // the reason, or what to use instead
    // The keys of an object whose verdict is for all of them, separated by spaces; "*": any keys.
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

// All rows. The last table has the flags with a key of their own (Flag.deepspeed).
enum { DS_FLAGS = 3, DS_TABLES };
struct DsTables {
    struct DsTable table[DS_TABLES];
    struct DsRow *flag_rows; // owned
};
struct DsTables ds_tables_open(const struct Flags *f);
void ds_tables_close(struct DsTables *t);

// Returns the row of a key path; *inside: the path is a key inside the row's object. NULL: none.
const struct DsRow *ds_row(const struct DsTables *t, const char *key, bool *inside);

// True if the row lists keys of the object at `key`, a path inside the row's own object; else that
// object may have any keys.
bool ds_lists_inside(const struct DsRow *row, const char *key);

// Returns the known key path nearest to one that has no row. free() it; NULL: none is near.
char *ds_nearest(const struct DsTables *t, const char *key);

// True if a value of a DS_REFUSED row is on, which means refused.
bool ds_is_on(const struct DsRow *row, const cJSON *value);

// True if a value has one of the types that a row allows. Else `text` names them, for the error
// line.
bool ds_fits(const struct DsRow *row, const cJSON *value, char *text, size_t bytes);

// True if DeepSpeed refuses an unknown key at this path, because it knows all keys of the object.
bool ds_is_closed(const char *key);

bool ds_is_auto(const cJSON *value);

// Returns a text, a number, or true or false, as a flag would be written. free() it.
char *ds_format_flag(const cJSON *value);

// Returns the beginning of any value as JSON, for the table. free() it.
char *ds_format_json(const cJSON *value);

const char *ds_verdict_name(enum DsVerdict verdict);

#endif
