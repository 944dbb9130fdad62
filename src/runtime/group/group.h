/* group.h - inside of a process group. What lies in a device's memory goes by
 * group/device/group_device.h, beside the queue. */
#ifndef CDDPI_GROUP_H
#define CDDPI_GROUP_H

#include "base/error.h"
#include "base/handle.h"
#include "group/backend.h"
#include "group/engine/queue.h"
#include "group/watch/recorder.h"
#include "group/watch/straggler.h"

#include <cddp/group.h>

#include <stdatomic.h>

struct cddpi_transport;
struct cddpi_user_store;

struct cddp_group {
    struct cddpi_handle handle;
    _Atomic unsigned refs; /* the caller's, and one of each cddp_ddp */
    bool is_closed;        /* the caller's is gone */
    struct cddp_group *next_open;
    int rank;
    int world_size;
    int local_rank;
    int local_world_size;
    int host; /* the number of this rank's host in the job: ranks of one share memory */
    uint32_t generation;
    uint32_t timeout_ms;
    cddp_store *place; /* where its ranks met, kept so that no other job meets there; NULL: not */
    const struct cddpi_transport *transport;
    struct cddpi_backend *backend;
    struct cddpi_group_device *device; /* see cddpi_group_has_device() */
    struct cddpi_queue queue;
    struct cddpi_straggler straggler;
    struct cddp_work *free_works, *free_last; /* used again in the order they were given back */
    unsigned free_count;
    struct cddp_work *newest; /* handles that are out */
    uint64_t collectives;     /* submitted so far */
    uint64_t calls;           /* of the program's own, so far: see cddpi_group_op.call */
    bool call_found_broken;   /* the group was broken before the public call that runs */
    bool call_is_counted;     /* the public call that runs has its number */
    bool call_is_of_ddp;      /* it is one of a cddp_ddp, which counts its backward passes */
    uint64_t *messages;       /* submitted so far, by channel */
    int *ranks_of_job;        /* of a part: the rank in the job of each; NULL: the same */
    struct cddpi_user_store *user_store; /* NULL: nobody asked for it */
    char token[256];                     /* the job's secret; "": one that no other rank shares */
    _Atomic bool broken;                 /* then the failure below is set and does not change */
    struct cddpi_failure failure;
    struct cddpi_recorder recorder; /* its last operations */
    struct cddpi_dump *dump;        /* where these are written; NULL: nowhere yet (dump.h) */
    struct cddpi_trace *trace;      /* NULL: no step is traced (group_trace.h) */
};

/** Whether the group's data may lie in a device's memory; else all memory is the processor's. */
static inline bool cddpi_group_has_device(const cddp_group *group)
{
    return group->device != NULL;
}

/** Whether a thread of the group's own drives communication, beside compute. */
bool cddpi_group_has_thread(const cddp_group *group);

/** Where this rank sees every rank's counterpart of memory from cddp_group_alloc(): @p out gets
 *  world_size pointers, valid as long as the memory. False: it does not. */
bool cddpi_group_peers(cddp_group *group, const void *memory, size_t bytes, const void **out);

/** Operations that begin from now on reduce bucket number @p bucket; -1: no bucket. */
static inline void cddpi_group_name_bucket(cddp_group *group, int32_t bucket)
{
    group->recorder.bucket = bucket;
}

/** A group over an open @p backend of @p transport, which it owns from now on also when this fails.
 */
cddp_status cddpi_group_build(const struct cddpi_open_params *params,
                              const struct cddpi_transport *transport,
                              struct cddpi_backend *backend, cddp_group **out);

/** Keep the group alive until cddpi_group_unref(). */
void cddpi_group_ref(cddp_group *group);
void cddpi_group_unref(cddp_group *group);

#endif
