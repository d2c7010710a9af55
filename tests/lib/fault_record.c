// A record of what a program does to the files below a folder: part of libfault.so (fault.c). From
// it powercut.c makes what a disk could hold after a power cut at any moment.
//
//   FAULT_RECORD=FILE  FAULT_BELOW=FOLDER (as realpath says it)
//
// One entry is a line and, where it counts bytes, these bytes and a line feed:
//
//   open FD FLAGS BYTES (path)          close FD                    dup FD NEW
//   write FD OFFSET BYTES (data)        truncate FD SIZE            sync FD
//   rename FLAGS BYTES BYTES (paths)    link BYTES BYTES (paths)    mkdir BYTES (path)
//   unlink BYTES (path)                 rmdir BYTES (path)          said FD BYTES (text)
//
// The calls that are written down are made one at a time, so that the record is in the order in
// which the kernel saw them. What stdio writes to a file is not seen: such a file would be missing.
#include "tests/lib/fault_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAX_FILES = 4096, PATH_BYTES = 4096 };

static struct {
    int file; // the record
    const char *below;
    bool watched[MAX_FILES];
    pthread_mutex_t lock;
    // Past the functions of this name that fault.c has put there.
    int (*open)(const char *, int, ...), (*close)(int);
    ssize_t (*readlink)(const char *, char *, size_t);
    off_t (*lseek)(int, off_t, int);
} rec = {.file = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

void fault_record_open(void) {
    const char *path = getenv("FAULT_RECORD");
    rec.below = getenv("FAULT_BELOW");
    if (!path || !rec.below)
        return;
    *(void **)&rec.open = dlsym(RTLD_NEXT, "open");
    *(void **)&rec.close = dlsym(RTLD_NEXT, "close");
    *(void **)&rec.readlink = dlsym(RTLD_NEXT, "readlink");
    *(void **)&rec.lseek = dlsym(RTLD_NEXT, "lseek");
    rec.file = rec.open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

// A line, then up to two strings of bytes, at once: others may append to the same file.
static void put_entry(const char *line, int count, ...) {
    struct iovec parts[4] = {{(void *)line, strlen(line)}};
    size_t all = parts[0].iov_len;
    va_list args;
    va_start(args, count);
    for (int i = 1; i <= count; i++) {
        parts[i].iov_base = (void *)va_arg(args, const void *);
        all += parts[i].iov_len = va_arg(args, size_t);
    }
    va_end(args);
    if (count)
        parts[++count] = (struct iovec){"\n", 1};
    all += count > 0;
    if (writev(rec.file, parts, count + 1) != (ssize_t)all)
        abort();
}

#define ENTRY(...)                                                                                 \
    char line[128];                                                                                \
    snprintf(line, sizeof line, __VA_ARGS__)

// ---- paths ----

static bool is_below(const char *path) {
    size_t n = strlen(rec.below);
    return strncmp(path, rec.below, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool path_of_file(int fd, char path[PATH_BYTES]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = rec.readlink(link, path, PATH_BYTES - 1);
    path[n > 0 ? n : 0] = '\0';
    return n > 0;
}

// Without double slashes, "." and a slash at the end; links and ".." stay as they are.
static void tidy(char *path) {
    char *to = path;
    for (const char *p = path; *p;) {
        if (*p == '/' && (p[1] == '/' || p[1] == '\0'))
            p++;
        else if (*p == '/' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
            p += 2;
        else
            *to++ = *p++;
    }
    *to = '\0';
}

static void absolute(int folder, const char *name, char path[PATH_BYTES]) {
    char start[PATH_BYTES] = "";
    if (*name != '/' && folder == AT_FDCWD && !getcwd(start, sizeof start))
        abort();
    if (*name != '/' && folder != AT_FDCWD)
        path_of_file(folder, start);
    if ((size_t)snprintf(path, PATH_BYTES, "%s%s%s", start, *name == '/' ? "" : "/", name) >=
        PATH_BYTES)
        abort();
    tidy(path);
}

// ---- entries ----

static void note_open(int fd, int flags) {
    char path[PATH_BYTES];
    if (fd < 0 || fd >= MAX_FILES)
        return;
    rec.watched[fd] = path_of_file(fd, path) && is_below(path) && !strstr(path, " (deleted)");
    if (!rec.watched[fd])
        return;
    ENTRY("open %d %d %zu\n", fd, flags, strlen(path));
    put_entry(line, 1, path, strlen(path));
}

static void note_write(int fd, const void *bytes, long n, long offset) {
    if (n <= 0 || fd < 0 || fd >= MAX_FILES)
        return;
    if (fd == STDOUT_FILENO || fd == STDERR_FILENO) {
        ENTRY("said %d %ld\n", fd, n);
        put_entry(line, 1, bytes, (size_t)n);
    } else if (rec.watched[fd]) {
        if (offset < 0)
            offset = (long)rec.lseek(fd, 0, SEEK_CUR) - n;
        ENTRY("write %d %ld %ld\n", fd, offset, n);
        put_entry(line, 1, bytes, (size_t)n);
    }
}

static void note_number(const char *what, int fd, long number) {
    if (fd < 0 || fd >= MAX_FILES || !rec.watched[fd])
        return;
    ENTRY("%s %d %ld\n", what, fd, number);
    put_entry(line, 0);
}

static void note_dup(int fd, int copy) {
    note_number("dup", fd, copy);
    if (fd >= 0 && fd < MAX_FILES && copy >= 0 && copy < MAX_FILES)
        rec.watched[copy] = rec.watched[fd];
}

static void note_name(const char *what, int folder, long name) {
    char path[PATH_BYTES];
    absolute(folder, (const char *)name, path);
    if (!is_below(path))
        return;
    ENTRY("%s %zu\n", what, strlen(path));
    put_entry(line, 1, path, strlen(path));
}

static void note_names(const char *what, int from_folder, long from, int to_folder, long to,
                       unsigned flags) {
    char old[PATH_BYTES], new[PATH_BYTES];
    absolute(from_folder, (const char *)from, old);
    absolute(to_folder, (const char *)to, new);
    if (!is_below(old) && !is_below(new))
        return;
    ENTRY("%s %u %zu %zu\n", what, flags, strlen(old), strlen(new));
    put_entry(line, 2, old, strlen(old), new, strlen(new));
}

// What is printed; args: a va_list.
static void note_print(FILE *out, const char *format, void *args) {
    char text[4096];
    va_list copy;
    memcpy(&copy, args, sizeof copy);
    int n = vsnprintf(text, sizeof text, format, copy);
    if ((out == stdout || out == stderr) && n > 0)
        note_write(out == stdout ? 1 : 2, text, n < (int)sizeof text ? n : (int)sizeof text - 1, 0);
}

// ---- the calls ----

#define AS_CLASS(name, class, fails, stream) CLASS_##class,
static const enum Class class_of[NCALL] = {FAULT_CALLS(AS_CLASS) CLASS_URING, CLASS_WRITE,
                                           CLASS_WRITE};

static bool is_noted(enum CallId id) {
    switch (class_of[id]) {
    case CLASS_OPEN:
    case CLASS_WRITE:
    case CLASS_FSYNC:
    case CLASS_RENAME:
    case CLASS_UNLINK:
    case CLASS_MKDIR:
    case CLASS_TRUNCATE:
    case CLASS_CLOSE:
        return true;
    default:
        return id == CALL_dup || id == CALL_dup2 || id == CALL_dup3 || id == CALL_fcntl;
    }
}

void fault_record_before(enum CallId id, const long a[NARG]) {
    if (rec.file < 0 || !is_noted(id))
        return;
    pthread_mutex_lock(&rec.lock);
    if (id == CALL_close) // now, as the number may be another file's at once
        note_number("close", (int)a[0], 0);
    if (id == CALL_close && a[0] >= 0 && a[0] < MAX_FILES)
        rec.watched[a[0]] = false;
    if (id == CALL_vfprintf || id == CALL_printf || id == CALL_fprintf)
        note_print((FILE *)a[0], (const char *)a[1], (void *)a[2]);
}

static void note_names_of(enum CallId id, const long a[NARG]) {
    switch (id) {
    case CALL_rename:
        note_names("rename", AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
        break;
    case CALL_renameat:
    case CALL_renameat2:
        note_names("rename", (int)a[0], a[1], (int)a[2], a[3],
                   id == CALL_renameat2 ? (unsigned)a[4] : 0);
        break;
    case CALL_link:
        note_names("link", AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
        break;
    case CALL_linkat:
        note_names("link", (int)a[0], a[1], (int)a[2], a[3], 0);
        break;
    case CALL_unlink:
    case CALL_remove:
        note_name("unlink", AT_FDCWD, a[0]);
        break;
    case CALL_unlinkat:
        note_name(a[2] & AT_REMOVEDIR ? "rmdir" : "unlink", (int)a[0], a[1]);
        break;
    case CALL_rmdir:
        note_name("rmdir", AT_FDCWD, a[0]);
        break;
    case CALL_mkdir:
    case CALL_mkdtemp:
        note_name("mkdir", AT_FDCWD, a[0]);
        break;
    case CALL_mkdirat:
        note_name("mkdir", (int)a[0], a[1]);
        break;
    default:
        break;
    }
}

static void note_file_of(enum CallId id, const long a[NARG], long result) {
    switch (id) {
    case CALL_open:
    case CALL_open64:
        note_open((int)result, (int)a[1]);
        break;
    case CALL_openat:
    case CALL_openat64:
        note_open((int)result, (int)a[2]);
        break;
    case CALL_creat:
    case CALL_mkostemp:
    case CALL_mkstemp:
        note_open((int)result, O_CREAT | O_TRUNC);
        break;
    case CALL_write:
        note_write((int)a[0], (const void *)a[1], result, -1);
        break;
    case CALL_pwrite:
    case CALL_pwrite64:
        note_write((int)a[0], (const void *)a[1], result, a[3]);
        break;
    case CALL_fputs:
        if ((FILE *)a[1] != stdout && (FILE *)a[1] != stderr)
            break;
        note_write((FILE *)a[1] == stdout ? 1 : 2, (const void *)a[0],
                   (long)strlen((const char *)a[0]), 0);
        break;
    case CALL_fsync:
    case CALL_fdatasync:
        note_number("sync", (int)a[0], 0);
        break;
    case CALL_ftruncate:
        note_number("truncate", (int)a[0], a[1]);
        break;
    case CALL_fcntl:
        if (a[1] != F_DUPFD && a[1] != F_DUPFD_CLOEXEC)
            break;
        // fall through
    case CALL_dup:
    case CALL_dup2:
    case CALL_dup3:
        note_dup((int)a[0], (int)result);
        break;
    default:
        break;
    }
}

void fault_record_after(enum CallId id, const long a[NARG], long result) {
    if (rec.file < 0 || !is_noted(id))
        return;
    bool fails_with_null = id == CALL_fopen || id == CALL_mkdtemp;
    if (fails_with_null ? result != 0 : (int)result >= 0) {
        note_names_of(id, a);
        note_file_of(id, a, (int)result);
    }
    pthread_mutex_unlock(&rec.lock);
}
