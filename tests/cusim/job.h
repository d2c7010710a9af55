// Inside the CUDA simulator: processes of a launcher's job (mpirun), each with GPUs of its own.
//
// Such a process waits for others that the simulator cannot see, so its clock is the real one, and
// nothing to do is no deadlock. What the simulated NCCL of one process tells that of another lies
// in a FOLDER of the machine's memory, in files that appear as a whole: who looks for one that is
// not there yet looks again later.
#ifndef TESTS_CUSIM_JOB_H
#define TESTS_CUSIM_JOB_H
#include <string>
#include <vector>

namespace cusim {

bool in_job(); // this process is one of a launcher's

// Makes a folder that no other process has made, and names it.
std::string folder_make();
bool folder_exists(const std::string &folder);

// false: such a file is there already.
bool folder_post(const std::string &folder, const std::string &name, const std::string &bytes);
// false: it is not there yet.
bool folder_get(const std::string &folder, const std::string &name, std::string *bytes);
void folder_drop(const std::string &folder, const std::string &name);
// All that is left goes, and the folder.
void folder_remove(const std::string &folder);

} // namespace cusim
#endif
