/* group_device_open.c - moves a group to a device: opens the device and a transport, sets up the
 * memory that the ranks share, and takes everything down again. */
#include "group/device/group_device.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "group/engine/handles.h"
#include "group/join/group_agree.h"
#include "group/transports.h"
#include "store/auth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REASONS_BYTES = 900, INTERFACES_BYTES = 112 };

/* --- memory that the ranks of this host share: the lowest of them makes it --- */

struct group_device_open_offer {
    uint64_t start_time;
    int32_t pid;
    int32_t fd; /* -1: none */
};

static cddp_status map_shared(const struct group_device_open_offer *offer, int own_fd, size_t bytes,
                              void **out)
{
    int fd = own_fd;
    void *memory;

    if (offer->fd < 0) {
        return CDDP_OK; /* that rank gives the reason when all ranks agree */
    }
    if (own_fd < 0) {
        CDDPI_TRY(cddpi_process_open_fd(offer->pid, offer->start_time, offer->fd, bytes, &fd));
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (own_fd < 0) {
        close(fd);
    }
    if (memory == MAP_FAILED) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "map %zu bytes that ranks share", bytes);
    }
    *out = memory;
    return CDDP_OK;
}

/* The lowest rank on this rank's host. */
static int first_here(const struct cddpi_group_device *dev)
{
    int rank = 0;

    while (!cddpi_device_is_here(dev, rank)) {
        rank++;
    }
    return rank;
}

/* Collective: a rank that fails still takes part in all exchanges. */
static cddp_status share(struct cddpi_group_device *dev, size_t bytes, void **out)
{
    cddp_group *group = dev->group;
    struct cddpi_device_block *block = cddpi_zalloc(sizeof *block);
    struct group_device_open_offer mine = {0, getpid(), -1};
    void *offers = NULL;
    cddp_status own = CDDP_OK;
    cddp_status status;

    bytes = bytes > 0 ? bytes : 1;
    mine.start_time = cddpi_process_start_time();
    if (block == NULL) {
        own = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a block that ranks share");
    } else if (group->rank == first_here(dev)) {
        own = cddpi_process_share("cddp-device", bytes, &mine.fd);
    }
    status = cddpi_all_gather_bytes(group, &mine, sizeof mine, &offers);
    if (status == CDDP_OK) {
        if (own == CDDP_OK) {
            own = map_shared((const struct group_device_open_offer *)offers + first_here(dev),
                             mine.fd, bytes, &block->memory);
        }
        status = cddpi_agree(group, own);
    }
    cddpi_fd_close(&mine.fd);
    cddpi_free(offers);
    if (status != CDDP_OK) {
        if (block != NULL && block->memory != NULL) {
            munmap(block->memory, bytes);
        }
        cddpi_free(block);
        return status;
    }
    block->bytes = bytes;
    block->next = dev->shared;
    dev->shared = block;
    *out = block->memory;
    return CDDP_OK;
}

static cddp_status alloc_shared(void *context, size_t bytes, void **out)
{
    return share(context, bytes, out);
}

static cddp_status exchange_bytes(void *context, const void *own, size_t bytes, void *out_all)
{
    struct cddpi_group_device *dev = context;

    return cddp_all_gather(dev->group, own, out_all, bytes, CDDP_U8, NULL);
}

static cddp_status agree_on(void *context, cddp_status own)
{
    struct cddpi_group_device *dev = context;

    return cddpi_agree(dev->group, own);
}

static cddp_status collective(void *context, const struct cddpi_group_op *op)
{
    struct cddpi_group_device *dev = context;

    return cddpi_remote_collective(dev->remote, op);
}

/* --- who is on which host --- */

struct group_device_open_place {
    int32_t host;
    char interfaces[INTERFACES_BYTES]; /* "": not known to this rank */
};

static void count_hosts(struct cddpi_group_device *dev,
                        const struct group_device_open_place *places)
{
    cddp_group *group = dev->group;

    for (int r = 0; r < group->world_size; r++) {
        bool is_known = false;

        dev->host_of[r] = places[r].host;
        for (int q = 0; q < r && !is_known; q++) {
            is_known = places[q].host == places[r].host;
        }
        dev->host_count += !is_known;
        if (places[r].host == group->host && places[r].interfaces[0] != '\0') {
            snprintf(dev->interfaces, sizeof dev->interfaces, "=%.*s", INTERFACES_BYTES - 1,
                     places[r].interfaces);
        }
    }
    if (dev->interfaces[0] == '\0' && cddpi_env(CDDPI_ENV_SOCKET_IFNAME) != NULL) {
        snprintf(dev->interfaces, sizeof dev->interfaces, "%s", cddpi_env(CDDPI_ENV_SOCKET_IFNAME));
    }
}

static cddp_status find_hosts(struct cddpi_group_device *dev)
{
    cddp_group *group = dev->group;
    struct group_device_open_place own = {.host = group->host};
    void *places = NULL;

    if (group->backend->ops->interfaces != NULL) {
        (void)group->backend->ops->interfaces(group->backend, own.interfaces,
                                              sizeof own.interfaces);
    }
    dev->host_of = cddpi_zalloc_array((size_t)group->world_size, sizeof *dev->host_of);
    CDDPI_TRY(cddpi_agree(
        group, dev->host_of != NULL
                   ? CDDP_OK
                   : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d ranks", group->world_size)));
    CDDPI_TRY(cddpi_all_gather_bytes(group, &own, sizeof own, &places));
    count_hosts(dev, places);
    cddpi_free(places);
    if (dev->host_count == 1) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddp_group_split(group, 0, group->rank, &dev->remote_group));
    return cddpi_agree(group, cddpi_remote_create(dev, dev->remote_group, &dev->remote));
}

/* Give a transport the number of ranks on this host. Launchers do not know it for a part of a
 * group. */
static void count_here(const struct cddpi_group_device *dev, struct cddpi_device_open_params *out)
{
    out->local_rank = out->local_world_size = 0;
    for (int r = 0; r < dev->group->world_size; r++) {
        out->local_rank += cddpi_device_is_here(dev, r) && r < dev->group->rank;
        out->local_world_size += cddpi_device_is_here(dev, r);
    }
}

/* --- the transport of the device's memory --- */

/* @p requested: the name that the caller gave; NULL: the best transport. */
static bool is_wanted(const struct cddpi_transport *row, const char *requested, int world_size,
                      int host_count)
{
    bool by_host = requested != NULL && strcmp(requested, "host") == 0;

    if (row->device.hosts == (host_count > 1 ? CDDPI_ONE_HOST : CDDPI_SEVERAL_HOSTS)) {
        return false;
    }
    if (requested != NULL && !by_host) {
        return strcmp(requested, row->name) == 0;
    }
    return (row->device.ranks == 0 || row->device.ranks == world_size) &&
           (!by_host || row->device.for_host);
}

/* Whether this transport may carry data between hosts. If encryption is requested, a transport
 * without it is allowed only if the user named that transport. */
static cddp_status check_encryption(const struct cddpi_group_device *dev,
                                    const struct cddpi_transport *row, const char *requested)
{
    bool encrypts = false;
    cddp_status status = cddpi_encryption_wanted(&encrypts);

    if (status != CDDP_OK || !encrypts || dev->host_count == 1 || row->device.by_carrier) {
        return status;
    }
    if (requested == NULL || strcmp(requested, row->name) != 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "it does not encrypt, and CDDP_ENCRYPT=1 (CDDP_BACKEND=%s takes it all "
                          "the same)",
                          row->name);
    }
    if (dev->group->rank == 0) {
        cddpi_log(CDDPI_LOG_WARN,
                  "backend %s: cddp does not encrypt what goes between hosts by it, though "
                  "CDDP_ENCRYPT=1, since it was asked for by name",
                  row->name);
    }
    return CDDP_OK;
}

static cddp_status try_transport(struct cddpi_group_device *dev, const struct cddpi_transport *row,
                                 const char *requested, bool deterministic)
{
    cddp_group *group = dev->group;
    struct cddpi_device_open_params params = {.rank = group->rank,
                                              .world_size = group->world_size,
                                              .local_rank = group->local_rank,
                                              .local_world_size = group->local_world_size,
                                              .host = group->host,
                                              .host_count = dev->host_count,
                                              .timeout_ms = group->timeout_ms,
                                              .deterministic = deterministic,
                                              .device = dev->device,
                                              .context = dev,
                                              .exchange = exchange_bytes,
                                              .agree = agree_on,
                                              .shared = alloc_shared,
                                              .collective = collective};
    struct cddpi_device_transport *transport = NULL;
    cddp_status status = check_encryption(dev, row, requested);

    if (dev->host_count > 1) {
        count_here(dev, &params);
        params.interfaces = dev->interfaces[0] != '\0' ? dev->interfaces : NULL;
        params.host_id = cddpi_env(CDDPI_ENV_HOST_ID);
    }
    CDDPI_TRY(cddpi_agree(group, status == CDDP_OK ? row->device.probe(&params) : status));
    status = cddpi_agree(group, row->device.open(&params, &transport));
    if (status != CDDP_OK && transport != NULL) {
        transport->ops->close(transport);
        transport = NULL;
    }
    dev->row = row;
    dev->transport = transport;
    return status;
}

/* Open the first of the requested transports that works here. */
static cddp_status open_transport(struct cddpi_group_device *dev, const char *requested,
                                  bool deterministic)
{
    const struct cddpi_transport *row;
    char reasons[REASONS_BYTES] = "";
    size_t used = 0;

    for (size_t i = 0; (row = cddpi_transport_of_device(dev->device, i)) != NULL; i++) {
        cddp_status status;

        if (!is_wanted(row, requested, dev->group->world_size, dev->host_count)) {
            continue;
        }
        status = try_transport(dev, row, requested, deterministic);
        if (status == CDDP_OK && used > 0 && requested == NULL && dev->group->rank == 0) {
            cddpi_log(CDDPI_LOG_WARN,
                      "backend %s carries the devices' memory, which may be slower, because of %s",
                      row->name, reasons);
        }
        if (status != CDDP_ERR_UNAVAILABLE) {
            return status;
        }
        if (used < sizeof reasons) {
            used += (size_t)snprintf(reasons + used, sizeof reasons - used, "%s%s: %s",
                                     used > 0 ? "; " : "", row->name, cddp_last_error());
        }
    }
    return cddpi_fail(CDDP_ERR_UNAVAILABLE, "no backend for device %s %d%s%s%s%s",
                      dev->device->ops->name, dev->device->index, requested != NULL ? " is " : "",
                      requested != NULL ? requested : "", used > 0 ? ": " : "", reasons);
}

/* --- the device --- */

struct cddpi_device_ref *cddpi_device_ref_create(struct cddpi_device *device)
{
    struct cddpi_device_ref *ref = cddpi_zalloc(sizeof *ref);

    if (ref == NULL) {
        cddpi_device_close(device);
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a device");
        return NULL;
    }
    ref->device = device;
    atomic_init(&ref->groups, 1);
    return ref;
}

static void unref_device(struct cddpi_device_ref *ref)
{
    if (ref != NULL && atomic_fetch_sub_explicit(&ref->groups, 1, memory_order_acq_rel) == 1) {
        cddpi_device_close(ref->device);
        cddpi_free(ref);
    }
}

static void free_pending(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    while (pending != NULL) {
        struct cddpi_pending *next = pending->next;

        dev->device->ops->event_destroy(dev->device, pending->done);
        dev->device->ops->event_destroy(dev->device, pending->ready);
        cddpi_free(pending);
        pending = next;
    }
}

static void destroy_device(struct cddpi_group_device *dev)
{
    if (dev == NULL) {
        return;
    }
    if (dev->transport != NULL) {
        cddpi_group_device_free_all(dev);
        dev->transport->ops->close(dev->transport);
    }
    free_pending(dev, dev->first);
    free_pending(dev, dev->messages);
    free_pending(dev, dev->free);
    if (dev->ready != NULL) {
        dev->device->ops->event_destroy(dev->device, dev->ready);
    }
    while (dev->shared != NULL) {
        struct cddpi_device_block *next = dev->shared->next;

        munmap(dev->shared->memory, dev->shared->bytes);
        cddpi_free(dev->shared);
        dev->shared = next;
    }
    cddpi_remote_destroy(dev->remote);
    cddp_group_destroy(dev->remote_group);
    cddpi_free(dev->host_of);
    unref_device(dev->ref);
    cddpi_free(dev);
}

static cddp_status share_calls(struct cddpi_group_device *dev)
{
    struct cddpi_calls *own;
    void *memory;
    size_t ranks = (size_t)dev->group->world_size;

    CDDPI_TRY(share(dev, ranks * sizeof *dev->calls + 2 * ranks * ranks * sizeof *dev->p2p_calls,
                    &memory));
    dev->calls = memory;
    dev->p2p_calls = (struct cddpi_p2p_calls *)(void *)(dev->calls + ranks);
    own = cddpi_own_calls(dev);
    own->pid = getpid();
    own->start_time = cddpi_process_start_time();
    return CDDP_OK;
}

/* Fail if ranks share a device. If sharing is a mistake, its only other sign is low speed. */
static cddp_status check_devices(struct cddpi_group_device *dev)
{
    cddp_group *group = dev->group;
    const size_t bytes = sizeof dev->device->unique;
    void *all = NULL;
    cddp_status status = cddpi_all_gather_bytes(group, dev->device->unique, bytes, &all);

    for (int r = 1; r < group->world_size && status == CDDP_OK; r++) {
        const char *theirs = (const char *)all + (size_t)r * bytes;

        for (int q = 0; q < r && status == CDDP_OK && theirs[0] != '\0'; q++) {
            if (dev->host_of[q] == dev->host_of[r] &&
                strncmp((const char *)all + (size_t)q * bytes, theirs, bytes) == 0) {
                status = cddpi_fail(CDDP_ERR_UNAVAILABLE,
                                    "ranks %d and %d are on one device (%.47s): start one rank per "
                                    "device, or let them share it with CDDP_BACKEND=host",
                                    q, r, theirs);
            }
        }
    }
    cddpi_free(all);
    return status;
}

/* Set up everything except the watchdog's thread. Collective. */
static cddp_status set_up(struct cddpi_group_device *dev, const char *transport, bool deterministic)
{
    CDDPI_TRY(find_hosts(dev));
    CDDPI_TRY(share_calls(dev));
    if (transport == NULL) {
        CDDPI_TRY(check_devices(dev));
    }
    CDDPI_TRY(open_transport(dev, transport, deterministic));
    return cddpi_agree(dev->group, dev->device->ops->event_create(dev->device, false, &dev->ready));
}

cddp_status cddpi_group_device_attach(cddp_group *group, struct cddpi_device_ref *ref,
                                      const char *transport, bool deterministic, cddp_status own)
{
    struct cddpi_group_device *dev = NULL;
    cddp_status status;

    if (own == CDDP_OK) {
        dev = cddpi_zalloc(sizeof *dev);
        own = dev != NULL ? CDDP_OK
                          : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a group on a device");
    }
    if (dev != NULL) {
        dev->group = group;
        dev->ref = ref;
        dev->device = ref->device;
        dev->deterministic = deterministic;
        snprintf(dev->requested, sizeof dev->requested, "%s", transport != NULL ? transport : "");
    } else {
        unref_device(ref);
    }
    CDDPI_TRY_GOTO(failed, status, cddpi_agree(group, own));
    CDDPI_TRY_GOTO(failed, status, set_up(dev, transport, deterministic));
    own = cddpi_watchdog_start(dev);
    status = cddpi_agree(group, own);
    if (status == CDDP_OK) {
        group->device = dev;
        cddpi_group_publish_at_exit();
        return CDDP_OK;
    }
    if (own == CDDP_OK) {
        cddpi_watchdog_stop(dev, false);
    }

failed:
    destroy_device(dev);
    return status;
}

/* NCCL's own switch, since 2.30.3. */
static bool nccl_may_share(void)
{
    const char *text = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    return text != NULL && strcmp(text, "1") == 0;
}

/* Whether only one device is visible. Some launchers give each process exactly one. */
static bool sees_one_device(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    return visible != NULL && visible[0] != '\0' && strchr(visible, ',') == NULL;
}

cddp_status cddpi_group_device_open(cddp_group *group, const char *name, const char *transport,
                                    bool deterministic, void *stream)
{
    /* check_devices(), or the transport nccl, reports ranks that share a device by mistake */
    bool shared = (transport != NULL && (strcmp(transport, "nccl") != 0 || nccl_may_share())) ||
                  sees_one_device();
    struct cddpi_device_ref *ref = NULL;
    struct cddpi_device *device = NULL;
    cddp_status own = cddpi_device_open(name, group->rank, group->world_size, group->local_rank,
                                        group->local_world_size, shared, &device);

    if (own == CDDP_OK) {
        ref = cddpi_device_ref_create(device);
        own = ref != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;
    }
    if (own == CDDP_OK && stream != NULL) {
        own = device->ops->adopt(device, stream);
    }
    return cddpi_group_device_attach(group, ref, transport, deterministic, own);
}

cddp_status cddpi_group_device_split(const cddp_group *group, cddp_group *made)
{
    struct cddpi_group_device *dev = group->device;

    atomic_fetch_add_explicit(&dev->ref->groups, 1, memory_order_relaxed);
    return cddpi_group_device_attach(made, dev->ref,
                                     dev->requested[0] != '\0' ? dev->requested : NULL,
                                     dev->deterministic, CDDP_OK);
}

const char *cddpi_group_device_transport_name(const cddp_group *group)
{
    return group->device->row->name;
}

/* Store the outcome of its work in each handle that the caller still has. Returns whether some work
 * was still in progress. */
static bool end_handles(cddp_group *group)
{
    struct cddpi_group_device *dev = group->device;
    bool abandoned = false;

    for (struct cddp_work *work = group->newest; work != NULL; work = work->older) {
        struct cddpi_pending *pending = work->pending;

        if (pending == NULL) {
            continue;
        }
        pthread_mutex_lock(&dev->mutex);
        abandoned = abandoned || pending->under_way;
        work->status = pending->under_way ? CDDP_ERR_CLOSED : pending->status;
        pthread_mutex_unlock(&dev->mutex);
        cddpi_group_device_drop(work);
        atomic_store_explicit(&work->done, 1, memory_order_release);
    }
    return abandoned;
}

void cddpi_group_device_close(cddp_group *group)
{
    struct cddpi_group_device *dev = group->device;
    bool abandoned = end_handles(group);

    cddpi_watchdog_stop(dev, !abandoned);
    (void)dev->device->ops->finish(dev->device, group->timeout_ms);
    group->device = NULL;
    destroy_device(dev);
}
