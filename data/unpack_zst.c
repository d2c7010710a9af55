// zstd, by libzstd: see unpack.h. A frame may ask for a window of gigabytes; more than WINDOW_LOG
// is refused, as by zstd's own program.
#include "data/unpack.h"
#include "kernels/base.h"

#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { WINDOW_LOG = 27 };

// True for a frame, or a skippable frame (RFC 8878, 3.1.2).
static bool zst_begins(const uint8_t m[UNPACK_MAGIC_BYTES]) {
    bool frame = m[0] == 0x28 && m[1] == 0xb5 && m[2] == 0x2f && m[3] == 0xfd;
    return frame || ((m[0] & 0xf0) == 0x50 && m[1] == 0x2a && m[2] == 0x4d && m[3] == 0x18);
}

// The library does not always compare a frame's length with its header, so this does.
struct Zst {
    ZSTD_DStream *z;
    bool inside;                   // of a frame
    unsigned long long says, made; // its length: by the header, and unpacked so far
};

static void *zst_open(void) {
    struct Zst *s = base_alloc_zeroed(sizeof *s);
    s->z = ZSTD_createDStream();
    if (!s->z || ZSTD_isError(ZSTD_DCtx_setParameter(s->z, ZSTD_d_windowLogMax, WINDOW_LOG)))
        base_give_up(E_MEMORY_REFUSED, "no memory to unpack zstd; end other programs");
    return s;
}

static int end_frame(struct Zst *s, const char **wrong) {
    bool known = s->says != ZSTD_CONTENTSIZE_UNKNOWN && s->says != ZSTD_CONTENTSIZE_ERROR;
    *wrong = "its length does not agree";
    s->inside = false;
    return known && s->says != s->made ? -1 : 1; // as `step` of struct Unpack
}

static int zst_step(void *state, struct Unpacking *u, const char **wrong) {
    struct Zst *s = state;
    ZSTD_inBuffer in = {u->in, u->in_bytes, 0};
    ZSTD_outBuffer out = {u->out, u->out_bytes, 0};
    if (!s->inside) {
        s->says = ZSTD_getFrameContentSize(u->in, u->in_bytes);
        s->made = 0;
        s->inside = true;
    }
    size_t result = ZSTD_decompressStream(s->z, &out, &in);
    s->made += out.pos;
    u->in += in.pos;
    u->in_bytes -= in.pos;
    u->out += out.pos;
    u->out_bytes -= out.pos;
    if (!ZSTD_isError(result))
        return result ? 0 : end_frame(s, wrong);
    ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_memory_allocation)
        base_give_up(E_MEMORY_REFUSED, "no memory to unpack zstd; end other programs");
    // The library's other errors depend on how much space there was.
    *wrong = code == ZSTD_error_frameParameter_windowTooLarge
                 ? "it needs a window of more than 128 MiB; pack it without --long"
             : code == ZSTD_error_checksum_wrong ? "its checksum does not agree"
                                                 : "it is not zstd data";
    return -1;
}

static void zst_close(void *state) {
    struct Zst *s = state;
    ZSTD_freeDStream(s->z);
    free(s);
}

const struct Unpack unpack_zst = {.ending = ".zst",
                                  .format = "zstd",
                                  .library = "libzstd",
                                  .package = "libzstd-dev",
                                  .begins = zst_begins,
                                  .open = zst_open,
                                  .step = zst_step,
                                  .close = zst_close};
