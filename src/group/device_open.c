/* device_open.c - puts a group on a device: opens the device and a plane, sets up what the ranks
 * share about it, and takes it all down. */
#include "group/device.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "group/agree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REASONS_BYTES = 900 };

/* --- memory that the ranks of this machine share: rank 0's --- */

struct offer {
    uint64_t start_time;
    int32_t pid;
    int32_t fd; /* -1: none */
};

static cddp_status make_shared(size_t bytes, int *out_fd)
{
    int fd = memfd_create("cddp-device", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        cddp_status status = cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno,
                                              "%zu bytes that ranks share", bytes);

        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    *out_fd = fd;
    return CDDP_OK;
}

static cddp_status map_shared(cddp_group *group, const struct offer *offer, int own_fd,
                              size_t bytes, void **out)
{
    int fd = own_fd;
    void *memory;

    if (offer->fd < 0) {
        return CDDP_OK; /* rank 0 says why when all agree */
    }
    if (group->rank != 0) {
        cddp_status status = cddpi_host_open_fd(offer->pid, offer->start_time, offer->fd, &fd);

        if (status != CDDP_OK) {
            return status;
        }
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (group->rank != 0) {
        close(fd);
    }
    if (memory == MAP_FAILED) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "map %zu bytes that ranks share", bytes);
    }
    *out = memory;
    return CDDP_OK;
}

/* Collective: all ranks take part in all exchanges, whatever happens to one. */
static cddp_status share(struct cddpi_group_device *side, size_t bytes, void **out)
{
    cddp_group *group = side->group;
    struct cddpi_device_block *block = cddpi_zalloc(sizeof *block);
    struct offer mine = {0, getpid(), -1};
    void *offers = NULL;
    char state;
    cddp_status own = CDDP_OK;
    cddp_status status;

    bytes = host_pages(bytes > 0 ? bytes : 1);
    (void)cddpi_host_process(mine.pid, &state, &mine.start_time);
    if (block == NULL) {
        own = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a block that ranks share");
    } else if (group->rank == 0) {
        own = make_shared(bytes, &mine.fd);
    }
    status = cddpi_share_records(group, &mine, sizeof mine, &offers);
    if (status == CDDP_OK) {
        if (own == CDDP_OK) {
            own = map_shared(group, offers, mine.fd, bytes, &block->memory);
        }
        status = cddpi_agree(group, own);
    }
    if (mine.fd >= 0) {
        close(mine.fd);
    }
    cddpi_free(offers);
    if (status != CDDP_OK) {
        if (block != NULL && block->memory != NULL) {
            munmap(block->memory, bytes);
        }
        cddpi_free(block);
        return status;
    }
    block->bytes = bytes;
    block->next = side->shared;
    side->shared = block;
    *out = block->memory;
    return CDDP_OK;
}

static cddp_status seat_shared(void *context, size_t bytes, void **out)
{
    return share(context, bytes, out);
}

static cddp_status seat_exchange(void *context, const void *own, size_t bytes, void *out_all)
{
    struct cddpi_group_device *side = context;

    return cddp_all_gather(side->group, own, out_all, bytes, CDDP_U8, NULL);
}

/* --- the plane --- */

static bool is_wanted(const struct cddpi_plane_ops *ops, const char *wish)
{
    if (wish == NULL) {
        return true;
    }
    return strcmp(wish, "host") == 0 ? strcmp(ops->name, "nccl") != 0
                                     : strcmp(wish, ops->name) == 0;
}

static cddp_status try_plane(struct cddpi_group_device *side, const struct cddpi_plane_ops *ops,
                             bool deterministic)
{
    cddp_group *group = side->group;
    struct cddpi_plane_seat seat = {.rank = group->rank,
                                    .world_size = group->world_size,
                                    .local_rank = group->local_rank,
                                    .local_world_size = group->local_world_size,
                                    .timeout_ms = group->timeout_ms,
                                    .deterministic = deterministic,
                                    .device = side->device,
                                    .context = side,
                                    .exchange = seat_exchange,
                                    .shared = seat_shared};
    struct cddpi_plane *plane = NULL;
    cddp_status status = cddpi_agree(group, ops->open(&seat, &plane));

    if (status != CDDP_OK && plane != NULL) {
        ops->close(plane);
        plane = NULL;
    }
    side->ops = ops;
    side->plane = plane;
    return status;
}

/* The first of those that were asked for which works here. */
static cddp_status open_plane(struct cddpi_group_device *side, const char *wish, bool deterministic)
{
    char reasons[REASONS_BYTES] = "";
    size_t used = 0;

    if (side->group->world_size == 1 && (wish == NULL || strcmp(wish, "host") == 0)) {
        wish = "solo";
    }
    if (wish != NULL && strcmp(wish, "solo") == 0) {
        return try_plane(side, &cddpi_plane_solo_ops, deterministic);
    }
    for (size_t i = 0; side->device->planes != NULL && side->device->planes[i] != NULL; i++) {
        const struct cddpi_plane_ops *ops = side->device->planes[i];
        cddp_status status;

        if (!is_wanted(ops, wish)) {
            continue;
        }
        status = try_plane(side, ops, deterministic);
        if (status != CDDP_ERR_UNAVAILABLE) {
            return status;
        }
        cddpi_log(CDDPI_LOG_INFO, "backend %s: %s", ops->name, cddp_last_error());
        if (used < sizeof reasons) {
            used += (size_t)snprintf(reasons + used, sizeof reasons - used, "%s%s: %s",
                                     used > 0 ? "; " : "", ops->name, cddp_last_error());
        }
    }
    return cddpi_fail(CDDP_ERR_UNAVAILABLE, "no backend for device %s %d%s%s%s%s",
                      side->device->ops->name, side->device->index, wish != NULL ? " is " : "",
                      wish != NULL ? wish : "", used > 0 ? ": " : "", reasons);
}

/* --- the device --- */

struct cddpi_device_hold *cddpi_device_hold(struct cddpi_device *device)
{
    struct cddpi_device_hold *hold = cddpi_zalloc(sizeof *hold);

    if (hold == NULL) {
        cddpi_device_close(device);
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a device");
        return NULL;
    }
    hold->device = device;
    atomic_init(&hold->groups, 1);
    return hold;
}

static void let_go(struct cddpi_device_hold *hold)
{
    if (hold != NULL && atomic_fetch_sub_explicit(&hold->groups, 1, memory_order_acq_rel) == 1) {
        cddpi_device_close(hold->device);
        cddpi_free(hold);
    }
}

static void free_flights(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    while (flight != NULL) {
        struct cddpi_flight *next = flight->next;

        side->device->ops->event_destroy(side->device, flight->done);
        side->device->ops->event_destroy(side->device, flight->ready);
        cddpi_free(flight);
        flight = next;
    }
}

static void destroy(struct cddpi_group_device *side)
{
    if (side == NULL) {
        return;
    }
    if (side->plane != NULL) {
        cddpi_device_free_all(side);
        side->ops->close(side->plane);
    }
    free_flights(side, side->first);
    free_flights(side, side->messages);
    free_flights(side, side->free);
    if (side->device != NULL && side->ready != NULL) {
        side->device->ops->event_destroy(side->device, side->ready);
    }
    while (side->shared != NULL) {
        struct cddpi_device_block *next = side->shared->next;

        munmap(side->shared->memory, side->shared->bytes);
        cddpi_free(side->shared);
        side->shared = next;
    }
    let_go(side->hold);
    cddpi_free(side);
}

static cddp_status share_calls(struct cddpi_group_device *side)
{
    cddp_group *group = side->group;
    struct cddpi_calls *own;
    void *memory;
    char state;
    size_t ranks = (size_t)group->world_size;
    cddp_status status = share(
        side, ranks * sizeof *side->calls + 2 * ranks * ranks * sizeof *side->posts, &memory);

    if (status != CDDP_OK) {
        return status;
    }
    side->calls = memory;
    side->posts = (struct cddpi_post *)(void *)(side->calls + ranks);
    own = &side->calls[group->rank];
    own->pid = getpid();
    (void)cddpi_host_process(own->pid, &state, &own->start_time);
    return CDDP_OK;
}

/* Ranks that share a device by mistake would only be slow. */
static cddp_status check_devices(struct cddpi_group_device *side)
{
    cddp_group *group = side->group;
    const size_t bytes = sizeof side->device->unique;
    void *all = NULL;
    cddp_status status = cddpi_share_records(group, side->device->unique, bytes, &all);

    for (int r = 1; r < group->world_size && status == CDDP_OK; r++) {
        const char *theirs = (const char *)all + (size_t)r * bytes;

        for (int q = 0; q < r && status == CDDP_OK && theirs[0] != '\0'; q++) {
            if (strncmp((const char *)all + (size_t)q * bytes, theirs, bytes) == 0) {
                status = cddpi_fail(CDDP_ERR_UNAVAILABLE,
                                    "ranks %d and %d are on one device (%.47s): start one rank a "
                                    "device, or let them share it with CDDP_BACKEND=host",
                                    q, r, theirs);
            }
        }
    }
    cddpi_free(all);
    return status;
}

/* Everything but the thread. Collective. */
static cddp_status set_up(struct cddpi_group_device *side, const char *plane, bool deterministic)
{
    cddp_status status = share_calls(side);

    if (status == CDDP_OK && plane == NULL) {
        status = check_devices(side);
    }
    if (status == CDDP_OK) {
        status = open_plane(side, plane, deterministic);
    }
    if (status != CDDP_OK) {
        return status;
    }
    status = side->device->ops->event_create(side->device, false, &side->ready);
    return cddpi_agree(side->group, status);
}

cddp_status cddpi_device_attach(cddp_group *group, struct cddpi_device_hold *hold,
                                const char *plane, bool deterministic, cddp_status own)
{
    struct cddpi_group_device *side = NULL;
    cddp_status status;

    if (own == CDDP_OK) {
        side = cddpi_zalloc(sizeof *side);
        own = side != NULL ? CDDP_OK
                           : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a group on a device");
    }
    if (side != NULL) {
        side->group = group;
        side->hold = hold;
        side->device = hold->device;
        side->deterministic = deterministic;
        snprintf(side->wish, sizeof side->wish, "%s", plane != NULL ? plane : "");
    } else {
        let_go(hold);
    }
    status = cddpi_agree(group, own);
    if (status == CDDP_OK) {
        status = set_up(side, plane, deterministic);
    }
    if (status == CDDP_OK) {
        own = cddpi_watch_start(side);
        status = cddpi_agree(group, own);
        if (status != CDDP_OK && own == CDDP_OK) {
            cddpi_watch_stop(side, false);
        }
    }
    if (status != CDDP_OK) {
        destroy(side);
        return status;
    }
    group->device = side;
    return CDDP_OK;
}

/* NCCL's own switch, of 2.30.3 and later. */
static bool nccl_may_share(void)
{
    const char *text = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    return text != NULL && strcmp(text, "1") == 0;
}

/* Some launchers show each process a device of its own and no other. */
static bool sees_one_device(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    return visible != NULL && visible[0] != '\0' && strchr(visible, ',') == NULL;
}

cddp_status cddpi_device_join(cddp_group *group, const char *name, const char *plane,
                              bool deterministic, void *stream)
{
    /* check_devices(), or the plane nccl, finds those that share one and should not */
    bool shared = (plane != NULL && (strcmp(plane, "nccl") != 0 || nccl_may_share())) ||
                  sees_one_device();
    struct cddpi_device_hold *hold = NULL;
    struct cddpi_device *device = NULL;
    cddp_status own = cddpi_device_open(name, group->rank, group->local_rank,
                                        group->local_world_size, shared, &device);

    if (own == CDDP_OK) {
        hold = cddpi_device_hold(device);
        own = hold != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;
    }
    if (own == CDDP_OK && stream != NULL) {
        own = device->ops->adopt(device, stream);
    }
    return cddpi_device_attach(group, hold, plane, deterministic, own);
}

cddp_status cddpi_device_follow(const cddp_group *group, cddp_group *made)
{
    struct cddpi_group_device *side = group->device;

    atomic_fetch_add_explicit(&side->hold->groups, 1, memory_order_relaxed);
    return cddpi_device_attach(made, side->hold, side->wish[0] != '\0' ? side->wish : NULL,
                               side->deterministic, CDDP_OK);
}

const char *cddpi_device_plane_name(const cddp_group *group)
{
    return group->device->ops->name;
}

/* Handles that are out keep how far their work has come. */
static bool end_handles(cddp_group *group)
{
    struct cddpi_group_device *side = group->device;
    bool abandoned = false;

    for (struct cddp_work *work = group->newest; work != NULL; work = work->older) {
        struct cddpi_flight *flight = work->flight;

        if (flight == NULL) {
            continue;
        }
        pthread_mutex_lock(&side->mutex);
        abandoned = abandoned || flight->under_way;
        work->status = flight->under_way ? CDDP_ERR_CLOSED : flight->status;
        pthread_mutex_unlock(&side->mutex);
        cddpi_device_drop(work);
        atomic_store_explicit(&work->done, 1, memory_order_release);
    }
    return abandoned;
}

void cddpi_device_leave(cddp_group *group)
{
    struct cddpi_group_device *side = group->device;
    bool abandoned = end_handles(group);

    cddpi_watch_stop(side, !abandoned);
    (void)side->device->ops->finish(side->device, group->timeout_ms);
    group->device = NULL;
    destroy(side);
}
