// Interleaves several sources: see mix.h.
#include "data/text/mix.h"

#include <stdlib.h>

// Returns the source with the earliest deadline among those whose next sample may come at turn t.
// Sample k of a source with weight w belongs to turns floor(k W / w) .. ceil((k + 1) W / w) - 1.
static size_t choose_source(const struct Mix *m, const uint32_t *turns, size_t t) {
    size_t best = 0, soonest = SIZE_MAX;
    for (size_t s = 0; s < m->sources; s++) {
        size_t w = m->weight[s], k = turns[s];
        size_t deadline = ((k + 1) * m->period + w - 1) / w;
        if (k * m->period / w <= t && deadline < soonest)
            best = s, soonest = deadline;
    }
    return best;
}

void mix_open(struct Mix *m, const size_t *weight, size_t sources) {
    CHECK(sources && sources <= MIX_SOURCES_MAX, "%zu sources", sources);
    *m = (struct Mix){.sources = sources};
    size_t common = 0;
    for (size_t s = 0; s < sources; s++)
        common = size_gcd(weight[s], common);
    for (size_t s = 0; s < sources; s++)
        m->period += m->weight[s] = weight[s] / common;
    m->turn = base_alloc(m->period * sizeof *m->turn);
    uint32_t turns[MIX_SOURCES_MAX] = {0};
    for (size_t t = 0; t < m->period; t++) {
        size_t s = choose_source(m, turns, t);
        m->turn[t] = (struct MixTurn){(uint32_t)s, turns[s]++};
    }
    for (size_t s = 0; s < sources; s++)
        CHECK(turns[s] == m->weight[s], "source %zu has %u turns of %zu", s, turns[s],
              m->weight[s]);
}

void mix_close(struct Mix *m) {
    free(m->turn);
    *m = (struct Mix){0};
}

size_t mix_find(const struct Mix *m, uint64_t i, uint64_t *number) {
    const struct MixTurn *turn = &m->turn[i % m->period];
    *number = i / m->period * m->weight[turn->source] + turn->number;
    return turn->source;
}
