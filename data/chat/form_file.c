// Reads a form from a file, for --chat-template FILE.json: see form.h.
#include "data/chat/form.h"
#include "data/chat/scan.h"
#include "data/file.h"
#include "data/text/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20 };

static bool read_string(struct Scan *s, const char **to) {
    struct JsonSlice text;
    if (*to)
        return scan_fail(s, "a member is there twice; keep one of them");
    if (!scan_text(s, &text, "a prefix, a suffix, \"begin\" or \"default_system\" must be a text"))
        return false;
    *to = text.text;
    return true;
}

// True if there is an unknown {word}, which a model would learn letter by letter.
static bool has_unknown_mark(const char *text) {
    for (const char *open = text; (open = strchr(open, '{')); open++) {
        size_t n = strspn(open + 1, " _abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (n && open[n + 1] == '}' && strncmp(open, "{bos}", 5) && strncmp(open, "{eos}", 5))
            return true;
    }
    return false;
}

// Reads a string that may have {bos} and {eos}.
static bool read_marked_string(struct Scan *s, const char **to) {
    return read_string(s, to) &&
           (!has_unknown_mark(*to) || scan_fail(s, "an unknown {name}; expected {bos} or {eos}"));
}

static void read_role(struct Form *form, struct Scan *s, int role) {
    const char **prefix = &form->role[role].prefix, **suffix = &form->role[role].suffix;
    struct JsonSlice name;
    bool first = true;
    if (*prefix)
        scan_fail(s, "a role is there twice; keep one of them");
    scan_expect(s, '{', "a role must be an object {\"prefix\", \"suffix\"}");
    while (scan_member(s, &first, &name))
        if (!strcmp(name.text, "prefix"))
            read_marked_string(s, prefix);
        else if (!strcmp(name.text, "suffix"))
            read_marked_string(s, suffix);
        else
            scan_fail(s, "a role has an unknown member; expected \"prefix\" and \"suffix\"");
    if (!s->wrong && (!*prefix || !*suffix))
        scan_fail(s, "a role lacks its prefix or its suffix; add it");
}

static void read_form(struct Form *form, struct Scan *s) {
    struct JsonSlice name;
    bool first = true;
    scan_expect(s, '{', "expected a JSON object");
    while (scan_member(s, &first, &name)) {
        int role = 0;
        while (role < NROLE && strcmp(name.text, role_names[role]) != 0)
            role++;
        if (role < NROLE)
            read_role(form, s, role);
        else if (!strcmp(name.text, "begin"))
            read_marked_string(s, &form->begin);
        else if (!strcmp(name.text, "default_system"))
            read_string(s, &form->default_system);
        else
            scan_fail(s, "an unknown member; expected system, user, assistant, tool, begin or "
                         "default_system");
    }
    scan_done(s);
    if (!s->wrong && !form->role[ROLE_USER].prefix)
        scan_fail(s, "it has no \"user\"; expected {\"prefix\", \"suffix\"} of it");
    if (!s->wrong && !form->role[ROLE_ASSISTANT].prefix)
        scan_fail(s, "it has no \"assistant\"; expected {\"prefix\", \"suffix\"} of it");
    if (!s->wrong && form->default_system && !form->role[ROLE_SYSTEM].prefix)
        scan_fail(s, "\"default_system\" needs \"system\" beside it");
}

int form_file_read(struct Form *f, const char *path, char *text, size_t n, struct Error *e) {
    size_t bom = file_mark_bytes(text, n),
           bad = size_min(text_find_invalid(text, n), strnlen(text, n));
    struct Scan s = scan_line(text + bom, n - bom);
    *f = (struct Form){.name = path, .from_file = true};
    if (bad < n) {
        s.at = text + bad;
        scan_fail(&s, "it is not UTF-8, or is zero; save the file as UTF-8");
    }
    read_form(f, &s);
    f->ask = f->role[ROLE_ASSISTANT].prefix;
    if (!s.wrong)
        return 0;
    return n ? error_set(e, -EINVAL, E_CHAT_TEMPLATE_FILE, "--chat-template %s: byte %zu: %s", path,
                         (size_t)(s.at - text) + 1, s.wrong)
             : error_set(e, -EINVAL, E_CHAT_TEMPLATE_FILE,
                         "--chat-template %s: the file is empty; expected a JSON object", path);
}

int form_file_open(struct FormFile *f, const char *path, struct Error *e) {
    struct Error why;
    size_t n;
    int err = file_read(path, FILE_BYTES_MAX, &f->text, &n, &why);
    if (err)
        return error_set(e, err, why.id, "--chat-template %s: %s", path, why.text);
    err = form_file_read(&f->form, path, f->text, n, e);
    if (err)
        form_file_close(f);
    return err;
}

void form_file_close(struct FormFile *f) {
    free(f->text);
    f->text = NULL;
}

bool form_is_file(const char *name) {
    return file_ends_in(name, strlen(name), ".json");
}

int form_refuse(const char *what, struct Error *e) {
    char *names = form_names();
    int err = error_set(e, -EINVAL, E_CHAT_TEMPLATE,
                        "%s; expected --chat-template NAME, one of %s, or FILE.json", what, names);
    free(names);
    return err;
}

int form_check(const char *name, struct Error *e) {
    struct FormFile file;
    int err = 0;
    if (form_is_file(name)) {
        err = form_file_open(&file, name, e);
        if (!err)
            form_file_close(&file);
    } else if (!form_named(name)) {
        char *what = base_format("--chat-template %s: it is not known", name);
        err = form_refuse(what, e);
        free(what);
    }
    return err;
}
