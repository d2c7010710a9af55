// What kernels ask of a GPU's memory: 32-byte sectors of global memory and passes over the banks of
// shared memory, counted while a test wants it (sim_count).
//
// The lanes of a warp do not run in step here. An instruction of a warp is what its lanes do at one
// place of the code, each for the nth time since the block's last barrier and the last collective
// of the whole warp: exact where the lanes go round their loops equally often, near it elsewhere.
// Packs come in one piece (cusim::load); of other structs of 16 bytes the compiler makes two halves
// of 8, which are put together again: one follows the other in the lane, in the code and in memory,
// and the first begins at a multiple of 16.
//
// At each barrier, and at the end of a block, the instructions since the last one are counted, in
// the order in which their first lanes made them:
//   asked    distinct sectors of each instruction: the work of the L1 cache
//   moved    those that go on to the L2 cache: every store, since L1 writes through, and every load
//            that L1 does not hold. A block is taken to have 128 bytes of L1 for each of its
//            threads, as if a multiprocessor's 256 KB were shared by 2048; what was used longest
//            ago goes first. cp.async.cg passes L1 by
//   again    of loads: sectors of operands that a test calls small, which the launch has had before
//   touched  distinct sectors of the launch, loaded and stored apart: what even the largest cache
//            must move
// In shared memory, 32 banks of 4 bytes: one pass serves one word of each bank, to however many
// lanes. 8-byte accesses go by half warps, 16-byte ones by quarters, ldmatrix by 8 rows.
#include "tests/cusim/block.h"

#include <algorithm>
#include <list>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace cusim {

enum { SECTOR = 32, BANKS = 32, L1_SECTORS = 4 }; // L1_SECTORS: of a thread

bool counting;
static bool wanted;
static std::map<std::string, SimCounts> all; // by kernel

struct Instruction {
    Use use;
    bool shared, cached;
    uint32_t lanes;
    struct {
        uintptr_t address;
        size_t bytes;
    } lane[32];
};

// A place of the code as one warp comes there: its instructions, and how often each lane was there.
struct Site {
    std::vector<size_t> nth;
    uint32_t times[32];
};

// The first half of what may become an access of 16 bytes.
struct Half {
    const char *caller;
    uintptr_t address;
    size_t instruction;
};

struct Range {
    uintptr_t begin, end;
};

static std::vector<Instruction> instructions; // since the last barrier
static std::unordered_map<uint64_t, Site> sites;
static std::vector<Half> halves;       // (threads, shared, written)
static std::vector<uint32_t> meetings; // of the whole warp, by thread
static std::vector<Range> small;

// The launch that runs.
static SimCounts *now;
static std::unordered_set<uintptr_t> touched; // 2 * sector, + 1 if stored
static std::list<uintptr_t> l1_order;         // of the block's sectors, the newest first
static std::unordered_map<uintptr_t, std::list<uintptr_t>::iterator> l1;

// ---- instructions ----

static Half &half_of(bool shared, bool written) {
    return halves[(size_t)block.now->number * 4 + shared * 2 + written];
}

// Whether it is the second half of what the lane's last access of its kind began.
static bool joins(uintptr_t a, size_t bytes, bool shared, bool written, const char *caller) {
    Half &first = half_of(shared, written);
    bool follows = first.caller && bytes == 8 && a == first.address + 8 && a % 16 == 8 &&
                   caller > first.caller && caller < first.caller + 256;
    if (follows)
        instructions[first.instruction].lane[block.now->lane].bytes = 16;
    if (follows || bytes != 8)
        first.caller = nullptr;
    return follows;
}

// Of what the lane does now, as often as it was there since all lanes met.
static size_t instruction_of(Use use, bool shared, bool cached, const void *caller) {
    const Fiber &me = *block.now;
    uint64_t key = reinterpret_cast<uintptr_t>(caller) << 7 | (unsigned)me.warp << 2 | shared << 1 |
                   (use == Use::WRITE);
    key ^= (uint64_t)meetings[(size_t)me.number] << 54;
    Site &site = sites[key];
    size_t nth = site.times[me.lane]++;
    if (nth == site.nth.size()) {
        site.nth.push_back(instructions.size());
        instructions.push_back({use, shared, cached, 0, {}});
    }
    return site.nth[nth];
}

void count_access(uintptr_t a, size_t bytes, Use use, bool shared, bool cached,
                  const void *caller) {
    bool written = use == Use::WRITE;
    const char *code = static_cast<const char *>(caller);
    if (!bytes || joins(a, bytes, shared, written, code))
        return;
    size_t index = instruction_of(use, shared, cached, caller);
    Instruction &i = instructions[index];
    i.lanes |= 1u << block.now->lane;
    i.lane[block.now->lane] = {a, bytes};
    if (bytes == 8)
        half_of(shared, written) = {code, a, index};
}

void count_meeting() {
    meetings[(size_t)block.now->number]++;
}

// ---- global memory ----

static bool is_small(uintptr_t a) {
    for (const Range &r : small)
        if (a < r.end && a + SECTOR > r.begin)
            return true;
    return false;
}

// Whether L1 has the sector; from now on it does, and where its room is used up the one that was
// wanted longest ago leaves.
static bool in_l1(uintptr_t sector) {
    auto known = l1.find(sector);
    if (known != l1.end()) {
        l1_order.splice(l1_order.begin(), l1_order, known->second);
        return true;
    }
    l1_order.push_front(sector);
    l1[sector] = l1_order.begin();
    if (l1_order.size() > (size_t)block.threads * L1_SECTORS) {
        l1.erase(l1_order.back());
        l1_order.pop_back();
    }
    return false;
}

static void count_sector(const Instruction &i, uintptr_t sector) {
    bool stored = i.use != Use::READ;
    bool first = touched.insert(2 * sector + stored).second;
    now->asked++;
    now->touched += first;
    if (!stored && i.cached && in_l1(sector))
        return;
    if (!stored && !first && is_small(sector * SECTOR))
        now->again++;
    else
        now->moved++;
}

static void count_sectors(const Instruction &i) {
    std::vector<uintptr_t> sectors;
    for (int lane = 0; lane < 32; lane++)
        if (i.lanes >> lane & 1) {
            uintptr_t a = i.lane[lane].address, last = (a + i.lane[lane].bytes - 1) / SECTOR;
            for (uintptr_t s = a / SECTOR; s <= last; s++)
                sectors.push_back(s);
        }
    std::sort(sectors.begin(), sectors.end());
    sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
    for (uintptr_t s : sectors)
        count_sector(i, s);
}

// ---- shared memory ----

// Passes that serve these words: as many as the fullest bank has.
static unsigned passes_of(std::vector<uintptr_t> &words, bool atomic) {
    unsigned in_bank[BANKS] = {}, most = 0;
    std::sort(words.begin(), words.end());
    if (!atomic) // which change a word one after the other
        words.erase(std::unique(words.begin(), words.end()), words.end());
    for (uintptr_t w : words)
        most = std::max(most, ++in_bank[w % BANKS]);
    return most;
}

static void count_passes(const Instruction &i) {
    size_t widest = 4;
    for (int lane = 0; lane < 32; lane++)
        if (i.lanes >> lane & 1)
            widest = std::max(widest, i.lane[lane].bytes);
    int together = widest <= 4 ? 32 : widest <= 8 ? 16 : 8;
    for (int begin = 0; begin < 32; begin += together) {
        std::vector<uintptr_t> words;
        for (int lane = begin; lane < begin + together; lane++)
            if (i.lanes >> lane & 1) {
                uintptr_t a = i.lane[lane].address;
                for (uintptr_t w = a / 4; w <= (a + i.lane[lane].bytes - 1) / 4; w++)
                    words.push_back(w);
            }
        now->passes += passes_of(words, i.use == Use::ATOMIC);
        now->ideal += !words.empty();
    }
}

void count_matrix(const uint64_t rows[32]) {
    for (int begin = 0; begin < 32; begin += 8) {
        std::vector<uintptr_t> words;
        for (int row = begin; row < begin + 8; row++)
            for (int w = 0; w < 4; w++)
                words.push_back(rows[row] / 4 + (unsigned)w);
        now->passes += passes_of(words, false);
        now->ideal++;
    }
}

// ---- a launch ----

void count_barrier() {
    for (const Instruction &i : instructions)
        i.shared ? count_passes(i) : count_sectors(i);
    instructions.clear();
    sites.clear();
    halves.assign((size_t)block.threads * 4, Half());
    meetings.assign((size_t)block.threads, 0);
}

void count_block() {
    count_barrier();
    l1.clear();
    l1_order.clear();
}

void count_begin() {
    const void *kernel = running()->kernel;
    counting = wanted && kernel;
    if (!counting)
        return;
    std::string name = kernel_named(kernel);
    now = &all[name.substr(0, name.find('<'))];
    now->launches++;
    touched.clear();
    count_block();
}

void count_end() {
    counting = false;
}

} // namespace cusim

extern "C" {
void sim_count(bool yes) {
    cusim::wanted = yes;
    cusim::all.clear();
    cusim::small.clear();
}

void sim_count_small(const void *p, size_t bytes) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    cusim::small.push_back({a, a + bytes});
}

const char *sim_counted(size_t nth) {
    auto at = cusim::all.begin();
    while (at != cusim::all.end() && nth--)
        ++at;
    return at == cusim::all.end() ? nullptr : at->first.c_str();
}

struct SimCounts sim_counts(const char *kernel) {
    auto found = cusim::all.find(kernel);
    return found == cusim::all.end() ? SimCounts() : found->second;
}
}
