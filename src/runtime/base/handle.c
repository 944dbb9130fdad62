/* handle.c - owns the checks at the start of public calls, and the most recently destroyed
 * handles. */
#include "base/handle.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"

#include <pthread.h>
#include <string.h>

enum { KEPT = 256, POISON = 0xdd };

/* The magic number of a live handle. Its upper half, 0xcdd9, stands for "cddp". Other memory is
 * very unlikely to begin with it. */
#define MAGIC(kind) (UINT32_C(0xcdd90100) + (uint32_t)(kind))
#define MAGIC_DESTROYED(kind) (UINT32_C(0xdeadcd00) + (uint32_t)(kind))

static const char *const names[] = {CDDPI_HANDLE_MAP(CDDPI_CHOICE_WORD)};

/* The most recently destroyed handles, whose memory is not freed yet. */
static _Atomic(void *) kept[KEPT];
static _Atomic unsigned next_kept;

void cddpi_handle_init(struct cddpi_handle *handle, enum cddpi_handle_kind kind)
{
    handle->magic = MAGIC(kind);
    handle->pid = cddpi_process_id();
    handle->depth = 0;
    atomic_store_explicit(&handle->owner, 0, memory_order_relaxed);
}

bool cddpi_handle_is_own(const struct cddpi_handle *handle)
{
    return handle->pid == cddpi_process_id();
}

cddp_status cddpi_handle_check_life(const struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                                    const char *call)
{
    if (handle == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: the %s is NULL", call, names[kind]);
    }
    if (handle->magic == MAGIC(kind)) {
        return CDDP_OK;
    }
    if (handle->magic == MAGIC_DESTROYED(kind)) {
        return cddpi_fail(CDDP_ERR_CLOSED, "%s: the %s was destroyed before", call, names[kind]);
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "%s: the pointer to the %s points to something else, or to one that was "
                      "destroyed long ago",
                      call, names[kind]);
}

cddp_status cddpi_handle_check(const struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                               const char *call)
{
    /* a handle that only holds memory can be used in a fork: its copy in the child is complete */
    bool holds_memory = kind == CDDPI_HANDLE_SAMPLER || kind == CDDPI_HANDLE_SAFETENSORS ||
                        kind == CDDPI_HANDLE_DEVICES;

    CDDPI_TRY(cddpi_handle_check_life(handle, kind, call));
    if (!holds_memory && !cddpi_handle_is_own(handle)) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "%s: process %d made the %s, and this one (%d) is a fork of it: a fork "
                          "has no part in it, and makes its own",
                          call, (int)handle->pid, names[kind], cddpi_process_id());
    }
    return CDDP_OK;
}

static cddp_status take_handle(struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                               const char *call)
{
    uintptr_t self = (uintptr_t)pthread_self();
    uintptr_t owner = 0;

    if (atomic_load_explicit(&handle->owner, memory_order_relaxed) == self) {
        handle->depth++;
        return CDDP_OK;
    }
    if (atomic_compare_exchange_strong_explicit(&handle->owner, &owner, self, memory_order_acquire,
                                                memory_order_relaxed)) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_BUSY,
                      "%s: another thread is in a call with this %s: one thread at a time may use "
                      "it, so let a mutex guard all calls, or let one thread do them",
                      call, names[kind]);
}

cddp_status cddpi_handle_enter(struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                               const char *call)
{
    CDDPI_TRY(cddpi_handle_check(handle, kind, call));
    return take_handle(handle, kind, call);
}

bool cddpi_handle_enter_last(struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                             const char *call)
{
    cddp_status status = cddpi_handle_check_life(handle, kind, call);

    if (status == CDDP_OK && cddpi_handle_is_own(handle)) {
        status = take_handle(handle, kind, call);
    }
    if (status != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "%s; nothing was done", cddp_last_error());
    }
    return status == CDDP_OK;
}

void cddpi_handle_end(struct cddpi_handle *handle)
{
    handle->magic = MAGIC_DESTROYED(handle->magic - MAGIC(0));
}

void cddpi_handle_release(struct cddpi_handle *handle, size_t bytes)
{
    unsigned place = atomic_fetch_add_explicit(&next_kept, 1, memory_order_relaxed) % KEPT;

    if (handle->magic - MAGIC(0) < CDDPI_HANDLE_KINDS) {
        cddpi_handle_end(handle);
    }
    memset((unsigned char *)handle + sizeof *handle, POISON, bytes - sizeof *handle);
    cddpi_free(atomic_exchange_explicit(&kept[place], handle, memory_order_acq_rel));
}

/* Free them when the program ends, so that leak checkers report nothing. */
__attribute__((destructor)) static void release_kept(void)
{
    for (unsigned i = 0; i < KEPT; i++) {
        cddpi_free(atomic_exchange_explicit(&kept[i], NULL, memory_order_acq_rel));
    }
}
