/* memory_left.h - how much more memory can be used before the kernel kills processes for lack of
 * memory, as the machine and this process's control groups (cgroups v1 and v2) report it; how many
 * processes the kernel has killed; and enough stack for a program and its threads. */
#ifndef CDDPI_BASE_MEMORY_LEFT_H
#define CDDPI_BASE_MEMORY_LEFT_H

#include "base/shared.h"

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_memory_left {
    uint64_t bytes;  /* includes caches that the kernel can drop; UINT64_MAX: unknown */
    char limit[512]; /* the limiting factor, for texts: "this machine", "the limit of 2.0 GiB of
                        ..." */
};

/** The smallest amount that the machine, this process's control group and its parent groups have
 *  left. */
CDDPI_SHARED void cddpi_memory_left(struct cddpi_memory_left *out);

/** Check that @p bytes more can be used. @p format makes the beginning of the failure's text.
 *  @return CDDP_OK, also if unknown; CDDP_ERR_NO_MEMORY: the text says how much is needed, how much
 *          is available and which limit applies. */
CDDP_CHECKED cddp_status cddpi_memory_need(uint64_t bytes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Check that @p bytes of address space fit below the limit of ulimit -v (RLIMIT_AS). Always
 *  CDDP_OK without a limit. For foreign code that does not check its own allocations.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY: the text names the limit. */
CDDP_CHECKED cddp_status cddpi_address_space_need(uint64_t bytes, const char *what);

/** Whether ulimit -v (RLIMIT_AS) is set. */
CDDPI_SHARED bool cddpi_address_space_is_limited(void);

enum { CDDPI_SIZE_TEXT = 32 };

/** Print a size such as "1.5 GiB", "21.0 MiB" or "12 bytes" into @p out, which has CDDPI_SIZE_TEXT
 *  bytes. Returns @p out. */
CDDPI_SHARED const char *cddpi_print_size(uint64_t bytes, char *out);

/* How many processes the kernel has killed because memory ran out. */
struct cddpi_memory_kills {
    uint64_t count;
    char counter[512]; /* the file with the count; "": none */
    bool is_own;       /* the count is of this process's control group; else of the whole machine,
                          including other users' processes */
};

void cddpi_memory_kills(struct cddpi_memory_kills *out);

/** At the start of main(), before other threads exist: raise a stack limit (ulimit -s) that is too
 *  small to the usual size, as far as that is allowed. CDDP_ERR_UNAVAILABLE: the permitted size is
 *  too small, and the program would crash without a message. */
CDDP_CHECKED cddp_status cddpi_stack_ensure(void);

#endif
