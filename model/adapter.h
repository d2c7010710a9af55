// The adapters of a block: which part of which matrix each target is (lora.h). Next: adapter_ops.h.
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H
#include "model/config.h"

static inline bool lora_has(const struct Lora *l, enum LoraTarget t) {
    return l->rank && l->targets >> t & 1;
}

// The matrices of a block that have targets: enum BlockParam begins with them (params.h).
enum AdapterProduct { ADAPTER_QKV, ADAPTER_PROJ, ADAPTER_FC, ADAPTER_OUT, NPRODUCT };

// A target of a model, or of a TP rank's part of one.
struct AdapterTarget {
    const char *a, *b;           // names of its parameters
    enum AdapterProduct product; // the matrix that has its rows
    bool columns;                // TP ranks have columns of that matrix, not rows
    size_t rows[3];              // of its parts, each of which is split on its own
    size_t in, out;              // columns; sum of rows
    size_t first;                // first row in the matrix
};

// Returns a target's place in the matrices of c, a model or a TP rank's part of one. Of a target
// that the family lacks (lora_targets_all) only the names mean something.
struct AdapterTarget adapter_target(const struct ModelConfig *c, enum LoraTarget target);

// The targets of a product are adjacent: fills target[] with those that have an adapter, in order.
// Returns their number.
int adapter_targets(const struct ModelConfig *c, enum AdapterProduct product,
                    enum LoraTarget target[LORA_BESIDE]);

// The sum of the ranks of all targets, and of those whose products come before this one.
size_t adapter_width(const struct ModelConfig *c);
size_t adapter_width_before(const struct ModelConfig *c, enum AdapterProduct product);

// Returns the floating-point operations, for one token, of the products u B' (adapter_ops.h) of all
// targets of a product; both: of their x A', too.
double adapter_work(const struct ModelConfig *c, enum AdapterProduct product, bool both);

#endif
