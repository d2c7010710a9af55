// The rig's devices in a build for a GPU or its simulator: the oracle, and CUDA.
#include "tests/lib/rig.h"

#include "tests/cusim/sim.h"
#include "tests/lib/test.h"

int rig_open_devices(struct Rig *rig) {
    struct Error e = {0};
    int err = 0;
    for (int i = 0; i < 2 && !err; i++) {
        err = device_open_cpu(&rig->device[0][i], 1, "oracle", &e);
        if (!err)
            err = device_open_cuda(&rig->device[1][i], 0, &e);
    }
    if (err) {
        print_message("%s\n", e.text);
        return -1;
    }
    rig->ntable = 2;
    for (int i = 0; i < 2; i++)
        rig->name[0] = "oracle";
    rig->name[1] = "cuda";
    return 0;
}

void rig_set_order(int order) {
    sim_set_order((enum SimOrder)(order % NSIMORDER), 1);
}
