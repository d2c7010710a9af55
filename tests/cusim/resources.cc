// What a block may have of a GPU: threads, by __launch_bounds__; shared memory, static and dynamic
// together; registers.
//
// A kernel and its bounds are in the section cusim_kernels, made of annotations
// (include/cusim/language.h). Registers, and the shared memory that nvcc gives a kernel, are from
// docs/registers.md, the report of the last compilation by nvcc, which a test holds to what is
// built; the row is found by the kernel's name, which the program's own table of symbols has. So
// whoever changes a kernel sees the old count of registers until scripts/bench/gpu_registers.sh has
// run.
//
// A kernel without a row can be launched, for there is none while it is being written; test_cusim
// asks that each has one.
#include "tests/cusim/internal.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <map>
#include <regex>
#include <sstream>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// An annotation as clang writes it.
struct Note {
    const void *kernel;
    const char *what, *file;
    int line;
    const int *values; // what stands behind its name
};
extern "C" const Note __start_cusim_kernels[] __attribute__((weak));
extern "C" const Note __stop_cusim_kernels[] __attribute__((weak));
extern "C" const char __start_cusim_shared[] __attribute__((weak));
extern "C" const char __stop_cusim_shared[] __attribute__((weak));
extern "C" const char __ehdr_start[]; // where the program is in memory

extern const char report[] __asm__("cusim_report");
__asm__(".section .rodata\n"
        "cusim_report: .incbin \"docs/registers.md\"\n"
        ".byte 0\n"
        ".text\n");

namespace cusim {

static const size_t STATIC_MOST = 48 << 10; // else nvcc compiles no such kernel
// A warp gets its registers in units of 8 a thread, and the check at a launch counts as if each of
// the four parts of a multiprocessor had as many warps (cuda_occupancy.h of the toolkit).
static const size_t REGISTERS = 65536, UNIT = 8, PARTS = 4, LANES = 32;

struct Row { // of the report
    size_t shared = 0, registers = 0;
    std::string target; // with most registers
    bool in_program = false;
};

struct Kernel {
    std::string mangled, name, file, place; // place: file:line
    size_t most_threads = 1024, own_shared = 0;
    const Row *row = nullptr;
};

static std::map<std::string, Row> rows; // by "file.cu name"
static std::map<const void *, Kernel> kernels;

// ---- the report ----

static std::vector<std::string> cells_of(const std::string &line) {
    std::vector<std::string> cells;
    std::stringstream rest(line);
    std::string cell;
    while (std::getline(rest, cell, '|')) {
        size_t first = cell.find_first_not_of(" `"), last = cell.find_last_not_of(" `");
        cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    }
    return cells;
}

// Cells: nothing, file, kernel, shared, and the registers for each target, "255 (28)" with what
// spills.
static void read_report(const char *text) {
    static std::vector<std::string> head;
    std::stringstream lines(text);
    std::string line;
    while (std::getline(lines, line)) {
        std::vector<std::string> cells = cells_of(line);
        if (cells.size() < 5)
            continue;
        if (cells[1] == "file")
            head = cells;
        if (cells.size() != head.size() || cells[1].find(".cu") == std::string::npos)
            continue;
        Row *row = &rows[cells[1] + " " + cells[2]];
        row->shared = std::stoul(cells[3]);
        for (size_t i = 4; i < cells.size(); i++) {
            size_t n = strtoul(cells[i].c_str(), nullptr, 10);
            if (n > row->registers) {
                row->registers = n;
                row->target = head[i];
            }
        }
    }
}

// ---- the program ----

// A kernel's name as scripts/bench/gpu_registers.sh writes it.
static std::string short_name(const std::string &mangled) {
    char *whole = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, nullptr);
    std::string name = whole ? whole : mangled;
    free(whole);
    static const std::pair<std::regex, const char *> changes[] = {
        {std::regex("^void "), ""},
        {std::regex("__nv_bfloat16"), "bf16"},
        {std::regex("__half"), "fp16"},
        {std::regex("\\([A-Za-z_: ]+\\)([0-9])"), "$1"}, // the type of a template argument
        {std::regex("\\(.*$"), ""},                      // parameters
        {std::regex(" "), ""},
    };
    for (const auto &change : changes)
        name = std::regex_replace(name, change.first, change.second);
    return name;
}

// Static __shared__ variables of the kernel itself: those of what it calls, the report alone knows.
static void note_shared(const char *symbol, size_t bytes) {
    for (auto &k : kernels) {
        std::string prefix = "_ZZ" + k.second.mangled.substr(2) + "E";
        if (strncmp(symbol, prefix.c_str(), prefix.size()) == 0)
            k.second.own_shared += bytes;
    }
}

static void read_symbols() {
    struct stat info;
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &info))
        die("the program's own file cannot be read");
    void *p = mmap(nullptr, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (p == MAP_FAILED)
        die("the program's own file cannot be read");
    close(file);
    const char *image = static_cast<const char *>(p);
    const Elf64_Ehdr *elf = static_cast<const Elf64_Ehdr *>(p);
    const Elf64_Shdr *sections = reinterpret_cast<const Elf64_Shdr *>(image + elf->e_shoff);
    const char *base = elf->e_type == ET_DYN ? __ehdr_start : nullptr;
    for (int kind : {STT_FUNC, STT_OBJECT})
        for (int i = 0; i < elf->e_shnum; i++) {
            const Elf64_Shdr &s = sections[i];
            const char *names = image + sections[s.sh_link].sh_offset;
            const Elf64_Sym *all = reinterpret_cast<const Elf64_Sym *>(image + s.sh_offset);
            for (size_t n = s.sh_type == SHT_SYMTAB ? s.sh_size / sizeof *all : 0; n-- > 0;) {
                const char *at = base + all[n].st_value, *name = names + all[n].st_name;
                if (ELF64_ST_TYPE(all[n].st_info) != kind)
                    continue;
                if (kind == STT_FUNC && kernels.count(at))
                    kernels[at].mangled = name;
                else if (kind == STT_OBJECT && at >= __start_cusim_shared &&
                         at < __stop_cusim_shared)
                    note_shared(name, all[n].st_size);
            }
        }
    munmap(p, (size_t)info.st_size);
}

static void read_notes() {
    for (const Note *n = __start_cusim_kernels; n < __stop_cusim_kernels; n++) {
        Kernel *k = &kernels[n->kernel];
        k->file = n->file;
        k->place = k->file + ":" + std::to_string(n->line);
        if (!strcmp(n->what, "launch_bounds"))
            k->most_threads = (size_t)n->values[0];
    }
}

static void read_all() {
    read_report(report);
    read_notes();
    read_symbols();
    for (auto &pair : kernels)
        pair.second.name = short_name(pair.second.mangled);
}

static void find_rows() {
    for (auto &pair : kernels) {
        Kernel *k = &pair.second;
        auto row = rows.find(k->file.substr(k->file.rfind('/') + 1) + " " + k->name);
        if (row == rows.end())
            continue;
        k->row = &row->second;
        row->second.in_program = true;
    }
}

static const Kernel &known(const void *kernel) {
    if (kernels.empty()) {
        read_all();
        find_rows();
    }
    auto found = kernels.find(kernel);
    if (found == kernels.end())
        die("launch of %s, which is no __global__ function", function_name(kernel).c_str());
    return found->second;
}

// ---- checks ----

size_t static_shared(const void *kernel) {
    const Kernel &k = known(kernel);
    size_t bytes = k.row && k.row->shared > k.own_shared ? k.row->shared : k.own_shared;
    if (bytes > STATIC_MOST)
        die("%s: %s has %zu bytes of static shared memory, nvcc compiles no more than %zu",
            k.place.c_str(), k.name.c_str(), bytes, STATIC_MOST);
    return bytes;
}

std::string kernel_named(const void *kernel) {
    return known(kernel).name;
}

std::string kernel_line(const void *kernel) {
    return known(kernel).place;
}

std::string launch_of(const void *kernel) {
    return kernel_line(kernel) + ": launch of " + kernel_named(kernel);
}

void check_block(const void *kernel, size_t threads) {
    const Kernel &k = known(kernel);
    if (threads > k.most_threads)
        die("%s: a block of %zu threads, its __launch_bounds__ are %zu", launch_of(kernel).c_str(),
            threads, k.most_threads);
    if (!k.row)
        return;
    size_t each = (k.row->registers + UNIT - 1) / UNIT * UNIT;
    size_t warps = (threads + LANES * PARTS - 1) / (LANES * PARTS) * PARTS;
    if (warps * LANES * each > REGISTERS)
        die("%s: a block of %zu threads of %zu registers (docs/registers.md, %s), a GPU has %zu "
            "registers for a block",
            launch_of(kernel).c_str(), threads, k.row->registers, k.row->target.c_str(), REGISTERS);
}

} // namespace cusim

using namespace cusim;

extern "C" void sim_tell_registers(const char *text) {
    if (kernels.empty())
        read_all();
    read_report(text);
    find_rows();
}

extern "C" const char *sim_unreported(void) {
    static std::string what;
    what.clear();
    sim_tell_registers("");
    for (const auto &k : kernels)
        if (!k.second.row && k.second.file.compare(0, 8, "kernels/") == 0)
            what += k.second.place + ": " + k.second.name + " has no row\n";
    for (const auto &r : rows)
        if (!r.second.in_program)
            what += r.first + " is no kernel of the program\n";
    return what.empty() ? nullptr : what.c_str();
}
