// Fuzzes what is read of the cache's small files: the speeds of this machine (machine.txt) and the
// lists of checksums. Of any bytes a speed is a number above zero that was there or is measured,
// and what is kept then is found again; a list agrees with its files if it is the one that was
// written, and else not. Built and run by scripts/fuzz.sh.
#include "data/log/machine.h"
#include "data/text/sums.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

enum { LIST_BYTES_MAX = 512 };

static struct Place {
    char folder[64];
    char *machine, *file, *list, *beside; // two lists of one file
    char text[LIST_BYTES_MAX];            // of the list, as it was written
    size_t bytes;
    char speed[LIST_BYTES_MAX]; // the line of a speed of 12.5, under this CPU's name
} place;

static double measured(void *context) {
    (void)context;
    return 12.5;
}

static size_t read_file(const char *path, char *text, size_t room) {
    FILE *f = fopen(path, "r");
    CHECK(f, "%s", path);
    size_t n = fread(text, 1, room, f);
    fclose(f);
    return n;
}

static void write_file(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(data, 1, size, f) == size && !fclose(f), "%s", path);
}

static void remove_place(void) {
    char *const paths[] = {place.machine, place.file, place.list, place.beside};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
    rmdir(place.folder);
}

// On a memory file system, once in this process.
static void open_place(void) {
    struct Error e;
    if (place.file)
        return;
    log_level = LOG_QUIET;
    snprintf(place.folder, sizeof place.folder, "%s/fuzz_kept.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    CHECK(mkdtemp(place.folder), "mkdtemp %s", place.folder);
    place.machine = base_format("%s/machine.txt", place.folder);
    place.file = base_format("%s/model", place.folder);
    place.list = base_format("%s/list", place.folder);
    place.beside = base_format("%s/%s", place.folder, SUMS_NAME);
    atexit(remove_place);
    write_file(place.file, "weights", 7);
    const char *const paths[] = {place.file};
    CHECK(!sums_write(place.list, paths, 1, &e), "%s", e.text);
    place.bytes = read_file(place.list, place.text, sizeof place.text);
    machine_measured(place.folder, "speed", measured, NULL);
    size_t n = read_file(place.machine, place.speed, sizeof place.speed - 1);
    place.speed[n] = 0;
}

static void check_speed(const uint8_t *data, size_t size) {
    write_file(place.machine, data, size);
    double first = machine_measured(place.folder, "speed", measured, NULL);
    CHECK(first > 0, "a speed of %g", first);
    double again = machine_measured(place.folder, "speed", measured, NULL);
    CHECK(again >= first * 0.9999 || isinf(first), "%g, and then %g", first, again);
    machine_doubt(place.folder, "speed");
    CHECK(machine_measured(place.folder, "speed", measured, NULL) >= fmin(again, 12.4), "doubted");
}

static void check_list(const uint8_t *data, size_t size) {
    struct Error e = {0};
    const char *const paths[] = {place.file};
    bool same = size == place.bytes && !memcmp(data, place.text, size);
    write_file(place.list, data, size);
    enum SumsState state = sums_check(place.list, paths, 1, &e);
    CHECK(state == (same ? SUMS_AGREE : SUMS_DIFFER), "state %d, the same: %d", state, same);
    CHECK(same || e.text[0], "a refusal without a word");
    write_file(place.beside, data, size);
    int code = sums_check_beside(place.file, &e);
    CHECK(!code || (code == -EBADMSG && !same), "%d: %s", code, e.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    open_place();
    if (!size)
        return 0;
    if (data[0] % 2)
        check_speed(data + 1, size - 1);
    else
        check_list(data + 1, size - 1);
    return 0;
}

// Most inputs are what the program wrote, or that with some damage.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    open_place();
    if (seed % 4 == 0 || room < LIST_BYTES_MAX + 1)
        return LLVMFuzzerMutate(data, size, room);
    const char *text = seed % 8 < 4 ? place.speed : place.text;
    size_t n = seed % 8 < 4 ? strlen(place.speed) : place.bytes;
    data[0] = seed % 8 < 4;
    memcpy(data + 1, text, n);
    if (seed % 4 == 1)
        return n + 1;
    return 1 + LLVMFuzzerMutate(data + 1, n, room - 1);
}
