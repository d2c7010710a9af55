// Opens PEFT's folder of an adapter: see adapter.h.
#include "data/peft/adapter.h"

#include "data/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct Tensor **tensor_slot(const struct PeftAdapter *a, const struct PeftName *name) {
    return &a->tensor[(name->layer * NLORA + name->target) * 2 + name->matrix];
}

static int open_tensors(struct PeftAdapter *a, const char *dir, struct Error *e) {
    char *path = base_format("%s/" PEFT_STEM ".safetensors", dir);
    char *pickled = base_format("%s/" PEFT_STEM ".bin", dir);
    int err = 0;
    if (access(path, F_OK) && !access(pickled, F_OK))
        err = error_set(e, -ENOENT, E_HF_WEIGHTS_MISSING,
                        "%s is not read, as it may hold programs; load the adapter by PEFT's "
                        "from_pretrained() and save it again by save_pretrained()",
                        pickled);
    else
        err = safetensors_open(path, &a->file, e);
    free(path);
    free(pickled);
    return err;
}

static int check_tensor(const struct PeftAdapter *a, const struct PeftName *name,
                        const struct Tensor *t, struct Error *e) {
    struct Tensor right = {.ndim = 2};
    peft_shape(name, a->base.gpt2, &a->base.sizes, a->config.rank, right.shape);
    if (t->ndim != 2 || t->shape[0] != right.shape[0] || t->shape[1] != right.shape[1])
        return error_set(e, -EINVAL, E_HF_TENSOR_SHAPE,
                         "%s: tensor %s is %s, but r %zu and the base ask for %s; give "
                         "--init hf:DIR with the base that it was trained on",
                         a->file.path, json_shown(t->name).text, tensor_shape(t).text,
                         a->config.rank, tensor_shape(&right).text);
    if (!t->is_float)
        return error_set(e, -EINVAL, E_HF_TENSOR_DTYPE,
                         "%s: tensor %s is %s; save the adapter as F32, BF16 or F16", a->file.path,
                         json_shown(t->name).text, t->spelled);
    return 0;
}

static int add_tensor(struct PeftAdapter *a, const struct Tensor *t, struct Error *e) {
    struct PeftName name;
    bool known = peft_name_read(&name, t->name, a->base.gpt2);
    if (!known || name.layer >= a->base.layers || !(a->config.targets >> name.target & 1))
        return error_set(e, -EINVAL, E_HF_TENSOR_EXTRA,
                         "%s: tensor %s: %s; expected A and B of target_modules alone, in %zu "
                         "layers",
                         a->file.path, json_shown(t->name).text,
                         !known                         ? "it is no matrix of an adapter in a block"
                         : name.layer >= a->base.layers ? "the base has no such layer"
                                                        : "it is not among target_modules",
                         a->base.layers);
    const struct Tensor **slot = tensor_slot(a, &name);
    if (*slot)
        return error_set(e, -EINVAL, E_HF_TENSOR_TWICE,
                         "%s: tensors %s and %s are the same matrix; save the adapter again, one "
                         "adapter alone",
                         a->file.path, json_shown((*slot)->name).text, json_shown(t->name).text);
    *slot = t;
    return check_tensor(a, &name, t, e);
}

static int refuse_missing_tensor(const struct PeftAdapter *a, struct Error *e) {
    for (size_t i = 0; i < a->base.layers * NLORA * 2; i++) {
        struct PeftName name = {i / 2 / NLORA, (enum LoraTarget)(i / 2 % NLORA),
                                (enum LoraMatrix)(i % 2)};
        if (!(a->config.targets >> name.target & 1) || a->tensor[i])
            continue;
        char *text = peft_name(&name, a->base.gpt2);
        int err =
            error_set(e, -EINVAL, E_HF_TENSOR_MISSING,
                      "%s: tensor %s is missing, although target_modules and the base's %zu "
                      "layers ask for it; give --init hf:DIR with the base that it was trained on",
                      a->file.path, text, a->base.layers);
        free(text);
        return err;
    }
    return 0;
}

int peft_adapter_open(struct PeftAdapter *a, const char *dir, const struct PeftBase *base,
                      struct Error *e) {
    *a = (struct PeftAdapter){.base = *base};
    int err = peft_config_read(&a->config, dir, base->gpt2, e);
    if (!err)
        err = open_tensors(a, dir, e);
    if (err)
        return err;
    // + 1: not NULL for 0 layers, as peft_adapter_close takes NULL for not open.
    a->tensor = base_alloc_zeroed((base->layers * NLORA * 2 + 1) * sizeof *a->tensor);
    for (size_t i = 0; i < a->file.ntensor && !err; i++)
        err = add_tensor(a, &a->file.tensor[i], e);
    return err ? err : refuse_missing_tensor(a, e);
}

void peft_adapter_close(struct PeftAdapter *a) {
    if (!a->tensor)
        return;
    safetensors_close(&a->file);
    free(a->tensor);
    *a = (struct PeftAdapter){0};
}

int peft_adapter_read(const struct PeftAdapter *a, const struct PeftName *name, uint64_t first,
                      size_t n, float *out, struct Error *e) {
    const struct Tensor *t = *tensor_slot(a, name);
    CHECK(t, "layer %zu has no adapter at %d", name->layer, (int)name->target);
    return safetensors_read_finite(&a->file, t, first, n, out, e);
}
