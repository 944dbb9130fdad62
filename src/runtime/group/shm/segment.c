/* segment.c - owns memory from cddp_group_alloc(): one memfd per rank, which all ranks map. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "group/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The state that an allocation keeps between its stages. */
struct allocation {
    struct shm_segment *segment;
    int fd;
};

/* Make the caller's memory private again, with its contents. If there is not enough memory for
 * that, it stays shared; only a forked child could notice. */
static void give_back(void *memory, size_t bytes)
{
    void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (own == MAP_FAILED) {
        return;
    }
    (void)madvise(own, bytes, MADV_HUGEPAGE);
    memcpy(own, memory, bytes);
    if (mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == MAP_FAILED) {
        munmap(own, bytes);
    }
}

static void segment_destroy(struct shm_segment *segment, int size)
{
    if (segment == NULL) {
        return;
    }
    if (segment->lent != NULL) {
        give_back(segment->lent, shm_pages(segment->bytes));
    }
    for (int r = 0; segment->at != NULL && r < size; r++) {
        if (segment->at[r] != NULL && segment->at[r] != segment->lent) {
            munmap(segment->at[r], shm_pages(segment->bytes));
        }
    }
    cddpi_free(segment->at);
    cddpi_free(segment);
}

struct shm_segment *cddpi_shm_find(struct shm_backend *shm, const void *data, size_t bytes)
{
    struct shm_segment *found = NULL;

    pthread_mutex_lock(&shm->segments_mutex);
    for (struct shm_segment *s = shm->segments; s != NULL && found == NULL; s = s->next) {
        uintptr_t offset = (uintptr_t)data - (uintptr_t)s->at[shm->rank];

        if (offset < s->bytes && bytes <= s->bytes - offset) {
            found = s;
        }
    }
    pthread_mutex_unlock(&shm->segments_mutex);
    return found;
}

struct shm_segment *cddpi_shm_segment(struct shm_backend *shm, uint32_t id)
{
    struct shm_segment *found;

    pthread_mutex_lock(&shm->segments_mutex);
    for (found = shm->segments; found != NULL && found->id != id; found = found->next) {
    }
    pthread_mutex_unlock(&shm->segments_mutex);
    return found;
}

/* Map the memory, with page faults now instead of in the first step. On old kernels they still
 * happen later. */
static void *map_memory(int fd, size_t bytes)
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

/* Replace the caller's pages by shared pages with the same contents, in one atomic step of the
 * kernel. */
static cddp_status lend_pages(struct shm_segment *segment, void **mapped, void *memory,
                              size_t bytes)
{
    memcpy(*mapped, memory, bytes);
    if (mremap(*mapped, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == MAP_FAILED) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "sharing a block of %zu bytes", bytes);
    }
    *mapped = segment->lent = memory;
    return CDDP_OK;
}

cddp_status cddpi_shm_alloc_own(struct shm_backend *shm, struct cddpi_group_op *op, int *out_fd)
{
    struct shm_progress *progress = shm_progress(op);
    struct allocation *allocation = cddpi_zalloc(sizeof *allocation);
    size_t bytes = shm_pages(op->count > 0 ? op->count : 1);
    struct shm_segment *segment;
    cddp_status status;

    CDDPI_TRY_MEMORY(allocation != NULL, "group_alloc: no memory");
    progress->scratch = allocation;
    allocation->fd = -1;
    segment = allocation->segment = cddpi_zalloc(sizeof *segment);
    CDDPI_TRY_MEMORY(segment != NULL, "group_alloc: no memory");
    segment->bytes = op->count > 0 ? op->count : 1;
    segment->at = cddpi_zalloc_array((size_t)shm->size, sizeof *segment->at);
    CDDPI_TRY_MEMORY(segment->at != NULL, "group_alloc: no memory");
    status = cddpi_process_share("cddp-memory", bytes, &allocation->fd);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "group_alloc");
    }
    segment->at[shm->rank] = map_memory(allocation->fd, bytes);
    if (segment->at[shm->rank] == NULL) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "group_alloc of %zu bytes: map",
                                op->count);
    }
    *out_fd = allocation->fd;
    return op->in == NULL
               ? CDDP_OK
               : lend_pages(segment, &segment->at[shm->rank], (void *)(uintptr_t)op->in, bytes);
}

cddp_status cddpi_shm_alloc_map(struct shm_backend *shm, struct cddpi_group_op *op)
{
    struct shm_progress *progress = shm_progress(op);
    struct allocation *allocation = progress->scratch;
    struct shm_segment *segment = allocation->segment;

    for (int r = 0; r < shm->size; r++) {
        const struct shm_rank *peer = &shm->block->ranks[r];
        int fd;

        if (r == shm->rank) {
            continue;
        }
        CDDPI_TRY(cddpi_process_open_fd(peer->pid, peer->start_time,
                                        shm_fingerprint(shm, r, op->number)->fd,
                                        shm_pages(segment->bytes), &fd));
        segment->at[r] = map_memory(fd, shm_pages(segment->bytes));
        close(fd);
        if (segment->at[r] == NULL) {
            return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno,
                                    "group_alloc: map %zu bytes of rank %d", segment->bytes,
                                    shm_name(shm, r));
        }
    }
    pthread_mutex_lock(&shm->segments_mutex);
    segment->id = ++shm->last_segment;
    segment->next = shm->segments;
    shm->segments = segment;
    pthread_mutex_unlock(&shm->segments_mutex);
    allocation->segment = NULL;
    *(void **)op->out = segment->at[shm->rank];
    return CDDP_OK;
}

void cddpi_shm_alloc_drop(struct cddpi_backend *backend, struct cddpi_group_op *op)
{
    struct shm_backend *shm = shm_of(backend);
    struct shm_progress *progress = shm_progress(op);
    struct allocation *allocation = progress->scratch;

    if (allocation == NULL) {
        return;
    }
    cddpi_fd_close(&allocation->fd);
    segment_destroy(allocation->segment, shm->size);
    cddpi_free(allocation);
    progress->scratch = NULL;
}

bool cddpi_shm_peers(struct cddpi_backend *backend, const void *memory, size_t bytes,
                     const void **out)
{
    struct shm_backend *shm = shm_of(backend);
    const struct shm_segment *segment = cddpi_shm_find(shm, memory, bytes);

    for (int r = 0; segment != NULL && r < shm->size; r++) {
        out[r] = (const char *)segment->at[r] +
                 ((const char *)memory - (const char *)segment->at[shm->rank]);
    }
    return segment != NULL;
}

uint64_t cddpi_shm_place(struct cddpi_backend *backend, const void *memory, size_t bytes)
{
    struct shm_backend *shm = shm_of(backend);
    enum { OFFSET_BITS = 44 };
    const struct shm_segment *segment = cddpi_shm_find(shm, memory, bytes);

    return segment == NULL
               ? 0
               : (uint64_t)segment->id << OFFSET_BITS |
                     (uint64_t)((const char *)memory - (const char *)segment->at[shm->rank]);
}

void cddpi_shm_free(struct cddpi_backend *backend, void *memory)
{
    struct shm_backend *shm = shm_of(backend);
    struct shm_segment **link;
    struct shm_segment *segment;

    pthread_mutex_lock(&shm->segments_mutex);
    for (link = &shm->segments; *link != NULL && (*link)->at[shm->rank] != memory;
         link = &(*link)->next) {
    }
    segment = *link;
    if (segment != NULL) {
        *link = segment->next;
    }
    pthread_mutex_unlock(&shm->segments_mutex);
    segment_destroy(segment, shm->size);
}

void cddpi_shm_segments_fini(struct shm_backend *shm)
{
    while (shm->segments != NULL) {
        struct shm_segment *next = shm->segments->next;

        segment_destroy(shm->segments, shm->size);
        shm->segments = next;
    }
}
