/* rank_memory.c - owns memory that outlives the ranks of this machine. */
#include "launcher/supervise/rank_memory.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U /* Linux 6.3; there the kernel warns of memory without it */
#endif

/* Each rank has the descriptors of all ranks, and needs most of those that it may open itself. */
enum { FILE_SHARE = 8 };

static int make_one(void)
{
    int fd = memfd_create("cddp-rank", MFD_CLOEXEC | MFD_NOEXEC_SEAL);

    return fd >= 0 || errno != EINVAL ? fd : memfd_create("cddp-rank", MFD_CLOEXEC);
}

static cddp_status grow(struct cddpi_rank_memory *memory, int ranks)
{
    int *fds = cddpi_zalloc_array((size_t)ranks, sizeof *fds);

    CDDPI_TRY_MEMORY(fds != NULL, "no memory for %d descriptors", ranks);
    if (memory->count > 0) {
        memcpy(fds, memory->fds, (size_t)memory->count * sizeof *fds);
    }
    cddpi_free(memory->fds);
    memory->fds = fds;
    for (; memory->count < ranks; memory->count++) {
        int fd = make_one();

        if (fd < 0) {
            return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "memfd_create");
        }
        fds[memory->count] = fd;
    }
    return CDDP_OK;
}

static cddp_status make_all(struct cddpi_rank_memory *memory, int ranks, rlim_t file_limit)
{
    if (ranks > CDDPI_MACHINE_RANKS) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "at most %d ranks can have it",
                          CDDPI_MACHINE_RANKS);
    }
    if ((rlim_t)ranks > file_limit / FILE_SHARE) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "%d descriptors, and ranks may open only %llu (ulimit -n)", ranks,
                          (unsigned long long)file_limit);
    }
    return grow(memory, ranks);
}

cddp_status cddpi_rank_memory_hold(struct cddpi_rank_memory *memory, int ranks, rlim_t file_limit)
{
    cddp_status status;

    if (memory->is_lost || ranks <= memory->count) {
        return CDDP_OK;
    }
    status = make_all(memory, ranks, file_limit);
    if (status == CDDP_OK) {
        return CDDP_OK;
    }
    cddpi_rank_memory_release(memory);
    memory->is_lost = true;
    return cddpi_fail_prefix(status, "no memory outlives the ranks here, so a restart goes on from "
                                     "a checkpoint");
}

void cddpi_rank_memory_release(struct cddpi_rank_memory *memory)
{
    for (int i = 0; i < memory->count; i++) {
        cddpi_fd_close(&memory->fds[i]);
    }
    cddpi_free(memory->fds);
    *memory = (struct cddpi_rank_memory){.fds = NULL};
}

void cddpi_rank_memory_text(const struct cddpi_rank_memory *memory,
                            char out[CDDPI_RANK_MEMORY_TEXT_BYTES])
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < memory->count; i++) {
        used += (size_t)snprintf(out + used, CDDPI_RANK_MEMORY_TEXT_BYTES - used, "%s%d",
                                 i > 0 ? "," : "", memory->fds[i]);
    }
}

void cddpi_rank_memory_pass(const struct cddpi_rank_memory *memory)
{
    for (int i = 0; i < memory->count; i++) {
        (void)fcntl(memory->fds[i], F_SETFD, 0);
    }
}
