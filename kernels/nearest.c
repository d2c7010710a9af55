// Edit distance: see nearest.h.
#include "kernels/nearest.h"
#include "kernels/base.h"

#include <stdint.h>
#include <string.h>

enum { NAME_LENGTH_MAX = 64 };

// Three rows of the table are enough.
size_t nearest_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    if (n > NAME_LENGTH_MAX || m > NAME_LENGTH_MAX)
        return SIZE_MAX;
    size_t rows[3][NAME_LENGTH_MAX + 1];
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3], *before = rows[(i + 2) % 3], *before2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = size_min(size_min(before[j], row[j - 1]) + 1,
                              before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = size_min(row[j], before2[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

size_t nearest_limit(const char *name) {
    return size_max(strlen(name) / 3, 1) + 1;
}
