/* segment.c - memory of cddp_group_alloc(): a memfd of each rank, mapped by all of them. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What an allocation carries from stage to stage. */
struct pending {
    struct host_segment *segment;
    int fd;
};

static void segment_destroy(struct host_segment *segment, int size)
{
    if (segment == NULL) {
        return;
    }
    for (int r = 0; segment->at != NULL && r < size; r++) {
        if (segment->at[r] != NULL) {
            munmap(segment->at[r], host_pages(segment->bytes));
        }
    }
    cddpi_free(segment->at);
    cddpi_free(segment);
}

struct host_segment *cddpi_host_find(struct cddpi_backend *host, const void *data, size_t bytes)
{
    struct host_segment *found = NULL;

    pthread_mutex_lock(&host->segments_mutex);
    for (struct host_segment *s = host->segments; s != NULL && found == NULL; s = s->next) {
        uintptr_t offset = (uintptr_t)data - (uintptr_t)s->at[host->rank];

        if (offset < s->bytes && bytes <= s->bytes - offset) {
            found = s;
        }
    }
    pthread_mutex_unlock(&host->segments_mutex);
    return found;
}

struct host_segment *cddpi_host_segment(struct cddpi_backend *host, uint32_t id)
{
    struct host_segment *found;

    pthread_mutex_lock(&host->segments_mutex);
    for (found = host->segments; found != NULL && found->id != id; found = found->next) {
    }
    pthread_mutex_unlock(&host->segments_mutex);
    return found;
}

/* Page faults now, not in the first step. Old kernels do not know it: then they come later. */
static void *map(int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    (void)madvise(memory, bytes, MADV_POPULATE_WRITE);
#endif
    return memory;
}

cddp_status cddpi_host_alloc_own(struct cddpi_backend *host, struct cddpi_group_op *op, int *out_fd)
{
    struct pending *pending = cddpi_zalloc(sizeof *pending);
    size_t bytes = host_pages(op->count > 0 ? op->count : 1);
    struct host_segment *segment;

    if (pending == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "group_alloc: no memory");
    }
    op->scratch = pending;
    pending->fd = -1;
    segment = pending->segment = cddpi_zalloc(sizeof *segment);
    if (segment == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "group_alloc: no memory");
    }
    segment->bytes = op->count > 0 ? op->count : 1;
    segment->at = cddpi_zalloc_array((size_t)host->size, sizeof *segment->at);
    pending->fd = memfd_create("cddp-memory", MFD_CLOEXEC);
    if (segment->at == NULL || pending->fd < 0 || ftruncate(pending->fd, (off_t)bytes) != 0) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "group_alloc of %zu bytes", op->count);
    }
    segment->at[host->rank] = map(pending->fd, bytes);
    if (segment->at[host->rank] == NULL) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "group_alloc of %zu bytes: map",
                                op->count);
    }
    *out_fd = pending->fd;
    return CDDP_OK;
}

cddp_status cddpi_host_alloc_map(struct cddpi_backend *host, struct cddpi_group_op *op)
{
    struct pending *pending = op->scratch;
    struct host_segment *segment = pending->segment;

    for (int r = 0; r < host->size; r++) {
        const struct host_rank *peer = &host->block->ranks[r];
        cddp_status status;
        int fd;

        if (r == host->rank) {
            continue;
        }
        status = cddpi_host_open_fd(peer->pid, peer->start_time,
                                    host_descriptor(host, r, op->number)->fd, &fd);
        if (status != CDDP_OK) {
            return status;
        }
        segment->at[r] = map(fd, host_pages(segment->bytes));
        close(fd);
        if (segment->at[r] == NULL) {
            return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno,
                                    "group_alloc: map %zu bytes of rank %d", segment->bytes, r);
        }
    }
    pthread_mutex_lock(&host->segments_mutex);
    segment->id = ++host->last_segment;
    segment->next = host->segments;
    host->segments = segment;
    pthread_mutex_unlock(&host->segments_mutex);
    pending->segment = NULL;
    *(void **)op->out = segment->at[host->rank];
    return CDDP_OK;
}

void cddpi_host_alloc_drop(struct cddpi_backend *host, struct cddpi_group_op *op)
{
    struct pending *pending = op->scratch;

    if (pending == NULL) {
        return;
    }
    if (pending->fd >= 0) {
        close(pending->fd);
    }
    segment_destroy(pending->segment, host->size);
    cddpi_free(pending);
    op->scratch = NULL;
}

bool cddpi_host_peers(struct cddpi_backend *host, const void *memory, size_t bytes,
                      const void **out)
{
    const struct host_segment *segment = cddpi_host_find(host, memory, bytes);

    for (int r = 0; segment != NULL && r < host->size; r++) {
        out[r] = (const char *)segment->at[r] +
                 ((const char *)memory - (const char *)segment->at[host->rank]);
    }
    return segment != NULL;
}

void cddpi_host_free(struct cddpi_backend *host, void *memory)
{
    struct host_segment **link;
    struct host_segment *segment;

    pthread_mutex_lock(&host->segments_mutex);
    for (link = &host->segments; *link != NULL && (*link)->at[host->rank] != memory;
         link = &(*link)->next) {
    }
    segment = *link;
    if (segment != NULL) {
        *link = segment->next;
    }
    pthread_mutex_unlock(&host->segments_mutex);
    segment_destroy(segment, host->size);
}

void cddpi_host_segments_fini(struct cddpi_backend *host)
{
    while (host->segments != NULL) {
        struct host_segment *next = host->segments->next;

        segment_destroy(host->segments, host->size);
        host->segments = next;
    }
}
