/* handle.h - what every public handle begins with, and the checks at the entry of every public
 * call: is it such a handle, does it still live, is this the process that made it, and is no other
 * thread in a call with it.
 *
 *     CDDPI_ENTER(&group->handle, cddpi_group_enter(group, "group_split"));
 *     ... the call, which ends wherever the function returns
 *
 * The thread that is in a call may enter again: calls call each other, and hooks call the group. */
#ifndef CDDPI_HANDLE_H
#define CDDPI_HANDLE_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>

enum cddpi_handle_kind {
    CDDPI_HANDLE_GROUP,
    CDDPI_HANDLE_WORK,
    CDDPI_HANDLE_DDP,
    CDDPI_HANDLE_STORE,
    CDDPI_HANDLE_SAMPLER,
    CDDPI_HANDLE_SAFETENSORS,
    CDDPI_HANDLE_LOADER,
    CDDPI_HANDLE_DEVICES,
    CDDPI_HANDLE_KINDS
};

/* The first member of each handle. */
struct cddpi_handle {
    uint32_t magic;          /* says the kind; another once the handle is destroyed */
    int32_t pid;             /* of the process that made it */
    _Atomic uintptr_t owner; /* the thread that is in a call; 0: none */
    uint32_t depth;          /* calls within that call; the owner's */
};

void cddpi_handle_init(struct cddpi_handle *handle, enum cddpi_handle_kind kind);

/** Whether @p handle lives, also in a fork of the process that made it. @p call as below. */
cddp_status cddpi_handle_check_life(const struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                                    const char *call);

/** Whether @p handle may be used in this process, by any thread. @p call names the public function,
 *  without cddp_, in the text.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (NULL, or not such a handle); CDDP_ERR_STATE (destroyed, or
 *          a fork of the process that made it; what lies in memory only is good in a fork). */
cddp_status cddpi_handle_check(const struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                               const char *call);

/** The same, and let no other thread enter until cddpi_handle_leave(). CDDP_ERR_STATE also if
 *  another thread is in a call: nothing was done then. */
cddp_status cddpi_handle_enter(struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                               const char *call);

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

/* For CDDPI_ENTER: leaves what a function has entered, or nothing. */
static inline void cddpi_handle_leave_entered(struct cddpi_handle *const *entered)
{
    if (*entered != NULL) {
        (void)cddpi_handle_leave(*entered, CDDP_OK);
    }
}

/** Begin a public call in this function, once in it, and end it wherever the function returns.
 *  @param handle  What is left at the end, read after @p enter; NULL: nothing.
 *  @param enter   A call that enters @p handle; if it fails, this function returns its status. */
#define CDDPI_ENTER(handle, enter)                                                                 \
    CDDPI_TRY(enter);                                                                              \
    __attribute__((cleanup(cddpi_handle_leave_entered),                                            \
                   unused)) struct cddpi_handle *const entered_ = (handle)

/** Whether this thread is within a call with @p handle. */
bool cddpi_handle_is_entered(const struct cddpi_handle *handle);

/** Whether the call that this thread is in is within another one with @p handle. */
static inline bool cddpi_handle_is_nested(const struct cddpi_handle *handle)
{
    return handle->depth > 0;
}

/** Whether @p handle was made by this process, and not by one that it was forked from. */
bool cddpi_handle_is_own(const struct cddpi_handle *handle);

/** For destroy, which cannot fail: as enter, but what is wrong goes into the log as a warning, and
 *  a fork passes. False: leave the handle alone. */
bool cddpi_handle_enter_last(struct cddpi_handle *handle, enum cddpi_handle_kind kind,
                             const char *call);

/** From now on @p handle is destroyed: each use of it fails. */
void cddpi_handle_end(struct cddpi_handle *handle);

/** Release the @p bytes of memory that begin with @p handle, some time later: the last few hundred
 *  of destroyed handles are kept, so that their use after that is an error and no crash. Ends it,
 *  too. Any thread. */
void cddpi_handle_release(struct cddpi_handle *handle, size_t bytes);

#endif
