// What ranks tell each other, and the host, at the end of a step: see reports.c.
#ifndef ZERO_REPORT_H
#define ZERO_REPORT_H
#include "zero/engine.h"

// What each rank tells the others at the end of a step, or of a batch of validation: a row of a
// table in device memory that is all_gathered. Norm and loss are summed from it in rank order.
struct RankReport {
    double loss_sum;  // over this rank's tokens
    uint64_t word;    // a word from this rank's host, such as its wishes
    double squares[]; // (groups of the model): squared norm of this rank's shard of each gradient
};

// This rank's row of the reports, on the device.
static inline struct RankReport *zero_report(const struct Zero *z) {
    return (struct RankReport *)(z->reports + (size_t)z->all->rank * z->report_bytes);
}

// Where it tells the squares of group g's gradient: rows have a number for each of the model's.
static inline double *zero_squares(const struct Zero *z, int g) {
    return &zero_report(z)->squares[z->params->group[g].number];
}

void reports_send_word(struct Zero *z, uint64_t word); // to this rank's row
void reports_gather(struct Zero *z);                   // queued behind the word
void reports_receive(struct Zero *z);                  // queues the copy to the host
void reports_clip(struct Zero *z); // waits for them; the norm, and the clip factor
void reports_wait(struct Zero *z); // gathers, receives, and waits for it
// At a step's end (results.c): its settings to the device, the norm, and all of it to the host.
void results_queue(struct Zero *z, uint64_t word);
// Of what was received; the loss in the order of ranks, so that every rank has the same sum.
struct StepResult reports_sum(const struct Zero *z, const struct HostCopy *copy);

#endif
