// A TensorBoard event file, written without TensorFlow.
//
// The file FOLDER/events.out.tfevents.TIME.HOST is a sequence of records. Each is a protocol buffer
// in the frame of TensorFlow's TFRecord format (all numbers little-endian):
//
//     uint64 length | uint32 masked CRC-32C of length | payload | uint32 masked CRC-32C of payload
//
// The payload is an Event: wall time, step, and either the file's version (the first record), a set
// of named scalars, or the mark that a run was resumed. The few fields that are needed are encoded
// by hand (source: event.proto and summary.proto of TensorFlow; the wire format is documented at
// protobuf.dev).
//
// Called by console.c. `tensorboard --logdir OUT` reads it.
#ifndef DATA_LOG_TENSORBOARD_H
#define DATA_LOG_TENSORBOARD_H
#include "data/log/log.h"

struct EventFile {
    struct Appender file;
    double (*clock)(void); // seconds since 1970; event_file_open sets the real one
};

// Begins a new file in `folder`; the files of earlier runs stay. last_step as in runlog_open: a
// resumed run makes TensorBoard discard later steps of earlier files. Errors: -errno. After success
// call appender_close of `file`.
int event_file_open(struct EventFile *f, const char *folder, int64_t last_step, struct Error *e);

// Writes train/loss, train/grad_norm, train/lr and train/tokens_per_s at the step, and if they are
// known train/tokens_seen, train/light, train/mfu and train/loss_scale. Does nothing for a zeroed
// struct, which has no file.
void event_file_write_step(struct EventFile *f, const struct LogStep *s);
// Writes WHAT/NAME for each value of a note; nothing for a note that is a word.
void event_file_write_note(struct EventFile *f, const struct LogNote *note);
// Writes val/loss and val/perplexity at the step, and val/bits_per_byte unless it is 0 (not known).
void event_file_write_val(struct EventFile *f, uint64_t step, float val_loss, float bits_per_byte);

// Writes eval/FILE/acc and its like, if they are known; FILE without its folders.
void event_file_write_eval(struct EventFile *f, uint64_t step, const struct EvalResult *result);

// Return CRC-32C (Castagnoli) of n bytes as in RFC 3720, and as TFRecord stores it: rotated and
// shifted, because a checksum over data that contains checksums is weak.
uint32_t crc32c(const void *bytes, size_t n);
uint32_t crc32c_masked(const void *bytes, size_t n);

#endif
