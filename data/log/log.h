// The run's log: OUT/log.jsonl, one JSON object per line.
//
//     {"step":20,"loss":3.1415927,"grad_norm":0.91,"lr":0.0006,"tokens_per_s":10512.300,...}
//     {"step":20,...,"step_ms":97.411,"loss_scale":65536}   with fp16
//     {"step":20,...,"light":0.710,"mfu":0.402,"tokens_seen":163840}    see LogStep
//     {"step":20,"val_loss":3.25,"perplexity":25.79034,"bits_per_byte":1.8755}
//                                                           bits_per_byte for text alone
//     {"step":20,"eval":"hellaswag:FILE","items":100,"acc":0.28,"acc_norm":0.31,"llmc_acc":0.29}
//     {"step":20,"breakdown":{"compute":0.930,...}}         by --breakdown, and so "waited_s"
//     {"step":20,"weights_hash":"0123456789abcdef"}         by --hash-every
//     {"step":20,"sent_bytes":{"all_gather":4096,...}}      between ranks, at the end of a run
//
// Each line is written by one call as soon as it is known, so a killed run has logged all it did;
// lines wait while the disk is full (appender.h). Losses, norms and rates have as few digits as
// read back to the same float; a number that is not finite becomes null, as JSON has no infinity or
// NaN. scripts/bench/plot.sh draws the file.
//
// Called by console.c. The TensorBoard file beside it is data/log/tensorboard.h.
#ifndef DATA_LOG_LOG_H
#define DATA_LOG_LOG_H
#include "data/log/appender.h"
#include "data/eval/evals.h"
#include "kernels/log_step.h"

enum { RUNLOG_FRESH = -1 };

// Opens FOLDER/log.jsonl. A fresh run (last_step RUNLOG_FRESH) begins an empty file. A run resumed
// after `last_step` keeps the lines up to that step and drops the later ones: those steps will be
// made, and logged, again. Unreadable lines (one torn by a crash) are dropped, too, and counted on
// standard error. Either way a new file replaces the old one; other links to the old file keep its
// contents. Errors, which leave the old file as it was: -errno, -ELOOP for a link, -EINVAL for
// anything else that is no file. After success call appender_close.
int runlog_open(struct Appender *l, const char *folder, int64_t last_step, struct Error *e);

void runlog_write_step(struct Appender *l, const struct LogStep *s);
// bits_per_byte 0: not known, and not written.
void runlog_write_val(struct Appender *l, uint64_t step, float val_loss, float bits_per_byte);

// Writes the accuracies that are known.
void runlog_write_eval(struct Appender *l, uint64_t step, const struct EvalResult *result);
void runlog_write_note(struct Appender *l, const struct LogNote *note);

// Writes a line whose key `what` is an object of counts.
void runlog_write_counts(struct Appender *l, uint64_t step, const char *what,
                         const char *const names[], const uint64_t counts[], int n);

#endif
