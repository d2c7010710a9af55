// Messages between the simulators of one job's processes: see job.h. Called by nccl.cc.
#include "tests/cusim/job.h"

#include "tests/cusim/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cusim {

bool in_job() {
    static const bool yes = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE");
    return yes;
}

static std::string path_of(const std::string &folder, const std::string &name) {
    return folder + "/" + name;
}

std::string folder_make() {
    const char *parent = getenv("CUSIM_JOB_FOLDER"); // a test removes what a killed job leaves
    std::string made = std::string(parent ? parent : "/dev/shm") + "/cusim-nccl-XXXXXX";
    if (!mkdtemp(&made[0]))
        die("NCCL: cannot make %s: %s", made.c_str(), strerror(errno));
    return made;
}

bool folder_exists(const std::string &folder) {
    struct stat s;
    return !folder.empty() && stat(folder.c_str(), &s) == 0 && S_ISDIR(s.st_mode);
}

bool folder_post(const std::string &folder, const std::string &name, const std::string &bytes) {
    std::string whole = path_of(folder, name);
    std::string part = path_of(folder, "." + name + "." + std::to_string(getpid()));
    FILE *f = fopen(part.c_str(), "wb");
    if (!f) // whoever gave up has removed it: nobody will hear
        return true;
    if (fwrite(bytes.data(), 1, bytes.size(), f) != bytes.size() || fclose(f))
        die("NCCL: cannot write %s: %s", part.c_str(), strerror(errno));
    bool first = link(part.c_str(), whole.c_str()) == 0 || errno == ENOENT;
    unlink(part.c_str());
    return first;
}

bool folder_get(const std::string &folder, const std::string &name, std::string *bytes) {
    FILE *f = fopen(path_of(folder, name).c_str(), "rb");
    if (!f)
        return false;
    char piece[65536];
    bytes->clear();
    for (size_t got; (got = fread(piece, 1, sizeof piece, f)) > 0;)
        bytes->append(piece, got);
    fclose(f);
    return true;
}

void folder_drop(const std::string &folder, const std::string &name) {
    unlink(path_of(folder, name).c_str());
}

void folder_remove(const std::string &folder) {
    DIR *d = opendir(folder.c_str());
    if (!d)
        return;
    while (struct dirent *entry = readdir(d))
        unlink(path_of(folder, entry->d_name).c_str());
    closedir(d);
    rmdir(folder.c_str());
}

} // namespace cusim
