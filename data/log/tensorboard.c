// Writes TensorBoard's event file: see tensorboard.h for the format.
//
// Numbers are written byte by byte, low byte first, so the code does not depend on the machine's
// byte order.
#include "data/log/tensorboard.h"
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---- CRC-32C ----

// Bit by bit, with the polynomial 0x1EDC6F41 reversed. A table would be faster, but a record has
// some hundred bytes, and there is one per step.
uint32_t crc32c(const void *bytes, size_t n) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= ((const uint8_t *)bytes)[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

uint32_t crc32c_masked(const void *bytes, size_t n) {
    uint32_t crc = crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// ---- protocol buffers: the bytes of a message's fields ----

enum { MESSAGE_BYTES = 1024 };

struct ProtoMessage {
    uint8_t bytes[MESSAGE_BYTES];
    size_t n;
};

static void write_bytes(struct ProtoMessage *m, const void *bytes, size_t n) {
    CHECK(m->n + n <= MESSAGE_BYTES, "a record of %zu bytes", m->n + n);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

// Writes the low n bytes of a value, the lowest first.
static void write_fixed(struct ProtoMessage *m, uint64_t value, size_t n) {
    uint8_t bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    write_bytes(m, bytes, n);
}

// Writes seven bits a byte, the low ones first; the top bit means that more follow.
static void write_varint(struct ProtoMessage *m, uint64_t value) {
    for (; value > 127; value >>= 7)
        write_fixed(m, (value & 127) | 128, 1);
    write_fixed(m, value, 1);
}

enum WireType { WIRE_VARINT = 0, WIRE_64_BIT = 1, WIRE_BYTES = 2, WIRE_32_BIT = 5 };

static void write_key(struct ProtoMessage *m, unsigned field, enum WireType type) {
    write_varint(m, field << 3 | type);
}

static void write_integer(struct ProtoMessage *m, unsigned field, uint64_t value) {
    write_key(m, field, WIRE_VARINT);
    write_varint(m, value);
}

static void write_double(struct ProtoMessage *m, unsigned field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    write_key(m, field, WIRE_64_BIT);
    write_fixed(m, bits, 8);
}

static void write_float(struct ProtoMessage *m, unsigned field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    write_key(m, field, WIRE_32_BIT);
    write_fixed(m, bits, 4);
}

// Writes a string, or a message inside a message.
static void write_block(struct ProtoMessage *m, unsigned field, const void *bytes, size_t n) {
    write_key(m, field, WIRE_BYTES);
    write_varint(m, n);
    write_bytes(m, bytes, n);
}

// ---- events ----

// Field numbers of TensorFlow's messages.
enum EventField {
    EVENT_WALL_TIME = 1,
    EVENT_STEP,
    EVENT_VERSION,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7
};
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_FLOAT = 2, SESSION_STATUS = 1, SESSION_START = 1 };

static void event_begin(struct ProtoMessage *m, const struct EventFile *f, uint64_t step) {
    m->n = 0;
    write_double(m, EVENT_WALL_TIME, f->clock());
    write_integer(m, EVENT_STEP, step);
}

static void summary_add(struct ProtoMessage *summary, const char *tag, float value) {
    struct ProtoMessage scalar = {.n = 0};
    write_block(&scalar, VALUE_TAG, tag, strlen(tag));
    write_float(&scalar, VALUE_FLOAT, value);
    write_block(summary, SUMMARY_VALUE, scalar.bytes, scalar.n);
}

// Frames the event and writes it at once, or as soon as it can be.
static void record_write(struct EventFile *f, const struct ProtoMessage *event) {
    struct ProtoMessage header = {.n = 0}, record = {.n = 0};
    write_fixed(&header, event->n, 8);
    write_bytes(&record, header.bytes, header.n);
    write_fixed(&record, crc32c_masked(header.bytes, header.n), 4);
    write_bytes(&record, event->bytes, event->n);
    write_fixed(&record, crc32c_masked(event->bytes, event->n), 4);
    appender_put(&f->file, record.bytes, record.n);
}

static void summary_write(struct EventFile *f, uint64_t step, const struct ProtoMessage *summary) {
    struct ProtoMessage event;
    if (!f->file.path)
        return;
    event_begin(&event, f, step);
    write_block(&event, EVENT_SUMMARY, summary->bytes, summary->n);
    record_write(f, &event);
}

// ---- the interface ----

static double clock_since_1970(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Makes a new file whose name sorts after the earlier ones, also within one second.
static int create_file(struct EventFile *f, const char *folder, struct Error *e) {
    char host[256] = "localhost";
    if (gethostname(host, sizeof host - 1))
        strcpy(host, "localhost");
    char *name =
        base_format("%s/events.out.tfevents.%010" PRId64 ".%s", folder, (int64_t)f->clock(), host);
    for (int again = 0;; again++) {
        f->file.path = again ? base_format("%s.%03d", name, again) : base_format("%s", name);
        f->file.fd = open(f->file.path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (f->file.fd >= 0 || errno != EEXIST)
            break;
        free(f->file.path);
    }
    int code =
        f->file.fd < 0 ? error_io(e, -errno, E_FILE_WRITE, "cannot write %s", f->file.path) : 0;
    free(name);
    if (code) {
        free(f->file.path);
        f->file.path = NULL;
    }
    return code;
}

// Writes the version record, and on resume the mark from which step on older records are void.
static void write_opening(struct EventFile *f, int64_t last_step) {
    static const char version[] = "brain.Event:2";
    struct ProtoMessage event, session = {.n = 0};
    event_begin(&event, f, 0);
    write_block(&event, EVENT_VERSION, version, sizeof version - 1);
    record_write(f, &event);
    if (last_step == RUNLOG_FRESH)
        return;
    write_integer(&session, SESSION_STATUS, SESSION_START);
    event_begin(&event, f, (uint64_t)last_step + 1);
    write_block(&event, EVENT_SESSION, session.bytes, session.n);
    record_write(f, &event);
}

int event_file_open(struct EventFile *f, const char *folder, int64_t last_step, struct Error *e) {
    *f = (struct EventFile){.file.fd = -1, .clock = clock_since_1970};
    int code = create_file(f, folder, e);
    if (code)
        return code;
    write_opening(f, last_step);
    code = appender_sync(&f->file, e);
    if (code) {
        struct Error ignored; // the first failure is the one to report
        unlink(f->file.path);
        appender_close(&f->file, &ignored);
    }
    return code;
}

void event_file_write_step(struct EventFile *f, const struct LogStep *s) {
    struct ProtoMessage summary = {.n = 0};
    summary_add(&summary, "train/loss", s->loss);
    summary_add(&summary, "train/grad_norm", s->grad_norm);
    summary_add(&summary, "train/lr", s->lr);
    summary_add(&summary, "train/tokens_per_s", (float)s->tokens_per_s);
    if (s->loss_scale > 0)
        summary_add(&summary, "train/loss_scale", s->loss_scale);
    if (s->tokens_seen)
        summary_add(&summary, "train/tokens_seen", (float)s->tokens_seen);
    if (s->light > 0)
        summary_add(&summary, "train/light", (float)s->light);
    if (s->mfu > 0)
        summary_add(&summary, "train/mfu", (float)s->mfu);
    summary_write(f, s->step, &summary);
}

void event_file_write_note(struct EventFile *f, const struct LogNote *note) {
    struct ProtoMessage summary = {.n = 0};
    for (int i = 0; !note->word && i < note->n; i++) {
        char *tag = base_format("%s/%s", note->what, note->value[i].name);
        summary_add(&summary, tag, (float)note->value[i].value);
        free(tag);
    }
    if (summary.n)
        summary_write(f, note->step, &summary);
}

void event_file_write_val(struct EventFile *f, uint64_t step, float val_loss, float bits_per_byte) {
    struct ProtoMessage summary = {.n = 0};
    summary_add(&summary, "val/loss", val_loss);
    summary_add(&summary, "val/perplexity", expf(val_loss));
    if (bits_per_byte != 0)
        summary_add(&summary, "val/bits_per_byte", bits_per_byte);
    summary_write(f, step, &summary);
}

void event_file_write_eval(struct EventFile *f, uint64_t step, const struct EvalResult *result) {
    struct ProtoMessage summary = {.n = 0};
    for (int m = 0; m < NEVALMEASURE; m++)
        if (result->accuracy[m] >= 0) {
            char tag[96];
            int n = snprintf(tag, sizeof tag, "eval/%.64s/%s", evals_short_name(result->name),
                             eval_measure_names[m]);
            for (int i = 0; i < n; i++) // a tag must be UTF-8, but a cut name may not be
                tag[i] = tag[i] >= ' ' && tag[i] <= '~' ? tag[i] : '_';
            summary_add(&summary, tag, (float)result->accuracy[m]);
        }
    summary_write(f, step, &summary);
}
