// Writes the answers to prompts: see answers.h.
#include "data/chat/answers.h"
#include "data/chat/scan.h"
#include "data/json.h"
#include "data/stream.h"
#include "data/text/printed.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char FLAG[] = "--answers";
static const char AFTER_OBJECT[] = ",\"answer\":\""; // what follows the object of a prompt

struct Answers {
    const struct Prompts *prompts;
    char *path;
    int fd;      // opened with O_APPEND
    size_t done; // lines in the file: the answers to the first prompts
    char **line; // [prompts->count] those that wait for the ones before; NULL: others
};

// ---- what is there ------------------------------------------------------------------------------

static int refuse_line(const struct Answers *a, size_t i, struct Error *e) {
    const char *path = a->prompts->spec.path;
    size_t count = a->prompts->count;
    if (i >= count)
        return error_set(e, -EEXIST, E_ANSWERS_OTHER,
                         "%s %s: it has more lines than --prompts %s, which has %zu; give all the "
                         "prompts that it answers, or name another file",
                         FLAG, a->path, path, count);
    return error_set(e, -EEXIST, E_ANSWERS_OTHER,
                     "%s %s: line %zu does not answer prompt %zu of --prompts %s; give the prompts "
                     "that the file answers, or name another file",
                     FLAG, a->path, i + 1, i + 1, path);
}

// True if the first bytes of a line are those that answers to prompt i begin with.
static bool begins_like_answer(const struct Answers *a, size_t i, const char *line, size_t bytes) {
    const char *object = a->prompts->prompt[i].object;
    size_t n = size_min(bytes, strlen(object));
    return !memcmp(line, object, n) &&
           !memcmp(line + n, AFTER_OBJECT, size_min(bytes - n, sizeof AFTER_OBJECT - 1));
}

// True if a line, without its newline, has the object of prompt i and the two members of an answer.
// Changes its bytes.
static bool is_answer_line(const struct Answers *a, size_t i, char *line, size_t bytes) {
    size_t n = strlen(a->prompts->prompt[i].object);
    if (bytes < n || !begins_like_answer(a, i, line, bytes))
        return false;
    struct Scan s = scan_line(line + n, bytes - n);
    struct JsonSlice name, answer, reason;
    bool first = false; // a comma follows the object's own members
    return scan_member(&s, &first, &name) && slice_is(&name, "answer") &&
           scan_text(&s, &answer, "") && scan_member(&s, &first, &name) &&
           slice_is(&name, "finish_reason") && scan_text(&s, &reason, "") &&
           (slice_is(&reason, "stop") || slice_is(&reason, "length")) &&
           !scan_member(&s, &first, &name) && scan_done(&s);
}

// Checks the lines, and counts the whole ones into a->done, and their bytes into *bytes.
static int read_lines(struct Answers *a, FILE *in, size_t *bytes, struct Error *e) {
    char *line = NULL;
    size_t room = 0, count = a->prompts->count;
    int err = 0;
    *bytes = 0;
    for (ssize_t n; !err && (n = getline(&line, &room, in)) > 0;) {
        bool whole = line[n - 1] == '\n';
        if (a->done >= count || !(whole ? is_answer_line(a, a->done, line, (size_t)n - 1)
                                        : begins_like_answer(a, a->done, line, (size_t)n)))
            err = refuse_line(a, a->done, e);
        *bytes += !err && whole ? (size_t)n : 0;
        a->done += !err && whole;
    }
    if (!err && ferror(in))
        err = error_io(e, -errno, E_FILE_READ, "cannot read %s", a->path);
    free(line);
    return err;
}

// Counts the answers in the file into a->done, and cuts off half a line at its end.
static int resume_after_last_answer(struct Answers *a, struct Error *e) {
    struct stat st;
    size_t bytes;
    int copy = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
    FILE *in = copy < 0 ? NULL : fdopen(copy, "r");
    if (!in || fstat(a->fd, &st)) {
        int err = error_io(e, -errno, E_FILE_READ, "cannot read %s", a->path);
        if (copy >= 0)
            close(copy);
        return err;
    }
    int err = read_lines(a, in, &bytes, e);
    fclose(in);
    if (err || bytes == (size_t)st.st_size)
        return err;
    if (ftruncate(a->fd, (off_t)bytes))
        return error_io(e, -errno, E_FILE_WRITE, "cannot write %s", a->path);
    log_line(LOG_NORMAL,
             "%s %s: half a line behind line %zu is cut off; its prompt is answered anew", FLAG,
             a->path, a->done);
    return 0;
}

// ---- open and close -----------------------------------------------------------------------------

static int refuse_kind(const char *path, mode_t mode, struct Error *e) {
    return error_set(e, -EINVAL, E_FILE_KIND, "%s %s: it is %s; name a regular file, or a new one",
                     FLAG, path, S_ISLNK(mode) ? "a link" : file_kind(mode));
}

// Opens a regular file, or makes one. Never waits, as opening a pipe would.
static int open_regular(const char *path, int *fd, struct Error *e) {
    struct stat st;
    *fd = -1;
    if (!strcmp(path, "-") || stream_packing(path))
        return error_set(e, -EINVAL, E_FILE_KIND,
                         "%s %s: answers are lines of text in a file; name one FILE.jsonl", FLAG,
                         path);
    if (!lstat(path, &st) && !S_ISREG(st.st_mode))
        return refuse_kind(path, st.st_mode, e);
    *fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0 || fstat(*fd, &st))
        return error_io(e, -errno, E_FILE_WRITE, "%s %s: cannot write there", FLAG, path);
    return S_ISREG(st.st_mode) ? 0 : refuse_kind(path, st.st_mode, e);
}

int answers_open(struct Answers **out, const struct Prompts *p, const char *path, struct Error *e) {
    struct Answers *a = *out = base_alloc_zeroed(sizeof *a);
    struct Error ignored;
    a->prompts = p;
    a->path = base_format("%s", path);
    a->line = base_alloc_zeroed(p->count * sizeof *a->line);
    int err = open_regular(path, &a->fd, e);
    // A file system without locks has no other process that could be seen.
    if (!err && flock(a->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        err = error_set(e, -EBUSY, E_ANSWERS_BUSY,
                        "%s %s: another process writes answers there; wait for it, or name another "
                        "file",
                        FLAG, path);
    err = err ? err : resume_after_last_answer(a, e);
    if (err) {
        answers_close(a, &ignored);
        *out = NULL;
    }
    return err;
}

int answers_close(struct Answers *a, struct Error *e) {
    if (!a)
        return 0;
    int err = a->fd < 0 ? 0 : file_close_synced(a->fd);
    if (err)
        error_io(e, err, E_FILE_WRITE, "cannot write %s", a->path);
    for (size_t i = 0; i < a->prompts->count; i++)
        free(a->line[i]);
    free(a->line);
    free(a->path);
    free(a);
    return err;
}

size_t answers_done(const struct Answers *a) {
    return a->done;
}

// ---- an answer ----------------------------------------------------------------------------------

// Returns the text in quotes, as JSON; free() it.
static char *quote(const char *text, size_t bytes) {
    char *mended = printed_mend(text, bytes);
    char *quoted = json_line_text(cJSON_CreateString(mended));
    free(mended);
    return quoted;
}

int answers_put(struct Answers *a, size_t prompt, const char *text, size_t bytes, bool cut,
                struct Error *e) {
    size_t count = a->prompts->count;
    CHECK(prompt >= a->done && prompt < count && !a->line[prompt], "prompt %zu of %zu, %zu done",
          prompt, count, a->done);
    char *answer = quote(text, bytes);
    a->line[prompt] =
        base_format("%s,\"answer\":%s,\"finish_reason\":\"%s\"}\n",
                    a->prompts->prompt[prompt].object, answer, cut ? "length" : "stop");
    free(answer);
    int err = 0;
    while (!err && a->done < count && a->line[a->done]) {
        char *line = a->line[a->done];
        err = file_append(a->fd, a->path, line, strlen(line), e);
        if (!err) {
            free(line);
            a->line[a->done++] = NULL;
        }
    }
    return err;
}
