// How many floating-point operations a unit's passes take: those that its kernels count
// (kernels/cost.h), by formulas. A run's rate is told as a share of it, plans make times of it, and
// the stages of a pipeline are cut by it.
#ifndef MODEL_WORK_H
#define MODEL_WORK_H
#include "model/config.h"
#include "model/params.h"

// For one token; the backward pass with what --recompute restores.
struct UnitWork {
    double forward, backward;
};

// Of a whole model, or of the part that a place has, with its padded vocabulary.
struct UnitWork model_unit_work(const struct ModelConfig *c, enum UnitKind kind,
                                enum Recompute level);

// One product of a token's query with the keys that it sees, of all heads, is as much; T of causal
// attention. Of packed documents it is the most that it can be, since their lengths are the data's.
double model_attention_work(const struct ModelConfig *c);

#endif
