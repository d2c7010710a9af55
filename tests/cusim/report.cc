// How a fault is told: one line with what runs, and where in the source.
//
// Addresses of code become names and lines by addr2line, which reads the binary's own debug
// information; it is started only when there is something to tell.
#include "tests/cusim/internal.h"

#include <link.h>
#include <map>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cusim {

static int first_object(struct dl_phdr_info *info, size_t, void *base) {
    *static_cast<uintptr_t *>(base) = info->dlpi_addr; // the program itself comes first
    return 1;
}

struct Lines {
    std::string function, place; // file:line
};

static bool places = true;

// Words of all kernels: CUDA's own, and accesses to 16 bytes.
static bool is_word(const std::string &place) {
    return place[0] == '/' || place.find("tests/cusim/include/") != std::string::npos ||
           place.find("kernels/cuda/gpu.cuh:") != std::string::npos;
}

// addr2line says two lines, function and place, for what the address belongs to and then for each
// function that was inlined around it. A word is no place that helps, nor is a header of CUDA's.
static Lines look_up_anew(const void *address) {
    if (!places)
        return Lines();
    uintptr_t base = 0;
    dl_iterate_phdr(first_object, &base);
    char command[256], function[1024], place[1024], program[160] = "";
    Lines found;
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return found;
    snprintf(command, sizeof command, "addr2line -C -f -i -e '%s' 0x%zx 2>/dev/null", program,
             reinterpret_cast<uintptr_t>(address) - base);
    FILE *f = popen(command, "r");
    while (f && fgets(function, sizeof function, f) && fgets(place, sizeof place, f)) {
        if (found.place.empty() || is_word(found.place))
            found.place = std::string(place, strcspn(place, "\n"));
        found.function = std::string(function, strcspn(function, "\n"));
    }
    if (f)
        pclose(f);
    return found;
}

// A test that makes many faults asks for the same places again and again.
static const Lines &look_up(const void *address) {
    static std::map<const void *, Lines> known;
    auto found = known.find(address);
    if (found == known.end())
        found = known.emplace(address, look_up_anew(address)).first;
    return found->second;
}

std::string code_place(const void *address) {
    if (!address)
        return "unknown place";
    // The call, not what follows it.
    std::string place = look_up(static_cast<const char *>(address) - 1).place;
    if (place.empty() || place[0] == '?')
        return "unknown place";
    place = place.substr(0, place.find(" (discriminator"));
    while (place.compare(0, 2, "./") == 0) // compiled with -fdebug-compilation-dir=.
        place = place.substr(2);
    return place;
}

std::string function_name(const void *address) {
    const std::string &whole = look_up(address).function;
    // "void softmax<float>(float*)": the return type and the parameters say nothing new.
    std::string name = whole.substr(0, whole.find('('));
    if (name.compare(0, 5, "void ") == 0)
        name = name.substr(5);
    return name.empty() ? "a kernel" : name;
}

static void die_with(const char *place, const char *format, va_list args) {
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    std::string where = kernel_place();
    const Segment *s = running();
    std::string what = s->kernel ? "kernel " + kernel_named(s->kernel) : s->what;
    std::string line = "cusim: " + std::string(place) + text + " (" + what + " on " +
                       s->actor->name + (where.empty() ? "" : ", " + where) + ")\n";
    fflush(nullptr);
    fputs(line.c_str(), stderr);
    _exit(99);
}

} // namespace cusim

extern "C" void sim_tell_places(bool yes) {
    cusim::places = yes;
}

namespace cusim {

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    die_with("", format, args);
    abort();
}

void die_at(const void *caller, const char *format, ...) {
    va_list args;
    va_start(args, format);
    std::string place = caller ? code_place(caller) + ": " : "";
    if (is_word(place) && running()->kernel) // not inlined: whose word it is, the kernel tells
        place = kernel_line(running()->kernel) + ", " + place;
    die_with(place.c_str(), format, args);
    abort();
}

void die_unaligned(uintptr_t a, size_t alignment, const void *caller) {
    bool known = a - arena_begin < arena_end - arena_begin;
    std::string where = known          ? describe(a)
                        : is_shared(a) ? "shared memory"
                                       : "memory of the thread's own";
    die_at(caller, "access to %zu bytes at an address that is %zu past a multiple of %zu: %s",
           alignment, a % alignment, alignment, where.c_str());
}

} // namespace cusim
