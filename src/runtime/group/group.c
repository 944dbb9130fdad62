/* group.c - owns the life of a group: creating and leaving it, its device and its memory; and the
 * list of this process's groups. */
#include "group/group.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/types.h"
#include "group/device/group_device.h"
#include "group/engine/group_entry.h"
#include "group/engine/handles.h"
#include "group/transports.h"
#include "group/watch/dump.h"
#include "group/watch/group_trace.h"
#include "store/server.h"

enum { EXIT_MS = 1000 }; /* how long exit() waits for devices that do not answer */

/* The groups of this process. If the program calls exit() without destroying them, peers learn that
 * it left and did not die. The lock is held only briefly. A forked child may find it held, and then
 * does not wait for it. */
static pthread_mutex_t groups_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cddp_group *groups;

static void note_open(cddp_group *group)
{
    pthread_mutex_lock(&groups_mutex);
    group->next_open = groups;
    groups = group;
    pthread_mutex_unlock(&groups_mutex);
}

static void note_closed(cddp_group *group)
{
    struct cddp_group **link;

    pthread_mutex_lock(&groups_mutex);
    for (link = &groups; *link != NULL && *link != group; link = &(*link)->next_open) {
    }
    if (*link != NULL) {
        *link = group->next_open;
    }
    pthread_mutex_unlock(&groups_mutex);
}

bool cddpi_group_any(void)
{
    bool is_any;

    pthread_mutex_lock(&groups_mutex);
    is_any = groups != NULL;
    pthread_mutex_unlock(&groups_mutex);
    return is_any;
}

/* Unlike a destructor, this runs while the device's library still answers: its own handlers were
 * registered earlier. */
static void publish_before_exit(void)
{
    int64_t deadline_ns = cddpi_deadline_ns(EXIT_MS);

    if (pthread_mutex_trylock(&groups_mutex) != 0) {
        return;
    }
    for (cddp_group *group = groups; group != NULL; group = group->next_open) {
        if (cddpi_handle_is_own(&group->handle) && cddpi_group_has_device(group)) {
            cddpi_watchdog_exit(group->device, deadline_ns);
        }
    }
    pthread_mutex_unlock(&groups_mutex);
}

static void register_exit(void)
{
    (void)atexit(publish_before_exit);
}

void cddpi_group_publish_at_exit(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, register_exit);
}

/* Other threads may still run, so no lock is waited for: a rank sets flags in shared memory, and
 * waits for a moment until its TCP thread has said goodbye. */
__attribute__((destructor)) static void say_that_we_left(void)
{
    if (pthread_mutex_trylock(&groups_mutex) != 0) {
        return;
    }
    for (cddp_group *group = groups; group != NULL; group = group->next_open) {
        if (!cddpi_handle_is_own(&group->handle)) {
            continue;
        }
        if (cddpi_group_has_device(group)) {
            cddpi_calls_exit(group->device);
        }
        if (group->backend->ops->exits != NULL) {
            group->backend->ops->exits(group->backend);
        }
    }
    pthread_mutex_unlock(&groups_mutex);
}

cddp_status cddpi_group_build(const struct cddpi_open_params *params,
                              const struct cddpi_transport *transport,
                              struct cddpi_backend *backend, cddp_group **out)
{
    static _Atomic uint32_t jobs;
    cddp_group *group = cddpi_zalloc(sizeof *group);
    struct cddpi_cores cores = {.ranks = params->world_size, .all = 1, .own = 1};
    cddp_status status;

    if (group == NULL) {
        backend->ops->close(backend);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "group: no memory for %zu bytes", sizeof *group);
    }
    cddpi_handle_init(&group->handle, CDDPI_HANDLE_GROUP);
    atomic_init(&group->refs, 1);
    group->job = atomic_fetch_add_explicit(&jobs, 1, memory_order_relaxed);
    group->rank = group->local_rank = params->rank;
    group->world_size = group->local_world_size = params->world_size;
    group->timeout_ms = params->timeout_ms;
    group->transport = transport;
    group->recorder.bucket = -1;
    group->backend = backend;
    if (transport->cpu.cores != NULL) {
        transport->cpu.cores(backend, &cores);
    }
    status = cddpi_queue_init(group, &cores);
    if (status != CDDP_OK) {
        cddp_group_destroy(group);
        return status;
    }
    note_open(group);
    *out = group;
    return CDDP_OK;
}

/* Called when the last reference is gone. */
static void leave(cddp_group *group)
{
    note_closed(group);
    cddpi_trace_close(group);
    cddp_store_close(group->user_store);
    cddpi_store_server_destroy(group->user_store_server);
    if (cddpi_group_has_device(group)) {
        cddpi_group_device_close(group);
    }
    cddpi_queue_fini(group);
    /* after its threads have ended, so that their failures are written, too */
    cddpi_dump_withdraw(group);
    group->backend->ops->close(group->backend);
    cddp_store_close(group->place);
    for (struct cddp_work *work = group->newest; work != NULL; work = work->older) {
        work->group = NULL; /* the caller, who owns it, destroys it */
    }
    while (group->free_works != NULL) {
        struct cddp_work *next = group->free_works->next;

        cddpi_handle_release(&group->free_works->handle, sizeof *group->free_works);
        group->free_works = next;
    }
    cddpi_free(group->messages);
    cddpi_free(group->ranks_of_job);
    cddpi_handle_release(&group->handle, sizeof *group);
}

void cddpi_group_ref(cddp_group *group)
{
    atomic_fetch_add_explicit(&group->refs, 1, memory_order_relaxed);
}

void cddpi_group_unref(cddp_group *group)
{
    if (atomic_fetch_sub_explicit(&group->refs, 1, memory_order_acq_rel) == 1) {
        leave(group);
    }
}

void cddp_group_destroy(cddp_group *group)
{
    if (group == NULL ||
        !cddpi_handle_enter_last(&group->handle, CDDPI_HANDLE_GROUP, "group_destroy")) {
        return;
    }
    if (!cddpi_handle_is_own(&group->handle)) {
        /* In a forked child the group belongs to the parent: release only the child's memory. The
         * child has none of the group's threads and cannot use the device. */
        if (!cddpi_group_has_device(group)) {
            group->backend->ops->close(group->backend);
        }
        cddpi_handle_end(&group->handle);
    } else if (group->is_closed) {
        (void)cddpi_group_leave(group, CDDP_OK);
        cddpi_log(CDDPI_LOG_WARN,
                  "group_destroy: the group was destroyed before; nothing was done");
    } else {
        group->is_closed = true;
        (void)cddpi_group_leave(group, CDDP_OK);
        cddpi_group_unref(group);
    }
}

cddp_status cddp_group_set_timeout(cddp_group *group, uint32_t timeout_ms)
{
    CDDPI_ENTER_GROUP(group, "group_set_timeout");
    if (timeout_ms == CDDP_TIMEOUT_DEFAULT) {
        timeout_ms = cddpi_env_timeout_ms();
    }
    group->timeout_ms = timeout_ms;
    if (cddpi_group_has_device(group) && group->device->remote_group != NULL) {
        group->device->remote_group->timeout_ms = timeout_ms;
    }
    return CDDP_OK;
}

cddp_status cddp_group_set_stream(cddp_group *group, void *stream)
{
    struct cddpi_device *device;

    CDDPI_ENTER_GROUP(group, "group_set_stream");
    if (stream == NULL) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "set_stream: the stream is NULL (the default stream is cudaStreamLegacy)");
    }
    if (!cddpi_group_has_device(group)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "set_stream: rank %d's group is on the CPU, which has no streams: set "
                          "options.device = \"cuda\"",
                          group->rank);
    }
    device = cddpi_group_on_device(group);
    return device->ops->adopt(device, stream);
}

static cddp_status alloc_host(cddp_group *group, size_t bytes, void **out)
{
    void *memory = NULL;
    struct cddpi_group_op op = {
        .kind = CDDPI_ALLOC, .type = CDDP_U8, .count = bytes, .out = &memory};

    CDDPI_TRY(cddpi_group_run(group, &op, NULL));
    *out = memory;
    return CDDP_OK;
}

cddp_status cddp_group_alloc(cddp_group *group, size_t bytes, uint32_t flags, void **out)
{
    CDDPI_ENTER_GROUP(group, "group_alloc");
    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group_alloc: out is NULL");
    }
    if (bytes > CDDPI_BYTES_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group_alloc: %zu bytes are too many", bytes);
    }
    if (cddpi_flags_check(flags & ~(uint32_t)CDDP_ALLOC_HOST, 0) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_UNAVAILABLE, "group_alloc");
    }
    return cddpi_group_has_device(group) && (flags & CDDP_ALLOC_HOST) == 0
               ? cddpi_group_device_alloc(group, bytes, out)
               : alloc_host(group, bytes, out);
}

bool cddpi_group_has_thread(const cddp_group *group)
{
    return group->queue.threaded;
}

bool cddpi_group_peers(cddp_group *group, const void *memory, size_t bytes, const void **out)
{
    return group->backend->ops->peers != NULL &&
           group->backend->ops->peers(group->backend, memory, bytes, out);
}

void cddp_group_free(cddp_group *group, void *memory)
{
    if (memory == NULL || cddpi_group_enter_kept(group, "group_free") != CDDP_OK) {
        /* the memory is freed with the group */
        return;
    }
    if (!(cddpi_group_has_device(group) && cddpi_group_device_free(group, memory))) {
        group->backend->ops->free_memory(group->backend, memory);
    }
    (void)cddpi_group_leave(group, CDDP_OK);
}
