// The order of samples as a pure function.
//
// A shuffle of n items needs no list of n numbers: a keyed bijection of {0 .. n-1} gives item i of
// the shuffled order on its own. So any rank finds its samples of any step alone, a resume needs no
// state, and the order does not depend on how many ranks share it. Called by data/text/loader.c.
#ifndef DATA_TEXT_ORDER_H
#define DATA_TEXT_ORDER_H
#include <stdint.h>

// Item `i` of the order of n items that `key` stands for, 0 <= i < n. Another key is another order.
uint64_t order_permute(uint64_t n, uint64_t key, uint64_t i);

#endif
