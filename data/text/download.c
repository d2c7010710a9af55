// Downloads by libcurl: see download.h for what is promised.
//
// One attempt is one request. What it brings is judged in three places: the first bytes of the body
// decide whether the server continues the part we have (206) or starts over (200); the end of the
// transfer decides whether another attempt makes sense; and size and checksum decide whether the
// file is the right one (data/text/part.c, which keeps what has come).
#include "data/text/download.h"
#include "data/cache.h"
#include "data/file.h"
#include "data/text/part.h"
#include "kernels/show.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FEW_TRIES = 2 }; // where there is no connection, or hardly one

// A transfer slower than this, for as long as a server may be silent, is given up: a megabyte would
// take a quarter of an hour.
static const long LEAST_RATE = 1000; // bytes/s

// No token shard has more than 4 GiB, and no text that fits into memory is much larger.
static const uint64_t BYTES_MAX = (uint64_t)16 << 30;

enum Verdict { DONE, AGAIN, AFRESH, GIVE_UP }; // what one attempt came to

struct CurlTransfer {
    const struct Download *d;
    CURL *curl;
    struct Part part;
    bool continued; // the part was put together from more than one answer
    struct Error disk;
    int disk_code; // of a failed write, with its line in `disk`

    // The state of one attempt:
    uint64_t have_at_begin;
    char answer_tag[PART_TAG_BYTES];
    uint64_t answer_from; // Content-Range: the first byte
    bool began;           // the body has begun
    bool mixed_up;        // it continues at another place than asked
    bool too_large;       // more comes than the file may have
    bool slow;            // bytes came until the timeout, but slower than LEAST_RATE
    double came_s;        // when the last of it came
    char curl_text[CURL_ERROR_SIZE];

    double begin_s, logged_s; // progress
    bool terminal;
};

static void start_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static long response_status(struct CurlTransfer *t) {
    long status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    return status; // 0 for a file:// URL
}

// ---- progress -----------------------------------------------------------------------------------

static void show_progress(struct CurlTransfer *t) {
    double now = base_seconds();
    if (log_level == LOG_QUIET || now - t->logged_s < (t->terminal ? 0.1 : 10.0))
        return;
    curl_off_t left = -1;
    curl_easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &left);
    double mb = (double)t->part.have * 1e-6, total = (double)t->d->bytes * 1e-6;
    if (!t->d->bytes && left > 0)
        total = ((double)t->have_at_begin + (double)left) * 1e-6;
    double rate = (double)(t->part.have - t->have_at_begin) * 1e-6 / (now - t->begin_s + 1e-9);
    char text[160], of[32] = "", shown[512];
    show_line(shown, sizeof shown, t->d->url);
    const char *slash = strrchr(shown, '/');
    if (total > 0)
        snprintf(of, sizeof of, " of %.1f", total);
    snprintf(text, sizeof text, "downloading %.60s: %.1f%s MB, %.1f MB/s",
             slash ? slash + 1 : shown, mb, of, rate);
    if (t->terminal)
        fprintf(stderr, "\r\033[K%s", text);
    else
        log_line(LOG_NORMAL, "%s", text);
    t->logged_s = now;
}

static void clear_progress(struct CurlTransfer *t) {
    if (t->terminal && log_level != LOG_QUIET)
        fputs("\r\033[K", stderr);
}

// ---- one attempt --------------------------------------------------------------------------------

// Reads a line of a head, "NAME: VALUE". A redirection answers several times: the last one counts.
// A weak tag promises no equality of bytes, so it is not used; a date is the second choice.
static size_t on_header(char *bytes, size_t size, size_t count, void *user) {
    struct CurlTransfer *t = user;
    char *line = base_format("%.*s", (int)(size * count), bytes);
    line[strcspn(line, "\r\n")] = 0;
    char *value = line + strcspn(line, ":");
    if (*value)
        *value++ = 0;
    value += strspn(value, " ");
    if (!strncmp(line, "HTTP/", 5))
        t->answer_tag[0] = 0;
    if (!strcasecmp(line, "ETag") && value[0] == '"')
        snprintf(t->answer_tag, sizeof t->answer_tag, "%s", value);
    if (!strcasecmp(line, "Last-Modified") && !t->answer_tag[0])
        snprintf(t->answer_tag, sizeof t->answer_tag, "%s", value);
    if (!strcasecmp(line, "Content-Range") && !strncasecmp(value, "bytes ", 6))
        t->answer_from = strtoull(value + 6, NULL, 10);
    free(line);
    return size * count;
}

// Decides at a body's first bytes whether it continues the part, or is the file from its beginning.
// False: the transfer must end.
static bool begin_body(struct CurlTransfer *t) {
    t->began = true;
    if (response_status(t) == 206) {
        t->mixed_up = t->answer_from != t->part.have;
        t->continued = true;
        return !t->mixed_up;
    }
    t->have_at_begin = 0;
    t->continued = false;
    t->disk_code = part_start_over(&t->part, t->answer_tag, &t->disk);
    return !t->disk_code;
}

static uint64_t bytes_max(const struct Download *d) {
    return d->bytes ? d->bytes : d->bytes_max ? d->bytes_max : BYTES_MAX;
}

// Returns less than the bytes given to end the transfer.
static size_t on_body(char *bytes, size_t size, size_t count, void *user) {
    struct CurlTransfer *t = user;
    size_t n = size * count;
    t->came_s = base_seconds();
    if (response_status(t) >= 300)
        return n; // the text of a refusal
    if (!t->began && !begin_body(t))
        return 0;
    t->too_large = t->part.have + n > bytes_max(t->d);
    if (t->too_large)
        return 0;
    t->disk_code = part_append(&t->part, bytes, n, &t->disk);
    if (t->disk_code)
        return 0;
    show_progress(t);
    return n;
}

// Sets the protocols that may be used, and those of redirections: by names from libcurl 7.85 on,
// before it by bits.
#if LIBCURL_VERSION_NUM >= 0x075500
static void set_protocols(CURL *c, bool secure, bool local) {
    const char *web = secure ? "https" : "http,https";
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, local ? "file" : web);
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, web);
}
#else
static void set_protocols(CURL *c, bool secure, bool local) {
    long web = secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS;
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, local ? CURLPROTO_FILE : web);
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS, web);
}
#endif

static bool is_file_url(const char *url) {
    return !strncmp(url, "file:", 5);
}

static double stall_seconds(const struct Download *d) {
    return d->stall_s > 0 ? d->stall_s : 30;
}

static struct curl_slist *set_options(struct CurlTransfer *t) {
    double stall_s = stall_seconds(t->d);
    CURL *c = t->curl;
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, t->d->url);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->curl_text);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "zero.c");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 10L);
    set_protocols(c, !strncmp(t->d->url, "https:", 6), is_file_url(t->d->url));
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(1000 * stall_s));
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, LEAST_RATE);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)(stall_s < 1 ? 1 : stall_s));
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    char range[64] = "", line[PART_TAG_BYTES + 16];
    struct curl_slist *headers = NULL;
    if (t->part.have) {
        snprintf(range, sizeof range, "%llu-", (unsigned long long)t->part.have);
        snprintf(line, sizeof line, "If-Range: %s", t->part.tag);
        if (t->part.tag[0])
            headers = curl_slist_append(NULL, line);
    }
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    if (range[0])
        curl_easy_setopt(c, CURLOPT_RANGE, range);
    return headers;
}

// Judges a transfer that libcurl does not complain of, by the server's status.
static enum Verdict judge_status(struct CurlTransfer *t, int *code, struct Error *e) {
    long status = response_status(t);
    if (status < 300) {
        *code = 0;
        if (!t->began) // a file of no bytes
            *code = part_start_over(&t->part, t->answer_tag, e);
        return *code ? GIVE_UP : DONE;
    }
    if (status == 416 && t->part.have) {
        *code = error_set(e, -EIO, E_URL_BROKEN, "%s: the server cannot continue the download",
                          t->d->url);
        return AFRESH;
    }
    const char *meaning =
        status == 404   ? " (there is no such file); check the address"
        : status == 403 ? " (access is forbidden); download it by other means and give the file"
        : status == 408 || status == 429 ? "; try again later"
        : status >= 500                  ? " (the server has an error); try again later"
                                         : "; check the address";
    *code = error_set(e, status == 404 || status == 410 ? -ENOENT : -EACCES, E_URL_STATUS,
                      "%s: the server answers %ld%s", t->d->url, status, meaning);
    return status >= 500 || status == 408 || status == 429 ? AGAIN : GIVE_UP;
}

static enum Verdict judge_failure(struct CurlTransfer *t, CURLcode result, int *code,
                                  struct Error *e) {
    const char *url = t->d->url;
    const char *text = t->curl_text[0] ? t->curl_text : curl_easy_strerror(result);
    if (t->disk_code) {
        *code = t->disk_code;
        *e = t->disk;
        return GIVE_UP;
    }
    if (t->too_large && t->d->bytes) {
        *code = error_set(e, -EBADMSG, E_URL_SIZE, "%s: the server sends more than its %llu bytes",
                          url, (unsigned long long)t->d->bytes);
        return GIVE_UP;
    }
    if (t->too_large) {
        *code = error_set(e, -EFBIG, E_URL_SIZE,
                          "%s: the server sends more than %llu bytes without an end; download it "
                          "by other means and give the file",
                          url, (unsigned long long)bytes_max(t->d));
        return GIVE_UP;
    }
    if (t->mixed_up) {
        *code =
            error_set(e, -EIO, E_URL_BROKEN, "%s: the server sent another part than asked", url);
        return AFRESH;
    }
    switch (result) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        *code = error_set(e, -ECONNREFUSED, E_URL_CONNECTION,
                          "%s: cannot connect: %s; check the address and the network", url, text);
        return AGAIN;
    case CURLE_OPERATION_TIMEDOUT:
        t->slow = t->came_s > base_seconds() - stall_seconds(t->d) / 2;
        *code = error_set(e, -ETIMEDOUT, E_URL_STALLED, "%s: the server %s: %s", url,
                          t->slow ? "sends too slowly" : "has stopped sending", text);
        return AGAIN;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
        *code = error_set(e, -EIO, E_URL_BROKEN, "%s: the transfer broke off: %s", url, text);
        return AGAIN;
    case CURLE_UNSUPPORTED_PROTOCOL:
        *code = error_set(e, -EACCES, E_URL_SCHEME,
                          "%s: it redirects to a URL that is not allowed (%s); give the final URL",
                          url, text);
        return GIVE_UP;
    case CURLE_FILE_COULDNT_READ_FILE:
        *code = error_set(e, -ENOENT, E_FILE_READ, "%s: %s; check the path", url, text);
        break;
    default:
        *code = error_set(e, -EIO, E_URL_BROKEN, "%s: %s", url, text);
    }
    return GIVE_UP;
}

static enum Verdict attempt(struct CurlTransfer *t, int *code, struct Error *e) {
    t->began = t->mixed_up = t->too_large = t->slow = false;
    t->came_s = 0;
    t->answer_tag[0] = t->curl_text[0] = 0;
    t->answer_from = UINT64_MAX;
    t->have_at_begin = t->part.have;
    t->begin_s = base_seconds();
    struct curl_slist *headers = set_options(t);
    CURLcode result = curl_easy_perform(t->curl);
    curl_slist_free_all(headers);
    clear_progress(t);
    return result ? judge_failure(t, result, code, e) : judge_status(t, code, e);
}

// Attempts until one is whole, and checked. One that came further than all before resets the count:
// a bad line that breaks again and again is worth waiting for, if it brings LEAST_RATE in between.
// Where it does not, or not even a connection comes about, patience is shorter: most often there is
// no network at all.
static int attempt_until_done(struct CurlTransfer *t, struct Error *e) {
    const struct Download *d = t->d;
    int code = 0, tries = d->tries ? d->tries : 5, failed = 0;
    double first_pause_s = d->pause_s > 0 ? d->pause_s : 1, pause_s = first_pause_s;
    uint64_t furthest = t->part.have;
    for (;;) {
        enum Verdict v = attempt(t, &code, e);
        if (v == DONE)
            return part_check(&t->part, d->url, e);
        if (v == GIVE_UP)
            return code;
        if (t->part.have > furthest && !t->slow)
            failed = 0, pause_s = first_pause_s, furthest = t->part.have;
        bool few = (code == -ECONNREFUSED || t->slow) && tries > FEW_TRIES;
        if (++failed >= (few ? FEW_TRIES : tries))
            return code;
        bool starts_over = v == AFRESH || !part_may_continue(&t->part);
        struct Error disk;
        if (starts_over && part_start_over(&t->part, "", &disk)) {
            *e = disk;
            return -EIO;
        }
        log_line(LOG_NORMAL, "%s; trying again in %.1f s", e->text, pause_s);
        usleep((useconds_t)(pause_s * 1e6));
        pause_s = pause_s * 2 > 30 ? 30 : pause_s * 2;
    }
}

// ---- what others call ---------------------------------------------------------------------------

static void open_transfer(struct CurlTransfer *t, const struct Download *d) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_curl);
    *t = (struct CurlTransfer){.d = d, .part.fd = -1, .logged_s = base_seconds()};
    t->terminal = isatty(STDERR_FILENO);
    t->curl = curl_easy_init();
    CHECK(t->curl, "curl_easy_init");
}

// Adds to the last failure what to do about it, where its line does not say that.
static int add_advice(int code, struct Error *e) {
    struct Error last = *e;
    bool lacks_advice = code == -EBADMSG || last.id == E_URL_BROKEN || last.id == E_URL_STALLED;
    return lacks_advice
               ? error_set(e, code, last.id,
                           "%s; check the address, try again later, or download it by other means "
                           "and give the file",
                           last.text)
               : code;
}

// Fetches into the part until it is whole and right. Pieces that do not fit each other show in the
// checksum: then once more from the beginning.
static int fetch_part(struct CurlTransfer *t, struct Error *e) {
    int code = 0;
    t->continued = t->part.have > 0;
    if (!part_may_continue(&t->part) || is_file_url(t->d->url)) // no versions there
        code = part_start_over(&t->part, "", e);
    if (!code)
        code = attempt_until_done(t, e);
    if (code == -EBADMSG && t->continued) {
        log_line(LOG_NORMAL, "%s; downloading again from the beginning", e->text);
        code = part_start_over(&t->part, "", e);
        if (!code)
            code = attempt_until_done(t, e);
    }
    if (code == -EBADMSG || code == -EFBIG || (code && !t->part.have))
        part_discard(&t->part);
    return code ? add_advice(code, e) : part_finish(&t->part, e);
}

// Refuses a file:// URL of anything but a regular file: a device never ends, a pipe may not begin.
static int check_local_url(const char *url, struct Error *e) {
    struct stat st;
    CURLU *parts = is_file_url(url) ? curl_url() : NULL;
    char *path = NULL;
    int code = 0;
    if (parts && !curl_url_set(parts, CURLUPART_URL, url, 0) &&
        !curl_url_get(parts, CURLUPART_PATH, &path, CURLU_URLDECODE) && !stat(path, &st) &&
        !S_ISREG(st.st_mode))
        code = error_set(e, -EINVAL, E_FILE_KIND,
                         "%s: it is %s: a file:// URL must name a regular file", url,
                         file_kind(st.st_mode));
    curl_free(path);
    curl_url_cleanup(parts);
    return code;
}

static int fetch_file(const struct Download *d, bool locked, struct Error *e) {
    struct CurlTransfer t;
    if (!locked)
        log_line(LOG_NORMAL,
                 "--cache %s: its disk has no locks: if this run ends before the download, the "
                 "next one begins it anew",
                 d->cache_dir);
    open_transfer(&t, d);
    int code = part_open(&t.part, d->path, d->sha256, d->bytes, locked, e);
    if (!code) {
        code = fetch_part(&t, e);
        if (!code)
            log_line(LOG_NORMAL, "downloaded %s (%.1f MB)", d->path, (double)t.part.have * 1e-6);
        part_close(&t.part);
    }
    curl_easy_cleanup(t.curl);
    return code;
}

// Fetches the file under the cache's lock, unless another run has fetched it meanwhile.
static int lock_and_fetch(const struct Download *d, struct Error *e) {
    struct Error damage;
    int lock = -1, code = check_local_url(d->url, e);
    if (!code)
        code = cache_lock(d->cache_dir, &lock, e);
    if (!code && !part_is_whole(d->path, d->sha256, &damage))
        code = fetch_file(d, lock >= 0, e);
    cache_unlock(d->cache_dir, lock);
    return code;
}

int download_file(const struct Download *d, struct Error *e) {
    struct Error damage;
    if (part_is_whole(d->path, d->sha256, &damage))
        return 0;
    if (damage.text[0])
        log_line(LOG_NORMAL, "%s; downloading it again", damage.text);
    return lock_and_fetch(d, e);
}
