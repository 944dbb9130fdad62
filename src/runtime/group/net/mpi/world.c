/* world.c - owns the module's only symbol, its table, and exchanges through MPI among all processes
 * that mpirun started, before they have a group: enough to meet in a store. No process waits beyond
 * the deadline. */
#include "group/net/mpi/mpi_internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "cddp_config.h"

#include <stdio.h>
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

/* Run one exchange of MPI_COMM_WORLD: a broadcast of @p out from rank 0, or (@p own not NULL) an
 * all-gather of @p bytes bytes to @p out, which has @p all_bytes. It happens in a copy, to which
 * MPI can still write when this process no longer waits. */
static cddp_status exchange(const void *own, size_t bytes, void *out, size_t all_bytes)
{
    const char *what = own != NULL ? "MPI_Iallgather" : "MPI_Ibcast";
    MPI_Request request = MPI_REQUEST_NULL;
    char *copy = cddpi_zalloc(all_bytes + bytes); /* an own part is after that of all */
    int code;
    cddp_status status;

    if (copy == NULL) {
        cddpi_mpi_give_up();
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "MPI: no memory for %zu bytes", all_bytes + bytes);
    }
    CDDPI_TRY_GOTO(fail, status, cddpi_mpi_enter());
    if (own != NULL) {
        memcpy(copy + all_bytes, own, bytes);
        code = MPI_Iallgather(copy + all_bytes, (int)bytes, MPI_BYTE, copy, (int)bytes, MPI_BYTE,
                              MPI_COMM_WORLD, &request);
    } else {
        memcpy(copy, out, all_bytes);
        code = MPI_Ibcast(copy, (int)all_bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    }
    status = code == MPI_SUCCESS ? CDDP_OK : cddpi_mpi_fail(CDDP_ERR_PEER, code, "%s", what);
    cddpi_mpi_leave();
    CDDPI_TRY_GOTO(fail, status, status == CDDP_OK ? await(&request, what) : status);
    memcpy(out, copy, all_bytes);
    cddpi_free(copy);
    return CDDP_OK;

fail: /* MPI may still use the copy */
    cddpi_mpi_give_up();
    return status;
}

static cddp_status broadcast(void *state, void *data, size_t bytes)
{
    (void)state;
    return exchange(NULL, 0, data, bytes);
}

static cddp_status all_gather(void *state, const void *own, size_t bytes, void *out_all)
{
    int size = 0;

    (void)state;
    CDDPI_TRY(cddpi_mpi_enter());
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    cddpi_mpi_leave();
    return exchange(own, bytes, out_all, (size_t)size * bytes);
}

static cddp_status start_bootstrap(uint32_t timeout_ms, cddp_bootstrap *out)
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

static void use(const struct cddpi_mpi_host *host)
{
    cddpi_mpi_host = host;
    cddpi_module_host_use(host->base);
}

static void library(char *out, size_t bytes)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    (void)MPI_Get_library_version(version, &length);
    snprintf(out, bytes, "%.*s", (int)strcspn(version, ",\n"), version);
}

static const struct cddpi_mpi_module module = {
    .start = {.start = {.abi = CDDPI_MODULE_ABI, .version = CDDP_VERSION}, .library = library},
    .use = use,
    .carrier = &cddpi_mpi_carrier_ops,
    .bootstrap = start_bootstrap,
};

CDDP_API const struct cddpi_mpi_module *cddpi_mpi_module(void);

const struct cddpi_mpi_module *cddpi_mpi_module(void)
{
    return &module;
}
