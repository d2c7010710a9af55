// How a fault is told: one line with what runs, and where in the source.
//
// Addresses of code become names and lines by addr2line, which reads the binary's own debug
// information; it is started only when there is something to tell.
#include "tests/cusim/internal.h"

#include <cxxabi.h>
#include <link.h>
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

// The two lines of addr2line -f: function, file:line.
static void look_up(const void *address, std::string line[2]) {
    uintptr_t base = 0;
    dl_iterate_phdr(first_object, &base);
    char command[256], text[1024], program[160] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return;
    snprintf(command, sizeof command, "addr2line -C -f -e '%s' 0x%zx 2>/dev/null", program,
             reinterpret_cast<uintptr_t>(address) - base);
    FILE *f = popen(command, "r");
    for (int i = 0; f && i < 2 && fgets(text, sizeof text, f); i++)
        line[i] = std::string(text, strcspn(text, "\n"));
    if (f)
        pclose(f);
}

std::string code_place(const void *address) {
    if (!address)
        return "unknown place";
    std::string line[2];
    look_up(static_cast<const char *>(address) - 1, line); // the call, not what follows it
    size_t extra = line[1].find(" (discriminator");
    if (line[1].empty() || line[1][0] == '?')
        return "unknown place";
    line[1] = line[1].substr(0, extra);
    char folder[1024];
    if (getcwd(folder, sizeof folder) && line[1].compare(0, strlen(folder), folder) == 0)
        line[1] = line[1].substr(strlen(folder) + 1);
    return line[1];
}

std::string function_name(const void *address) {
    std::string line[2];
    look_up(address, line);
    // "void softmax<float>(float*)": the return type and the parameters say nothing new.
    std::string name = line[0].substr(0, line[0].find('('));
    if (name.compare(0, 5, "void ") == 0)
        name = name.substr(5);
    return name.empty() ? "a kernel" : name;
}

static void die_with(const char *place, const char *format, va_list args) {
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    std::string where = kernel_place();
    const Segment *s = running();
    std::string what = s->kernel ? "kernel " + function_name(s->kernel) : s->what;
    std::string line = "cusim: " + std::string(place) + text + " (" + what + " on " +
                       s->actor->name + (where.empty() ? "" : ", " + where) + ")\n";
    fflush(nullptr);
    fputs(line.c_str(), stderr);
    _exit(99);
}

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    die_with("", format, args);
    abort();
}

void die_at(const void *caller, const char *format, ...) {
    va_list args;
    va_start(args, format);
    die_with((code_place(caller) + ": ").c_str(), format, args);
    abort();
}

} // namespace cusim
