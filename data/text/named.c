// Reads the names of --data: see named.h.
#include "data/text/named.h"
#include "data/text/mix.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Returns the ":WEIGHT" at the end of the name, or NULL.
static const char *find_weight(const char *name) {
    const char *colon = strrchr(name, ':'), *scheme = strstr(name, "://");
    if (!colon || colon == name || colon == scheme || !access(name, F_OK))
        return NULL;
    if (scheme && !memchr(scheme + 3, '/', (size_t)(colon - scheme) - 3))
        return NULL; // a port
    return isdigit((unsigned char)colon[1]) || colon[1] == '-' || colon[1] == '.' ? colon : NULL;
}

// Reads NAME or NAME:WEIGHT. The source takes the line, of which the name is left.
static int read_named_source(struct NamedSource *s, char *line, struct Error *e) {
    const char *colon = find_weight(line);
    *s = (struct NamedSource){line, 1};
    if (!*line)
        return error_set(e, -EINVAL, E_DATA_NAMES,
                         "--data '': the name is empty; give a file, a folder or a URL");
    if (!colon)
        return 0;
    char *end;
    errno = 0;
    unsigned long weight = strtoul(colon + 1, &end, 10);
    if (!isdigit((unsigned char)colon[1]) || *end || errno || !weight || weight > MIX_WEIGHT_MAX)
        return error_set(e, -EINVAL, E_DATA_NAMES,
                         "--data %s: its weight is not a whole number from 1 to %d, and no file "
                         "has that name; correct the weight or the name",
                         line, MIX_WEIGHT_MAX);
    s->weight = weight;
    line[colon - line] = 0; // the name alone
    return 0;
}

int named_read(struct NamedSources *n, const char *data, struct Error *e) {
    int code = 0;
    *n = (struct NamedSources){0};
    while (!code && data) {
        const char *end = strchr(data, '\n');
        char *line = base_format("%.*s", (int)(end ? end - data : (long)strlen(data)), data);
        n->source = base_realloc(n->source, (n->count + 1) * sizeof *n->source, "sources");
        code = read_named_source(&n->source[n->count++], line, e);
        data = end ? end + 1 : NULL;
    }
    if (!code && n->count > MIX_SOURCES_MAX)
        code = error_set(e, -EINVAL, E_DATA_NAMES, "--data: %zu sources; expected at most %d",
                         n->count, MIX_SOURCES_MAX);
    if (code)
        named_free(n);
    return code;
}

void named_free(struct NamedSources *n) {
    for (size_t i = 0; i < n->count; i++)
        free(n->source[i].name);
    free(n->source);
    *n = (struct NamedSources){0};
}
