// Named events: see device.h. While a trace is open, each record is counted, so that a wait can
// refer to the record that it waits for (trace.c).
#include "kernels/device.h"

#include <stdlib.h>

struct NamedEvent {
    struct NamedEvent *next;
    struct Event *event;
    const char *name;
    uint64_t records; // so far, while a trace is open
};

struct Event *device_open_event(struct Device *d, const char *name) {
    struct NamedEvent *named = base_alloc(sizeof *named);
    *named = (struct NamedEvent){d->events, d->ops->event_open(d), name, 0};
    d->events = named;
    return named->event;
}

void device_close_event(struct Device *d, struct Event *event) {
    if (!event)
        return; // an event that could not be opened is closed, too
    struct NamedEvent **at = &d->events;
    while (*at && (*at)->event != event)
        at = &(*at)->next;
    CHECK(*at, "an event that this device did not open");
    struct NamedEvent *named = *at;
    *at = named->next;
    free(named);
    d->ops->event_close(event);
}

// A GPU's struct Event begins with its cudaEvent_t; only a GPU has native_stream.
const char *device_event_name(const struct Device *d, const void *event) {
    for (const struct NamedEvent *n = d->events; n; n = n->next)
        if (n->event == event || (d->ops->native_stream && *(void *const *)n->event == event))
            return n->name;
    return NULL;
}

static struct NamedEvent *find_named_event(const struct Device *d, const struct Event *event) {
    struct NamedEvent *n = d->events;
    while (n && n->event != event)
        n = n->next;
    return n;
}

static struct EventLabel event_label(const struct NamedEvent *n) {
    return n ? (struct EventLabel){n->name, n->event, n->records} : (struct EventLabel){0};
}

void device_clear_event_label(struct Device *d) {
    d->label.event = (struct EventLabel){0};
}

void device_record(struct Device *d, enum Queue q, struct Event *event) {
    struct NamedEvent *n = d->trace ? find_named_event(d, event) : NULL;
    if (n)
        n->records++;
    d->label.event = event_label(n);
    d->ops->record(d->queue[q], event);
    device_clear_event_label(d);
}

void device_set_event_label(struct Device *d, const struct Device *of, const struct Event *event) {
    if (d->trace)
        d->label.event = event_label(find_named_event(of, event));
}

void device_wait(struct Device *d, enum Queue q, struct Event *event) {
    device_set_event_label(d, d, event);
    d->ops->wait(d->queue[q], event);
    device_clear_event_label(d);
}
