// The state of resolving a configuration, for the files of this folder: see resolve.c.
#ifndef DATA_DEEPSPEED_PLAN_H
#define DATA_DEEPSPEED_PLAN_H
#include "data/deepspeed/rows.h"

// The key of --tp, on which batches depend, too.
static const char PLAN_AUTOTP[] = "tensor_parallel.autotp_size";

struct DsPlan {
    const cJSON *root;
    const struct Flags *flags;
    size_t ranks; // of the whole job
    struct DsTables tables;
    struct DeepSpeed *out;
    char *problems; // all problems so far, separated by "; "; "": none
};

void plan_refuse(struct DsPlan *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Returns the value of a key that has a row; NULL: it is absent, null, "auto", or of a refused
// type. plan_any_value returns any value, also "auto".
const cJSON *plan_value(const struct DsPlan *p, const char *key);
const cJSON *plan_any_value(const struct DsPlan *p, const char *key);

// Sets a flag by a key, which may set two. For an absent key the value is DeepSpeed's default, over
// which the command line takes precedence. The plan frees the value.
void plan_set(struct DsPlan *p, const char *key, const char *flag, char *flag_value);

// Set a flag to the key's value, or to its whole number, which may be written 5e8.
void plan_copy_value(struct DsPlan *p, const char *key, const char *flag);
void plan_copy_count(struct DsPlan *p, const char *key, const char *flag);

// Adds a remark to the key's line of the table; an absent key has no line, and gets none.
void plan_note(struct DsPlan *p, const char *key, const char *why);

// True if the flag is on the line or in --config's file. A resumed run's configuration is neither.
bool ds_user_gave(const struct Flags *f, const char *flag);

// Resolves the text of n bytes, as deepspeed_read_flags does; sets no flag.
int ds_resolve(const char *text, size_t n, const char *path, const struct Flags *flags,
               size_t ranks, struct DeepSpeed *out, struct Error *e);

// ---- the groups of keys that are resolved together (groups.c, groups_train.c, sparse.c) ----

void plan_batches(struct DsPlan *p);
void plan_precision(struct DsPlan *p);
void plan_optimizer(struct DsPlan *p);
void plan_scheduler(struct DsPlan *p);
void plan_offload(struct DsPlan *p);
void plan_sparse(struct DsPlan *p);
void plan_rest(struct DsPlan *p);

#endif
