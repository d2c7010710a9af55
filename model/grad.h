// The gradient buffer of a group, as the backward pass sees it.
#ifndef MODEL_GRAD_H
#define MODEL_GRAD_H
#include <stdbool.h>

// In a step's first micro-batch the backward pass overwrites the gradient (accumulate = false), in
// later ones it adds.
struct Grad {
    void *mem; // padded elements of the model's grad_dtype, or NULL where there is none now
    bool accumulate;
};

#endif
