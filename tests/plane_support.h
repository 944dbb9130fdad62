/* plane_support.h - planes without a group: forked ranks on devices of the fake CUDA, a seat whose
 * exchanges go through memory that was mapped before the fork, and the part of the group that puts
 * compute and communication in order and watches. */
#ifndef CDDP_TESTS_PLANE_SUPPORT_H
#define CDDP_TESTS_PLANE_SUPPORT_H

#include "base/clock.h"
#include "base/error.h"
#include "device/device.h"
#include "gpu_support.h"
#include "group/plane.h"
#include "support.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

enum {
    PLANE_RANKS = 8,
    /* Streams that are let go run dry at once: only a hang takes so long, and all tests of a
     * program that find one are through before the program's own limit. */
    PLANE_DRY_MS = 60000,
    PLANE_RECORD = 8192,      /* bytes of one rank in an exchange */
    PLANE_SHARED = 256u << 20 /* given out by `shared`, never twice: so it is zeroed */
};

/* Whether the emulated module is there (little is to be waited for then), or a GPU is to be used.
 */
static inline bool plane_module(void)
{
    const char *module = getenv("CDDP_CUDA_MODULE");

    if (gpu_count() > 0) {
        return true;
    }
    if (module == NULL || strstr(module, "emulated") == NULL) {
        printf("skipped: there is no emulated module (no CUDA headers)\n");
        return false;
    }
    setenv("CDDP_FAKE_CUDA_IDLE_US", "100", 0);
    return true;
}

struct plane_world {
    _Atomic uint32_t came, round; /* a barrier */
    _Atomic bool broken;          /* a rank has failed or gone: nobody waits any more */
    int size;
    unsigned char records[PLANE_RANKS][PLANE_RECORD];
    unsigned char *shared; /* mapped before the fork, so at the same place everywhere */
};

/* Before the fork. */
static inline struct plane_world *plane_world_create(int size)
{
    struct plane_world *world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    world->size = size;
    world->shared = mmap(NULL, PLANE_SHARED, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return world;
}

/* As new, for the next ranks: whose memory is the same, if they are. */
static inline bool plane_world_reset(struct plane_world *world)
{
    atomic_store(&world->came, 0);
    atomic_store(&world->round, 0);
    atomic_store(&world->broken, false);
    return madvise(world->shared, PLANE_SHARED, MADV_REMOVE) == 0;
}

static inline void plane_world_destroy(struct plane_world *world)
{
    munmap(world->shared, PLANE_SHARED);
    munmap(world, sizeof *world);
}

/* A rank: its device, a plane, and how far it is. */
struct plane_rank {
    struct plane_world *world;
    int rank, size;
    size_t given; /* of the shared memory */
    uint32_t timeout_ms;
    struct cddpi_device *device;
    const struct cddpi_plane_ops *ops;
    struct cddpi_plane *plane;
    struct cddpi_plane_seat seat;
    struct cddpi_event *computed, *communicated;
    uint64_t number;
};

/* Until all ranks are here; false after the deadline, or when one is known to be gone. */
static inline bool plane_barrier(struct plane_rank *me)
{
    uint32_t round = atomic_load(&me->world->round);
    int64_t deadline = cddpi_deadline_ns(me->timeout_ms);

    if (atomic_fetch_add(&me->world->came, 1) + 1 == (uint32_t)me->size) {
        atomic_store(&me->world->came, 0);
        atomic_store(&me->world->round, round + 1);
        return true;
    }
    while (atomic_load(&me->world->round) == round) {
        if (atomic_load(&me->world->broken) || cddpi_now_ns() > deadline) {
            return false;
        }
        support_sleep_ms(1);
    }
    return true;
}

static inline cddp_status plane_exchange(void *context, const void *own, size_t bytes,
                                         void *out_all)
{
    struct plane_rank *me = context;

    if (bytes > PLANE_RECORD) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "an exchange of %zu bytes", bytes);
    }
    memcpy(me->world->records[me->rank], own, bytes);
    if (!plane_barrier(me)) {
        return cddpi_fail(CDDP_ERR_PEER, "a rank did not come");
    }
    for (int r = 0; r < me->size; r++) {
        memcpy((char *)out_all + (size_t)r * bytes, me->world->records[r], bytes);
    }
    return plane_barrier(me) ? CDDP_OK : cddpi_fail(CDDP_ERR_PEER, "a rank did not come");
}

static inline cddp_status plane_shared(void *context, size_t bytes, void **out)
{
    struct plane_rank *me = context;

    bytes = (bytes + 4095) / 4096 * 4096;
    if (PLANE_SHARED - me->given < bytes) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no %zu bytes to share", bytes);
    }
    *out = me->world->shared + me->given;
    me->given += bytes;
    return CDDP_OK;
}

static inline const struct cddpi_plane_ops *plane_named(const struct cddpi_device *device,
                                                        const char *name)
{
    for (size_t i = 0; device->planes != NULL && device->planes[i] != NULL; i++) {
        if (strcmp(device->planes[i]->name, name) == 0) {
            return device->planes[i];
        }
    }
    return NULL;
}

/* The device and its events; no plane yet. */
static inline cddp_status plane_rank_open(struct plane_world *world, int rank, const char *name,
                                          bool deterministic, struct plane_rank *me)
{
    cddp_status status;

    *me = (struct plane_rank){
        .world = world, .rank = rank, .size = world->size, .timeout_ms = SUPPORT_TIMEOUT_MS};
    status = cddpi_device_open("cuda", rank, rank, world->size, true, &me->device);
    if (status != CDDP_OK) {
        return status;
    }
    me->ops = plane_named(me->device, name);
    if (me->ops == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "no plane %s in this module", name);
    }
    me->seat = (struct cddpi_plane_seat){.rank = rank,
                                         .world_size = world->size,
                                         .local_rank = rank,
                                         .local_world_size = world->size,
                                         .timeout_ms = me->timeout_ms,
                                         .deterministic = deterministic,
                                         .device = me->device,
                                         .context = me,
                                         .exchange = plane_exchange,
                                         .shared = plane_shared};
    status = me->device->ops->event_create(me->device, false, &me->computed);
    return status != CDDP_OK ? status
                             : me->device->ops->event_create(me->device, false, &me->communicated);
}

static inline cddp_status plane_rank_start(struct plane_world *world, int rank, const char *name,
                                           bool deterministic, struct plane_rank *me)
{
    cddp_status status = plane_rank_open(world, rank, name, deterministic, me);

    return status != CDDP_OK ? status : me->ops->open(&me->seat, &me->plane);
}

static inline void plane_rank_end(struct plane_rank *me)
{
    if (me->plane != NULL) {
        me->ops->close(me->plane);
    }
    me->device->ops->event_destroy(me->device, me->computed);
    me->device->ops->event_destroy(me->device, me->communicated);
    cddpi_device_close(me->device);
}

/* Put @op behind what compute did; compute goes on behind it. Waits for nothing. */
static inline cddp_status plane_start(struct plane_rank *me, struct cddpi_group_op *op)
{
    const struct cddpi_device_ops *device = me->device->ops;
    cddp_status status;

    op->number = ++me->number;
    status = device->record(me->device, me->computed, CDDPI_STREAM_COMPUTE);
    if (status == CDDP_OK) {
        status = device->order(me->device, CDDPI_STREAM_COMM, me->computed);
    }
    if (status == CDDP_OK) {
        status = me->ops->enqueue(me->plane, op);
    }
    if (status == CDDP_OK) {
        status = device->record(me->device, me->communicated, CDDPI_STREAM_COMM);
    }
    return status != CDDP_OK ? status
                             : device->order(me->device, CDDPI_STREAM_COMPUTE, me->communicated);
}

/* What the group's watchdog does: look until all is done, or end it. */
static inline cddp_status plane_watch(struct plane_rank *me, uint32_t timeout_ms)
{
    int64_t deadline = cddpi_deadline_ns(timeout_ms);
    cddp_status status = CDDP_OK;
    bool done = false;

    while (status == CDDP_OK && !done) {
        status = me->ops->poll(me->plane);
        if (status == CDDP_OK) {
            status = me->device->ops->query(me->device, me->communicated, &done);
        }
        if (status == CDDP_OK && cddpi_now_ns() > deadline) {
            status = cddpi_fail(CDDP_ERR_TIMEOUT, "the collective did not end");
        }
        if (!done) {
            support_sleep_ms(1);
        }
    }
    if (status == CDDP_OK) { /* it may have ended because a peer gave up */
        status = me->ops->poll(me->plane);
    }
    if (status != CDDP_OK) {
        char text[1024];

        snprintf(text, sizeof text, "%s", cddp_last_error());
        me->ops->abort(me->plane, text);
        if (me->device->ops->finish(me->device, PLANE_DRY_MS) != CDDP_OK) {
            return cddpi_fail(CDDP_ERR_STATE, "streams do not run dry after: %s", text);
        }
        (void)cddpi_fail(status, "%s", text);
    }
    return status;
}

static inline cddp_status plane_run(struct plane_rank *me, struct cddpi_group_op *op)
{
    cddp_status status = plane_start(me, op);

    return status != CDDP_OK ? status : plane_watch(me, SUPPORT_TIMEOUT_MS);
}

/* A sum over all ranks in place. */
static inline struct cddpi_group_op plane_sum(void *data, size_t count)
{
    return (struct cddpi_group_op){.kind = CDDPI_ALL_REDUCE,
                                   .type = CDDP_F32,
                                   .op = CDDP_OP_SUM,
                                   .count = count,
                                   .in = data,
                                   .out = data};
}

/* @registered: in the plane's own memory. */
static inline float *plane_zeros(struct plane_rank *me, bool registered, size_t count)
{
    void *data = NULL;
    cddp_status status = registered ? me->ops->alloc(me->plane, count * sizeof(float), &data)
                                    : me->device->ops->alloc(me->device, count * sizeof(float),
                                                             "test", &data);

    return status == CDDP_OK && me->device->ops->clear(me->device, CDDPI_STREAM_COMPUTE, data,
                                                       count * sizeof(float)) == CDDP_OK
               ? data
               : NULL;
}

/* A rank with a plane, and a sum of @count zeros, still to be run. */
static inline int plane_begin(struct plane_world *world, int rank, const char *name,
                              bool deterministic, bool registered, size_t count,
                              struct plane_rank *me, struct cddpi_group_op *out)
{
    float *data;

    CHECK(plane_rank_start(world, rank, name, deterministic, me) == CDDP_OK);
    data = plane_zeros(me, registered, count);
    CHECK(data != NULL);
    *out = plane_sum(data, count);
    return 0;
}

/* Device memory with a copy of @from; through the compute stream, without waiting. */
static inline void *plane_upload(struct plane_rank *me, void *to, const void *from, size_t bytes)
{
    if (to == NULL &&
        me->device->ops->alloc(me->device, bytes > 0 ? bytes : 1, "test", &to) != CDDP_OK) {
        return NULL;
    }
    return bytes == 0 || me->device->ops->copy(me->device, CDDPI_STREAM_COMPUTE, to, from, bytes) ==
                             CDDP_OK
               ? to
               : NULL;
}

/* Behind all that compute waits for. */
static inline cddp_status plane_download(struct plane_rank *me, void *to, const void *from,
                                         size_t bytes)
{
    cddp_status status = bytes == 0 ? CDDP_OK
                                    : me->device->ops->copy(me->device, CDDPI_STREAM_COMPUTE, to,
                                                            from, bytes);

    return status != CDDP_OK ? status : me->device->ops->finish(me->device, SUPPORT_TIMEOUT_MS);
}

#endif
