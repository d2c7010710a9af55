// --data-map: which member of a line is what, where data have names of their own.
//
// "prompt=question,completion=reply" reads those two members, and no other. What can be said is
// what a shape needs (shape.h). Read by data/flags/ to check it and by data/text/loader_source.c;
// used by line.c.
#ifndef DATA_CHAT_MAP_H
#define DATA_CHAT_MAP_H
#include "data/chat/shape.h"

enum { DATA_MAP_MAX = 4 };

struct DataMap {
    const struct Shape *shape;
    struct {
        enum Member target;
        struct JsonSlice name; // in the flag's text
    } entry[DATA_MAP_MAX];
    size_t count;
};

// `text` must outlive the map, and stays as it is. Errors: -EINVAL for what is no TARGET=MEMBER, an
// unknown target, one that is mapped twice, a member that is taken twice, and targets that make no
// example together.
int data_map_read(struct DataMap *map, char *text, struct Error *e);

// The target of a member; MEMBER_NONE: nobody asked for it.
enum Member data_map_find(const struct DataMap *map, const struct JsonSlice *name);

#endif
