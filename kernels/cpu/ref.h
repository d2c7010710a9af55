// Shared by the plain kernels: tanh-GELU and its derivative, alone and inside a matmul.
//
// The plain kernels (ref_*.c, table "oracle") define the math: one loop per sum of the formula, one
// thread, no tricks. They add in double precision and round once, when a result is stored, so that
// the difference between a fast kernel and its oracle is the fast kernel's error alone.
#ifndef KERNELS_CPU_REF_H
#define KERNELS_CPU_REF_H

// GELU(x) in its tanh form, and d GELU / dx (kernels/cpu/ref_gelu.c).
double oracle_gelu(double x);
double oracle_gelu_slope(double x);

#endif
