// Encodes HellaSwag's lines of JSON as sequences: see hellaswag.h. Next: clean.c, hellaswag_bin.c.
#include "data/eval/hellaswag.h"

#include "data/eval/clean.h"
#include "data/json.h"
#include "data/text/text.h"
#include "data/utf8.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES_MAX = 1 << 20 };

enum Field { LABEL_TEXT, CTX, CTX_A, CTX_B, NTEXT };
static const char *const field_names[] = {"activity_label", "ctx", "ctx_a", "ctx_b"};

// The state of reading a line.
struct ItemReading {
    const struct EvalSpec *spec;
    struct EvalItems *out;
    const char *name;
    size_t line;     // counted from 1
    size_t too_long; // the first line that is too long for llm.c's protocol; 0: none
    const char *text[NTEXT];
    const cJSON *endings;
    int label;
    struct Ids context, whole;
};

static int refuse(const struct ItemReading *r, const char *what, struct Error *e) {
    return error_set(e, -EINVAL, E_HELLASWAG_FIELD, "%s: line %zu: %s", r->name, r->line, what);
}

// ---- JSON ----

// Returns the only member of that name; NULL, with an error, if there is none or a second.
static const cJSON *only_member(const struct ItemReading *r, const cJSON *object, const char *name,
                                struct Error *e) {
    const cJSON *item, *found = NULL;
    size_t count = 0;
    cJSON_ArrayForEach(item, object) if (strcmp(item->string, name) == 0) {
        found = item;
        count++;
    }
    if (count != 1)
        error_set(e, -EINVAL, E_HELLASWAG_FIELD, "%s: line %zu: \"%s\" is %s; expected it once",
                  r->name, r->line, name, count ? "there twice" : "missing");
    return count == 1 ? found : NULL;
}

static int read_endings(struct ItemReading *r, const cJSON *object, struct Error *e) {
    const cJSON *ending;
    int n = 0;
    r->endings = only_member(r, object, "endings", e);
    if (!r->endings)
        return -EINVAL;
    cJSON_ArrayForEach(ending, r->endings) {
        if (!cJSON_IsString(ending))
            return refuse(r, "\"endings\" must hold texts alone", e);
        n++;
    }
    if (cJSON_IsArray(r->endings) && n >= 2 && n <= EVAL_CHOICES_MAX)
        return 0;
    return error_set(e, -EINVAL, E_HELLASWAG_FIELD,
                     "%s: line %zu: \"endings\" has %d members; expected a list of 2 to %d texts",
                     r->name, r->line, n, EVAL_CHOICES_MAX);
}

// Reads the label: a number, or a text of digits as in Hugging Face's copy of the data set.
static int read_label(struct ItemReading *r, const cJSON *object, struct Error *e) {
    const cJSON *item = only_member(r, object, "label", e);
    int n = cJSON_GetArraySize(r->endings);
    if (!item)
        return -EINVAL;
    double label = cJSON_IsNumber(item) ? item->valuedouble : -1;
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    if (*text && strlen(text) <= 2 && strspn(text, "0123456789") == strlen(text))
        label = atoi(text);
    r->label = 0;
    while (r->label < n && (double)r->label != label)
        r->label++;
    if (r->label < n)
        return 0;
    char *shown = cJSON_PrintUnformatted(item);
    int err =
        error_set(e, -EINVAL, E_HELLASWAG_FIELD,
                  "%s: line %zu: \"label\" is %s; expected the right ending's number, 0 to %d%s",
                  r->name, r->line, json_shown(shown ? shown : "").text, n - 1,
                  cJSON_IsString(item) && !*text ? " (a test split has none)" : "");
    cJSON_free(shown);
    return err;
}

static int read_object(struct ItemReading *r, const cJSON *object, struct Error *e) {
    for (int f = 0; f < NTEXT; f++) {
        const cJSON *item = only_member(r, object, field_names[f], e);
        if (!item)
            return -EINVAL;
        if (!cJSON_IsString(item))
            return error_set(e, -EINVAL, E_HELLASWAG_FIELD,
                             "%s: line %zu: \"%s\" is not a text; write it in quotes", r->name,
                             r->line, field_names[f]);
        r->text[f] = item->valuestring;
    }
    int err = read_endings(r, object, e);
    return err ? err : read_label(r, object, e);
}

// ---- tokens ----

// Appends the ids of a text.
static int append(const struct ItemReading *r, const char *text, size_t n, struct Ids *ids,
                  struct Error *e) {
    struct Error why;
    int err = tokenizer_encode_plain(r->spec->tokenizer, text, n, ids, &why);
    return err ? error_set(e, err, why.id, "%s: line %zu: %s", r->name, r->line, why.text) : 0;
}

// Encodes a text, after the tokenizer's begin token, if it has one.
static int encode(const struct ItemReading *r, const char *text, size_t n, struct Ids *ids,
                  struct Error *e) {
    int32_t begin = tokenizer_begin(r->spec->tokenizer);
    ids->count = 0;
    if (begin >= 0)
        ids_append(ids, begin);
    return append(r, text, n, ids, e);
}

// Adds lm-eval's sequence: query and choice encoded as one text. As many of its tokens as the query
// has when encoded alone are the context, and the others are scored.
static int add_lm_eval(struct ItemReading *r, const char *query, const char *choice,
                       struct Error *e) {
    size_t T = r->spec->seq_len, excess = 0;
    char *text = base_format("%s %s", query, choice);
    int err = encode(r, query, utf8_rstrip(query, strlen(query)), &r->context, e);
    if (!err)
        err = encode(r, text, strlen(text), &r->whole, e);
    free(text);
    if (err)
        return err;
    size_t from = r->context.count, count = r->whole.count;
    if (!from)
        return refuse(
            r, "the context is empty, so nothing stands before an ending; leave the line out", e);
    if (from >= count)
        return refuse(
            r, "an ending is empty once it is encoded behind its context; leave the line out", e);
    if (count - from > T)
        return error_set(e, -EINVAL, E_HELLASWAG_TOO_LONG,
                         "%s: line %zu: an ending has %zu tokens, but --seq-len allows %zu; "
                         "raise --seq-len to %zu",
                         r->name, r->line, count - from, T, count - from);
    if (count > T + 1)
        excess = count - (T + 1);
    r->out->cut += excess > 0;
    items_add_sequence(r->out, EVAL_LM_EVAL, r->whole.data + excess, count - excess, from - excess);
    return 0;
}

// Adds llm.c's sequence: ctx, and a space with the ending, encoded separately.
static int add_llmc(struct ItemReading *r, const char *ending, struct Error *e) {
    char *text = base_format(" %s", ending);
    int err = encode(r, r->text[CTX], strlen(r->text[CTX]), &r->whole, e);
    size_t from = r->whole.count;
    if (!err)
        err = append(r, text, strlen(text), &r->whole, e);
    free(text);
    if (err)
        return err;
    if (!from)
        return refuse(r, "\"ctx\" is empty, so nothing stands before an ending; leave the line out",
                      e);
    if (from == r->whole.count)
        return refuse(r, "an ending is empty once it is encoded; leave the line out", e);
    if (r->whole.count > r->spec->seq_len + 1 && !r->too_long)
        r->too_long = r->line;
    items_add_sequence(r->out, EVAL_LLMC, r->whole.data, r->whole.count, from);
    return 0;
}

// Counts the characters, as Python does.
static size_t count_characters(const char *text) {
    size_t count = 0;
    for (; *text; text++)
        count += (*text & 0xc0) != 0x80;
    return count;
}

static int add_item(struct ItemReading *r, struct Error *e) {
    char *query = clean_query(r->text[LABEL_TEXT], r->text[CTX_A], r->text[CTX_B]);
    const cJSON *ending;
    size_t c = 0;
    if (!query)
        return refuse(r,
                      "\"ctx_b\" has a capital sigma behind its first letter, whose small form "
                      "hangs on the letters around it; leave the line out",
                      e);
    int err = 0;
    struct EvalItem *item = items_add(r->out, r->label, cJSON_GetArraySize(r->endings));
    for (ending = r->endings->child; ending && !err; ending = ending->next) {
        char *choice = clean_text(ending->valuestring);
        item->characters[c++] = count_characters(choice);
        err = add_lm_eval(r, query, choice, e);
        if (!err)
            err = add_llmc(r, ending->valuestring, e);
        free(choice);
    }
    free(query);
    return err;
}

// ---- lines ----

static int read_line(struct ItemReading *r, const char *line, size_t n, struct Error *e) {
    size_t at;
    if (n > LINE_BYTES_MAX)
        return error_set(e, -EINVAL, E_LINE_TOO_LONG,
                         "%s: line %zu: it has %zu bytes, but at most %d are read; shorten it",
                         r->name, r->line, n, LINE_BYTES_MAX);
    size_t invalid = text_find_invalid(line, n);
    if (invalid < n)
        return error_set(e, -EINVAL, E_UTF8,
                         "%s: line %zu: byte %zu is not UTF-8; convert it by iconv", r->name,
                         r->line, invalid);
    if (memchr(line, 0, n) || json_has_zero(line, n))
        return refuse(r, "it holds a zero byte, or \\u0000 for one; remove it", e);
    cJSON *object = json_parse(line, n, &at);
    int err =
        object ? read_object(r, object, e)
               : error_set(
                     e, -EINVAL, E_JSON_SYNTAX,
                     "%s: line %zu: not a JSON object from byte %zu on; expected one on each line",
                     r->name, r->line, at);
    if (!err)
        err = add_item(r, e);
    cJSON_Delete(object);
    return err;
}

static bool is_blank(const char *line, size_t n) {
    while (n && isspace((unsigned char)*line))
        line++, n--;
    return !n;
}

static int read_lines(struct ItemReading *r, const char *bytes, size_t n, struct Error *e) {
    int err = 0;
    for (size_t at = 0; at < n && !err;) {
        const char *end = memchr(bytes + at, '\n', n - at);
        size_t length = end ? (size_t)(end - bytes) - at : n - at;
        r->line++;
        if (!is_blank(bytes + at, length))
            err = read_line(r, bytes + at, length, e);
        at += length + 1;
        if (r->spec->limit && r->out->count == r->spec->limit)
            break;
    }
    return err;
}

static void warn_lengths(const struct ItemReading *r) {
    if (r->out->cut)
        log_line(LOG_NORMAL,
                 "%s: contexts with endings that exceed --seq-len %zu: %zu; their beginnings are "
                 "cut, as lm-eval does it; raise --seq-len to keep them",
                 r->name, r->spec->seq_len, r->out->cut);
    if (r->too_long)
        log_line(LOG_NORMAL,
                 "%s: line %zu is longer than --seq-len %zu, which llm.c's protocol refuses; only "
                 "lm-eval's results are reported; raise --seq-len for both",
                 r->name, r->too_long, r->spec->seq_len);
}

// Refuses text if the tokenizer is of numbers, and so encodes none; and the ids of a .bin if it
// encodes text and its vocabulary is not as large as GPT-2's.
static int check_tokenizer(const struct EvalSpec *spec, bool wants_text, const char *name,
                           struct Error *e) {
    bool reads_text = tokenizer_kind(spec->tokenizer) != TOKENIZER_IDS;
    if (wants_text && !reads_text)
        return error_set(
            e, -EINVAL, E_HELLASWAG_TOKENIZER,
            "%s: its text cannot be encoded, because the shards of --data come without "
            "a tokenizer; add --tokenizer, or give llm.c's .bin",
            name);
    if (wants_text || !reads_text || tokenizer_vocab(spec->tokenizer) == GPT2_VOCAB)
        return 0;
    return error_set(e, -EINVAL, E_HELLASWAG_TOKENIZER,
                     "%s: it holds ids of GPT-2's tokenizer, but the model has %s; give the JSONL",
                     name, tokenizer_describe(spec->tokenizer));
}

int hellaswag_parse(struct EvalItems *out, const struct EvalSpec *spec, const char *name,
                    const char *bytes, size_t n, struct Error *e) {
    bool bin = hellaswag_bin_detect(bytes, n);
    struct ItemReading r = {.spec = spec, .out = out, .name = name};
    int err = check_tokenizer(spec, !bin, name, e);
    if (err)
        return err;
    err = bin ? hellaswag_bin_parse(out, spec, name, bytes, n, e) : read_lines(&r, bytes, n, e);
    struct Error why = *e;
    if (err && why.id == E_HELLASWAG_BIN)
        error_set(e, err, why.id,
                  "%s; write the file again by llm.c's hellaswag.py, with the model's tokenizer",
                  why.text);
    ids_free(&r.context);
    ids_free(&r.whole);
    if (!err && !out->count)
        err = error_set(e, -EINVAL, E_HELLASWAG_EMPTY,
                        "%s: there is no item in it; give a file that has some", name);
    if (err)
        return err;
    warn_lengths(&r);
    if (r.too_long)
        items_drop(out, EVAL_LLMC);
    items_finish(out);
    return 0;
}
