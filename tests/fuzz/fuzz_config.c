// Fuzzes the reader of configuration files: any bytes give either options or one line of complaint.
//
// What is accepted must also survive being told as text and read again, as config.json needs.
// Built and run by scripts/dev/fuzz.sh.
#include "data/flags/flags.h"

#include <stdlib.h>
#include <string.h>

struct Options {
    size_t batch;
    double lr;
    int dtype, shift;
    bool overlap;
    const char *out, *config;
};

static const struct Flag table[] = {
    {"batch", FLAG_SIZE, offsetof(struct Options, batch), "8", "", .argument = "N>=1", .help = ""},
    {"shift", FLAG_INT, offsetof(struct Options, shift), "-3", "",
     .argument = "-2147483648<=N<=2147483647", .help = ""},
    {"lr", FLAG_FLOAT, offsetof(struct Options, lr), "6e-4", "", .argument = "0<X<=1e300",
     .help = ""},
    {"dtype", FLAG_CHOICE, offsetof(struct Options, dtype), "fp32", "",
     .words = FLAG_WORDS("fp32", "bf16", "fp16"), .help = ""},
    {"overlap", FLAG_BOOL, offsetof(struct Options, overlap), "true", "", .help = ""},
    {"out", FLAG_STRING, offsetof(struct Options, out), NULL, "", .argument = "DIR", .help = ""},
    {"config", FLAG_STRING, offsetof(struct Options, config), NULL, "", .argument = "FILE",
     .help = "", .identity = FLAG_NOW},
};
enum { NFLAG = sizeof table / sizeof *table };
static const struct FlagPart part = {table, NFLAG, 0};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

// Bytes alone would hardly ever spell a key, so half of the inputs are objects put together from
// words, most of them sound; half of these, and all others, are then damaged as the fuzzer likes.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    static const char *const keys[] = {"batch",   "shift", "lr",     "dtype",
                                       "overlap", "out",   "config", "given"};
    static const char *const values[] = {"1",
                                         "-3",
                                         "\"64Ki\"",
                                         "0.5",
                                         "6e-4",
                                         "1e308",
                                         "9007199254740993",
                                         "\"18446744073709551615\"",
                                         "\"1.5M\"",
                                         "true",
                                         "false",
                                         "null",
                                         "\"bf16\"",
                                         "\"a\\u00e4\\n\"",
                                         "[\"lr\", \"out\"]",
                                         "{}"};
    if (seed % 2 == 0 || room < 8)
        return LLVMFuzzerMutate(data, size, room);
    char text[512] = "{";
    size_t n = 1;
    unsigned draw = seed / 4;
    for (unsigned i = 0; i <= seed / 4 % 4; i++) {
        draw = draw * 1664525u + 1013904223u;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%s\": %s", i ? ", " : "",
                              keys[draw >> 28 & 7], values[draw >> 20 & 15]);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "}");
    size = size_min(n, room);
    memcpy(data, text, size);
    return seed % 4 == 1 ? size : LLVMFuzzerMutate(data, size, room);
}

// Loaded value -> text -> value of fresh options -> text: both texts are equal.
static void check_round_trip(const struct Flags *f) {
    for (size_t i = 0; i < NFLAG; i++) {
        struct Options p;
        struct Flags g;
        struct Error e;
        flags_init(&g, &part, 1, &p);
        char *text = flags_value(f, table[i].name);
        union FlagValue v = {0};
        int code = flag_value_parse(&table[i], table[i].name, text, &v, &e);
        CHECK(!code, "%s", e.text);
        flags_store(&g, i, &v, FLAG_FROM_LINE);
        char *again = flags_value(&g, table[i].name);
        CHECK(!strcmp(text, again), "--%s: %s, then %s", table[i].name, text, again);
        free(text);
        free(again);
        flags_free(&g);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct Options o;
    struct Flags f;
    struct Error e = {0};
    flags_init(&f, &part, 1, &o);
    int code = flags_load_json_text(&f, "fuzz.json", (const char *)data, size, &e);
    CHECK((code == 0) == (e.text[0] == 0), "code %d, text '%s'", code, e.text);
    CHECK(code || (o.batch >= 1 && o.lr > 0 && o.lr <= 1e300 && o.dtype >= 0 && o.dtype <= 2),
          "a value out of range was accepted");
    if (!code)
        check_round_trip(&f);
    flags_free(&f);
    return 0;
}
