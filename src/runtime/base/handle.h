/* handle.h - the first member of every public handle, and the checks at the start of every public
 * call: the pointer is a handle of the right kind, the handle is not destroyed, this process
 * created it, and no other thread is in a call with it.
 *
 *     CDDPI_ENTER(&group->handle, cddpi_group_enter(group, "group_split"));
 *     ... the call, which ends wherever the function returns
 *
 * The thread that is in a call may enter again, because calls call each other, and hooks call the
 * group. */
#ifndef CDDPI_HANDLE_H
#define CDDPI_HANDLE_H

#include "base/choices.h"
#include "base/error.h"
#include "base/shared.h"

#include <stdatomic.h>
#include <stdbool.h>

#define CDDPI_HANDLE_MAP(X)                                                                        \
    X(CDDPI_HANDLE_GROUP, "group")                                                                 \
    X(CDDPI_HANDLE_WORK, "work handle")                                                            \
    X(CDDPI_HANDLE_DDP, "cddp_ddp")                                                                \
    X(CDDPI_HANDLE_STORE, "store")                                                                 \
    X(CDDPI_HANDLE_SAMPLER, "sampler")                                                             \
    X(CDDPI_HANDLE_SAFETENSORS, "safetensors file")                                                \
    X(CDDPI_HANDLE_LOADER, "loader")                                                               \
    X(CDDPI_HANDLE_DEVICES, "list of devices")                                                     \
    X(CDDPI_HANDLE_SAVING, "snapshot that is written")                                             \
    X(CDDPI_HANDLE_MODEL, "model")                                                                 \
    X(CDDPI_HANDLE_RECOVERY, "recovery")
enum cddpi_handle_kind { CDDPI_HANDLE_MAP(CDDPI_CHOICE_ID) CDDPI_HANDLE_KINDS };

/* The first member of each handle. */
struct cddpi_handle {
    uint32_t magic;          /* the kind; changes when the handle is destroyed */
    int32_t pid;             /* the process that created the handle */
    _Atomic uintptr_t owner; /* the thread that is in a call; 0: none */
    uint32_t depth;          /* nested calls; only the owner thread uses it */
};

CDDPI_SHARED void cddpi_handle_init(struct cddpi_handle *handle, enum cddpi_handle_kind kind);

/** Check that @p handle is not destroyed. Passes in a fork of the process that created it, too.
 *  @p call: as in cddpi_handle_check(). */
cddp_status cddpi_handle_check_life(const struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                                    const char *call);

/** Check that @p handle may be used in this process, by any thread. @p call is the name of the
 *  public function for the text, without cddp_.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (NULL, or not such a handle); CDDP_ERR_CLOSED
 *          (destroyed); CDDP_ERR_STATE (this process is a fork of the one that created it; handles
 *          that hold memory only may be used in a fork). */
CDDPI_SHARED cddp_status cddpi_handle_check(const struct cddpi_handle *handle,
                                            enum cddpi_handle_kind kind, const char *call);

/** The same check, then keep other threads out until cddpi_handle_leave(). CDDP_ERR_BUSY if
 *  another thread is in a call; the call then does nothing. */
CDDPI_SHARED cddp_status cddpi_handle_enter(struct cddpi_handle *handle,
                                            enum cddpi_handle_kind kind, const char *call);

/** End the call. Returns @p status, so that a caller can `return cddpi_handle_leave(...)`. */
static inline cddp_status cddpi_handle_leave(struct cddpi_handle *handle, cddp_status status)
{
    if (handle->depth > 0) {
        handle->depth--;
    } else {
        atomic_store_explicit(&handle->owner, 0, memory_order_release);
    }
    return status;
}

/* For CDDPI_ENTER: leaves the handle that a function has entered. NULL: nothing. */
static inline void cddpi_handle_leave_entered(struct cddpi_handle *const *entered)
{
    if (*entered != NULL) {
        (void)cddpi_handle_leave(*entered, CDDP_OK);
    }
}

/** Begin a public call in this function. The call ends wherever the function returns. Use it once
 *  in a function.
 *  @param handle  The handle to leave at the end, evaluated after @p enter. NULL: nothing.
 *  @param enter   A call that enters @p handle. If it fails, this function returns its status. */
#define CDDPI_ENTER(handle, enter)                                                                 \
    CDDPI_TRY(enter);                                                                              \
    __attribute__((cleanup(cddpi_handle_leave_entered),                                            \
                   unused)) struct cddpi_handle *const entered_ = (handle)

/** Whether the current call is nested in another call with @p handle. */
static inline bool cddpi_handle_is_nested(const struct cddpi_handle *handle)
{
    return handle->depth > 0;
}

/** Whether this process created @p handle, rather than a process that it was forked from. */
CDDPI_SHARED bool cddpi_handle_is_own(const struct cddpi_handle *handle);

/** For destroy functions, which cannot fail: like cddpi_handle_enter(), but a failure is logged as
 *  a warning, and a fork passes. False: do not touch the handle. */
CDDPI_SHARED bool cddpi_handle_enter_last(struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                                          const char *call);

/** Mark @p handle as destroyed: each later use of it fails. */
void cddpi_handle_end(struct cddpi_handle *handle);

/** Mark @p handle as destroyed, and free its @p bytes of memory later. The last few hundred
 *  destroyed handles are kept, so that a use after destroy is an error and not a crash. Any
 *  thread. */
CDDPI_SHARED void cddpi_handle_release(struct cddpi_handle *handle, size_t bytes);

#endif
