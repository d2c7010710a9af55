// gzip, by zlib: see unpack.h. zlib compares checksum and length at a stream's end.
#include "data/unpack.h"
#include "kernels/base.h"

#include <stdlib.h>
#include <zlib.h>

enum { WINDOW_BITS = 15, GZIP_ONLY = 16 };

static bool gz_begins(const uint8_t magic[UNPACK_MAGIC_BYTES]) {
    return magic[0] == 0x1f && magic[1] == 0x8b;
}

static void *gz_open(void) {
    z_stream *z = base_alloc_zeroed(sizeof *z);
    if (inflateInit2(z, WINDOW_BITS + GZIP_ONLY) != Z_OK)
        base_give_up(E_MEMORY_REFUSED, "no memory to unpack gzip; end other programs");
    return z;
}

static int gz_step(void *state, struct Unpacking *u, const char **wrong) {
    z_stream *z = state;
    z->next_in = (Bytef *)(uintptr_t)u->in;
    z->avail_in = (uInt)size_min(u->in_bytes, 1 << 30);
    z->next_out = u->out;
    z->avail_out = (uInt)size_min(u->out_bytes, 1 << 30);
    int result = inflate(z, Z_NO_FLUSH);
    u->in_bytes -= (size_t)(z->next_in - u->in);
    u->in = z->next_in;
    u->out_bytes -= (size_t)(z->next_out - u->out);
    u->out = z->next_out;
    if (result == Z_MEM_ERROR)
        base_give_up(E_MEMORY_REFUSED, "no memory to unpack gzip; end other programs");
    if (result == Z_STREAM_END) {
        inflateReset(z);
        return 1;
    }
    *wrong = z->msg ? z->msg : "it is not gzip data";
    return result == Z_OK || result == Z_BUF_ERROR ? 0 : -1; // Z_BUF_ERROR: no progress for now
}

static void gz_close(void *state) {
    inflateEnd(state);
    free(state);
}

const struct Unpack unpack_gz = {.ending = ".gz",
                                 .format = "gzip",
                                 .library = "zlib",
                                 .package = "zlib1g-dev",
                                 .padded = true,
                                 .begins = gz_begins,
                                 .open = gz_open,
                                 .step = gz_step,
                                 .close = gz_close};
