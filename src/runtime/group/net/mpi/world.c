/* world.c - owns exchanges through MPI among all processes that mpirun started, before they have a
 * group: enough to meet in a store. No process waits beyond the deadline. */
#include "group/net/mpi/mpi_internal.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <string.h>
#include <time.h>

static uint32_t timeout_of_all_ms;

/* Wait until @p request is done. On CDDP_ERR_TIMEOUT the request and its memory are left to MPI. */
static cddp_status await(MPI_Request *request, const char *what)
{
    int64_t deadline_ns = cddpi_deadline_ns(timeout_of_all_ms);

    for (unsigned round = 0;; round++) {
        /* first wait in short steps; in a long wait, leave the cores to the processes that are
         * late */
        struct timespec pause = {0, round < 50 ? 100000 : 2000000};
        int is_done = 0;
        int code;
        cddp_status status = cddpi_mpi_enter();

        if (status != CDDP_OK) {
            return status;
        }
        code = MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
        status = code == MPI_SUCCESS ? CDDP_OK : cddpi_mpi_fail(CDDP_ERR_PEER, code, "%s", what);
        cddpi_mpi_leave();
        if (status != CDDP_OK || is_done != 0) {
            return status;
        }
        if (cddpi_now_ns() > deadline_ns) {
            return cddpi_fail(CDDP_ERR_TIMEOUT,
                              "%s did not end within %u ms: has every process that mpirun started "
                              "come here?",
                              what, timeout_of_all_ms);
        }
        (void)nanosleep(&pause, NULL);
    }
}

/* Allocate memory to which MPI can still write when this process no longer waits. */
static cddp_status allocate(size_t bytes, char **out)
{
    *out = cddpi_zalloc(bytes);
    return *out != NULL ? CDDP_OK
                        : cddpi_fail(CDDP_ERR_NO_MEMORY, "MPI: no memory for %zu bytes", bytes);
}

static cddp_status begun(int code, const char *what)
{
    cddp_status status = code == MPI_SUCCESS ? CDDP_OK
                                             : cddpi_mpi_fail(CDDP_ERR_PEER, code, "%s", what);

    cddpi_mpi_leave();
    return status;
}

/* Copy the received data from @p copy to @p data, and release @p copy unless MPI still uses it. */
static int finish(cddp_status status, char *copy, void *data, size_t bytes)
{
    if (status == CDDP_OK) {
        memcpy(data, copy, bytes);
        cddpi_free(copy);
    } else {
        cddpi_mpi_give_up();
    }
    return status;
}

static int broadcast(void *context, void *data, size_t bytes)
{
    MPI_Request request = MPI_REQUEST_NULL;
    char *copy = NULL;
    cddp_status status = allocate(bytes, &copy);

    (void)context;
    if (status == CDDP_OK) {
        memcpy(copy, data, bytes);
        status = cddpi_mpi_enter();
    }
    if (status == CDDP_OK) {
        status = begun(MPI_Ibcast(copy, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request),
                       "MPI_Ibcast");
    }
    if (status == CDDP_OK) {
        status = await(&request, "MPI_Ibcast");
    }
    return finish(status, copy, data, bytes);
}

static int all_gather(void *context, const void *own, size_t bytes, void *out_all)
{
    MPI_Request request = MPI_REQUEST_NULL;
    char *copy = NULL;
    size_t all_bytes;
    int size = 0;
    cddp_status status = cddpi_mpi_enter();

    (void)context;
    if (status != CDDP_OK) {
        return status;
    }
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    cddpi_mpi_leave();
    all_bytes = (size_t)size * bytes;
    status = allocate(all_bytes + bytes, &copy); /* this process's own part is after that of all */
    if (status == CDDP_OK) {
        memcpy(copy + all_bytes, own, bytes);
        status = cddpi_mpi_enter();
    }
    if (status == CDDP_OK) {
        status = begun(MPI_Iallgather(copy + all_bytes, (int)bytes, MPI_BYTE, copy, (int)bytes,
                                      MPI_BYTE, MPI_COMM_WORLD, &request),
                       "MPI_Iallgather");
    }
    if (status == CDDP_OK) {
        status = await(&request, "MPI_Iallgather");
    }
    return finish(status, copy, out_all, all_bytes);
}

cddp_status cddpi_mpi_bootstrap(uint32_t timeout_ms, cddp_bootstrap *out)
{
    cddp_bootstrap bootstrap = CDDP_BOOTSTRAP_INIT;

    CDDPI_TRY(cddpi_mpi_start(timeout_ms));
    CDDPI_TRY(cddpi_mpi_enter());
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &bootstrap.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &bootstrap.world_size);
    cddpi_mpi_leave();
    bootstrap.broadcast = broadcast;
    bootstrap.all_gather = all_gather;
    timeout_of_all_ms = timeout_ms;
    *out = bootstrap;
    return CDDP_OK;
}
