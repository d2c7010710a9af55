// --data-map: names the members of a line, for data that have names of their own.
//
// "prompt=question,completion=reply" reads those two members, and no other. The targets are members
// of a shape (shape.h). Read by data/flags/ to check it and by example.c; used by line.c.
#ifndef DATA_CHAT_MAP_H
#define DATA_CHAT_MAP_H
#include "data/chat/shape.h"

enum { DATA_MAP_MAX = 4 };

struct DataMap {
    const struct Shape *shape;
    struct {
        enum Member target;
        struct JsonSlice name; // lies in the flag's text
    } entry[DATA_MAP_MAX];
    size_t count;
};

// Reads TARGET=MEMBER,...; changes `text`, which must outlive the map. Errors: -EINVAL for other
// text, an unknown target, a target or a member given twice, and targets that make no example.
int data_map_read(struct DataMap *map, char *text, struct Error *e);

// Returns the target of a member; MEMBER_NONE: it is not mapped.
enum Member data_map_find(const struct DataMap *map, const struct JsonSlice *name);

#endif
