// Matrix products of the CUDA backend: every form of struct Matmul against the oracle, whether
// cuBLASLt's part or ours. Read next: test_blas.c.
#include "tests/kernels/blas_form.h"
#include "tests/lib/test.h"

// Sizes and strides that cuBLASLt's epilogues may take, and such that they may not.
TEST(test_all_forms) {
    static const size_t sizes[][4] = {
        {24, 40, 16, 0}, {24, 40, 16, 8}, {5, 13, 9, 0}, {7, 8, 3, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int e = 0; e < FORMS; e++) {
            struct Form f = {sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], e % 3 == 1,
                             e % 5 < 3,   e % 7 == 0,  e,           0,           0};
            rig_check(*state, queue_form, &f, true);
        }
        for (int t = 0; t < 16; t++) {
            struct Form f = {sizes[i][0], sizes[i][1], sizes[i][2],           sizes[i][3], t & 1,
                             t & 2,       t & 4,       t & 8 ? DGELU : DBIAS, 0,           0};
            rig_check(*state, queue_form, &f, true);
        }
    }
}

// Rows of dy in several pieces, with a rest, in more columns than one block has: 300 rows are more
// pieces than the simulator allows blocks (PTX_MAX_GRID_Y); 8800 are 69 pieces, more than a warp
// adds at once. A 16-bit C that is finished in two slices. And a bias or GELU's input out of
// alignment where matrices are not: parameters lie without gaps in a group.
TEST(test_large) {
    static const struct Form forms[] = {
        {.m = 264, .n = 8, .k = 300, .a_transposed = true, .epilogue = DBIAS},
        {.m = 40, .n = 1, .k = 8800, .a_transposed = true, .epilogue = DBIAS},
        {.m = 257, .n = 3, .k = 129, .a_transposed = true, .epilogue = DBIAS | ACCUMULATE},
        {.m = 130, .n = 9001, .k = 1, .epilogue = BIAS | ACCUMULATE},
        {.m = 130, .n = 9001, .k = 1, .a_transposed = true, .epilogue = DGELU},
        {.m = 24, .n = 40, .k = 16, .epilogue = BIAS, .shift = 1},
        {.m = 24, .n = 40, .k = 16, .epilogue = DGELU, .shift = 1}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        rig_check(*state, queue_form, &forms[i], true);
}

// The bias gradient by cuBLASLt, or beside a product where it cannot do both; added to an old one;
// and where k is split.
TEST(test_dbias) {
    static const size_t long_k[] = {16, 300};
    for (int i = 0; i < 16; i++) {
        struct Form f = {.m = 24, .n = 40, .a_transposed = true, .epilogue = DBIAS};
        f.k = long_k[i & 1];
        f.c_fp32 = i & 2;
        f.epilogue |= i & 4 ? ACCUMULATE : 0;
        f.gap = i & 8 ? 8 : 0;
        rig_check(*state, queue_form, &f, true);
    }
}

AROUND_ALL(rig_setup, rig_teardown);
