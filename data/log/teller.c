// Report and progress of a run as one: see teller.h.
#include "data/log/teller.h"

void teller_step(void *teller, struct LogStep *s, double seconds) {
    struct Teller *t = teller;
    s->tokens_per_s = t->tokens / seconds;
    s->step_ms = seconds * 1e3;
    double flops = s->tokens_per_s * t->flops;
    s->light = flops / t->light;
    s->mfu = t->peak > 0 ? flops / t->peak : 0;
    struct ProgressStep p = {s->step,         s->loss,  s->grad_norm, s->lr,
                             s->tokens_per_s, s->light, s->mfu};
    progress_show(&t->progress, &p);
    report_step(&t->report, s);
}

void teller_note(void *teller, const struct LogNote *note) {
    report_note(&((struct Teller *)teller)->report, note);
}

void teller_validation(void *teller, uint64_t step, float loss, float bits_per_byte,
                       uint64_t samples, uint64_t all) {
    struct Teller *t = teller;
    report_val(&t->report, step, loss, bits_per_byte);
    progress_validation(&t->progress, step, loss, bits_per_byte, samples, all);
}

void teller_evaluation(struct Teller *t, uint64_t step, const struct EvalTask *task,
                       const double *logprob) {
    struct EvalResult result = evals_result(task, logprob);
    report_eval(&t->report, step, &result);
    progress_evaluation(&t->progress, step, &result);
}

int teller_sync(void *teller, struct Error *e) {
    return report_sync(&((struct Teller *)teller)->report, e);
}

void teller_line(void *teller, const char *line) {
    progress_message(&((struct Teller *)teller)->progress, "%s", line);
}
