// Finds the files that a name of --data stands for: see sources.h.
#include "data/text/sources.h"
#include "data/cache.h"
#include "data/stream.h"
#include "data/text/download.h"
#include "data/text/sha256.h"
#include "data/text/tokens.h"
#include "data/text/walk.h"
#include "kernels/folder.h"
#include "kernels/show.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char SHAKESPEARE_HOME[] =
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare";
static const char SHAKESPEARE_SHA256[] =
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";
static const char FINEWEB_HOME[] =
    "https://huggingface.co/datasets/kjj0/fineweb10B-gpt2/resolve/main";

enum { SHAKESPEARE_BYTES = 1115394, FINEWEB_SHARDS = 103, NAME_BYTES_MAX = 100 };

// Appends a file. The list frees both strings.
static void files_add(struct SourceFiles *files, char *path, char *url) {
    files->file =
        base_realloc(files->file, (files->count + 1) * sizeof *files->file, "a list of files");
    files->file[files->count++] = (struct SourceFile){.path = path, .url = url};
}

static void files_free(struct SourceFiles *files) {
    for (size_t i = 0; i < files->count; i++) {
        free(files->file[i].path);
        free(files->file[i].url);
        free(files->file[i].carried);
    }
    free(files->file);
    *files = (struct SourceFiles){0};
}

void source_close(struct Source *s) {
    files_free(&s->train);
    files_free(&s->val);
}

void source_free_carried(struct Source *s) {
    for (size_t i = 0; i < s->train.count; i++) {
        free(s->train.file[i].carried);
        s->train.file[i].carried = NULL;
    }
}

// ---- names --------------------------------------------------------------------------------------

// Returns the URL of a name's file: at its home, or at $ZERO_MIRROR.
static char *format_url(const char *name, const char *home, const char *file) {
    const char *mirror = getenv("ZERO_MIRROR");
    if (mirror && *mirror)
        return base_format("%s/%s/%s", mirror, name, file);
    return base_format("%s/%s", home, file);
}

static int open_shakespeare(struct Source *s, const char *cache_dir, struct Error *e) {
    char *path = base_format("%s/tinyshakespeare.txt", cache_dir);
    char *url = format_url("tinyshakespeare", SHAKESPEARE_HOME, "input.txt");
    struct Download d = {.url = url,
                         .path = path,
                         .cache_dir = cache_dir,
                         .sha256 = SHAKESPEARE_SHA256,
                         .bytes = SHAKESPEARE_BYTES};
    int code = cache_make_folder(cache_dir, e);
    if (!code)
        code = download_file(&d, e);
    free(url);
    s->kind = SOURCE_TEXT;
    files_add(&s->train, path, NULL);
    return code;
}

static int open_fineweb(struct Source *s, const char *cache_dir, struct Error *e) {
    char *folder;
    int code = cache_make_inside(cache_dir, "fineweb10B", &folder, e);
    s->kind = SOURCE_SHARDS;
    for (int i = 0; i <= FINEWEB_SHARDS; i++) { // number 0 is the validation shard
        char *name = base_format("fineweb_%s_%06d.bin", i ? "train" : "val", i);
        files_add(i ? &s->train : &s->val, base_format("%s/%s", folder, name),
                  format_url("fineweb10B", FINEWEB_HOME, name));
        free(name);
    }
    free(folder);
    return code;
}

// ---- addresses ----------------------------------------------------------------------------------

static bool is_url(const char *text) {
    return !strncmp(text, "http://", 7) || !strncmp(text, "https://", 8) ||
           !strncmp(text, "file://", 7);
}

// Refuses a URL from config.json, whose password or query is masked there.
static int refuse_masked(const char *flag, const char *url, struct Error *e) {
    return error_set(e, -EINVAL, E_URL_SECRET,
                     "%s %s: its password or query is written down nowhere; give %s with the whole "
                     "URL on the command line again",
                     flag, url, flag);
}

// Fetches a URL into the cache, under a name with its ending and a hash of the URL.
static int fetch_url(char **path, const char *url, const char *cache_dir, struct Error *e) {
    struct Sha256 h;
    char hex[SHA256_HEX_BYTES], *folder;
    int code = cache_make_inside(cache_dir, "downloads", &folder, e);
    sha256_init(&h);
    sha256_update(&h, url, strlen(url));
    sha256_hex(&h, hex);
    const char *host = strstr(url, "://") + 3, *end = host + strcspn(host, "?#"), *name = end;
    const char *host_end = host + strcspn(host, "/?#"); // a password may precede the host
    while (name > host_end && name[-1] != '/')
        name--;
    if (end - name > NAME_BYTES_MAX) // keep its end, which names the format
        name = end - NAME_BYTES_MAX;
    *path = base_format("%s/%.12s-%.*s", folder, hex, (int)(end - name), name);
    struct Download d = {.url = url, .path = *path, .cache_dir = cache_dir};
    if (!code)
        code = download_file(&d, e);
    free(folder);
    if (code) {
        free(*path);
        *path = NULL;
    }
    return code;
}

// ---- files --------------------------------------------------------------------------------------

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct SourceFile *)a)->path, ((const struct SourceFile *)b)->path);
}

// Lists a folder of shards: if one NAME.bin begins like a shard, every NAME.bin is taken, in the
// order of names, so that a damaged one is reported and not left out.
static int list_shards(struct SourceFiles *files, const char *flag, const char *folder,
                       struct Error *e) {
    DIR *d = opendir(folder);
    if (!d)
        return error_io(e, -errno, E_FILE_READ, "%s %s", flag, folder);
    bool any = false;
    size_t others = 0;
    int code = 0;
    for (const char *name; (name = folder_next(d, &code));) {
        size_t n = strlen(name);
        if (name[0] == '.' || n < 5 || strcmp(name + n - 4, ".bin")) {
            others++;
            continue;
        }
        files_add(files, base_format("%s/%s", folder, name), NULL);
        any = any || token_file_detect(files->file[files->count - 1].path);
    }
    closedir(d);
    if (code)
        return error_io(e, code, E_FILE_READ, "%s %s", flag, folder);
    if (!any)
        files_free(files);
    if (any && others)
        log_line(LOG_NORMAL, "%s %s: passed over: %zu that %s no NAME.bin", flag, folder, others,
                 others == 1 ? "is" : "are");
    if (files->count)
        qsort(files->file, files->count, sizeof *files->file, by_path);
    return 0;
}

static int refuse_jsonl(const char *flag, const char *jsonl, const char *other, struct Error *e) {
    return error_set(e, -EINVAL, E_DATA_KINDS,
                     "%s: JSONL and other files do not mix: %s is JSONL, %s is not; give one kind, "
                     "for example by --data 'DIR/*.jsonl'",
                     flag, jsonl, other);
}

static bool is_examples(const char *path) {
    return stream_ends_in(path, ".jsonl") || stream_ends_in(path, ".json");
}

// Lists a folder with a NAME.jsonl at any depth, in which other files, but hidden ones, are an
// error, or a folder of NAME.json alone. Of any other folder, whose NAME.json are text, the list
// stays empty.
static int list_jsonl(struct SourceFiles *files, const char *flag, const char *folder,
                      struct Error *e) {
    struct Walk walk;
    const char *other = NULL;
    bool has_jsonl = false;
    int code = walk_folder(&walk, flag, folder, e);
    for (size_t i = 0; !code && i < walk.count; i++) {
        has_jsonl = has_jsonl || stream_ends_in(walk.path[i], ".jsonl");
        if (is_examples(walk.path[i]))
            files_add(files, base_format("%s", walk.path[i]), NULL);
        else if (!other)
            other = walk.path[i];
    }
    if (!has_jsonl && other)
        files_free(files);
    if (files->count && other)
        code = refuse_jsonl(flag, files->file[0].path, other, e);
    else if (files->count)
        walk_log(&walk, flag, folder);
    walk_free(&walk);
    if (files->count)
        qsort(files->file, files->count, sizeof *files->file, by_path);
    return code;
}

static enum SourceKind detect_kind(const char *path) {
    return is_examples(path) ? SOURCE_JSONL : token_file_detect(path) ? SOURCE_SHARDS : SOURCE_TEXT;
}

// Decides the kind by the name or the content of the first file; the others must agree.
static int decide_kind(struct Source *s, const char *flag, struct Error *e) {
    const struct SourceFile *file = s->train.file;
    s->kind = detect_kind(file[0].path);
    bool is_shards = s->kind == SOURCE_SHARDS;
    for (size_t i = 1; i < s->train.count; i++) {
        enum SourceKind kind = detect_kind(file[i].path);
        if (kind == s->kind)
            continue;
        if (kind == SOURCE_JSONL || s->kind == SOURCE_JSONL)
            return refuse_jsonl(flag, file[kind == SOURCE_JSONL ? i : 0].path,
                                file[kind == SOURCE_JSONL ? 0 : i].path, e);
        return error_set(
            e, -EINVAL, E_DATA_KINDS,
            "%s: token shards and other files do not mix: %s is %s shard, %s is %s; give one kind",
            flag, file[0].path, is_shards ? "a" : "no", file[i].path, is_shards ? "none" : "one");
    }
    return 0;
}

// Refuses anything but files and folders: a device may have no end, and a pipe no writer.
static int check_mode(const char *flag, const char *path, mode_t mode, struct Error *e) {
    if (S_ISREG(mode) || S_ISDIR(mode))
        return 0;
    return error_set(e, -EINVAL, E_FILE_KIND,
                     "%s %s: it is %s; give a text file, a folder, token shards or a pipe", flag,
                     path, file_kind(mode));
}

static int open_pipe(struct Source *s, const char *flag, const char *path, struct Error *e) {
    struct SourceFile *f;
    files_add(&s->train, base_format("%s", path), NULL);
    f = &s->train.file[0];
    s->kind = SOURCE_TEXT;
    log_line(LOG_NORMAL, "%s %s: it is a pipe, and read to its end", flag, path);
    // A command that never ends must be refused before it has taken all memory.
    size_t most = stream_memory_max();
    int code = file_read_pipe(path, most, &f->carried, &f->carried_bytes, e);
    if (code)
        f->carried = NULL;
    if (code == -EFBIG)
        return error_set(e, code, E_FILE_TOO_LARGE,
                         "%s %s: the pipe has no end after %.0f MB, a quarter of the memory: write "
                         "what is needed into a file",
                         flag, path, (double)most * 1e-6);
    if (code)
        return code;
    if (!f->carried_bytes)
        return error_set(e, -EINVAL, E_DATA_PIPE,
                         "%s %s: the pipe carried nothing; check what writes it", flag, path);
    if (token_bytes_detect(f->carried, f->carried_bytes))
        return error_set(e, -EINVAL, E_DATA_PIPE,
                         "%s %s: the pipe carries a token shard, which is read out of order: give "
                         "the file itself",
                         flag, path);
    return 0;
}

static int open_path(struct Source *s, const char *flag, const char *path, struct Error *e) {
    struct stat st;
    if (stat(path, &st))
        return error_set(e, -errno, E_FILE_READ,
                         "%s %s: %s (a text file, a folder, token shards, a pipe such as "
                         "/dev/stdin, a URL, or one of tinyshakespeare, fineweb10B, random is "
                         "needed)",
                         flag, path, strerror(errno));
    if (S_ISFIFO(st.st_mode) && stream_ends_in(path, ".jsonl"))
        return error_set(e, -EINVAL, E_DATA_PIPE,
                         "%s %s: it is a pipe, and JSONL is read from files; write it into one",
                         flag, path);
    if (S_ISFIFO(st.st_mode))
        return open_pipe(s, flag, path, e);
    int code = check_mode(flag, path, st.st_mode, e);
    if (code)
        return code;
    if (S_ISDIR(st.st_mode)) {
        code = list_shards(&s->train, flag, path, e);
        if (code || s->train.count) {
            s->kind = SOURCE_SHARDS;
            return code;
        }
        code = list_jsonl(&s->train, flag, path, e);
        if (code || s->train.count) {
            s->kind = SOURCE_JSONL;
            return code;
        }
        s->kind = SOURCE_TEXT; // whatever the folder's name
        files_add(&s->train, base_format("%s", path), NULL);
        return 0;
    }
    if (S_ISREG(st.st_mode) && st.st_size == 0)
        return error_set(e, -EINVAL, E_FILE_EMPTY,
                         "%s %s: the file is empty; give one that has text, examples or tokens",
                         flag, path);
    files_add(&s->train, base_format("%s", path), NULL);
    return decide_kind(s, flag, e);
}

static int open_glob(struct Source *s, const char *flag, const char *pattern, struct Error *e) {
    glob_t found;
    int result = glob(pattern, 0, NULL, &found); // sorted
    int code = 0;
    if (result)
        code = error_set(e, -ENOENT, E_DATA_NO_MATCH,
                         "%s %s: no file matches; check the pattern with ls", flag, pattern);
    for (size_t i = 0; !code && i < found.gl_pathc; i++) {
        struct stat st;
        if (!stat(found.gl_pathv[i], &st))
            code = check_mode(flag, found.gl_pathv[i], st.st_mode, e);
        files_add(&s->train, base_format("%s", found.gl_pathv[i]), NULL);
    }
    globfree(&found);
    return code ? code : decide_kind(s, flag, e);
}

bool source_is_pipe(const char *data) {
    struct stat st;
    return !is_url(data) && !stat(data, &st) && S_ISFIFO(st.st_mode);
}

int source_open(struct Source *s, const char *flag, const char *data, const char *cache_dir,
                struct Error *e) {
    *s = (struct Source){0};
    int code;
    if (!strcmp(data, "random")) {
        s->kind = SOURCE_RANDOM;
        code = 0;
    } else if (!strcmp(data, "tinyshakespeare")) {
        code = open_shakespeare(s, cache_dir, e);
    } else if (!strcmp(data, "fineweb10B")) {
        code = open_fineweb(s, cache_dir, e);
    } else if (is_url(data) && show_is_masked(data)) {
        code = refuse_masked(flag, data, e);
    } else if (is_url(data)) {
        char *path;
        code = fetch_url(&path, data, cache_dir, e);
        if (!code) {
            code = open_path(s, flag, path, e);
            free(path);
        }
    } else if (strpbrk(data, "*?[") && access(data, F_OK)) {
        code = open_glob(s, flag, data, e);
    } else {
        code = open_path(s, flag, data, e);
    }
    if (code) {
        struct Error cause = *e;
        source_close(s);
        // Errors from below may not say which flag is meant.
        bool has_flag = !strncmp(cause.text, "--", 2);
        char shown[ERROR_TEXT_BYTES];
        if (!has_flag && !strncmp(cause.text, shown, show_line(shown, sizeof shown, data)))
            error_set(e, code, cause.id, "%s %s", flag, cause.text);
        else if (!has_flag)
            error_set(e, code, cause.id, "%s %s: %s", flag, data, cause.text);
    }
    return code;
}

int source_fetch(const struct SourceFile *f, const char *cache_dir, struct Error *e) {
    struct Download d = {.url = f->url, .path = f->path, .cache_dir = cache_dir};
    return f->url ? download_file(&d, e) : 0;
}
