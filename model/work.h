// Floating-point operations of a unit's passes, by formulas: those that its kernels count
// (kernels/cost.h). A run reports its rate as a share of it, plans derive times from it, and
// pipeline stages are balanced by it.
#ifndef MODEL_WORK_H
#define MODEL_WORK_H
#include "model/config.h"
#include "model/params.h"

// Operations for one token; the backward pass includes those that --recompute repeats.
struct UnitWork {
    double forward, backward;
};

// What a unit's backward pass computes: gradients of its input and its parameters, or of its input
// and its adapter's parameters; of its input alone, if it is frozen; nothing, if all units up to it
// are.
enum UnitBackward { BACKWARD_ALL, BACKWARD_ADAPTER, BACKWARD_INPUT, BACKWARD_NONE };
// unit: 0 .. L+1 of the whole model.
enum UnitBackward model_unit_backward(const struct ModelConfig *whole, int unit);

// For a whole model, or for the part of a TP rank, with its padded vocabulary.
struct UnitWork model_unit_work(const struct ModelConfig *c, enum UnitKind kind,
                                enum Recompute level, enum UnitBackward backward);

// Operations of one product of a token's queries with the keys they see: T times their width if
// causal. For packed documents it is an upper bound, since their lengths depend on the data.
double model_attention_work(const struct ModelConfig *c);

#endif
