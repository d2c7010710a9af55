// What a disk may hold after a power cut, as a folder that ./train can be started on: replays a
// record of fault_record.c into a model of a file system. scripts/faults/powercuts.sh calls it.
//
//   powercut RECORD ROOT BEFORE                          prints how many operations there are
//   powercut RECORD ROOT BEFORE renames                  the CUTs right behind a rename
//   powercut RECORD ROOT BEFORE CUT MODEL SEED AFTER     the state after CUT of them, in AFTER
//
// ROOT is the folder of the record, BEFORE one with what was in it at first (all of that counts as
// on the disk). It prints the number of log lines and all that was said before the cut, so that the
// caller knows what was promised.
//
// What was forced to the disk is there. Of the rest the seed decides, operation by operation:
//
//   ordered  as a journal does: names in the order in which they were made, up to some moment after
//            the last sync of anything; data of files that were not synced may be missing
//   nasty    all that POSIX allows: a name is there for certain only where the folder that holds it
//            was synced; of the others any may be there or not. A rename is there whole or not.
//
// A write that was not forced may be there in part: whole units of 512 bytes of it.
#include "kernels/dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_OPS = 1 << 16, MAX_FILES = 4096, MAX_NODES = 1 << 16, SECTOR = 512 };

// A file or folder; its content is what the operations on it made.
struct Node {
    bool folder;
    char *first; // what it held before the record (bytes)
    size_t bytes;
};

// One operation: what the record says, and whether it is on the disk for certain.
struct Op {
    enum { OP_OTHER, OP_WRITE, OP_SIZE, OP_NAME, OP_SYNC, OP_SAID } kind;
    int node;        // WRITE, SIZE, SYNC: of what
    uint64_t offset; // or size
    size_t bytes;
    char *data;
    // NAME: up to two entries are removed (to_node -1) or set, at once.
    struct Change {
        int folder; // -1: none
        char *name;
        int node; // -1: removed
    } change[2];
    bool kept;
};

static struct Model {
    struct Node node[MAX_NODES];
    int nodes;
    struct Op op[MAX_OPS];
    size_t ops;
    int file[MAX_FILES]; // what the program's file numbers stand for; 0: nothing
    struct Op *first;    // names before the record: entries of OP_NAME
    size_t firsts;
    const char *root;
} m;

_Noreturn static void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("powercut: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(2);
}

// ---- the names as the program sees them: of all changes of a name the last holds ----

static int look_up(int folder, const char *name, size_t n) {
    for (size_t i = m.ops + m.firsts; i-- > 0;) {
        const struct Op *o = i < m.firsts ? &m.first[i] : &m.op[i - m.firsts];
        for (int c = 1; c >= 0 && o->kind == OP_NAME; c--)
            if (o->change[c].name && o->change[c].folder == folder &&
                strlen(o->change[c].name) == n && memcmp(o->change[c].name, name, n) == 0)
                return o->change[c].node;
    }
    return -1;
}

// The folder that holds the path's last part, and that part; -1: outside of the root.
static int folder_of(const char *path, const char **last) {
    size_t n = strlen(m.root);
    if (strncmp(path, m.root, n) != 0 || (path[n] && path[n] != '/'))
        return -1;
    int folder = 0;
    for (const char *p = path + n;;) {
        p += *p == '/';
        const char *end = strchrnul(p, '/');
        *last = p;
        if (!*end)
            return folder;
        folder = look_up(folder, p, (size_t)(end - p));
        if (folder < 0)
            return -1;
        p = end;
    }
}

static int node_of(const char *path) {
    const char *last;
    int folder = folder_of(path, &last);
    return folder < 0 || !*last ? folder : look_up(folder, last, strlen(last));
}

static int new_node(bool folder) {
    if (m.nodes == MAX_NODES)
        fail("more than %d files", MAX_NODES);
    m.node[m.nodes] = (struct Node){.folder = folder};
    return m.nodes++;
}

static struct Change change_of(const char *path, int node) {
    const char *last;
    int folder = folder_of(path, &last);
    return (struct Change){folder, folder < 0 ? NULL : strdup(last), node};
}

// ---- reading the record ----

static void add(struct Op op) {
    if (m.ops == MAX_OPS)
        fail("more than %d operations", MAX_OPS);
    m.op[m.ops++] = op;
}

static void add_names(struct Change a, struct Change b) {
    add((struct Op){.kind = OP_NAME, .change = {a, b}});
}

static const struct Change no_change = {-1, NULL, -1};

static char *payload(FILE *f, size_t n) {
    char *bytes = malloc(n + 1);
    if (!bytes || fread(bytes, 1, n, f) != n)
        fail("the record ends too early");
    bytes[n] = '\0';
    return bytes;
}

static void read_open(int fd, int flags, const char *path) {
    int node = node_of(path);
    if (node < 0) {
        node = new_node(false);
        add_names(change_of(path, node), no_change);
    } else if (flags & O_TRUNC) {
        add((struct Op){.kind = OP_SIZE, .node = node});
    }
    m.file[fd] = node + 1;
}

static void read_rename(unsigned flags, const char *from, const char *to) {
    int old = node_of(from), new = node_of(to);
    bool swaps = flags & 2; // RENAME_EXCHANGE
    add_names(change_of(from, swaps ? new : -1), change_of(to, old));
}

static void read_file_entry(const char *what, FILE *f, int fd, long a, long b) {
    int node = fd >= 0 && fd < MAX_FILES ? m.file[fd] - 1 : -1;
    if (!strcmp(what, "open"))
        read_open(fd, (int)a, payload(f, (size_t)b));
    else if (!strcmp(what, "said"))
        add((struct Op){.kind = OP_SAID, .bytes = (size_t)a, .data = payload(f, (size_t)a)});
    else if (!strcmp(what, "write"))
        add((struct Op){.kind = OP_WRITE,
                        .node = node,
                        .offset = (uint64_t)a,
                        .bytes = (size_t)b,
                        .data = payload(f, (size_t)b)});
    else if (!strcmp(what, "truncate"))
        add((struct Op){.kind = OP_SIZE, .node = node, .offset = (uint64_t)a});
    else if (!strcmp(what, "sync"))
        add((struct Op){.kind = OP_SYNC, .node = node});
    else if (!strcmp(what, "dup"))
        m.file[a] = m.file[fd];
    else if (!strcmp(what, "close"))
        m.file[fd] = 0;
    else
        fail("the record has an entry \"%s\"", what);
}

static void read_name_entry(const char *what, FILE *f, long a, long b, long c) {
    if (!strcmp(what, "rename") || !strcmp(what, "link")) {
        char *from = payload(f, (size_t)b), *to = payload(f, (size_t)c);
        if (*what == 'r')
            read_rename((unsigned)a, from, to);
        else
            add_names(change_of(to, node_of(from)), no_change);
        return;
    }
    char *path = payload(f, (size_t)a);
    int node = !strcmp(what, "mkdir") ? new_node(true) : -1;
    add_names(change_of(path, node), no_change);
}

static void read_record(const char *path) {
    FILE *f = fopen(path, "re");
    char line[256], what[32];
    long a, b, c;
    if (!f)
        fail("%s: %s", path, strerror(errno));
    while (fgets(line, sizeof line, f)) {
        if (*line == '\n')
            continue; // behind a payload
        a = b = c = 0;
        if (sscanf(line, "%31s %ld %ld %ld", what, &a, &b, &c) < 2)
            fail("the record has a line \"%s\"", line);
        if (strstr("rename link mkdir unlink rmdir", what))
            read_name_entry(what, f, a, b, c);
        else
            read_file_entry(what, f, (int)a, b, c);
    }
    fclose(f);
}

// ---- what was there before ----

static void add_first(const char *path, bool folder) {
    struct Change c = change_of(path, new_node(folder));
    m.first = realloc(m.first, (m.firsts + 1) * sizeof *m.first);
    m.first[m.firsts++] = (struct Op){.kind = OP_NAME, .change = {c, no_change}, .kept = true};
}

static const char *before_folder;

static int see(const char *path, const struct stat *st, int type, struct FTW *ignored) {
    (void)ignored;
    char inside[4096];
    if (strcmp(path, before_folder) == 0)
        return 0;
    snprintf(inside, sizeof inside, "%s%s", m.root, path + strlen(before_folder));
    add_first(inside, type == FTW_D);
    struct Node *n = &m.node[m.nodes - 1];
    if (n->folder)
        return 0;
    FILE *f = fopen(path, "re");
    if (!f)
        fail("%s: %s", path, strerror(errno));
    n->bytes = (size_t)st->st_size;
    n->first = payload(f, n->bytes);
    fclose(f);
    return 0;
}

// ---- the cut ----

static uint64_t stream, drawn;

static uint64_t next_random(void) {
    return rng_bits(stream, drawn++);
}

static bool touches(const struct Op *o, int folder) {
    return o->kind == OP_NAME && ((o->change[0].name && o->change[0].folder == folder) ||
                                  (o->change[1].name && o->change[1].folder == folder));
}

// What is on the disk for certain: data by a sync of their file; names by one of their folder, and
// where they are ordered by any sync.
static void keep_synced(size_t cut, bool ordered) {
    for (size_t s = 0; s < cut; s++)
        for (size_t i = 0; i < s && m.op[s].kind == OP_SYNC; i++) {
            struct Op *o = &m.op[i];
            bool name = o->kind == OP_NAME && (ordered || touches(o, m.op[s].node));
            o->kept |=
                name || ((o->kind == OP_WRITE || o->kind == OP_SIZE) && o->node == m.op[s].node);
        }
}

// Of the others: with one seed none, with one all, else each with a chance of its own.
static void keep_some(size_t cut, bool ordered, uint64_t seed) {
    size_t names = 0, loose = 0;
    for (size_t i = 0; i < cut; i++)
        names += m.op[i].kind == OP_NAME && !m.op[i].kept;
    size_t first = seed == 0 ? 0 : seed == 1 ? names : next_random() % (names + 1);
    for (size_t i = 0; i < cut; i++) {
        struct Op *o = &m.op[i];
        if (o->kept)
            continue;
        bool by_chance = seed == 0 ? false : seed == 1 ? true : next_random() & 1;
        o->kept = o->kind == OP_NAME && ordered ? loose++ < first : by_chance;
        if (o->kept && o->kind == OP_WRITE && seed > 1 && next_random() % 4 == 0)
            o->bytes = next_random() % (o->bytes / SECTOR + 1) * SECTOR;
    }
}

// ---- making it ----

static void write_file(int node, size_t cut, const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const struct Node *n = &m.node[node];
    bool good = fd >= 0 && pwrite(fd, n->first, n->bytes, 0) == (ssize_t)n->bytes;
    for (size_t i = 0; i < cut && good; i++) {
        const struct Op *o = &m.op[i];
        if (!o->kept || o->node != node)
            continue;
        if (o->kind == OP_WRITE)
            good = pwrite(fd, o->data, o->bytes, (off_t)o->offset) == (ssize_t)o->bytes;
        else if (o->kind == OP_SIZE)
            good = ftruncate(fd, (off_t)o->offset) == 0;
    }
    if (!good)
        fail("%s: %s", path, strerror(errno));
    close(fd);
}

static bool is_last_change(size_t i, int c, size_t cut);

static void write_folder(int folder, size_t cut, const char *path) {
    if (mkdir(path, 0777) != 0)
        fail("%s: %s", path, strerror(errno));
    for (size_t i = 0; i < m.firsts + cut; i++)
        for (int c = 0; c < 2; c++) {
            const struct Op *o = i < m.firsts ? &m.first[i] : &m.op[i - m.firsts];
            const struct Change *h = &o->change[c];
            if (o->kind != OP_NAME || !o->kept || !h->name || h->folder != folder || h->node < 0 ||
                !is_last_change(i, c, cut))
                continue;
            char inside[4096];
            snprintf(inside, sizeof inside, "%s/%s", path, h->name);
            if (m.node[h->node].folder)
                write_folder(h->node, cut, inside);
            else
                write_file(h->node, cut, inside);
        }
}

// Whether no later change that is kept is of the same name.
static bool is_last_change(size_t i, int c, size_t cut) {
    const struct Op *o = i < m.firsts ? &m.first[i] : &m.op[i - m.firsts];
    const struct Change *h = &o->change[c];
    for (size_t k = i; k < m.firsts + cut; k++) {
        const struct Op *later = k < m.firsts ? &m.first[k] : &m.op[k - m.firsts];
        for (int d = k == i ? c + 1 : 0; d < 2 && later->kind == OP_NAME && later->kept; d++)
            if (later->change[d].name && later->change[d].folder == h->folder &&
                strcmp(later->change[d].name, h->name) == 0)
                return false;
    }
    return true;
}

static void tell_promises(size_t cut) {
    for (size_t i = 0; i < cut; i++) {
        const struct Op *o = &m.op[i];
        bool log = o->kind == OP_WRITE && o->bytes > 8 && !strncmp(o->data, "{\"step\":", 8);
        if (o->kind == OP_SAID || log)
            fwrite(o->data, 1, o->bytes, stdout);
    }
}

int main(int argc, char **argv) {
    bool renames = argc == 5 && strcmp(argv[4], "renames") == 0;
    if (argc != 4 && !renames && argc != 8)
        fail("expected RECORD ROOT BEFORE [renames | CUT MODEL SEED AFTER]");
    m.root = argv[2];
    before_folder = argv[3];
    new_node(true);
    if (nftw(before_folder, see, 16, FTW_PHYS) != 0)
        fail("%s: %s", before_folder, strerror(errno));
    read_record(argv[1]);
    if (argc == 4) {
        printf("%zu\n", m.ops);
        return 0;
    }
    for (size_t i = 0; i < m.ops && renames; i++)
        if (m.op[i].kind == OP_NAME && m.op[i].change[0].name && m.op[i].change[1].name)
            printf("%zu\n", i + 1);
    if (renames)
        return 0;
    size_t cut = strtoul(argv[4], NULL, 10);
    bool ordered = strcmp(argv[5], "ordered") == 0;
    uint64_t seed = strtoull(argv[6], NULL, 10);
    if (cut > m.ops)
        fail("a cut after %zu of %zu operations", cut, m.ops);
    stream = seed * 1000003 + cut;
    tell_promises(cut);
    keep_synced(cut, ordered);
    keep_some(cut, ordered, seed);
    write_folder(0, cut, argv[7]);
    return 0;
}
