// Encodes JSONL as a token shard: see examples.h.
#include "data/text/examples.h"
#include "data/text/made.h"
#include "data/text/sums.h"
#include "data/text/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Changes whenever the same input would give other files.
static const char FORMAT[] = "zero.c prepared examples 1";
static const char PREFIX[] = "examples";
static const char *const names[] = {"tokens.bin", SUMS_NAME, NULL};

// ---- inputs -------------------------------------------------------------------------------------

static int hash_file(struct Sha256 *h, const char *flag, const char *path, struct stat *st,
                     struct Error *e) {
    char hex[SHA256_HEX_BYTES];
    int fd, code = file_open(path, flag, &fd, st, e);
    if (code)
        return code;
    code = sha256_file(fd, hex);
    close(fd);
    if (code)
        return error_io(e, code, E_FILE_READ, "%s %s", flag, path);
    made_hash(h, hex, sizeof hex);
    return 0;
}

// Hashes the tokenizer, its own chat template, --chat-template with its file, and --data-map.
static int hash_settings(struct Sha256 *h, const struct ExamplesSpec *spec, struct Error *e) {
    const struct Tokenizer *t = spec->tokenizer;
    const char *path = tokenizer_path(t), *own = tokenizer_chat_template(t);
    const char *name = spec->chat.name ? spec->chat.name : "";
    int64_t numbers[3] = {(int64_t)tokenizer_vocab(t), tokenizer_begin(t), tokenizer_end(t)};
    struct stat st;
    made_hash(h, numbers, sizeof numbers);
    made_hash(h, own ? own : "", own ? strlen(own) : 0);
    made_hash(h, name, strlen(name));
    if (spec->chat.map)
        made_hash(h, spec->chat.map, strlen(spec->chat.map));
    int code = path ? hash_file(h, "--tokenizer", path, &st, e) : 0;
    if (!code && *name && !stat(name, &st) && S_ISREG(st.st_mode)) // --chat-template FILE.json
        code = hash_file(h, "--chat-template", name, &st, e);
    return code;
}

// Hashes all inputs. stats[file_count]: of the files as they were.
static int hash_inputs(const struct ExamplesSpec *spec, struct stat *stats,
                       char hex[SHA256_HEX_BYTES], struct Error *e) {
    struct Sha256 h;
    sha256_init(&h);
    made_hash(&h, FORMAT, sizeof FORMAT);
    int code = hash_settings(&h, spec, e);
    for (size_t i = 0; !code && i < spec->file_count; i++)
        code = hash_file(&h, spec->flag, spec->files[i].path, &stats[i], e);
    sha256_hex(&h, hex);
    return code;
}

// Checks that the files are still those that were hashed: else the folder would keep a wrong name.
static int check_unchanged(const struct ExamplesSpec *spec, const struct stat *stats,
                           struct Error *e) {
    for (size_t i = 0; i < spec->file_count; i++) {
        struct stat now;
        const struct stat *was = &stats[i];
        bool same = !stat(spec->files[i].path, &now) && now.st_size == was->st_size &&
                    now.st_ino == was->st_ino && now.st_mtim.tv_sec == was->st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == was->st_mtim.tv_nsec;
        if (!same)
            return error_set(e, -EIO, E_FILE_CHANGED,
                             "%s %s: the file has changed while it was read; start again",
                             spec->flag, spec->files[i].path);
    }
    return 0;
}

// ---- the shard ----------------------------------------------------------------------------------

struct ExampleWriter {
    struct TokenWriter writer;
    size_t examples;
    uint64_t counted;
    double logged_s;
};

static int write_example(void *context, const struct Example *x, struct Error *e) {
    struct ExampleWriter *w = context;
    if (!x->count)
        return 0;
    for (size_t i = 1; i < x->count; i++)
        w->counted += x->counts[i] != 0;
    w->examples++;
    if (base_seconds() - w->logged_s > 10) {
        log_line(LOG_NORMAL, "encoding: %zu examples", w->examples);
        w->logged_s = base_seconds();
    }
    return token_writer_document(&w->writer, x->ids, x->counts, x->count, e);
}

static int encode_files(const struct ExamplesSpec *spec, const char *path, struct Error *e) {
    struct ExampleWriter w = {.logged_s = base_seconds()};
    double begin = w.logged_s;
    int code = token_writer_open(&w.writer, path, tokenizer_vocab(spec->tokenizer), true, e);
    if (code)
        return code;
    for (size_t i = 0; !code && i < spec->file_count; i++)
        code = examples_read(spec->files[i].path, spec->flag, spec->tokenizer, &spec->chat,
                             write_example, &w, e);
    size_t tokens = w.writer.count;
    if (code) {
        token_writer_abandon(&w.writer);
        return code;
    }
    code = token_writer_finish(&w.writer, e);
    char *missing = code ? NULL : tokenizer_missing(spec->tokenizer);
    if (missing)
        log_line(LOG_NORMAL, "examples: %s", missing);
    free(missing);
    if (!code)
        log_line(LOG_NORMAL, "examples: %zu, of %zu tokens, %llu of which count; encoded in %.1f s",
                 w.examples, tokens, (unsigned long long)w.counted, base_seconds() - begin);
    return code;
}

struct Filling {
    const struct ExamplesSpec *spec;
    const struct stat *stats;
};

static int fill_folder(const void *filling, const char *folder, struct Error *e) {
    const struct Filling *f = filling;
    char *path = base_format("%s/%s", folder, names[0]);
    int code = encode_files(f->spec, path, e);
    free(path);
    return code ? code : check_unchanged(f->spec, f->stats, e);
}

static int stop_after_first(void *context, const struct Example *x, struct Error *e) {
    (void)context, (void)x, (void)e;
    return 1;
}

// Reads the first example of files that another run has encoded: examples_read logs it, as it does
// where this run encodes them.
static int log_first(const struct ExamplesSpec *spec, struct Error *e) {
    int code = examples_read(spec->files[0].path, spec->flag, spec->tokenizer, &spec->chat,
                             stop_after_first, NULL, e);
    return code > 0 ? 0 : code;
}

char *examples_path(const char *cache_dir, uint64_t number) {
    char *folder = made_folder_path(cache_dir, PREFIX, number);
    char *path = base_format("%s/%s", folder, names[0]);
    free(folder);
    return path;
}

int examples_prepare(const struct ExamplesSpec *asked, char **path, char hex[SHA256_HEX_BYTES],
                     struct Error *e) {
    unsigned logged = 0;
    struct ExamplesSpec spec = *asked;
    struct stat *stats = base_alloc_zeroed(spec.file_count * sizeof *stats);
    struct Filling filling = {&spec, stats};
    bool found = false;
    spec.chat.logged = &logged;
    *path = NULL;
    int code = hash_inputs(&spec, stats, hex, e);
    struct Made made = {spec.cache_dir, PREFIX,  code ? 0 : made_number(hex), names, 1,
                        fill_folder,    &filling};
    if (!code)
        code = made_once(&made, &found, e);
    if (!code && found)
        code = log_first(&spec, e);
    if (!code)
        *path = examples_path(spec.cache_dir, made.number);
    free(stats);
    return code;
}
