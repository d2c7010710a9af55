// Marks: see mark.h.
#include "kernels/mark.h"

#include "kernels/trace.h"

void mark_open(struct Mark *m, const char *name, struct Device *device, struct Device *host) {
    *m = (struct Mark){.device = {device, host}, .last = -1};
    for (int i = 0; i < 2; i++)
        if (m->device[i] && name)
            m->event[i] = device_open_event(m->device[i], name);
}

void mark_close(struct Mark *m) {
    for (int i = 0; i < 2; i++)
        if (m->event[i])
            device_close_event(m->device[i], m->event[i]);
    *m = (struct Mark){0};
}

void mark_record(struct Mark *m, struct Device *d, enum Queue q) {
    m->last = d == m->device[0] ? 0 : 1;
    CHECK(d == m->device[m->last], "a mark of other devices");
    device_record(d, q, m->event[m->last]);
    m->records++;
}

struct DeviceEvent {
    struct Device *device;
    struct Event *event;
};

static void wait_in_queue(const void *args) {
    const struct DeviceEvent *e = args;
    if (e->device->ops->enter) // the calling thread is the other device's
        e->device->ops->enter(e->device);
    device_sync_event(e->device, e->event);
}

static void wait_on_host(struct Device *d, const struct DeviceEvent *e) {
    double begin = d->trace ? base_seconds() : 0;
    device_sync_event(e->device, e->event);
    if (d->trace)
        trace_host_waited(d, d->label.event.name, begin);
}

void mark_wait(const struct Mark *m, struct Device *d, enum Queue q) {
    if (m->last < 0)
        return;
    struct DeviceEvent e = {m->device[m->last], m->event[m->last]};
    device_set_event_label(d, e.device, e.event);
    if (e.device->ops == d->ops) // same backend: its queues can wait for each other's events
        d->ops->wait(d->queue[q], e.event);
    else if (d->calls_may_wait)
        device_call(d, q, wait_in_queue, &e, sizeof e);
    else
        wait_on_host(d, &e);
    device_clear_event_label(d);
}
