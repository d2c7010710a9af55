// The simulator's switches (sim.h, blas_sim.h, nccl_sim.h) on a real GPU, where none of them does
// anything.
#include "tests/cusim/sim.h"

#include "tests/cusim/blas_sim.h"
#include "tests/cusim/nccl_sim.h"

void sim_set_order(enum SimOrder order, uint64_t seed) {
    (void)order;
    (void)seed;
}

void sim_set_schedule(enum SimSchedule schedule, uint64_t seed_or_queue) {
    (void)schedule;
    (void)seed_or_queue;
}

size_t sim_races(void) {
    return 0;
}

size_t sim_drop(size_t nth) {
    (void)nth;
    return 0;
}

void sim_set_gpus(int count) {
    (void)count;
}

void sim_load_late(bool yes) {
    (void)yes;
}

void sim_set_capability(int major, int minor) {
    (void)major;
    (void)minor;
}

size_t sim_mmas(void) {
    return 0;
}

bool sim_is_real(void) {
    return true;
}

unsigned long sim_blas_count(int algorithm) {
    (void)algorithm;
    return 0;
}

unsigned long sim_blas_fused(int epilogue) {
    (void)epilogue;
    return 0;
}

void sim_blas_delay(int algorithm, unsigned delay_us) {
    (void)algorithm;
    (void)delay_us;
}

void sim_blas_delay_backward(unsigned delay_us) {
    (void)delay_us;
}

void sim_blas_refuse(struct BlasRefusal refusal) {
    (void)refusal;
}

void sim_nccl_break(int rank) {
    (void)rank;
}

const char *sim_module_loading(void) {
    return "";
}

void sim_fail_call(const char *name, size_t nth, int status) {
    (void)name;
    (void)nth;
    (void)status;
}

void sim_fail_launch(size_t nth) {
    (void)nth;
}

void sim_tell_places(bool yes) {
    (void)yes;
}

size_t sim_syncs(void) {
    return 0;
}

size_t sim_launches(void) {
    return 0;
}

struct SimSync sim_sync(size_t nth) {
    (void)nth;
    return (struct SimSync){.kind = SIM_SYNC, .queue = -1, .first_host = true};
}

void sim_tell_registers(const char *rows) {
    (void)rows;
}

const char *sim_unreported(void) {
    return NULL;
}
