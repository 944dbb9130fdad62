/* handshake.c - how ranks come to share one block of memory: through the rendezvous when a group is
 * made, through the parent's collectives when it is split.
 *
 * Keys of the rendezvous: "member/R" holds "world size|boot id|host|process namespace"; "reply"
 * holds rank 0's answer, "ok PID FD START NONCE SIZE" or "no STATUS RANK TEXT"; "refused" holds
 * "RANK TEXT" of a rank that could not map the block. An answer of a process that has ended (in a
 * file that was left over) is not used. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/process.h"
#include "group/agree.h"
#include "group/rendezvous.h"
#include "group/shm/shm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRACE_MS = 2000, POLL_MS = 20, STALE_MS = 1000 };

struct handshake {
    struct cddpi_rendezvous *rendezvous;
    int fd; /* of the block; -1: none */
};

/* The host id: the same for processes that can share memory. */
static void write_host_id(char *out, size_t bytes)
{
    char machine[CDDPI_MACHINE_BYTES];
    char host_name[128] = "";
    char space[64] = "";
    ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);

    cddpi_machine(machine);
    (void)gethostname(host_name, sizeof host_name - 1);
    space[length > 0 ? length : 0] = '\0';
    snprintf(out, bytes, "%s|%s|%s", machine, host_name, space);
}

static cddp_status fail_sizes(int rank, int size, int size_of_0)
{
    return cddpi_fail(CDDP_ERR_MISMATCH,
                      "rank %d was started for a world size of %d and rank 0 for one of %d: all "
                      "ranks of a job need the same (CDDP_WORLD_SIZE, WORLD_SIZE, or the option "
                      "world_size)",
                      rank, size, size_of_0);
}

/* Rank 0: compare rank @p rank's key with this rank's. */
static cddp_status compare_member(const struct cddpi_launch_env *env, int rank, const char *member)
{
    const char *bar = strchr(member, '|');
    int size = atoi(member);
    char mine[320];

    if (size != env->world_size || bar == NULL) {
        return fail_sizes(rank, size, env->world_size);
    }
    write_host_id(mine, sizeof mine);
    return strcmp(bar + 1, mine) == 0
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_UNAVAILABLE,
                            "ranks 0 and %d are on different machines or in different containers "
                            "(%s; %.300s): the host backend shares memory within one machine only",
                            rank, mine, bar + 1);
}

/* Rank 0: wait for all ranks, and compare their host ids. */
static cddp_status gather_members(struct cddpi_rendezvous *rendezvous)
{
    const struct cddpi_launch_env *env = rendezvous->env;

    for (int r = 1; r < env->world_size; r++) {
        char key[CDDPI_MEMBER_KEY_BYTES];
        char *value;
        cddp_status status;

        cddpi_rendezvous_member(r, key);
        status = cddpi_rendezvous_await(rendezvous, key, r, rendezvous->deadline_ns, &value);
        if (status == CDDP_ERR_TIMEOUT) {
            return cddpi_rendezvous_missing(rendezvous);
        }
        if (status != CDDP_OK) {
            return status;
        }
        status = compare_member(env, r, value);
        cddp_free(value);
        if (status != CDDP_OK) {
            return status;
        }
    }
    return CDDP_OK;
}

/* Rank 0: make the block and tell the others, or tell them why it could not. */
static cddp_status give_reply(struct handshake *handshake, struct cddpi_backend **out)
{
    struct cddpi_rendezvous *rendezvous = handshake->rendezvous;
    const struct cddpi_launch_env *env = rendezvous->env;
    struct cddpi_open_params params = {0, env->world_size, env->timeout_ms};
    struct cddpi_failure failure;
    uint64_t nonce;
    char text[1200];
    cddp_status status;

    cddpi_rendezvous_delete(rendezvous, "reply");
    cddpi_rendezvous_delete(rendezvous, "refused");
    status = gather_members(rendezvous);
    if (status == CDDP_OK) {
        status = cddpi_shm_block_create(env->world_size, &nonce, &handshake->fd);
    }
    if (status == CDDP_OK) {
        status = cddpi_shm_attach(&params, handshake->fd, nonce, out);
    }
    if (status == CDDP_OK) {
        snprintf(text, sizeof text, "ok %d %d %" PRIu64 " %" PRIu64 " %d", getpid(), handshake->fd,
                 cddpi_process_start_time(), nonce, env->world_size);
        return cddp_store_set(rendezvous->store, "reply", text, strlen(text));
    }
    failure = *cddpi_last_failure();
    snprintf(text, sizeof text, "no %d %d %.1100s", (int)status, failure.rank,
             failure.text + failure.unnamed);
    cddpi_rendezvous_set(rendezvous, "reply", text);
    return cddpi_fail_again(status, &failure);
}

static cddp_status accept_offer(struct handshake *handshake, const char *text,
                                struct cddpi_backend **out)
{
    const struct cddpi_launch_env *env = handshake->rendezvous->env;
    struct cddpi_open_params params = {env->rank, env->world_size, env->timeout_ms};
    uint64_t start;
    uint64_t nonce;
    cddp_status status;
    int size;
    int pid;
    int fd;

    if (sscanf(text, "ok %d %d %" SCNu64 " %" SCNu64 " %d", &pid, &fd, &start, &nonce, &size) !=
        5) {
        return cddpi_fail(CDDP_ERR_FORMAT, "joining: rank 0's answer cannot be understood");
    }
    if (size != env->world_size) {
        return fail_sizes(env->rank, env->world_size, size);
    }
    status = cddpi_process_open_fd(pid, start, fd, &handshake->fd);
    if (status == CDDP_OK) {
        status = cddpi_shm_attach(&params, handshake->fd, nonce, out);
    }
    if (status != CDDP_OK && handshake->fd >= 0) {
        close(handshake->fd);
        handshake->fd = -1;
    }
    return status;
}

static cddp_status refuse(struct cddpi_rendezvous *rendezvous, cddp_status status)
{
    char text[1200];

    struct cddpi_failure failure;

    (void)cddpi_fail_name(status, rendezvous->env->rank);
    failure = *cddpi_last_failure();
    snprintf(text, sizeof text, "%d %.1100s", failure.rank, failure.text + failure.unnamed);
    cddpi_rendezvous_set(rendezvous, "refused", text);
    return cddpi_fail_again(status, &failure);
}

/* Wait for the answer and follow it. One that cannot be followed may be old, left by an earlier
 * group of the same name: then rank 0 is about to replace it. */
static cddp_status await_reply(struct handshake *handshake, struct cddpi_backend **out)
{
    struct cddpi_rendezvous *rendezvous = handshake->rendezvous;
    int64_t deadline = rendezvous->deadline_ns + (int64_t)GRACE_MS * 1000000;
    int64_t stale_until = 0;

    for (;;) {
        int left = cddpi_left_ms(deadline);
        char *value;
        int failed;
        int rank;
        int at = 0;
        cddp_status status = cddpi_rendezvous_await(rendezvous, "reply", 0, deadline, &value);

        if (status == CDDP_ERR_TIMEOUT) {
            return cddpi_rendezvous_missing(rendezvous);
        }
        if (status != CDDP_OK) {
            return status;
        }
        if (sscanf(value, "no %d %d %n", &failed, &rank, &at) == 2 && at > 0 && failed < 0 &&
            failed >= CDDP_ERR_CLOSED) {
            status = cddpi_fail_rank((cddp_status)failed, rank, "%s", value + at);
            cddp_free(value);
            return status;
        }
        status = accept_offer(handshake, value, out);
        cddp_free(value);
        if (status == CDDP_OK) {
            return CDDP_OK;
        }
        if (left == 0) {
            return status == CDDP_ERR_PEER ? cddpi_rendezvous_missing(rendezvous)
                                           : refuse(rendezvous, status);
        }
        /* a dead process's answer is certainly old; anything else gets a second to change */
        if (status != CDDP_ERR_PEER && stale_until == 0) {
            stale_until = cddpi_deadline_ns(STALE_MS);
        } else if (status != CDDP_ERR_PEER && cddpi_left_ms(stale_until) == 0) {
            return refuse(rendezvous, status);
        }
        usleep(POLL_MS * 1000);
    }
}

static cddp_status refused(void *argument)
{
    struct cddpi_rendezvous *rendezvous = argument;
    void *value;
    size_t bytes;
    int rank;
    int at = 0;

    if (rendezvous->env->rank != 0 ||
        cddp_store_try_get(rendezvous->store, "refused", &value, &bytes) != CDDP_OK) {
        return CDDP_OK;
    }
    if (sscanf(value, "%d %n", &rank, &at) == 1 && at > 0) {
        (void)cddpi_fail_rank(CDDP_ERR_PEER, rank, "%.1100s", (const char *)value + at);
        cddpi_error_blame(rank);
    } else {
        (void)cddpi_fail(CDDP_ERR_PEER, "joining: a rank's refusal is none");
    }
    cddp_free(value);
    return CDDP_ERR_PEER;
}

static cddp_status join_ranks(struct handshake *handshake, struct cddpi_backend **out)
{
    struct cddpi_rendezvous *rendezvous = handshake->rendezvous;
    int64_t deadline = rendezvous->deadline_ns + (int64_t)GRACE_MS * 1000000;
    struct cddpi_backend *shm = NULL;
    char host_id[320];
    char mine[340];
    char key[CDDPI_MEMBER_KEY_BYTES];
    cddp_status status;

    write_host_id(host_id, sizeof host_id);
    snprintf(mine, sizeof mine, "%d|%s", rendezvous->env->world_size, host_id);
    cddpi_rendezvous_member(rendezvous->env->rank, key);
    status = cddp_store_set(rendezvous->store, key, mine, strlen(mine));
    if (status == CDDP_OK) {
        status = rendezvous->env->rank == 0 ? give_reply(handshake, &shm)
                                            : await_reply(handshake, &shm);
    }
    if (status == CDDP_OK) {
        status = cddpi_shm_await_attached(shm, deadline, refused, rendezvous);
    }
    if (status != CDDP_OK && shm != NULL) {
        cddpi_shm_ops.close(shm);
        return status;
    }
    if (status == CDDP_OK) {
        *out = shm;
    }
    return status;
}

static cddp_status alone(uint32_t timeout_ms, struct cddpi_backend **out)
{
    struct cddpi_open_params params = {0, 1, timeout_ms};
    uint64_t nonce;
    int fd;
    cddp_status status = cddpi_shm_block_create(1, &nonce, &fd);

    if (status == CDDP_OK) {
        status = cddpi_shm_attach(&params, fd, nonce, out);
        close(fd);
    }
    return status;
}

cddp_status cddpi_shm_open(const struct cddpi_launch_env *env, struct cddpi_backend **out)
{
    struct cddpi_rendezvous rendezvous;
    struct handshake handshake = {&rendezvous, -1};
    cddp_status status;

    if (env->world_size == 1) {
        return alone(env->timeout_ms, out);
    }
    status = cddpi_rendezvous_open(env, &rendezvous);
    if (status != CDDP_OK) {
        return status;
    }
    status = join_ranks(&handshake, out);
    if (status == CDDP_OK && env->rank == 0 && !env->hosts_store && !env->removes_file) {
        cddpi_rendezvous_delete(&rendezvous, "reply");
    }
    cddpi_rendezvous_close(&rendezvous, status == CDDP_OK);
    if (handshake.fd >= 0) {
        close(handshake.fd);
    }
    return status;
}

/* What ranks tell each other when they split. */
struct offer {
    uint64_t nonce;
    uint64_t start_time;
    int32_t pid;
    int32_t fd; /* -1: none */
};

static cddp_status attach(cddp_group *group, const struct cddpi_open_params *params,
                          const struct offer *offer, struct cddpi_backend **out)
{
    cddp_status status;
    int fd;

    if (offer->fd < 0) {
        return CDDP_OK; /* the new rank 0 could not make the block: it says why when all agree */
    }
    status = cddpi_process_open_fd(offer->pid, offer->start_time, offer->fd, &fd);
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_shm_attach(params, fd, offer->nonce, out);
    close(fd);
    if (status == CDDP_OK) {
        status = cddpi_shm_await_attached(*out, cddpi_deadline_ns(group->timeout_ms), NULL, NULL);
        cddpi_error_blame(-1); /* the culprit's number is one of the part, not of the job */
    }
    return status;
}

/* A rank that fails still takes part in all exchanges, so that no other waits for it. */
cddp_status cddpi_shm_split(cddp_group *group, const struct cddpi_open_params *params, int first,
                            bool joins, struct cddpi_backend **out)
{
    void *offers = NULL;
    struct offer mine = {0, 0, getpid(), -1};
    struct cddpi_backend *backend = NULL;
    cddp_status own = CDDP_OK;
    cddp_status status;

    mine.start_time = cddpi_process_start_time();
    if (joins && first == group->rank) {
        own = cddpi_shm_block_create(params->world_size, &mine.nonce, &mine.fd);
    }
    status = cddpi_all_gather_bytes(group, &mine, sizeof mine, &offers);
    if (status == CDDP_OK) {
        if (own == CDDP_OK && joins) {
            own = attach(group, params, (const struct offer *)offers + first, &backend);
        }
        status = cddpi_agree(group, own);
    }
    if (mine.fd >= 0) {
        close(mine.fd);
    }
    cddpi_free(offers);
    if (status == CDDP_OK) {
        *out = backend;
    } else if (backend != NULL) {
        cddpi_shm_ops.close(backend);
    }
    return status;
}
