/* host_list.h - the list of hosts on which one cddp-run starts a job: --hosts and --hostfile. */
#ifndef CDDPI_LAUNCHER_HOSTS_H
#define CDDPI_LAUNCHER_HOSTS_H

#include <cddp/status.h>

#include <stddef.h>

enum { CDDPI_MAX_NODES = 4096, CDDPI_HOST_BYTES = 256 };

struct cddpi_host {
    char name[CDDPI_HOST_BYTES]; /* of the host, perhaps with USER@ in front; never "-..." */
    int slots;                   /* ranks there; 0: it was not said */
    int max_slots;               /* 0: none said */
};

/* Zeroed is empty; each host stands in it once, in the order of first mentions. */
struct cddpi_hosts {
    struct cddpi_host *hosts;
    int count;
    int capacity;
};

/** Read "a:4,b:2,c": names, each with its number of ranks after a colon. An IPv6 address is in
 *  brackets. The ranks of a host that is named twice are added.
 *  @param out  Release with cddpi_hosts_fini().
 *  @return CDDP_ERR_ARGUMENT (the text shows the wrong part), CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_hosts_parse_list(const char *text, struct cddpi_hosts *out);

/** Read the text of a host file: a line is empty, or "host", "host:4", or "host slots=4
 *  max_slots=8" (also max-slots); "#" begins a comment. Texts name @p shown and the line. */
CDDP_CHECKED cddp_status cddpi_hosts_parse_text(const char *text, size_t bytes, const char *shown,
                                                struct cddpi_hosts *out);

/** The same from the file @p path. */
CDDP_CHECKED cddp_status cddpi_hosts_read(const char *path, struct cddpi_hosts *out);

void cddpi_hosts_fini(struct cddpi_hosts *hosts);

#endif
