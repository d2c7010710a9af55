// The rig's devices in a build for the CPU: every kernel table that this CPU runs.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <errno.h>

int rig_open_devices(struct Rig *rig) {
    static const char *const names[MAX_TABLES] = {"oracle", "base",       "avx2",
                                                  "avx512", "avx512bf16", "amx"};
    for (int i = 0; i < MAX_TABLES; i++) {
        struct Error e = {0};
        struct Device **pair = rig->device[rig->ntable];
        int err = device_open_cpu(&pair[0], 1, names[i], &e);
        if (err == -ENOTSUP) {
            print_message("not tested on this CPU: %s\n", e.text);
            continue;
        }
        if (err || device_open_cpu(&pair[1], 2, names[i], &e))
            return -1;
        rig->name[rig->ntable++] = names[i];
    }
    return 0;
}

void rig_set_order(int order) {
    (void)order; // OpenMP's threads take their own
}
