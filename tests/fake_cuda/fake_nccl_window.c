/* fake_nccl_window.c - the fake's registrations of memory. A window is registered by another
 * thread, which goes on for some queries after all ranks have made the call, and writes the window
 * at its end. NCCL 2.27 returns "in progress" then, but 2.28 to 2.30 return success. */
#include "fake_cuda/fake_nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RETURNS_EARLY = 22800 };

static bool shall_fail(void)
{
    const char *how = getenv("CDDP_FAKE_NCCL_WINDOW");

    return how != NULL && strcmp(how, "fail") == 0;
}

static void *register_window(void *argument)
{
    ncclComm_t comm = argument;

    while (!atomic_load(&comm->aborted) &&
           (atomic_load(&comm->busy) > 0 || fake_nccl_is_connecting(comm))) {
        usleep(100);
    }
    *comm->window = atomic_load(&comm->aborted) || shall_fail() ? NULL
                                                                : (ncclWindow_t)comm->window_memory;
    atomic_store(&comm->registered, true);
    return NULL;
}

bool fake_nccl_registered(ncclComm_t comm)
{
    if (!atomic_load(&comm->registered)) {
        return false;
    }
    (void)pthread_join(comm->registrar, NULL);
    comm->registers = false;
    if (shall_fail()) {
        (void)fake_nccl_fail(comm, ncclUnhandledCudaError, "no window was to be had");
    }
    return true;
}

void fake_nccl_stop_registering(ncclComm_t comm)
{
    atomic_store(&comm->aborted, true);
    if (comm->registers) {
        (void)pthread_join(comm->registrar, NULL);
        comm->registers = false;
    }
}

/* Collective. In progress until all ranks have called it; then the window exists. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *out,
                                    int flags)
{
    ncclResult_t result = fake_nccl_begin(comm);

    if (result != ncclSuccess) {
        return result;
    }
    if (flags != NCCL_WIN_COLL_SYMMETRIC || bytes == 0 ||
        (uintptr_t)memory % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
        return fake_nccl_fail(comm, ncclInvalidArgument, "not what a window takes");
    }
    if (!shall_fail()) {
        fake_nccl_count("window");
    }
    comm->windows++;
    atomic_fetch_add(&comm->shared->windows, 1);
    comm->window = out;
    comm->window_memory = memory;
    result = fake_nccl_later(comm);
    atomic_store(&comm->registered, false);
    if (pthread_create(&comm->registrar, NULL, register_window, comm) != 0) {
        return fake_nccl_fail(comm, ncclSystemError, "no thread");
    }
    comm->registers = true;
    return fake_nccl_setting("VERSION", 22809) >= RETURNS_EARLY ? ncclSuccess : result;
}

/* The calls below do not ask whether a thread is changing the same tables. */
static ncclResult_t change_tables(ncclComm_t comm)
{
    if (comm->registers) {
        (void)fake_nccl_fail(comm, ncclInternalError,
                             "two threads have changed the table of registrations");
        return ncclSuccess;
    }
    return fake_nccl_begin(comm);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    return window != NULL ? change_tables(comm) : ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    ncclResult_t result = change_tables(comm);

    (void)bytes;
    if (result == ncclSuccess) {
        fake_nccl_count("register");
        *handle = memory;
    }
    return result;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)handle;
    return change_tables(comm);
}
