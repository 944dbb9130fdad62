/* memory_left.h - how much memory can still be taken before the kernel kills processes for it, as
 * the machine and this process's control groups (cgroups, version 1 or 2) say; and how many it has
 * killed. */
#ifndef CDDPI_BASE_MEMORY_LEFT_H
#define CDDPI_BASE_MEMORY_LEFT_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_memory_left {
    uint64_t bytes;  /* what caches hold and could give up included; UINT64_MAX: not known */
    char limit[512]; /* what limits it, for texts: "this machine", "the limit of 2.0 GiB of ..." */
};

/** The least of what the machine, this process's control group and those above it have left. */
void cddpi_memory_left(struct cddpi_memory_left *out);

/** Whether @p bytes more can be taken. @p format makes the beginning of the failure's text.
 *  @return CDDP_OK, also when it is not known; CDDP_ERR_NO_MEMORY: the text says how much is
 *          needed, how much there is and which limit that is. */
CDDP_CHECKED cddp_status cddpi_memory_need(uint64_t bytes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Whether there is room for @p bytes of addresses below the limit of ulimit -v (RLIMIT_AS);
 * without a limit there always is. For what is not ours and does not check.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY: the text names the limit. */
CDDP_CHECKED cddp_status cddpi_address_space_need(uint64_t bytes, const char *what);

/** Whether ulimit -v (RLIMIT_AS) is set. */
bool cddpi_address_space_is_limited(void);

enum { CDDPI_SIZE_TEXT = 32 };

/** "1.5 GiB", "21.0 MiB", "12 bytes" into @p out of CDDPI_SIZE_TEXT bytes, which is returned. */
const char *cddpi_print_size(uint64_t bytes, char *out);

/* How many processes the kernel has killed because memory ran out. */
struct cddpi_memory_kills {
    uint64_t count;
    char counter[512]; /* the file that counts; "": there is none */
    bool is_own; /* it counts this process's control group; else the whole machine, others' too */
};

void cddpi_memory_kills(struct cddpi_memory_kills *out);

#endif
