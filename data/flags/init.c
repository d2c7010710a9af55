// See init.h.
#include "data/flags/init.h"
#include "data/hf/config.h"
#include "data/hf/model.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char FINE_TUNING_LR[] = "1e-05"; // as flags_value writes it

// Where the line says otherwise than the model's config.json, in JSON as data/hf/config.h has it.
static int contradiction(const struct Flags *f, const char *folder, const char *text,
                         struct Error *e) {
    struct FlagsSaid said = flags_said(f);
    cJSON *flags = cJSON_Parse(text);
    const cJSON *item;
    int err = flag_is_on_line(&said, "model")
                  ? error_set(e, -EINVAL, "--model: --init hf:%s says what the model is", folder)
                  : 0;
    cJSON_ArrayForEach(item, flags) {
        if (err || !flag_is_on_line(&said, item->string))
            continue;
        char *mine = flags_value(f, item->string);
        char *theirs = cJSON_IsString(item) ? base_format("%s", item->valuestring)
                                            : base_format("%.9g", item->valuedouble);
        bool same = cJSON_IsString(item) ? strcmp(mine, theirs) == 0
                                         : strtod(mine, NULL) == item->valuedouble;
        if (!same)
            err = error_set(e, -EINVAL, "--%s %s: %s/config.json has %s", item->string, mine,
                            folder, theirs);
        free(mine);
        free(theirs);
    }
    cJSON_Delete(flags);
    return err;
}

const char *init_folder(const char *value) {
    return value && strncmp(value, "hf:", 3) == 0 && value[3] ? value + 3 : NULL;
}

char *init_model_json(const struct Flags *f, size_t vocab) {
    static const char *const numbers[] = {
        "layers",    "heads",    "kv-heads",   "head-size",        "channels", "ffn",
        "positions", "norm-eps", "rope-theta", "attention-window", "seq-len"};
    static const char *const words[] = {"family", "tie", "rope-scaling"};
    cJSON *flags = cJSON_CreateObject();
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char *value = flags_value(f, numbers[i]);
        cJSON_AddNumberToObject(flags, numbers[i], strtod(value, NULL));
        free(value);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char *value = flags_value(f, words[i]);
        cJSON_AddStringToObject(flags, words[i], value);
        free(value);
    }
    cJSON_AddNumberToObject(flags, "vocab", (double)vocab);
    hf_config_complete(flags);
    char *printed = cJSON_PrintUnformatted(flags), *text = base_format("%s", printed);
    cJSON_free(printed);
    cJSON_Delete(flags);
    return text;
}

// The defaults of a learning rate and its like are those of training from random weights. Who goes
// on from somebody's, and does not say --lr, has a rate that spoils less.
static int read_fine_tuning(struct Flags *f, struct Error *e) {
    struct FlagsSaid said = flags_said(f);
    if (said.source(f, "lr") != FLAG_FROM_DEFAULT)
        return 0;
    char *steps = flags_value(f, "steps");
    char *text = base_format("{\"lr\":%s,\"weight-decay\":0,\"warmup\":%.0f}", FINE_TUNING_LR,
                             floor(0.03 * strtod(steps, NULL)));
    int err = flags_load_json_text(f, "--init without --lr", text, strlen(text), e);
    free(text);
    free(steps);
    return err;
}

void init_tell_defaults(const struct Flags *f) {
    char *lr = flags_value(f, "lr"), *decay = flags_value(f, "weight-decay");
    char *warmup = flags_value(f, "warmup");
    if (!strcmp(lr, FINE_TUNING_LR))
        log_line(LOG_NORMAL, "--init: --lr %s --weight-decay %s --warmup %s", lr, decay, warmup);
    free(lr);
    free(decay);
    free(warmup);
}

int init_read_flags(struct Flags *f, const char *value, struct Error *e) {
    const char *folder = init_folder(value);
    if (!folder)
        return error_set(e, -EINVAL, "--init %s: expected hf:DIR", value);
    char *text = NULL, *path = base_format("%s/config.json", folder);
    int err = hf_model_flags(folder, &text, e);
    if (!err)
        err = contradiction(f, folder, text, e);
    if (!err)
        err = read_fine_tuning(f, e);
    if (!err)
        err = flags_load_json_text(f, path, text, strlen(text), e);
    free(text);
    free(path);
    return err;
}
