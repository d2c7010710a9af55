// Reads the items that --eval names: see evals.h.
#include "data/eval/evals.h"

#include "data/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char HELLASWAG[] = "hellaswag:";
static const size_t FILE_BYTES_MAX = (size_t)1 << 30;

// Returns the next of the parts between commas; free() it. *at moves after it, or becomes NULL.
static char *next_part(const char **at) {
    size_t n = strcspn(*at, ",");
    char *part = base_format("%.*s", (int)n, *at);
    *at = (*at)[n] ? *at + n + 1 : NULL;
    return part;
}

// Returns the file that a part names; NULL: none.
static const char *file_of(const char *part) {
    size_t n = sizeof HELLASWAG - 1;
    return strncmp(part, HELLASWAG, n) == 0 && part[n] ? part + n : NULL;
}

static int check_part(const char *part, bool *ppl, struct Error *e) {
    const char *path = file_of(part);
    struct stat st;
    if (strcmp(part, "ppl") == 0) {
        *ppl = true;
        return 0;
    }
    if (!path)
        return error_set(e, -EINVAL, E_EVAL_NAME,
                         "--eval \"%s\": expected ppl or hellaswag:FILE, or several separated by "
                         "commas (a file's name cannot hold one)",
                         part);
    int fd, err = file_open(path, "--eval hellaswag:", &fd, &st, e);
    if (!err)
        close(fd);
    return err;
}

int evals_check(const char *text, bool *ppl, struct Error *e) {
    int err = 0;
    *ppl = false;
    for (const char *at = text; at && !err;) {
        char *part = next_part(&at);
        err = check_part(part, ppl, e);
        free(part);
    }
    return err;
}

static int open_task(struct EvalTask *task, const char *path, const struct EvalSpec *spec,
                     struct Error *e) {
    char *bytes, *before = base_format("--eval %s", task->name);
    size_t n;
    struct Error why;
    int err = file_read(path, FILE_BYTES_MAX, &bytes, &n, &why);
    if (err) {
        error_set(e, err, why.id, "%s: %s", before, why.text);
    } else {
        err = hellaswag_parse(&task->items, spec, before, bytes, n, e);
        free(bytes);
    }
    free(before);
    return err;
}

int evals_open(struct Evals *out, const char *text, const struct EvalSpec *spec, struct Error *e) {
    int err = 0;
    *out = (struct Evals){0};
    for (const char *at = text; at && !err;) {
        char *part = next_part(&at);
        const char *path = file_of(part);
        if (!path) {
            free(part);
            continue;
        }
        out->task = base_realloc(out->task, (out->count + 1) * sizeof *out->task, "evaluations");
        out->task[out->count] = (struct EvalTask){.name = part};
        err = open_task(&out->task[out->count++], path, spec, e);
    }
    return err;
}

void evals_close(struct Evals *evals) {
    for (size_t i = 0; i < evals->count; i++) {
        items_free(&evals->task[i].items);
        free(evals->task[i].name);
    }
    free(evals->task);
    *evals = (struct Evals){0};
}

struct EvalResult evals_result(const struct EvalTask *task, const double *logprob) {
    const struct EvalItems *items = &task->items;
    struct EvalResult result = {.name = task->name, .items = items->count};
    for (enum EvalMeasure m = 0; m < NEVALMEASURE; m++) {
        size_t begin = items_protocol(m) == EVAL_LLMC ? items->list[EVAL_LM_EVAL].count : 0;
        result.accuracy[m] = items_accuracy(items, m, logprob + begin);
    }
    return result;
}

const char *evals_short_name(const char *name) {
    const char *slash = strrchr(name, '/'), *colon = strchr(name, ':');
    return slash ? slash + 1 : colon ? colon + 1 : name;
}
