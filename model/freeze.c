// Reads --freeze: see freeze.h.
#include "model/freeze.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int refuse(const char *text, const char *word, size_t n, size_t layers, struct Error *e) {
    return error_set(
        e, -EINVAL, E_FREEZE,
        "--freeze %.200s: '%.*s' is not a part of the model; expected embeddings, head "
        "or layers:FIRST-LAST of 0 .. %zu, with commas between",
        text, (int)size_min(n, 60), word, layers - 1);
}

// Adds the layers of "layers:FIRST-LAST" or "layers:N"; false: it is no such word.
static bool add_layers(struct Freeze *f, const char *word, size_t n, size_t layers) {
    static const char prefix[] = "layers:";
    char numbers[48];
    size_t skip = strlen(prefix), first, last;
    int end = 0;
    if (n <= skip || strncmp(word, prefix, skip) != 0 || n - skip >= sizeof numbers)
        return false;
    snprintf(numbers, sizeof numbers, "%.*s", (int)(n - skip), word + skip);
    if (strspn(numbers, "0123456789-") != n - skip)
        return false;
    if (sscanf(numbers, "%zu-%zu%n", &first, &last, &end) != 2 &&
        sscanf(numbers, "%zu%n", &first, &end) == 1)
        last = first;
    if (!end || numbers[end] || first > last || last >= layers)
        return false;
    for (size_t i = first; i <= last; i++)
        f->layers[i / 64] |= UINT64_C(1) << i % 64;
    return true;
}

static bool trains_something(const struct Freeze *f, size_t layers, bool untied) {
    bool trains = !f->embeddings || (untied && !f->head);
    for (size_t i = 0; i < layers; i++)
        trains = trains || !freeze_has_layer(f, i);
    return trains;
}

int freeze_read(struct Freeze *out, const char *text, size_t layers, bool untied, struct Error *e) {
    struct Freeze f = {0};
    if (layers < 1 || layers > MAX_LAYERS)
        return 0; // model_config_finish refuses them
    const char *word = strcmp(text, "none") == 0 ? NULL : text;
    for (size_t n; word; word = word[n] ? word + n + 1 : NULL) {
        n = strcspn(word, ",");
        if (n == strlen("embeddings") && strncmp(word, "embeddings", n) == 0)
            f.embeddings = true;
        else if (n == strlen("head") && strncmp(word, "head", n) == 0)
            f.head = true;
        else if (!add_layers(&f, word, n, layers))
            return refuse(text, word, n, layers, e);
    }
    if (f.head && !untied)
        return error_set(e, -EINVAL, E_FREEZE,
                         "--freeze %.200s: this model's head is the token embedding; expected "
                         "embeddings, which freezes both, or --tie off",
                         text);
    if (!trains_something(&f, layers, untied))
        return error_set(e, -EINVAL, E_FREEZE,
                         "--freeze %.200s leaves nothing to train; name fewer parts, or "
                         "only evaluate, by --eval-only",
                         text);
    *out = f;
    return 0;
}
