// zstd, by libzstd: see unpack.h. A frame may say that it needs a window of gigabytes; more than
// WINDOW_LOG is refused, as zstd's own program does.
#include "data/unpack.h"
#include "kernels/base.h"

#include <zstd.h>
#include <zstd_errors.h>

enum { WINDOW_LOG = 27 };

// A frame, or one that is to be skipped (RFC 8878, 3.1.2).
static bool zst_begins(const uint8_t m[UNPACK_MAGIC_BYTES]) {
    bool frame = m[0] == 0x28 && m[1] == 0xb5 && m[2] == 0x2f && m[3] == 0xfd;
    return frame || ((m[0] & 0xf0) == 0x50 && m[1] == 0x2a && m[2] == 0x4d && m[3] == 0x18);
}

static void *zst_open(void) {
    ZSTD_DStream *z = ZSTD_createDStream();
    if (!z || ZSTD_isError(ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, WINDOW_LOG)))
        base_give_up("no memory to unpack zstd");
    return z;
}

static int zst_step(void *state, struct Unpacking *u, const char **wrong) {
    ZSTD_inBuffer in = {u->in, u->in_bytes, 0};
    ZSTD_outBuffer out = {u->out, u->out_bytes, 0};
    size_t said = ZSTD_decompressStream(state, &out, &in);
    u->in += in.pos;
    u->in_bytes -= in.pos;
    u->out += out.pos;
    u->out_bytes -= out.pos;
    if (!ZSTD_isError(said))
        return said == 0;
    ZSTD_ErrorCode code = ZSTD_getErrorCode(said);
    if (code == ZSTD_error_memory_allocation)
        base_give_up("no memory to unpack zstd");
    // Other names that the library has for what is wrong depend on how much room there was.
    *wrong = code == ZSTD_error_frameParameter_windowTooLarge
                 ? "it needs a window of more than 128 MiB; pack it without --long"
             : code == ZSTD_error_checksum_wrong ? "its checksum does not agree"
                                                 : "it is none of zstd's";
    return -1;
}

static void zst_close(void *state) {
    ZSTD_freeDStream(state);
}

const struct Unpack unpack_zst = {.ending = ".zst",
                                  .format = "zstd",
                                  .library = "libzstd",
                                  .package = "libzstd-dev",
                                  .begins = zst_begins,
                                  .open = zst_open,
                                  .step = zst_step,
                                  .close = zst_close};
