// The forecast of a run before it begins, shown beside what was counted when it has ended.
//
// It comes in three parts, in the order in which a run reaches them: what can be refused before any
// data are prepared; the forecast of memory, traffic and time, once the vocabulary is known; and
// at the end forecast and measurement side by side.
//
// Called by train.c. Read next: fit.c, footprint.h, bound.h.
#ifndef ZERO_PLAN_PREDICT_H
#define ZERO_PLAN_PREDICT_H
#include "zero/comm/world.h"
#include "zero/plan/choose.h"
#include "zero/plan/cluster.h"

struct PredictRequest {
    const struct RankSettings *settings;
    const struct World *world;
    KeepMeasured *measured;
    const char *cache; // folder of what was measured
    // Reads the one JSON object of a file, as json_read (data/json.h) does; NULL: e has a line.
    struct cJSON *(*read_json)(const char *path, struct Error *e);
    bool steps; // there will be some: their time is predicted, and speeds are measured
    bool plan;  // it may be for another machine
    bool json;  // printed for a program
    FILE *out;  // rank 0's process prints there
};

// With --init and neither --fit nor --batch: chooses the micro-batch, up to the usual one, for
// which half of the free memory is enough, and a line says so; nothing else. With --fit: chooses
// what it may (zero/settings/settings.h) and prints the best. resolved: the run's settings; given:
// the flags as config.json keeps them, which get only what was open: the rest follows from these
// again when the run resumes, and a plan for a cluster writes none. The choice is rank 0's, within
// the least memory of any process. r->settings is a copy of resolved->rank, which the caller must
// complete again afterwards. Nothing is chosen where nothing is open, or there will be no step.
// Errors: those of choose.
int predict_choose(const struct PredictRequest *r, struct Settings *resolved,
                   struct Settings *given, struct Error *e);

// Refuses what no machine, or not this one, can run, before the vocabulary is known: only memory
// depends on that. Errors: those of rank_device_check, nvme_preflight and footprint_predict.
int predict_check(const struct PredictRequest *r, struct Error *e);

// Predicts memory, traffic and time, prints them and refuses what does not fit. Speeds are
// measured before anything is counted. Errors: those of speeds_find and fit_or_refuse.
int predict(const struct PredictRequest *r, struct Forecast *out, struct Error *e);

// Prints the model states of so many parameters instead of the model's. Errors: those of
// table_of_parameters.
int predict_parameters(const struct PredictRequest *r, uint64_t parameters, struct Error *e);

// Prints what was predicted beside what the rank, after its run, has counted, and returns both as
// JSON; free() it.
char *predict_compare(const struct PredictRequest *r, const struct Forecast *forecast,
                      const struct Rank *rank);

// ---- fit.c ----

// Predicts what the run takes and prints it. host: what the machine's memory has for all its
// processes, and this one takes; speeds: for the time that a step takes. Errors: those of
// footprint_predict, rank_device_memory and nvme_preflight; -ENOMEM for a run that does not fit,
// with a line that says what is too much and the smallest change that would make it fit, or that
// none does.
int fit_or_refuse(const struct PredictRequest *r, struct RankDeviceMemory host,
                  const struct Speeds *speeds, struct Forecast *out, struct Error *e);

#endif
