// Passes steps to the report and to the progress line: see console.h.
#include "data/log/console.h"

void console_step(void *teller, struct LogStep *s, double seconds) {
    struct Console *t = teller;
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

void console_note(void *teller, const struct LogNote *note) {
    report_note(&((struct Console *)teller)->report, note);
}

void console_validation(void *teller, uint64_t step, float loss, float bits_per_byte,
                        uint64_t samples, uint64_t all) {
    struct Console *t = teller;
    report_val(&t->report, step, loss, bits_per_byte);
    progress_validation(&t->progress, step, loss, bits_per_byte, samples, all);
}

void console_evaluation(struct Console *t, uint64_t step, const struct EvalTask *task,
                        const double *logprob) {
    struct EvalResult result = evals_result(task, logprob);
    report_eval(&t->report, step, &result);
    progress_evaluation(&t->progress, step, &result);
}

int console_sync(void *teller, struct Error *e) {
    return report_sync(&((struct Console *)teller)->report, e);
}

void console_line(void *teller, const char *line) {
    progress_message(&((struct Console *)teller)->progress, "%s", line);
}
