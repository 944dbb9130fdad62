/* recovery.h - what the files of the public handle share (cddp/recovery.h). */
#ifndef CDDPI_RECOVERY_RECOVERY_H
#define CDDPI_RECOVERY_RECOVERY_H

#include "base/handle.h"
#include "device/device.h"
#include "group/group.h"
#include "recovery/keep.h"

#include <cddp/recovery.h>

/* An array in a device's memory, and its copy in host memory. */
struct cddpi_recovery_copy {
    void *there;
    unsigned char *here;
    uint64_t bytes;
    uint64_t first, count; /* bytes of it that this rank keeps */
};

struct cddp_recovery {
    struct cddpi_handle handle;
    cddp_group *group; /* with a reference */
    struct cddpi_device *device;
    uint64_t run, every;
    uint64_t layout;
    uint64_t *names; /* hashes of those that are taken */
    size_t name_count, name_room;
    uint64_t ddp_count;
    struct cddpi_keep_contents state; /* as registered, until the first step */
    struct cddpi_recovery_copy *copies;
    size_t copy_count, copy_room;
    struct cddpi_keep_owner owner;
    struct cddpi_keep keep; /* from the first step on */
    bool is_begun;
};

/* Begin the public call @p call in this function: see base/handle.h. */
#define CDDPI_ENTER_RECOVERY(recovery, call)                                                       \
    CDDPI_ENTER(&(recovery)->group->handle, cddpi_recovery_begin_call(recovery, call))
/** Begin the call. This enters the group, which admits one thread at a time. Refuses functions of
 *  the program that a call runs. */
CDDP_CHECKED cddp_status cddpi_recovery_begin_call(cddp_recovery *recovery, const char *call);
/** The same for a call that such functions may make, too. */
CDDP_CHECKED cddp_status cddpi_recovery_ask(cddp_recovery *recovery, const char *call);

/** Take a name, whose hash is @p hash, and what it stands for, into the layout: @p total bytes of
 *  @p kind.
 *  @return CDDP_OK; CDDP_ERR_STATE (a step was begun); CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_recovery_name(cddp_recovery *recovery, const char *call,
                                             const char *name, uint64_t hash, char kind,
                                             uint64_t total);

/* An array, and what this rank does with it. All in bytes. */
struct cddpi_recovery_entry {
    uint64_t name;             /* a hash */
    void *data;                /* this rank's part */
    uint64_t first, bytes;     /* of the part, in the whole */
    uint64_t kept, kept_bytes; /* what this rank keeps, in the whole; inside the part */
};

/** Add @p entry to the state, by a copy if the group's device owns its memory. */
CDDP_CHECKED cddp_status cddpi_recovery_enter(cddp_recovery *recovery,
                                              const struct cddpi_recovery_entry *entry);
/** Copy what this rank keeps from the device, or all that it takes to the device, and wait. */
CDDP_CHECKED cddp_status cddpi_recovery_fetch(void *self);
CDDP_CHECKED cddp_status cddpi_recovery_send(void *self);
void cddpi_recovery_release_copies(cddp_recovery *recovery);

#endif
