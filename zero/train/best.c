// The best validation of a run: see best.h. Next: saver.c.
#include "zero/train/best.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

// True if the checkpoint is in any of the folders, on each disk that has checkpoints.
static bool is_saved(const struct Saver *s, uint64_t step) {
    bool found = false;
    for (int i = 0; i < SAVER_FOLDERS && s->folder[i]; i++) {
        char *path = checkpoint_path(s->folder[i], step);
        bool looks = local_disk_is_writer(&s->disk[i], s->zero->all->rank);
        bool here = !looks || access(path, F_OK) == 0;
        found = zero_agree(s->zero, here ? 0 : -1) == 0 || found;
        free(path);
    }
    return found;
}

void judge_open(struct Judge *j, struct Saver *s, const struct Intervals *h, uint64_t samples) {
    struct Best *b = &s->zero->best;
    bool logs = s->zero->all->rank == 0;
    *j = (struct Judge){.saver = s, .keeps = h->keep_best, .patience = h->patience};
    if (!j->keeps && !j->patience)
        return;
    if (b->step && b->samples != samples) {
        if (logs)
            log_line(LOG_NORMAL,
                     "the best validation, of step %llu, used %llu sequences, but this run uses "
                     "%llu, so it is no longer compared; set --val-batches to use as many",
                     (unsigned long long)b->step, (unsigned long long)b->samples,
                     (unsigned long long)samples);
        *b = (struct Best){0};
    }
    if (j->keeps && b->step && !is_saved(s, b->step)) {
        if (logs)
            log_line(
                LOG_NORMAL,
                "the best checkpoint, of step %llu, is gone; the next validation becomes the best",
                (unsigned long long)b->step);
        *b = (struct Best){0};
    }
    j->kept = *b;
    s->keep.best = j->keeps ? b->step : 0;
}

void judge_finish(struct Judge *j) {
    struct Best *b = &j->saver->zero->best;
    if (!j->keeps || b->step == j->saver->zero->step)
        return;
    if (b->step != j->kept.step)
        saver_finish(j->saver);
    if (b->step == j->kept.step)
        return;
    uint32_t worse = b->worse;
    *b = j->kept;
    b->worse = worse;
}

bool judge_loss(struct Judge *j, float loss, uint64_t samples, bool counts) {
    struct Zero *z = j->saver->zero;
    struct Best *b = &z->best;
    judge_finish(j);
    b->samples = samples;
    if (!isfinite(loss) || (b->step && loss >= b->loss)) {
        b->worse += counts;
        return false;
    }
    *b = (struct Best){z->step, samples, loss, 0};
    return j->keeps;
}

void judge_saved(struct Judge *j) {
    const struct Best *b = &j->saver->zero->best;
    if (!j->keeps || b->step != j->saver->saved)
        return;
    j->kept = *b;
    j->saver->keep.best = b->step;
}

char *judge_end_text(const struct Judge *j) {
    const struct Zero *z = j->saver->zero;
    const struct Best *b = &z->best;
    if (!j->patience || b->worse < j->patience)
        return NULL;
    const char *many = b->worse == 1 ? " that is not" : "s that are not";
    if (!b->step)
        return base_format("step %llu is the last: %u validation%s finite (--patience %zu)",
                           (unsigned long long)z->step, b->worse, many, j->patience);
    return base_format("step %llu is the last: %u validation%s better than step %llu's, %.4f "
                       "(--patience %zu)",
                       (unsigned long long)z->step, b->worse, many, (unsigned long long)b->step,
                       (double)b->loss, j->patience);
}

char *judge_best_text(const struct Judge *j) {
    return base_format("the best is step %llu, with a validation loss of %.4f: --resume best takes "
                       "it, for --export, --eval-only or --sample-only",
                       (unsigned long long)j->kept.step, (double)j->kept.loss);
}
