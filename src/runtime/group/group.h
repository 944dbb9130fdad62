/* group.h - owns the private struct of a process group. Operations on device memory bypass its
 * queue: see group/device/group_device.h. */
#ifndef CDDPI_GROUP_H
#define CDDPI_GROUP_H

#include "base/error.h"
#include "base/handle.h"
#include "group/backend.h"
#include "group/engine/queue.h"
#include "group/watch/peer.h"
#include "group/watch/recorder.h"

#include <cddp/group.h>

#include <stdatomic.h>

struct cddpi_transport;
struct cddpi_store_server;

struct cddp_group {
    struct cddpi_handle handle;
    _Atomic unsigned refs;  /* one of the caller, and one for each cddp_ddp */
    _Atomic bool is_closed; /* the caller has destroyed its handle */
    struct cddp_group *next_open;
    int rank;
    int world_size;
    int local_rank;
    int local_world_size;
    int host; /* the number of this rank's host in the job; ranks on one host share memory */
    uint32_t generation;
    _Atomic uint32_t timeout_ms;
    /* where its ranks met; kept open so that no other job meets there; NULL: not kept */
    cddp_store *place;
    const struct cddpi_transport *transport;
    struct cddpi_backend *backend;
    struct cddpi_group_device *device; /* see cddpi_group_has_device() */
    struct cddpi_queue queue;
    struct cddpi_straggler straggler;
    struct cddp_work *free_works, *free_last; /* reused in the order of their release */
    unsigned free_count;
    struct cddp_work *newest; /* list of handles that the caller holds */
    uint64_t collectives;     /* submitted so far */
    uint64_t calls;           /* made by the program so far: see cddpi_group_op.call */
    bool call_found_broken;   /* the group was broken before the current public call */
    bool call_is_counted;     /* the current public call has its number */
    bool is_told;             /* a call has returned the failure that broke it */
    bool call_is_of_ddp;      /* it belongs to a cddp_ddp, which counts its backward passes  */
    uint64_t *messages;       /* submitted so far, by channel */
    uint32_t job;             /* a number for all groups of this process that were split from one */
    int *ranks_of_job;      /* for a part of the job: each rank's rank in the job; NULL: the same */
    cddp_store *user_store; /* NULL: not requested */
    struct cddpi_store_server *user_store_server; /* on rank 0; else NULL */
    char token[256];     /* the job's secret; "": no other rank shares it */
    _Atomic bool ended;  /* this rank has told the others that the group failed */
    _Atomic bool broken; /* if true, `failure` is set and does not change */
    struct cddpi_failure failure;
    struct cddpi_recorder recorder; /* its most recent operations */
    struct cddpi_dump *dump;        /* where the recorder is written; NULL: nowhere yet (dump.h) */
    struct cddpi_trace *trace;      /* NULL: no step is traced (group_trace.h) */
    const cddp_group *traced_in;    /* spans go to its trace; NULL: to this group's own */
};

/** Whether the group's data may be in device memory; otherwise all memory is CPU memory. */
static inline bool cddpi_group_has_device(const cddp_group *group)
{
    return group->device != NULL;
}

/** Whether the group has its own thread that drives communication while the caller computes. */
bool cddpi_group_has_thread(const cddp_group *group);

/** Get the addresses at which this rank sees every rank's counterpart of memory from
 *  cddp_group_alloc(): world_size pointers in @p out, valid as long as the memory. False: this rank
 *  does not see them. */
bool cddpi_group_peers(cddp_group *group, const void *memory, size_t bytes, const void **out);

/** Operations that start from now on reduce bucket @p bucket; -1: no bucket. */
static inline void cddpi_group_name_bucket(cddp_group *group, int32_t bucket)
{
    group->recorder.bucket = bucket;
}

/** Create a group over @p backend, an open backend of @p transport. The group owns @p backend from
 *  now on, even if this fails.
 */
cddp_status cddpi_group_build(const struct cddpi_open_params *params,
                              const struct cddpi_transport *transport,
                              struct cddpi_backend *backend, cddp_group **out);

/** From now on, exit() first publishes which operations the devices of this process's groups have
 *  done. Call it after the first device was opened. */
void cddpi_group_publish_at_exit(void);

/** Keep the group alive until cddpi_group_unref(). */
void cddpi_group_ref(cddp_group *group);
void cddpi_group_unref(cddp_group *group);

/** Whether this process has a group that is not destroyed. Any thread. */
bool cddpi_group_any(void);
/** This process is between two generations of its job: signals ask for nothing, but are noted. */
void cddpi_stop_hold(void);
/** It is in the next one, or (@p is_next false) has no place in it. What asked it to stop is
 *  forgotten, but for signals since cddpi_stop_hold() that the launcher has not sent. */
void cddpi_stop_release(bool is_next);

#endif
