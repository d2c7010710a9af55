// What the files of this room share while a configuration is resolved: see resolve.c.
#ifndef DATA_DEEPSPEED_PLAN_H
#define DATA_DEEPSPEED_PLAN_H
#include "data/deepspeed/rows.h"

// The key of --tp, by which batches are counted, too.
static const char PLAN_AUTOTP[] = "tensor_parallel.autotp_size";

struct DsPlan {
    const cJSON *root;
    const struct DsFlags *flags;
    struct DsTables tables;
    struct DeepSpeed *out;
    char *problems; // all that is wrong so far, "; " between two; "": nothing
};

// Adds to what is wrong.
void plan_refuse(struct DsPlan *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The value of a key that has a row; NULL: it is absent, null, "auto", or of a type that is refused
// already. ds_is_auto(plan_any()) tells the third.
const cJSON *plan_value(const struct DsPlan *p, const char *key);
const cJSON *plan_any(const struct DsPlan *p, const char *key);

// Whether the key has a bool that is true.
bool plan_is_true(const struct DsPlan *p, const char *key);

// The flag's value follows from the key, which need not be in the file: then it is a default of
// DeepSpeed's, and the line goes before it. `to` is taken over.
void plan_set(struct DsPlan *p, const char *key, const char *flag, char *to);

// The same by the key's value, or by its whole number, which may be written 5e8.
void plan_copy(struct DsPlan *p, const char *key, const char *flag);
void plan_count(struct DsPlan *p, const char *key, const char *flag);

// The present value of a flag, as a number.
double plan_flag_number(const struct DsPlan *p, const char *flag);
bool plan_given(const struct DsPlan *p, const char *flag);

// What the table says of the key besides; one that is absent has no line, and nothing is said.
void plan_note(struct DsPlan *p, const char *key, const char *why);

// ---- the groups of keys that are resolved together (groups.c, groups_train.c, sparse.c) ----

void plan_batches(struct DsPlan *p);
void plan_precision(struct DsPlan *p);
void plan_optimizer(struct DsPlan *p);
void plan_scheduler(struct DsPlan *p);
void plan_offload(struct DsPlan *p);
void plan_sparse(struct DsPlan *p);
void plan_rest(struct DsPlan *p);

#endif
