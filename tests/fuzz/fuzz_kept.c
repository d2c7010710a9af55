// Fuzzes what is read of the cache's small files: the speeds of this machine (machine.txt) and the
// lists of checksums. Of any bytes a speed is a number above zero that was there or is measured,
// and what is kept then is found again; a list agrees with its files if it is the one that was
// written, and else not. Built and run by scripts/dev/fuzz.sh.
#include "data/log/machine.h"
#include "data/text/sums.h"
#include "tests/fuzz/memory_folder.h"

#include <errno.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

enum { TEXT_BYTES_MAX = 512 };

static struct Place {
    char *machine, *file, *list, *beside; // two lists of one file
    char *text, *speed; // what was written: the list; the line of a speed, under this CPU's name
    size_t text_bytes, speed_bytes;
} place;

static double measured(void *context) {
    (void)context;
    return 12.5;
}

static double speed(void) {
    return machine_measured(memory_folder, "speed", measured, NULL);
}

static void open_place(void) {
    struct Error e;
    if (place.file)
        return;
    const char *folder = memory_folder_open();
    place.machine = base_format("%s/machine.txt", folder);
    place.file = base_format("%s/model", folder);
    place.list = base_format("%s/list", folder);
    place.beside = base_format("%s/%s", folder, SUMS_NAME);
    memory_file_write(place.file, "weights", 7);
    const char *const paths[] = {place.file};
    CHECK(!sums_write(place.list, paths, 1, &e), "%s", e.text);
    place.text = memory_file_read(place.list, &place.text_bytes, TEXT_BYTES_MAX);
    speed();
    place.speed = memory_file_read(place.machine, &place.speed_bytes, TEXT_BYTES_MAX);
}

static void check_speed(const uint8_t *data, size_t size) {
    memory_file_write(place.machine, data, size);
    double first = speed();
    CHECK(first > 0, "a speed of %g", first);
    double again = speed();
    CHECK(again >= first * 0.9999 || isinf(first), "%g, and then %g", first, again);
    machine_doubt(memory_folder, "speed");
    CHECK(speed() >= fmin(again, 12.4), "a doubted speed became smaller");
}

static void check_list(const uint8_t *data, size_t size) {
    struct Error e = {0};
    const char *const paths[] = {place.file};
    bool same = size == place.text_bytes && !memcmp(data, place.text, size);
    memory_file_write(place.list, data, size);
    enum SumsState state = sums_check(place.list, paths, 1, &e);
    CHECK(state == (same ? SUMS_AGREE : SUMS_DIFFER), "state %d, the same: %d", state, same);
    CHECK(same || e.text[0], "a refusal without a word");
    memory_file_write(place.beside, data, size);
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
    if (seed % 4 == 0 || room < TEXT_BYTES_MAX + 1)
        return LLVMFuzzerMutate(data, size, room);
    bool of_speed = seed % 8 < 4;
    size_t n = of_speed ? place.speed_bytes : place.text_bytes;
    data[0] = of_speed;
    memcpy(data + 1, of_speed ? place.speed : place.text, n);
    if (seed % 4 == 1)
        return n + 1;
    return 1 + LLVMFuzzerMutate(data + 1, n, room - 1);
}
