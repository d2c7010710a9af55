// What a test may ask of the simulated NCCL (tests/cusim/nccl.cc).
#ifndef TESTS_CUSIM_NCCL_SIM_H
#define TESTS_CUSIM_NCCL_SIM_H
#ifdef __cplusplus
extern "C" {
#endif

// From now on rank's communicator has lost its link: what it launches never ends, and it says so to
// those who ask. -1: no rank (at first).
void sim_nccl_break(int rank);

#ifdef __cplusplus
}
#endif
#endif
