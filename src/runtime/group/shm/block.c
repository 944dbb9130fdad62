/* block.c - owns the shared block: creates it, maps it and leaves it. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/process.h"
#include "group/join/link.h"
#include "group/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t head_bytes(int size)
{
    return shm_pages(sizeof(struct shm_block) + (size_t)size * sizeof(struct shm_rank));
}

static size_t staging_bytes(int size)
{
    return (size_t)size * 2 * SHM_CHUNK_BYTES;
}

static size_t rings_bytes(int size)
{
    return shm_pages((size_t)size * (size_t)size * sizeof(struct shm_ring));
}

/* The size of a block without send buffers, which follow. Every pair of ranks has a ring, since
 * pages that are never touched cost nothing.
 */
static size_t fixed_bytes(int size)
{
    return head_bytes(size) + staging_bytes(size) + rings_bytes(size);
}

static size_t send_buffers_bytes(int size, size_t count)
{
    return (size_t)size * count * SHM_CHUNK_BYTES;
}

/* How many send buffers per rank fit into the user's limit for file sizes (RLIMIT_FSIZE); exceeding
 * it raises a signal. */
static size_t send_buffers_allowed(int size)
{
    size_t fixed = fixed_bytes(size);
    struct rlimit limit;
    size_t fit;

    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return SHM_SEND_BUFFERS;
    }
    fit = limit.rlim_cur <= fixed ? 0 : (limit.rlim_cur - fixed) / send_buffers_bytes(size, 1);
    return fit < SHM_SEND_BUFFERS ? fit : SHM_SEND_BUFFERS;
}

/* How many send buffers a block of @p bytes has. */
static cddp_status count_send_buffers(int size, size_t bytes, size_t *out)
{
    size_t fixed = fixed_bytes(size);
    size_t each = send_buffers_bytes(size, 1);

    if (bytes < fixed || (bytes - fixed) % each != 0 || (bytes - fixed) / each > SHM_SEND_BUFFERS) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "host: the shared block is not one of %d ranks of "
                          "this version of cddp",
                          size);
    }
    *out = (bytes - fixed) / each;
    return CDDP_OK;
}

cddp_status cddpi_shm_block_create(int world_size, uint64_t *out_nonce, int *out_fd)
{
    struct shm_block *block = MAP_FAILED;
    size_t bytes;
    int fd = -1;
    cddp_status status;

    if (world_size < 1 || world_size > SHM_MAX_RANKS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "host: %d ranks; 1 to %d can share a machine",
                          world_size, SHM_MAX_RANKS);
    }
    bytes = fixed_bytes(world_size) +
            send_buffers_bytes(world_size, send_buffers_allowed(world_size));
    status = cddpi_process_share("cddp-group", bytes, &fd);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "host");
    }
    block = mmap(NULL, head_bytes(world_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (block == MAP_FAILED) {
        status = cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "host: %zu bytes of shared memory",
                                  bytes);
        close(fd);
        return status;
    }
    randombytes_buf(&block->nonce, sizeof block->nonce);
    block->bytes = bytes;
    block->world_size = world_size;
    *out_nonce = block->nonce;
    *out_fd = fd;
    munmap(block, head_bytes(world_size));
    return CDDP_OK;
}

static void take_place(struct shm_backend *shm)
{
    shm->me->pid = cddpi_process_id();
    shm->me->start_time = cddpi_process_start_time();
    if (sched_getaffinity(0, sizeof shm->me->cores, shm->me->cores) != 0) {
        CPU_ZERO_S(sizeof shm->me->cores, shm->me->cores);
    }
    atomic_store_explicit(&shm->me->state, SHM_RUNNING, memory_order_release);
}

static void release_backend(struct shm_backend *shm)
{
    if (shm == NULL) {
        return;
    }
    if (shm->block != NULL) {
        cddpi_shm_segments_fini(shm);
        munmap(shm->block,
               fixed_bytes(shm->size) + send_buffers_bytes(shm->size, shm->send_buffer_count));
    }
    pthread_mutex_destroy(&shm->segments_mutex);
    cddpi_free(shm->names);
    cddpi_free(shm->send_states);
    cddpi_free(shm->seen);
    cddpi_free(shm->src);
    cddpi_free(shm->dst);
    cddpi_free(shm->factors);
    cddpi_free(shm);
}

cddp_status cddpi_shm_attach(const struct cddpi_open_params *params, int fd, uint64_t nonce,
                             struct shm_backend **out)
{
    size_t size = (size_t)params->world_size;
    struct shm_backend *shm = cddpi_zalloc(sizeof *shm);
    struct stat stat;
    size_t bytes;
    void *memory;

    CDDPI_TRY_MEMORY(shm != NULL, "host: no memory for a group");
    pthread_mutex_init(&shm->segments_mutex, NULL);
    shm->base.ops = &cddpi_shm_ops;
    shm->rank = params->rank;
    shm->size = params->world_size;
    shm->send_states = cddpi_zalloc_array(SHM_SEND_BUFFERS, sizeof *shm->send_states);
    shm->seen = cddpi_zalloc_array(size, sizeof *shm->seen);
    shm->src = cddpi_zalloc_array(size, sizeof *shm->src);
    shm->dst = cddpi_zalloc_array(size + 1, sizeof *shm->dst); /* with one rank: out and staging */
    shm->factors = cddpi_zalloc_array(size, sizeof *shm->factors);
    shm->names = cddpi_zalloc_array(size, sizeof *shm->names);
    for (size_t r = 0; shm->names != NULL && r < size; r++) {
        shm->names[r] = params->names != NULL ? params->names[r] : (int)r;
    }
    if (shm->names == NULL || shm->send_states == NULL || shm->seen == NULL || shm->src == NULL ||
        shm->dst == NULL || shm->factors == NULL) {
        release_backend(shm);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "host: no memory for %zu ranks", size);
    }
    bytes = fstat(fd, &stat) == 0 ? (size_t)stat.st_size : 0;
    if (count_send_buffers(shm->size, bytes, &shm->send_buffer_count) != CDDP_OK) {
        release_backend(shm);
        return CDDP_ERR_FORMAT;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        release_backend(shm);
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "host: map %zu bytes", bytes);
    }
    shm->block = memory;
    if (shm->block->nonce != nonce || shm->block->world_size != params->world_size) {
        release_backend(shm);
        return cddpi_fail(CDDP_ERR_FORMAT, "host: the shared block is of another group");
    }
    shm->me = &shm->block->ranks[params->rank];
    if (atomic_load_explicit(&shm->me->state, memory_order_acquire) != SHM_ABSENT) {
        int name = params->names != NULL ? params->names[params->rank] : params->rank;

        release_backend(shm);
        return cddpi_fail(CDDP_ERR_STATE, "host: rank %d has been in this group before", name);
    }
    shm->staging = (unsigned char *)memory + head_bytes(shm->size);
    shm->rings = (struct shm_ring *)(void *)(shm->staging + staging_bytes(shm->size));
    shm->send_buffers = (unsigned char *)shm->rings + rings_bytes(shm->size);
    (void)madvise(shm->send_buffers, send_buffers_bytes(shm->size, shm->send_buffer_count),
                  MADV_DONTDUMP); /* of no use */
    take_place(shm);
    *out = shm;
    return CDDP_OK;
}

/* Make the other ranks fail with this rank's failure. */
static void end_joining(struct shm_backend *shm)
{
    struct cddpi_failure failure = *cddpi_last_failure();

    if (failure.culprit < 0) {
        failure.culprit = shm_name(shm, shm->rank);
    }
    cddpi_shm_abort(&shm->base, &failure);
}

cddp_status cddpi_shm_await_attached(struct shm_backend *shm, int64_t deadline_ns,
                                     cddp_status (*give_up)(void *), void *argument)
{
    char missing[256];
    cddp_status status = CDDP_OK;

    for (unsigned round = 0; status == CDDP_OK; round++) {
        /* read before the count: a failure right after all ranks have joined is reported by the
         * next call */
        cddp_status broken = cddpi_shm_broken(&shm->base);
        size_t used = 0;

        missing[0] = '\0';
        for (int r = 0; r < shm->size; r++) {
            if (atomic_load_explicit(&shm->block->ranks[r].state, memory_order_acquire) ==
                    SHM_ABSENT &&
                used < sizeof missing - 16) {
                used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d",
                                         used > 0 ? ", " : "", shm_name(shm, r));
            }
        }
        if (used == 0) {
            return CDDP_OK;
        }
        status = broken;
        if (status == CDDP_OK && cddpi_now_ns() > deadline_ns) {
            status = cddpi_fail(CDDP_ERR_TIMEOUT, "rank %s did not come in time", missing);
            end_joining(shm);
        }
        if (status == CDDP_OK && give_up != NULL && round % 16 == 15) {
            status = give_up(argument);
            if (status != CDDP_OK) {
                end_joining(shm);
            }
        }
        if (status == CDDP_OK) {
            struct timespec pause = {0, round < 20 ? 100000 : 2000000};

            nanosleep(&pause, NULL);
        }
    }
    return status;
}

/* Get the cores that any rank may use, and those that this rank may use. */
static void get_cores(const struct cddpi_backend *backend, struct cddpi_cores *out)
{
    const struct shm_backend *shm = (const struct shm_backend *)(const void *)backend;
    struct cddpi_processors processors;
    cpu_set_t all[CDDPI_MAX_CPUS / CPU_SETSIZE];

    CPU_ZERO_S(sizeof all, all);
    for (int r = 0; r < shm->size; r++) {
        CPU_OR_S(sizeof all, all, all, shm->block->ranks[r].cores);
    }
    out->ranks = shm->size;
    out->all = CPU_COUNT_S(sizeof all, all);
    out->own = CPU_COUNT_S(sizeof shm->me->cores, shm->me->cores);
    /* the ranks of one machine share the CPU quota of a container or a service */
    cddpi_processors(&processors);
    out->all = cddpi_processors_within(out->all, processors.quota);
    out->own = out->own < out->all ? out->own : out->all;
}

static void exits(struct cddpi_backend *backend)
{
    struct shm_backend *shm = shm_of(backend);

    atomic_store_explicit(&shm->me->state, SHM_EXITED, memory_order_release);
    cddpi_shm_wake_all(shm);
}

static void leave(struct cddpi_backend *backend)
{
    struct shm_backend *shm = shm_of(backend);

    if (shm->me->pid == cddpi_process_id()) {
        /* not in a forked child, whose parent still takes part */
        atomic_store_explicit(&shm->me->state, SHM_LEFT, memory_order_release);
        cddpi_shm_wake_all(shm);
    }
    release_backend(shm);
}

const struct cddpi_backend_ops cddpi_shm_ops = {.close = leave,
                                                .advance = cddpi_shm_advance,
                                                .check = cddpi_shm_check,
                                                .drop = cddpi_shm_alloc_drop,
                                                .late = cddpi_shm_late,
                                                .expired = cddpi_shm_expired,
                                                .prepare_sleep = cddpi_shm_prepare_sleep,
                                                .sleep = cddpi_shm_sleep,
                                                .end_sleep = cddpi_shm_end_sleep,
                                                .exits = exits,
                                                .wake = cddpi_shm_wake,
                                                .abort = cddpi_shm_abort,
                                                .broken = cddpi_shm_broken,
                                                .peers = cddpi_shm_peers,
                                                .free_memory = cddpi_shm_free,
                                                .shares_pages = true,
                                                .place = cddpi_shm_place};

static cddp_status probe(const struct cddpi_members *members)
{
    if (members->host_count > 1) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "host: the ranks are on %d hosts (machines or containers), and memory is "
                          "shared within one only",
                          members->host_count);
    }
    return CDDP_OK;
}

/* The numbers are not measured: a transfer uses the ranks' own cores, not a wire that works in
 * parallel. It costs one or two wake-ups, plus about the speed at which one core adds. */
static bool link_of(const struct cddpi_backend *backend, cddp_type type,
                    struct cddpi_group_link *out)
{
    static const double wake_s = 5e-6, bytes_per_s = 4e9;

    (void)backend;
    (void)type;
    out->carrier = "shared memory";
    out->hosts = 1;
    out->is_measured = false;
    out->latency_s = wake_s;
    out->bytes_per_s = out->reduce_bytes_per_s = bytes_per_s;
    for (int i = 0; i < CDDPI_LINK_SIZES; i++) {
        out->all_reduce_s[i] = 2 * wake_s + 2 * cddpi_link_size(i) / bytes_per_s;
    }
    return true;
}

const struct cddpi_transport cddpi_shm_transport = {.name = "host",
                                                    .carries = CDDPI_MEMORY_CPU,
                                                    .cpu = {.probe = probe,
                                                            .open = cddpi_shm_open,
                                                            .split = cddpi_shm_split,
                                                            .cores = get_cores,
                                                            .link = link_of}};
