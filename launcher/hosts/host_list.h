/* host_list.h - the hosts on which one cddp-run starts a job: --hosts and --hostfile. */
#ifndef CDDPI_LAUNCHER_HOSTS_H
#define CDDPI_LAUNCHER_HOSTS_H

#include <cddp/status.h>

#include <stddef.h>

enum { CDDPI_MAX_NODES = 4096, CDDPI_HOST_BYTES = 256 };

struct cddpi_host {
    char name[CDDPI_HOST_BYTES]; /* host name, optionally with USER@ in front; never starts with
                                    "-" */
    int slots;                   /* number of ranks there; 0: not given */
    int max_slots;               /* 0: not given */
};

/* Zeroed is empty. Each host appears once, in the order of first mention. */
struct cddpi_hosts {
    struct cddpi_host *hosts;
    int count;
    int capacity;
};

/** Parse "a:4,b:2,c": host names, each with an optional colon and number of ranks. An IPv6 address
 *  is in brackets. If a host is named several times, its numbers are added, and each mention
 *  without a number counts as 1.
 *  @param out  Release with cddpi_hosts_fini().
 *  @return CDDP_ERR_ARGUMENT (the message shows the wrong part), CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_hosts_parse_list(const char *text, struct cddpi_hosts *out);

/** Parse the text of a host file. A line is empty, "host", "host:4", or "host slots=4 max_slots=8"
 *  (also max-slots); "#" begins a comment. Messages name @p shown and the line. */
CDDP_CHECKED cddp_status cddpi_hosts_parse_text(const char *text, size_t bytes, const char *shown,
                                                struct cddpi_hosts *out);

/** As cddpi_hosts_parse_text(), but reads the file @p path. */
CDDP_CHECKED cddp_status cddpi_hosts_read(const char *path, struct cddpi_hosts *out);

void cddpi_hosts_fini(struct cddpi_hosts *hosts);

#endif
