// Reads the text of --data-map: see map.h.
#include "data/chat/map.h"

#include <errno.h>
#include <string.h>

static const char expected[] =
    "expected TARGET=MEMBER,..., such as prompt=question,completion=reply; targets are text; "
    "prompt, completion; messages, system; instruction, input, output, system";

// The sets of targets that go together: the required and the optional ones.
static const struct {
    unsigned needs, optional;
} sets[] = {
    {1u << MEMBER_TEXT, 0},
    {1u << MEMBER_PROMPT | 1u << MEMBER_COMPLETION, 0},
    {1u << MEMBER_MESSAGES, 1u << MEMBER_SYSTEM},
    {1u << MEMBER_INSTRUCTION | 1u << MEMBER_OUTPUT, 1u << MEMBER_INPUT | 1u << MEMBER_SYSTEM}};

static bool is_target(enum Member m) {
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        if ((sets[i].needs | sets[i].optional) >> m & 1)
            return true;
    return false;
}

static int refuse_map(const char *text, size_t bytes, const char *what, struct Error *e) {
    return error_set(e, -EINVAL, E_DATA_MAP, "--data-map %.*s: %s; %s", (int)bytes, text, what,
                     expected);
}

static int read_entry(struct DataMap *map, char *text, size_t bytes, unsigned *has,
                      struct Error *e) {
    char *equals = memchr(text, '=', bytes);
    size_t n = equals ? (size_t)(equals - text) : 0;
    if (!equals || n + 1 == bytes)
        return refuse_map(text, bytes, "it names no member", e);
    struct JsonSlice target = {text, n}, name = {equals + 1, bytes - n - 1};
    enum Member m = member_named(&target);
    // "system_prompt", which member_named knows, too, is no target.
    if (!is_target(m) || strlen(member_names[m]) != n)
        return refuse_map(text, bytes, "that target is not known", e);
    if (*has >> m & 1)
        return refuse_map(text, bytes, "that target is mapped twice", e);
    if (data_map_find(map, &name))
        return refuse_map(text, bytes, "that member is mapped twice", e);
    *has |= 1u << m;
    map->entry[map->count].target = m;
    map->entry[map->count++].name = name;
    return 0;
}

int data_map_read(struct DataMap *map, char *text, struct Error *e) {
    unsigned has = 0;
    int err = 0;
    bool ambiguous;
    *map = (struct DataMap){0};
    for (char *at = text, *comma; !err; at = comma + 1) {
        comma = strchr(at, ',');
        size_t bytes = comma ? (size_t)(comma - at) : strlen(at);
        err = map->count < DATA_MAP_MAX ? read_entry(map, at, bytes, &has, e)
                                        : refuse_map(text, strlen(text), "too many targets", e);
        if (!comma)
            break;
    }
    for (size_t i = 0; !err && i < sizeof sets / sizeof sets[0]; i++)
        if ((has & sets[i].needs) == sets[i].needs && !(has & ~(sets[i].needs | sets[i].optional)))
            map->shape = shape_find(has, &ambiguous);
    if (!err && !map->shape)
        err = refuse_map(text, strlen(text), "together they make no example", e);
    for (size_t i = 0; !err && i < map->count; i++)
        map->entry[i].name.text[map->entry[i].name.bytes] = 0;
    return err;
}

enum Member data_map_find(const struct DataMap *map, const struct JsonSlice *name) {
    for (size_t i = 0; i < map->count; i++) {
        const struct JsonSlice *own = &map->entry[i].name;
        if (own->bytes == name->bytes && !memcmp(own->text, name->text, own->bytes))
            return map->entry[i].target;
    }
    return MEMBER_NONE;
}
