// Values files: named arrays that tests/torch/generate_torch_values.py computed with PyTorch. Its
// head describes the format. A file or an array that is missing or has another size ends the test
// program.
#ifndef TESTS_LIB_VALUES_H
#define TESTS_LIB_VALUES_H
#include <stddef.h>
#include <stdint.h>

struct Values; // a file, read whole

struct Values *values_open(const char *path);
void values_close(struct Values *v);

// The elements of array `name`, which must have `n` of them; owned by v.
const float *values_f32(const struct Values *v, const char *name, size_t n);
const int32_t *values_i32(const struct Values *v, const char *name, size_t n);
const uint16_t *values_u16(const struct Values *v, const char *name, size_t n);

size_t values_count(const struct Values *v,
                    const char *name); // elements; 0: there is no such array

#endif
