// Events by name: see device.h.
#include "kernels/device.h"

#include <stdlib.h>

struct NamedEvent {
    struct NamedEvent *next;
    struct Event *event;
    const char *name;
};

struct Event *device_open_event(struct Device *d, const char *name) {
    struct NamedEvent *named = base_alloc(sizeof *named);
    *named = (struct NamedEvent){d->events, d->ops->event_open(d), name};
    d->events = named;
    return named->event;
}

void device_close_event(struct Device *d, struct Event *event) {
    struct NamedEvent **at = &d->events;
    while (*at && (*at)->event != event)
        at = &(*at)->next;
    CHECK(*at, "an event that this device did not open");
    struct NamedEvent *named = *at;
    *at = named->next;
    free(named);
    d->ops->event_close(event);
}

// A GPU's struct Event begins with the event that CUDA knows.
const char *device_event_name(const struct Device *d, const void *event) {
    for (const struct NamedEvent *n = d->events; n; n = n->next)
        if (n->event == event || (d->ops->native_stream && *(void *const *)n->event == event))
            return n->name;
    return NULL;
}
