// Keys of sparse attention, which together set one flag: see plan.h.
//
// The flag uses DeepSpeed's own words (MODE:KEY=VALUE,...), and its parser refuses a key that a
// mode does not have. Sources: DeepSpeed 0.16.9, runtime/config.py (get_sparse_attention);
// ops/sparse_attention/sparsity_config.py.
#include "data/deepspeed/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPARSE "sparse_attention."

static const char *const keys[] = {"block",
                                   "different_layout_per_head",
                                   "num_local_blocks",
                                   "num_global_blocks",
                                   "num_different_global_patterns",
                                   "num_random_blocks",
                                   "num_sliding_window_blocks",
                                   "local_window_blocks",
                                   "global_block_indices",
                                   "global_block_end_indices"};

// Returns a value as the flag writes it: the numbers of a list are joined by +.
static char *format_value(const cJSON *value) {
    if (!cJSON_IsArray(value))
        return ds_format_flag(value);
    char *text = base_format("%s", "");
    const cJSON *n;
    cJSON_ArrayForEach(n, value) {
        char *number = ds_format_flag(n);
        base_append(&text, "%s%s", *text ? "+" : "", number);
        free(number);
    }
    return text;
}

static bool has_whole_numbers(const cJSON *list) {
    bool all = list->child != NULL;
    const cJSON *n;
    cJSON_ArrayForEach(n, list) {
        double x = n->valuedouble;
        all = all && cJSON_IsNumber(n) && x >= 0 && x <= 0x1p53 && x == floor(x);
    }
    return all;
}

// Checks "attention", whose default is bidirectional; a language model is always unidirectional.
static void check_direction(struct DsPlan *p) {
    const cJSON *way = plan_value(p, SPARSE "attention");
    if (way && strcmp(way->valuestring, "unidirectional") != 0)
        plan_refuse(p,
                    SPARSE "attention %.40s: expected unidirectional: a language "
                           "model sees no token after its own",
                    way->valuestring);
}

void plan_sparse(struct DsPlan *p) {
    const cJSON *block = plan_value(p, "sparse_attention");
    const cJSON *mode = plan_value(p, SPARSE "mode");
    if (!block || ds_is_auto(plan_any_value(p, SPARSE "mode")))
        return;
    char *text = base_format("%s", mode ? mode->valuestring : "fixed");
    const char *separator = ":";
    bool dense = strcmp(text, "dense") == 0; // has a "block" that it does not use
    for (size_t i = 0; !dense && i < sizeof keys / sizeof keys[0]; i++) {
        char *key = base_format(SPARSE "%s", keys[i]);
        const cJSON *value = plan_value(p, key);
        if (value && cJSON_IsArray(value) && !has_whole_numbers(value)) {
            plan_refuse(p, "%s: expected a list of whole numbers", key);
        } else if (value) {
            char *value_text = format_value(value);
            base_append(&text, "%s%s=%s", separator, keys[i], value_text);
            separator = ",";
            free(value_text);
        }
        free(key);
    }
    // The file's default for bigbird's random blocks differs from the class's, which is ours.
    bool bigbird = strcmp(text, "bigbird") == 0 || strncmp(text, "bigbird:", 8) == 0;
    if (bigbird && !plan_any_value(p, SPARSE "num_random_blocks"))
        base_append(&text, "%snum_random_blocks=0", separator);
    plan_set(p, SPARSE "mode", "sparse-attention", text);
    check_direction(p);
}
