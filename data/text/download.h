// Files from the network, or why they cannot be had.
//
// A file arrives as PATH.part and becomes PATH when it is whole and its checksum is right. A
// transfer that breaks is taken up where it stopped, in this run after a pause or in a later run,
// provided that the server says the file is still the same one (If-Range, RFC 9110 section 13.1.5).
// Of two runs that want files of one cache the second waits. A file that is here is compared with
// its checksum, and fetched again where it is damaged. https stays https when a server sends us
// elsewhere, http goes to neither files nor FTP, a file:// URL must name a regular file, and what
// does not end is given up. Progress is a redrawn line on a terminal, a line every ten seconds
// elsewhere. data/text/download.c is the only user of libcurl; without it data/text/download_none.c
// says what to install. Called by data/text/sources.c.
#ifndef DATA_TEXT_DOWNLOAD_H
#define DATA_TEXT_DOWNLOAD_H
#include "kernels/base.h"

struct Download {
    const char *url;       // http, https or file
    const char *path;      // where it goes; its folder exists
    const char *cache_dir; // whose lock is held meanwhile, where it can be (data/cache.h)
    const char *sha256;    // 64 lowercase digits, or NULL: not known
    uint64_t bytes;        // 0: not known
    uint64_t bytes_max;    // where they are not: what is larger is given up; 0: 16 GiB
    int tries;             // attempts in a row that bring nothing, 0: 5
    double pause_s;        // before the second attempt, then doubled each time; 0: 1 s
    double stall_s;        // a server that sends hardly anything for so long is given up; 0: 30 s
};

// Returns when PATH is there and whole (at once if it was). Errors: -ENOENT for 404, -EACCES for
// other refusals of the server and where it leads to what is not followed, -ECONNREFUSED and the
// like when there is no connection, -EIO for a transfer that broke too often, -EBADMSG for a wrong
// checksum or size, -EFBIG past bytes_max, -EINVAL for a file:// URL of a device or pipe, -ENOSPC
// and others of the disk, -ENOTSUP without libcurl.
int download_file(const struct Download *d, struct Error *e);

#endif
