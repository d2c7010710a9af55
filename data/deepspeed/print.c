// Prints the table of a resolved configuration, and that of all rows: see deepspeed.h.
#include "data/deepspeed/rows.h"
#include "kernels/show.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_COLUMN = 2, SAY_COLUMN = 52, VALUE_MAX = 24 };

// Pads from column `at` to `column`, on a new line if that is passed.
static void pad_to(FILE *out, int at, int column) {
    if (at >= column)
        fprintf(out, "\n%*s", column, "");
    else
        fprintf(out, "%*s", column - at, "");
}

static const char *skip_prefix(const char *text, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : text;
}

// Returns "equal by design: ...", "--zero 2", "--clip 0; absent: ...".
static char *describe_line(const struct DsLine *line) {
    bool default_taken = line->flag && line->absent;
    if (line->flag)
        return base_format("--%s %s%s%s", line->flag, line->flag_value,
                           line->why && default_taken ? ", " : "",
                           default_taken ? (line->why ? line->why : ", DeepSpeed's default") : "");
    const char *why = line->why ? line->why : "";
    if (line->verdict == DS_HONOURED)
        return base_format("%s", why);
    return base_format("%s: %s", ds_verdict_name(line->verdict), why);
}

void deepspeed_print(const struct DeepSpeed *d, FILE *out) {
    char shown[ERROR_TEXT_BYTES];
    show_line(shown, sizeof shown, d->path);
    fprintf(out, "%s\n", shown);
    for (size_t i = 0; i < d->n; i++) {
        const struct DsLine *line = &d->lines[i];
        show_line(shown, sizeof shown, skip_prefix(line->key, "zero_optimization."));
        int at = fprintf(out, "%*s%s", KEY_COLUMN, "", shown);
        show_line(shown, sizeof shown, line->value);
        at += fprintf(out, " %.*s", VALUE_MAX, shown);
        char *says = describe_line(line);
        show_line(shown, sizeof shown, says);
        free(says);
        pad_to(out, at, SAY_COLUMN);
        show_words(out, shown, SAY_COLUMN);
    }
}

// Returns "--clip; absent: 0", "not applicable: ...".
static char *describe_row(const struct DsRow *row) {
    const char *why = row->why ? row->why : "";
    if (row->flag)
        return base_format("--%s%s%s", row->flag, *why ? "; " : "", why);
    if (row->verdict == DS_HONOURED)
        return base_format("%s", why);
    const char *when = row->verdict != DS_REFUSED   ? ""
                       : strpbrk(row->kinds, "boE") ? " if on"
                       : row->most > 0              ? " if more than one"
                                                    : "";
    return base_format("%s%s: %s", ds_verdict_name(row->verdict), when, why);
}

static void print_row(const struct DsRow *row, FILE *out) {
    char *says = describe_row(row);
    int n = (int)strcspn(row->key, "|");
    int at = fprintf(out, "%*s%.*s%s", KEY_COLUMN, "", n, row->key, row->inner ? ".*" : "");
    pad_to(out, at, SAY_COLUMN);
    show_words(out, says, SAY_COLUMN);
    free(says);
}

void deepspeed_print_rows(const struct Flags *f, FILE *out) {
    struct DsTables tables = ds_tables_open(f);
    for (const struct DsTable *t = tables.table; t < tables.table + DS_TABLES; t++) {
        fprintf(out, "\n%s\n", t->title);
        for (size_t i = 0; i < t->n; i++)
            print_row(&t->rows[i], out);
    }
    ds_tables_close(&tables);
}
