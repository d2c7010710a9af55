// The order of samples as a pure function.
//
// A shuffle of n items needs no list of n numbers: a keyed bijection of {0 .. n-1} gives item i of
// the shuffled order directly. So each rank finds its samples of any step itself, a resume needs no
// state, and the order does not depend on the number of ranks. Called by data/text/shards.c.
#ifndef DATA_TEXT_ORDER_H
#define DATA_TEXT_ORDER_H
#include <stdint.h>

// Returns item `i` of the order of n items with this key, 0 <= i < n.
uint64_t order_permute(uint64_t n, uint64_t key, uint64_t i);

#endif
