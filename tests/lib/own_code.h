// Which code of the program is ours: all of its text but the CUDA runtime, which is linked into it
// and is a library all the same. For what is preloaded (fault.c, scarce.c), before main.
#ifndef TESTS_LIB_OWN_CODE_H
#define TESTS_LIB_OWN_CODE_H
#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct OwnCode {
    uintptr_t base;                       // where the program is loaded
    uintptr_t begin, end;                 // of the program's text
    uintptr_t library_begin, library_end; // of the runtime in it; none: equal
};

static inline int own_code_find(struct dl_phdr_info *info, size_t bytes, void *own_code) {
    struct OwnCode *own = own_code;
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        own->begin = info->dlpi_addr + part->p_vaddr;
        own->end = own->begin + part->p_memsz;
        own->base = info->dlpi_addr;
    }
    return 1; // the first is the program
}

static inline bool own_code_is_runtime(const char *name) {
    while (*name == '_')
        name++;
    return strstr(name, "cudart") || (strncmp(name, "cuda", 4) == 0 && isupper(name[4]));
}

// The least address above `above` of a function that is none of the runtime's, or end of the text.
static inline uintptr_t own_code_next(const struct OwnCode *own, const ElfW(Sym) * symbol, size_t n,
                                      const char *names, uintptr_t above) {
    uintptr_t next = own->end;
    for (size_t i = 0; i < n; i++) {
        uintptr_t at = own->base + symbol[i].st_value;
        if ((symbol[i].st_info & 15) == STT_FUNC && symbol[i].st_value && at > above && at < next &&
            !own_code_is_runtime(names + symbol[i].st_name))
            next = at;
    }
    return next;
}

// The linker lays an archive's members side by side; some functions of theirs stand apart, as cold
// code. The longest run of the runtime's is what counts.
static inline void own_code_read(struct OwnCode *own, const char *file) {
    const ElfW(Ehdr) *head = (const void *)file;
    const ElfW(Shdr) *section = (const void *)(file + head->e_shoff);
    for (int s = 0; s < head->e_shnum; s++) {
        if (section[s].sh_type != SHT_SYMTAB)
            continue;
        const ElfW(Sym) *symbol = (const void *)(file + section[s].sh_offset);
        const char *names = file + section[section[s].sh_link].sh_offset;
        size_t n = section[s].sh_size / sizeof *symbol;
        for (size_t i = 0; i < n; i++) {
            uintptr_t at = own->base + symbol[i].st_value;
            bool inside = at >= own->library_begin && at < own->library_end;
            if ((symbol[i].st_info & 15) != STT_FUNC || inside || at < own->begin ||
                at >= own->end || !own_code_is_runtime(names + symbol[i].st_name))
                continue;
            uintptr_t next = own_code_next(own, symbol, n, names, at);
            if (next - at > own->library_end - own->library_begin) {
                own->library_begin = at;
                own->library_end = next;
            }
        }
    }
}

static inline struct OwnCode own_code(void) {
    struct OwnCode own = {0};
    struct stat st;
    dl_iterate_phdr(own_code_find, &own);
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return own;
    void *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED)
        return own;
    own_code_read(&own, file);
    munmap(file, (size_t)st.st_size);
    return own;
}

static inline bool own_code_has(const struct OwnCode *own, uintptr_t site) {
    return site >= own->begin && site < own->end &&
           !(site >= own->library_begin && site < own->library_end);
}

#endif
