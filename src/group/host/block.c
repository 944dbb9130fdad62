/* block.c - makes, maps and leaves the shared block; what /proc knows about a process. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t head_bytes(int size)
{
    return host_pages(sizeof(struct host_block) + (size_t)size * sizeof(struct host_rank));
}

static size_t staging_bytes(int size)
{
    return (size_t)size * 2 * HOST_CHUNK_BYTES;
}

/* Pages that are never touched cost nothing, so every pair has its ring. */
static size_t block_bytes(int size)
{
    return head_bytes(size) + staging_bytes(size) +
           host_pages((size_t)size * (size_t)size * sizeof(struct host_ring));
}

bool cddpi_host_process(int pid, char *out_state, uint64_t *out_start_time)
{
    char path[64];
    char text[1024];
    const char *at;
    ssize_t length;
    uint64_t start;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) {
        return false;
    }
    text[length] = '\0';
    at = strrchr(text, ')'); /* the name in front may hold anything */
    if (at == NULL || at[1] != ' ' || at[2] == '\0') {
        return false;
    }
    *out_state = at[2];
    at += 2;
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (at == NULL) {
            return false;
        }
        at++;
    }
    if (sscanf(at, "%" SCNu64, &start) != 1) {
        return false;
    }
    *out_start_time = start;
    return true;
}

cddp_status cddpi_host_open_fd(int pid, uint64_t start_time, int fd, int *out_fd)
{
    char path[64];
    char state;
    uint64_t started;
    int opened;

    if (!cddpi_host_process(pid, &state, &started) || started != start_time) {
        return cddpi_fail(CDDP_ERR_PEER, "process %d, which shares its memory, is gone", pid);
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0) {
        return cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno,
                                "the memory of process %d cannot be shared: open %s", pid, path);
    }
    *out_fd = opened;
    return CDDP_OK;
}

cddp_status cddpi_host_block_create(int world_size, uint64_t *out_nonce, int *out_fd)
{
    size_t bytes = block_bytes(world_size);
    struct host_block *block = MAP_FAILED;
    int fd;

    if (world_size < 1 || world_size > HOST_MAX_RANKS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "host: %d ranks; 1 to %d can share a machine",
                          world_size, HOST_MAX_RANKS);
    }
    fd = memfd_create("cddp-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        goto fail;
    }
    block = mmap(NULL, head_bytes(world_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (block == MAP_FAILED) {
        goto fail;
    }
    randombytes_buf(&block->nonce, sizeof block->nonce);
    block->bytes = bytes;
    block->world_size = world_size;
    *out_nonce = block->nonce;
    *out_fd = fd;
    munmap(block, head_bytes(world_size));
    return CDDP_OK;

fail:
    (void)cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "host: %zu bytes of shared memory", bytes);
    if (fd >= 0) {
        close(fd);
    }
    return CDDP_ERR_NO_MEMORY;
}

static void take_place(struct cddpi_backend *host)
{
    char state;

    host->me->pid = getpid();
    (void)cddpi_host_process(host->me->pid, &state, &host->me->start_time);
    if (sched_getaffinity(0, sizeof host->me->cores, &host->me->cores) != 0) {
        CPU_ZERO(&host->me->cores);
    }
    atomic_store_explicit(&host->me->state, HOST_RUNNING, memory_order_release);
}

static void release(struct cddpi_backend *host)
{
    if (host == NULL) {
        return;
    }
    if (host->block != NULL) {
        cddpi_host_segments_fini(host);
        munmap(host->block, block_bytes(host->size));
    }
    pthread_mutex_destroy(&host->segments_mutex);
    cddpi_free(host->seen);
    cddpi_free(host->src);
    cddpi_free(host->dst);
    cddpi_free(host->factors);
    cddpi_free(host);
}

cddp_status cddpi_host_attach(const struct cddpi_seat *seat, int fd, uint64_t nonce,
                              struct cddpi_backend **out)
{
    size_t bytes = block_bytes(seat->world_size);
    size_t size = (size_t)seat->world_size;
    struct cddpi_backend *host = cddpi_zalloc(sizeof *host);
    struct stat stat;
    void *memory;

    if (host == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "host: no memory for a group");
    }
    pthread_mutex_init(&host->segments_mutex, NULL);
    host->rank = seat->rank;
    host->size = seat->world_size;
    host->seen = cddpi_zalloc_array(size, sizeof *host->seen);
    host->src = cddpi_zalloc_array(size, sizeof *host->src);
    host->dst = cddpi_zalloc_array(size + 1, sizeof *host->dst); /* out and staging at 1 rank */
    host->factors = cddpi_zalloc_array(size, sizeof *host->factors);
    if (host->seen == NULL || host->src == NULL || host->dst == NULL || host->factors == NULL) {
        release(host);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "host: no memory for %zu ranks", size);
    }
    if (fstat(fd, &stat) != 0 || (size_t)stat.st_size != bytes) {
        release(host);
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "host: the shared block is not one of %zu ranks of "
                          "this version of cddp",
                          size);
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        release(host);
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "host: map %zu bytes", bytes);
    }
    host->block = memory;
    if (host->block->nonce != nonce || host->block->world_size != seat->world_size) {
        release(host);
        return cddpi_fail(CDDP_ERR_FORMAT, "host: the shared block is of another group");
    }
    host->me = &host->block->ranks[seat->rank];
    if (atomic_load_explicit(&host->me->state, memory_order_acquire) != HOST_ABSENT) {
        release(host);
        return cddpi_fail(CDDP_ERR_STATE, "host: rank %d has been in this group before",
                          seat->rank);
    }
    host->staging = (unsigned char *)memory + head_bytes(host->size);
    host->rings = (struct host_ring *)(void *)(host->staging + staging_bytes(host->size));
    take_place(host);
    *out = host;
    return CDDP_OK;
}

cddp_status cddpi_host_meet(struct cddpi_backend *host, int64_t deadline_ns,
                            cddp_status (*give_up)(void *), void *argument)
{
    char missing[256];
    cddp_status status = CDDP_OK;

    for (unsigned round = 0; status == CDDP_OK; round++) {
        /* first, since a rank may fail right after all have met: that is the next call's matter */
        cddp_status broken = cddpi_host_broken(host);
        size_t used = 0;

        missing[0] = '\0';
        for (int r = 0; r < host->size; r++) {
            if (atomic_load_explicit(&host->block->ranks[r].state, memory_order_acquire) ==
                    HOST_ABSENT &&
                used < sizeof missing - 16) {
                used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d",
                                         used > 0 ? ", " : "", r);
            }
        }
        if (used == 0) {
            return CDDP_OK;
        }
        status = broken;
        if (status == CDDP_OK && cddpi_now_ns() > deadline_ns) {
            status = cddpi_fail(CDDP_ERR_TIMEOUT, "rank %s did not come in time", missing);
            cddpi_host_abort(host, status, cddp_last_error());
        }
        if (status == CDDP_OK && give_up != NULL && round % 16 == 15) {
            status = give_up(argument);
            if (status != CDDP_OK) {
                cddpi_host_abort(host, status, cddp_last_error());
            }
        }
        if (status == CDDP_OK) {
            struct timespec pause = {0, round < 20 ? 100000 : 2000000};

            nanosleep(&pause, NULL);
        }
    }
    return status;
}

void cddpi_host_cores(const struct cddpi_backend *host, int *out_all, int *out_own)
{
    cpu_set_t all;

    CPU_ZERO(&all);
    for (int r = 0; r < host->size; r++) {
        CPU_OR(&all, &all, &host->block->ranks[r].cores);
    }
    *out_all = CPU_COUNT(&all);
    *out_own = CPU_COUNT(&host->me->cores);
}

static void leave(struct cddpi_backend *host)
{
    atomic_store_explicit(&host->me->state, HOST_LEFT, memory_order_release);
    cddpi_host_ring_all(host);
    release(host);
}

const struct cddpi_backend_ops cddpi_host_ops = {.name = "host",
                                                 .close = leave,
                                                 .advance = cddpi_host_advance,
                                                 .check = cddpi_host_check,
                                                 .drop = cddpi_host_alloc_drop,
                                                 .expired = cddpi_host_expired,
                                                 .announce = cddpi_host_announce,
                                                 .sleep = cddpi_host_sleep,
                                                 .awake = cddpi_host_awake,
                                                 .ring = cddpi_host_ring,
                                                 .abort = cddpi_host_abort,
                                                 .broken = cddpi_host_broken,
                                                 .peers = cddpi_host_peers,
                                                 .free_memory = cddpi_host_free};
