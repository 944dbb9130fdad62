/* shared_copy.c - owns the memory of a copy that ranks share: makes and opens it, and copies parts
 * of snapshots to it. */
#include "checkpoint/shared_copy.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/process.h"
#include "checkpoint/shared_head.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const cddp_tensor *tensors_of(const cddp_snapshot *snapshot, int file, size_t *out_count)
{
    *out_count = file == CDDPI_SNAPSHOT_MODEL ? snapshot->model_count : snapshot->optimizer_count;
    return file == CDDPI_SNAPSHOT_MODEL ? snapshot->model : snapshot->optimizer;
}

void cddpi_shared_lay_out(const cddp_snapshot *snapshot, struct cddpi_shared_layout *out)
{
    out->whole = SHARED_HEAD_BYTES;
    for (int file = 0; file < CDDPI_SNAPSHOT_DATA_FILES; file++) {
        size_t count;
        const cddp_tensor *tensors = tensors_of(snapshot, file, &count);

        out->first[file] = out->whole;
        out->bytes[file] = 0;
        for (size_t i = 0; i < count; i++) {
            out->bytes[file] += cddpi_tensor_size(&tensors[i]);
        }
        out->whole += cddpi_align(out->bytes[file]);
    }
}

static cddp_status map_memory(int fd, size_t bytes, struct cddpi_shared_copy *out)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno,
                                "checkpoint: map %zu bytes that ranks share", bytes);
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    *out = (struct cddpi_shared_copy){.head = memory, .bytes = bytes, .place = {.fd = -1}};
    return CDDP_OK;
}

cddp_status cddpi_shared_copy_create(size_t bytes, struct cddpi_shared_copy *out)
{
    cddp_status status;
    int fd = -1;

    CDDPI_TRY(cddpi_process_share("cddp-checkpoint", bytes, &fd));
    status = map_memory(fd, bytes, out);
    if (status != CDDP_OK) {
        close(fd);
        return status;
    }
    out->place = (struct cddpi_shared_place){cddpi_process_start_time(), cddpi_process_id(), fd};
    out->head->place = out->place;
    return CDDP_OK;
}

cddp_status cddpi_shared_copy_open(const struct cddpi_shared_place *place, size_t bytes,
                                   struct cddpi_shared_copy *out)
{
    cddp_status status;
    int own;

    CDDPI_TRY(cddpi_process_open_fd(place->pid, place->start_time, place->fd, bytes, &own));
    status = map_memory(own, bytes, out);
    close(own);
    return status;
}

void cddpi_shared_copy_close(struct cddpi_shared_copy *shared)
{
    if (shared->head != NULL) {
        munmap(shared->head, shared->bytes);
        cddpi_fd_close(&shared->place.fd);
    }
    *shared = (struct cddpi_shared_copy){.head = NULL};
}

void cddpi_shared_ring(struct cddpi_shared_head *head)
{
    atomic_fetch_add(&head->bell, 1);
    syscall(SYS_futex, &head->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void cddpi_shared_copy_begin(struct cddpi_shared_copy *shared, uint64_t step)
{
    struct cddpi_shared_head *head = shared->head;

    cddpi_snapshot_name(CDDPI_SNAPSHOT_TEMPORARY, step, head->temporary);
    atomic_store(&head->copied, 0);
    atomic_store(&head->is_over, 0);
}

void cddpi_shared_copy_end(struct cddpi_shared_copy *shared)
{
    atomic_store(&shared->head->offer, 0);
    atomic_store(&shared->head->is_over, 1);
    cddpi_shared_ring(shared->head);
}

/* Copy what [begin, end) of a stream of all tensors with data has of this one, which begins at
 * *@p at of the stream; move *@p at past it. */
static void copy_overlap(unsigned char *to, const cddp_tensor *tensor, size_t bytes, uint64_t begin,
                         uint64_t end, uint64_t *at)
{
    uint64_t from = begin > *at ? begin - *at : 0;
    uint64_t until = end < *at + bytes ? (end > *at ? end - *at : 0) : bytes;

    if (from < until) {
        memcpy(to + from, (const unsigned char *)tensor->data + from, (size_t)(until - from));
    }
    *at += bytes;
}

/* The bytes of all tensors that have data. With @p begin < @p end: copy what is in between. */
static uint64_t walk_tensors(struct cddpi_shared_copy *shared, const cddp_snapshot *snapshot,
                             uint64_t begin, uint64_t end)
{
    uint64_t at = 0;

    for (int file = 0; file < CDDPI_SNAPSHOT_DATA_FILES; file++) {
        size_t count;
        const cddp_tensor *tensors = tensors_of(snapshot, file, &count);
        unsigned char *to = shared_data(shared, file);

        for (size_t i = 0; i < count; i++) {
            size_t bytes = cddpi_tensor_size(&tensors[i]);

            if (tensors[i].data != NULL && bytes > 0) {
                copy_overlap(to, &tensors[i], bytes, begin, end, &at);
            }
            to += bytes;
        }
    }
    return at;
}

void cddpi_shared_copy_tensors(struct cddpi_shared_copy *shared, const cddp_snapshot *snapshot,
                               int part, int parts)
{
    uint64_t all = walk_tensors(shared, snapshot, 0, 0);
    uint64_t begin = all / (uint64_t)parts * (uint64_t)part;
    uint64_t end = part + 1 < parts ? all / (uint64_t)parts * (uint64_t)(part + 1) : all;

    (void)walk_tensors(shared, snapshot, begin, end);
    atomic_fetch_add(&shared->head->copied, end - begin);
}

void cddpi_shared_copy_put(struct cddpi_shared_copy *shared, const cddp_tensor *place,
                           uint64_t first, const void *data, size_t bytes)
{
    memcpy((unsigned char *)(uintptr_t)place->data + first, data, bytes);
    atomic_fetch_add(&shared->head->copied, bytes);
}

bool cddpi_shared_copy_is_whole(const struct cddpi_shared_copy *shared)
{
    uint64_t bytes = 0;

    for (int file = 0; file < CDDPI_SNAPSHOT_DATA_FILES; file++) {
        bytes += shared->layout.bytes[file];
    }
    return atomic_load(&shared->head->copied) == bytes;
}

void cddpi_shared_copy_bind(const struct cddpi_shared_copy *shared, int file, cddp_tensor *tensors,
                            size_t count)
{
    const unsigned char *at = shared_data(shared, file);

    for (size_t i = 0; i < count; i++) {
        size_t bytes = cddpi_tensor_size(&tensors[i]);

        tensors[i].data = bytes > 0 ? at : NULL;
        at += bytes;
    }
}
