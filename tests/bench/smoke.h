// What the checks of gpu_smoke share. gpu_smoke.c has the names of all checks, and these functions;
// smoke_product.c the matrix products, smoke_attention.c attention.
#ifndef TESTS_BENCH_SMOKE_H
#define TESTS_BENCH_SMOKE_H
#include "kernels/kernels.h"

// How far 16-bit and fp32 results may be from exact ones, as a norm relative to theirs: an error
// that is spread evenly within half a unit has a norm of 1/sqrt(3) of that. fp32: sums of some
// thousand terms.
static const double smoke_limit[NDTYPE] = {[F32] = 1e-5, [BF16] = 2e-3, [F16] = 2.5e-4};

// GPU 0, opened once. Ends the process with status 1 and a line where it cannot be.
struct Device *smoke_open(void);
// Copies of host memory on the device, and back.
void *smoke_upload(struct Device *d, const void *values, size_t bytes);
void smoke_download(struct Device *d, void *values, const void *mem, size_t bytes);
// n normal values in format d. free() it.
void *smoke_normal(enum Dtype d, size_t n, uint64_t seed, float std);

// Compares `got` with `want` and prints how far apart they are: as a norm, which may be `limit` of
// the result's, and the largest error of one element, which may be `limit_of_one` of the result's
// root mean square. Whether both are.
bool smoke_is_near(const char *what, const void *got, enum Dtype d, const double *want, size_t n,
                   double limit, double limit_of_one);

// The names of all checks of products, one a line.
void smoke_print_products(void);
// The checks' exit statuses: 0 right, 1 wrong; 2: there is no check of that name. rows: of a batch.
int smoke_product(const char *name, size_t rows);
int smoke_attention(enum Dtype dtype);

#endif
