// The gradient buffer of a group, as the backward pass sees it.
#ifndef MODEL_GRAD_H
#define MODEL_GRAD_H
#include <stdbool.h>

// The backward pass of a step's first micro-batch overwrites the gradient (accumulate = false);
// later ones add to it.
struct Grad {
    void *mem; // padded elements of the model's grad_dtype, or NULL: none now, or never, as the
               // group is frozen
    bool accumulate;
};

#endif
