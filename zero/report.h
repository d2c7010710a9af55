// Reports: what ranks send each other, and the host, at the end of a step: see reports.c.
#ifndef ZERO_REPORT_H
#define ZERO_REPORT_H
#include "zero/engine.h"

// One rank's report at the end of a step, or of a batch of validation: a row of a table in device
// memory, which is all-gathered. Norm and loss are summed from it in rank order.
struct RankReport {
    double loss_sum;  // over this rank's tokens
    uint64_t word;    // bits from this rank's host, such as requests to stop
    double squares[]; // (groups of the model): squared norm of this rank's shard of each gradient
};

// This rank's row of the reports, on the device.
static inline struct RankReport *zero_report(const struct Zero *z) {
    return (struct RankReport *)(z->reports->rows + (size_t)z->all->rank * z->reports->row_bytes);
}

// Returns where this rank's row has the squares of group g's gradient.
static inline double *zero_squares(const struct Zero *z, int g) {
    return &zero_report(z)->squares[z->params->group[g].number];
}

// Allocates z->reports and z->control. Errors: -ENOMEM where the tier is too small; close in any
// case.
int reports_open(struct Zero *z, struct Tier *tier, struct Error *e);
void reports_close(struct Zero *z);
void reports_send_word(struct Zero *z, uint64_t word); // to this rank's row
void reports_gather(struct Zero *z);                   // queued behind the word
void reports_receive(struct Zero *z);                  // queues the copy to the host
void reports_clip(struct Zero *z); // waits for them; computes the norm and the clip factor
void reports_wait(struct Zero *z); // gathers, receives, and waits
// Queues a step's end (results.c): settings to the device, the norm, and all results to the host.
void results_queue(struct Zero *z, uint64_t word);
// Sums the received reports; the loss in rank order, so that every rank has the same sum.
struct StepResult reports_sum(const struct Zero *z, const struct HostCopy *copy);

#endif
