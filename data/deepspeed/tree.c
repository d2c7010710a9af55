// See tree.h. A reader with one letter of foresight: each function reads what its name says, from
// `at`, and leaves `at` behind it; the first that fails has written the line.
#include "data/deepspeed/tree.h"
#include "data/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 32, VALUES_MAX = 4096, SHOWN_MAX = 40 };

struct Reader {
    const char *at, *end;
    size_t line, values;
    const char *path;
    struct Error *e;
};

static int fault(const struct Reader *r, const char *what) {
    return error_set(r->e, -EINVAL, E_JSON_SYNTAX, "%s: line %zu: %s", r->path, r->line, what);
}

// The letter that comes; 0 at the end.
static char peek(const struct Reader *r) {
    return r->at < r->end ? *r->at : 0;
}

static void skip_space(struct Reader *r) {
    for (; r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at; r->at++)
        r->line += *r->at == '\n';
}

// What stands where something else is expected, for the error line.
static int unexpected(const struct Reader *r, const char *expected) {
    char c = peek(r);
    if (r->at == r->end)
        return error_set(r->e, -EINVAL, E_JSON_SYNTAX, "%s: line %zu: the text ends; expected %s",
                         r->path, r->line, expected);
    if (c == '/' || c == '#')
        return fault(r, "a comment; JSON has none");
    if (c == '\'')
        return fault(r, "a single quote; JSON's texts stand in double quotes");
    bool shown = c > ' ' && c < 127;
    return error_set(r->e, -EINVAL, E_JSON_SYNTAX,
                     shown ? "%s: line %zu: '%c'; expected %s"
                           : "%s: line %zu: a byte of %d; expected %s",
                     r->path, r->line, shown ? c : (unsigned char)c, expected);
}

// ---- texts and numbers ----

static int read_hex(struct Reader *r, unsigned *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = peek(r);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return fault(r, "\\u in a text; expected four hexadecimal digits behind it");
        *code = *code * 16 + (unsigned)digit;
    }
    return 0;
}

static char *put_utf8(char *to, unsigned code) {
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *to++ = (char)(lead[more] | (code >> (6 * more)));
    while (more-- > 0)
        *to++ = (char)(0x80 | ((code >> (6 * more)) & 0x3f));
    return to;
}

// "\uXXXX", of which two make a letter past 16 bits.
static int read_unicode(struct Reader *r, char **to) {
    unsigned code, low;
    int err = read_hex(r, &code);
    if (err)
        return err;
    if (code >= 0xd800 && code < 0xdc00 && r->end - r->at > 1 && r->at[0] == '\\' &&
        r->at[1] == 'u') {
        r->at += 2;
        err = read_hex(r, &low);
        if (!err && (low < 0xdc00 || low > 0xdfff))
            err = fault(r, "half of a surrogate pair in a text");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xd800 && code < 0xe000) {
        err = fault(r, "half of a surrogate pair in a text");
    }
    if (!err && !code)
        err = fault(r, "a zero in a text");
    if (!err)
        *to = put_utf8(*to, code);
    return err;
}

static int read_escape(struct Reader *r, char **to) {
    static const char names[] = "\"\\/bfnrt", letters[] = "\"\\/\b\f\n\r\t";
    char c = peek(r);
    const char *found = c ? strchr(names, c) : NULL;
    r->at += c != 0;
    if (c == 'u')
        return read_unicode(r, to);
    if (!found)
        return fault(r, "a backslash in a text, and no letter that JSON has behind it");
    *(*to)++ = letters[found - names];
    return 0;
}

static int read_text(struct Reader *r, char **text) {
    const char *close = ++r->at;
    while (close < r->end && *close != '"')
        close += 1 + (*close == '\\');
    size_t most = size_min((size_t)(close - r->at), (size_t)(r->end - r->at));
    char *out = base_alloc(most + 1), *to = out; // an escape is longer than what it stands for
    int err = 0;
    while (!err && r->at < r->end && *r->at != '"') {
        unsigned char c = (unsigned char)*r->at++;
        if (c == '\\')
            err = read_escape(r, &to);
        else if (c < ' ')
            err = fault(r, "a line break or control byte in a text; is its closing quote missing?");
        else
            *to++ = (char)c;
    }
    if (!err && r->at == r->end)
        err = fault(r, "a text without its closing quote");
    *to = 0;
    r->at += !err;
    *text = out;
    return err;
}

static const char *skip_digits(const char *p, const char *end) {
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

// Where the number at `p` ends; NULL: none begins there.
static const char *number_end(const char *p, const char *end) {
    p += p < end && *p == '-';
    const char *digits = p;
    p = skip_digits(p, end);
    if (p == digits || (*digits == '0' && p > digits + 1))
        return NULL;
    if (p < end && *p == '.') {
        const char *fraction = ++p;
        p = skip_digits(p, end);
        if (p == fraction)
            return NULL;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        const char *power = p;
        p = skip_digits(p, end);
        if (p == power)
            return NULL;
    }
    return p;
}

static int read_number(struct Reader *r, struct Node *node) {
    const char *end = number_end(r->at, r->end);
    if (!end)
        return fault(r, "no number as JSON has it, such as 8, 0.1 or 3e-4");
    node->kind = NODE_NUMBER;
    node->text = base_format("%.*s", (int)(end - r->at), r->at);
    node->number = strtod(node->text, NULL);
    if (!isfinite(node->number))
        return fault(r, "a number too large for 64 bits");
    r->at = end;
    return 0;
}

static int read_word(struct Reader *r, struct Node *node) {
    static const struct {
        const char *word;
        enum NodeKind kind;
        bool on;
    } words[] = {
        {"true", NODE_BOOL, true}, {"false", NODE_BOOL, false}, {"null", NODE_NULL, false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(r->end - r->at) >= n && memcmp(r->at, words[i].word, n) == 0) {
            node->kind = words[i].kind;
            node->on = words[i].on;
            r->at += n;
            return 0;
        }
    }
    if (strchr("TFN", peek(r)) && peek(r))
        return fault(r, "JSON's words are true, false and null; True, None, NaN are Python's");
    if (peek(r) == 'I')
        return fault(r, "Infinity, which JSON does not have; a large number would do");
    return unexpected(r, "a value");
}

// ---- lists and objects ----

static int read_value(struct Reader *r, struct Node *node, int depth);

static int read_key(struct Reader *r, const struct Node *object, struct Node *member) {
    if (peek(r) == '}')
        return fault(r, "a comma before }; the last member has none");
    if (peek(r) != '"')
        return unexpected(r, "a key in double quotes");
    int err = read_text(r, &member->key);
    const struct Node *twin = err ? NULL : tree_member(object, member->key);
    if (twin)
        err = error_set(r->e, -EINVAL, E_JSON_DUPLICATE_KEY,
                        "%s: line %zu: \"%.*s\" is there twice, first in line %zu", r->path,
                        r->line, SHOWN_MAX, member->key, twin->line);
    if (err)
        return err;
    skip_space(r);
    if (peek(r) != ':')
        return unexpected(r, "a colon behind the key");
    r->at++;
    return 0;
}

static int read_members(struct Reader *r, struct Node *node, int depth) {
    bool object = node->kind == NODE_OBJECT;
    char close = object ? '}' : ']';
    struct Node **last = &node->first;
    if (depth > DEPTH_MAX)
        return fault(r, "brackets in brackets, deeper than any configuration has them");
    r->at++;
    skip_space(r);
    while (peek(r) != close || node->first) {
        struct Node *member = base_alloc_zeroed(sizeof *member);
        skip_space(r);
        member->line = r->line;
        int err = object ? read_key(r, node, member) : 0;
        *last = member; // only now: a key is compared with those before it
        last = &member->next;
        if (!err && !object && peek(r) == ']')
            err = fault(r, "a comma before ]; the last value has none");
        if (!err)
            err = read_value(r, member, depth);
        if (err)
            return err;
        skip_space(r);
        if (peek(r) == close)
            break;
        if (peek(r) != ',')
            return unexpected(r, object ? "a comma or }" : "a comma or ]");
        r->at++;
        skip_space(r);
    }
    r->at++;
    return 0;
}

static int read_value(struct Reader *r, struct Node *node, int depth) {
    skip_space(r);
    node->line = r->line;
    if (r->values++ == VALUES_MAX)
        return fault(r, "more values than any configuration has");
    char c = peek(r);
    if (c == '{' || c == '[') {
        node->kind = c == '{' ? NODE_OBJECT : NODE_LIST;
        return read_members(r, node, depth + 1);
    }
    if (c == '"') {
        node->kind = NODE_TEXT;
        return read_text(r, &node->text);
    }
    return c == '-' || (c >= '0' && c <= '9') ? read_number(r, node) : read_word(r, node);
}

struct Node *tree_read(const char *text, size_t n, const char *path, struct Error *e) {
    struct Reader r = {text + file_mark_bytes(text, n), text + n, 1, 0, path, e};
    struct Node *root = base_alloc_zeroed(sizeof *root);
    int err = 0;
    skip_space(&r);
    if (peek(&r) != '{')
        err = unexpected(&r, "{, as a configuration is one object");
    if (!err)
        err = read_value(&r, root, 0);
    skip_space(&r);
    if (!err && r.at < r.end)
        err = unexpected(&r, "nothing behind the object");
    if (!err)
        return root;
    tree_line(e->text);
    tree_free(root);
    return NULL;
}

void tree_free(struct Node *node) {
    while (node) {
        struct Node *next = node->next;
        tree_free(node->first);
        free(node->key);
        free(node->text);
        free(node);
        node = next;
    }
}

// ---- what is in it ----

struct Node *tree_member(const struct Node *object, const char *key) {
    struct Node *member = object && object->kind == NODE_OBJECT ? object->first : NULL;
    while (member && strcmp(member->key, key) != 0)
        member = member->next;
    return member;
}

struct Node *tree_find(const struct Node *root, const char *path) {
    const struct Node *node = root;
    struct Node *found = NULL;
    while (node && *path) {
        char *key = base_format("%.*s", (int)strcspn(path, "."), path);
        found = tree_member(node, key);
        path += strlen(key);
        path += *path == '.';
        free(key);
        node = found;
    }
    return node ? found : NULL;
}

char *tree_line(char *text) {
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    return text;
}

char *tree_print(const struct Node *node) {
    if (node->kind == NODE_NULL || node->kind == NODE_BOOL)
        return base_format("%s", node->kind == NODE_NULL ? "null" : node->on ? "true" : "false");
    if (node->kind == NODE_NUMBER)
        return base_format("%.*s", SHOWN_MAX, node->text);
    if (node->kind == NODE_TEXT)
        return tree_line(base_format("\"%.*s\"", SHOWN_MAX, node->text));
    bool object = node->kind == NODE_OBJECT;
    char *text = base_format("%c", object ? '{' : '[');
    for (const struct Node *m = node->first; m; m = m->next) {
        bool full = strlen(text) > SHOWN_MAX;
        char *value = full ? base_format("...") : tree_print(m);
        char *longer = object && !full
                           ? base_format("%s\"%.*s\": %s%s", text, SHOWN_MAX, m->key, value,
                                         m->next ? ", " : "")
                           : base_format("%s%s%s", text, value, m->next && !full ? ", " : "");
        free(value);
        free(text);
        text = longer;
        if (full)
            break;
    }
    char *whole = base_format("%s%c", text, object ? '}' : ']');
    free(text);
    return tree_line(whole);
}
