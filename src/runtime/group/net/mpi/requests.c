/* requests.c - owns the arrays of requests in progress, which grow and never shrink. */
#include "group/net/mpi/mpi_internal.h"

#include "base/alloc.h"

#include <string.h>

enum { FIRST_CAPACITY = 64 };

void cddpi_mpi_requests_free(struct cddpi_mpi_requests *requests)
{
    cddpi_free(requests->requests);
    cddpi_free(requests->transfers);
    cddpi_free(requests->bytes);
    cddpi_free(requests->done);
    cddpi_free(requests->statuses);
    memset(requests, 0, sizeof *requests);
}

cddp_status cddpi_mpi_requests_reserve(struct cddpi_mpi_requests *requests, int count)
{
    struct cddpi_mpi_requests larger = {.count = requests->count};
    size_t capacity = FIRST_CAPACITY;

    if (count <= requests->capacity) {
        return CDDP_OK;
    }
    while (capacity < (size_t)count) {
        capacity *= 2;
    }
    larger.capacity = (int)capacity;
    larger.requests = cddpi_zalloc_array(capacity, sizeof *larger.requests);
    larger.transfers = cddpi_zalloc_array(capacity, sizeof *larger.transfers);
    larger.bytes = cddpi_zalloc_array(capacity, sizeof *larger.bytes);
    larger.done = cddpi_zalloc_array(capacity, sizeof *larger.done);
    larger.statuses = cddpi_zalloc_array(capacity, sizeof *larger.statuses);
    if (larger.requests == NULL || larger.transfers == NULL || larger.bytes == NULL ||
        larger.done == NULL || larger.statuses == NULL) {
        cddpi_mpi_requests_free(&larger);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "MPI: no memory for %zu messages at once", capacity);
    }
    if (requests->count > 0) {
        memcpy(larger.requests, requests->requests,
               (size_t)requests->count * sizeof *larger.requests);
        memcpy(larger.transfers, requests->transfers,
               (size_t)requests->count * sizeof *larger.transfers);
        memcpy(larger.bytes, requests->bytes, (size_t)requests->count * sizeof *larger.bytes);
    }
    cddpi_mpi_requests_free(requests);
    *requests = larger;
    return CDDP_OK;
}

void cddpi_mpi_requests_compact(struct cddpi_mpi_requests *under_way)
{
    int kept = 1;

    for (int i = 1; i < under_way->count; i++) {
        if (under_way->requests[i] != MPI_REQUEST_NULL) {
            under_way->requests[kept] = under_way->requests[i];
            under_way->bytes[kept] = under_way->bytes[i];
            under_way->transfers[kept++] = under_way->transfers[i];
        }
    }
    under_way->count = kept;
}

bool cddpi_mpi_requests_are_done(MPI_Request *requests, int count)
{
    bool all = true;

    for (int i = 0; i < count; i++) {
        int flag = 0;

        all = (MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag != 0) && all;
    }
    return all;
}

void cddpi_mpi_requests_cancel(struct cddpi_mpi_requests *under_way, int from)
{
    for (int i = from; i < under_way->count; i++) {
        if ((under_way->transfers[i] == NULL || !under_way->transfers[i]->is_send) &&
            under_way->requests[i] != MPI_REQUEST_NULL) {
            (void)MPI_Cancel(&under_way->requests[i]);
        }
    }
}
