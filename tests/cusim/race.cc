// Happens-before: which segments come before which, and the report of two that do not.
//
// A segment (runtime.h) is described once and then known by its number, so that memory needs four
// bytes for it. It comes before what another actor does now if that actor's clock has reached the
// segment's. Unlike a test that waits for wrong numbers, this sees a missing wait in any schedule:
// it asks whether the program ordered two accesses, not in which order they came.
#include "tests/cusim/internal.h"

#include <algorithm>
#include <stdio.h>

namespace cusim {

struct Description {
    unsigned slot;
    uint32_t clock;
    const char *what;
    const void *kernel;
    const char *actor; // its name; kept for ever, since actors come and go
};

static std::vector<Description> descriptions(1); // number 0: nobody
static std::vector<uint32_t> slot_clock;         // how far each slot has counted
static std::vector<unsigned> free_slots;
static size_t races;

void Clock::join(const Clock &other) {
    if (at.size() < other.at.size())
        at.resize(other.at.size());
    for (size_t i = 0; i < other.at.size(); i++)
        at[i] = std::max(at[i], other.at[i]);
}

void actor_open(Actor *a, const std::string &name, const Clock &before) {
    if (free_slots.empty()) {
        free_slots.push_back((unsigned)slot_clock.size());
        slot_clock.push_back(0);
    }
    a->slot = free_slots.back();
    free_slots.pop_back();
    a->name = name;
    a->clock = before;
    if (a->clock.at.size() <= a->slot)
        a->clock.at.resize(a->slot + 1);
    a->clock.at[a->slot] = ++slot_clock[a->slot];
}

void actor_close(Actor *a) {
    slot_clock[a->slot] = a->clock.at[a->slot];
    free_slots.push_back(a->slot);
}

uint32_t segment_number(Segment *s) {
    if (!s->number) {
        static std::vector<std::unique_ptr<std::string>> names;
        if (names.empty() || *names.back() != s->actor->name)
            names.emplace_back(new std::string(s->actor->name));
        s->number = (uint32_t)descriptions.size();
        descriptions.push_back({s->actor->slot, s->actor->clock.of(s->actor->slot), s->what,
                                s->kernel, names.back()->c_str()});
    }
    return s->number;
}

std::string segment_text(uint32_t number) {
    const Description &d = descriptions[number];
    return (d.kernel ? "kernel " + function_name(d.kernel) : d.what) + " on " + d.actor;
}

bool segment_before(uint32_t number, const Segment &s) {
    const Description &d = descriptions[number];
    return d.clock <= s.actor->clock.of(d.slot);
}

void release(Segment *s, Clock *clock) {
    clock->join(s->actor->clock);
}

void acquire(Segment *s, const Clock &clock) {
    s->actor->clock.join(clock);
}

void race(uint32_t earlier, bool earlier_writes, Segment *now, bool now_writes, uintptr_t address,
          const void *caller) {
    if (races++)
        return;
    fflush(stdout);
    fprintf(stderr, "cusim: race: %s by %s", now_writes ? "write" : "read",
            segment_text(segment_number(now)).c_str());
    std::string where = kernel_place();
    if (!where.empty())
        fprintf(stderr, ", %s", where.c_str());
    if (caller)
        fprintf(stderr, ", at %s", code_place(caller).c_str());
    fprintf(stderr, ", and %s by %s: nothing orders them; %s\n", earlier_writes ? "write" : "read",
            segment_text(earlier).c_str(), describe(address).c_str());
}

} // namespace cusim

extern "C" size_t sim_races(void) {
    size_t n = cusim::races;
    cusim::races = 0;
    return n;
}
