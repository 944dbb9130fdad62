/* handshake.c - owns how ranks of one host agree on one shared block: through the rendezvous when a
 * group is created, through the parent's collectives when a group is split.
 *
 * Keys of the rendezvous, below "host/H/": "reply" has the answer of the host's first rank, which
 * says where the block is, or its refusal (group/join/rendezvous.h). "refused" has the refusal of a
 * rank that could not map the block. An answer from a process that has ended (in a left-over file)
 * is ignored. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "group/join/group_agree.h"
#include "group/join/rendezvous.h"
#include "group/shm/shm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GRACE_MS = 2000, POLL_MS = 20, STALE_MS = 1000, KEY_BYTES = 48 };

#define BLOCK struct shm_block_place

CDDPI_MESSAGE_FORM(cddpi_shm_block_form, SHARED_BLOCK, BLOCK, sizeof(BLOCK) + 64,
                   CDDPI_U64(BLOCK, nonce), CDDPI_U64(BLOCK, start_time),
                   CDDPI_NUMBER(BLOCK, pid, 1, INT32_MAX), CDDPI_NUMBER(BLOCK, fd, 0, INT32_MAX),
                   CDDPI_NUMBER(BLOCK, world_size, 1, INT32_MAX));

struct handshake {
    const struct cddpi_members *members;
    struct cddpi_rendezvous *rendezvous;
    struct cddpi_open_params params; /* this rank's number among those of its host */
    char reply[KEY_BYTES], refused[KEY_BYTES];
    int fd; /* the block's file descriptor; -1: none */
};

/* On the host's first rank: create the block and publish it, or publish why that failed. */
static cddp_status give_reply(struct handshake *handshake, struct shm_backend **out)
{
    struct cddpi_rendezvous *rendezvous = handshake->rendezvous;
    const struct cddpi_open_params *params = &handshake->params;
    struct shm_block_place block = {.world_size = params->world_size};
    cddp_status status;

    cddpi_rendezvous_delete(rendezvous, handshake->reply);
    cddpi_rendezvous_delete(rendezvous, handshake->refused);
    CDDPI_TRY_GOTO(refuse, status,
                   cddpi_shm_block_create(params->world_size, &block.nonce, &handshake->fd));
    CDDPI_TRY_GOTO(refuse, status, cddpi_shm_attach(params, handshake->fd, block.nonce, out));
    block.pid = getpid();
    block.fd = handshake->fd;
    block.start_time = cddpi_process_start_time();
    return cddpi_message_set(rendezvous->store, handshake->reply, &cddpi_shm_block_form, &block);

refuse:
    return cddpi_refusal_set(rendezvous, handshake->reply, status);
}

static cddp_status accept_reply(struct handshake *handshake, const void *reply, size_t bytes,
                                struct shm_backend **out)
{
    const struct cddpi_open_params *params = &handshake->params;
    struct shm_block_place block;
    cddp_status status = cddpi_message_decode(&cddpi_shm_block_form, reply, bytes, &block);

    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "joining: rank %d's answer", params->names[0]);
    }
    if (block.world_size != params->world_size) {
        return cddpi_members_fail_sizes(params->names[params->rank], params->world_size,
                                        block.world_size);
    }
    status = cddpi_process_open_fd(block.pid, block.start_time, block.fd, 0, &handshake->fd);
    if (status == CDDP_OK) {
        status = cddpi_shm_attach(params, handshake->fd, block.nonce, out);
    }
    if (status != CDDP_OK && handshake->fd >= 0) {
        close(handshake->fd);
        handshake->fd = -1;
    }
    return status;
}

static cddp_status refuse_reply(const struct handshake *handshake, cddp_status status)
{
    (void)cddpi_fail_name(status, handshake->members->env->rank);
    return cddpi_refusal_set(handshake->rendezvous, handshake->refused, status);
}

/* Wait for the answer and map the block that it names. An answer that does not work may be a
 * left-over of an earlier group with the same name; then the host's first rank will replace it
 * soon. */
static cddp_status await_reply(struct handshake *handshake, struct shm_backend **out)
{
    struct cddpi_rendezvous *rendezvous = handshake->rendezvous;
    int64_t deadline = rendezvous->deadline_ns + (int64_t)GRACE_MS * 1000000;
    int64_t stale_until = 0;

    for (;;) {
        int left = cddpi_left_ms(deadline);
        void *value;
        size_t bytes;
        cddp_status status;

        CDDPI_TRY(cddpi_refusal_await(rendezvous, handshake->reply, handshake->params.names[0],
                                      deadline, &value, &bytes));
        status = accept_reply(handshake, value, bytes, out);
        cddp_free(value);
        if (status == CDDP_OK) {
            return CDDP_OK;
        }
        if (left == 0) {
            return status == CDDP_ERR_PEER ? cddpi_rendezvous_missing(rendezvous)
                                           : refuse_reply(handshake, status);
        }
        /* the answer of a dead process is certainly old; any other answer gets one second to
         * change */
        if (status != CDDP_ERR_PEER && stale_until == 0) {
            stale_until = cddpi_deadline_ns(STALE_MS);
        } else if (status != CDDP_ERR_PEER && cddpi_left_ms(stale_until) == 0) {
            return refuse_reply(handshake, status);
        }
        usleep(POLL_MS * 1000);
    }
}

/* While the host's first rank waits for the others: check whether one of them has refused. */
static cddp_status look_for_refusal(void *argument)
{
    const struct handshake *handshake = argument;

    return handshake->params.rank == 0
               ? cddpi_refusal_look(handshake->rendezvous, handshake->refused)
               : CDDP_OK;
}

static cddp_status join_ranks(struct handshake *handshake, struct shm_backend **out)
{
    int64_t deadline = handshake->rendezvous->deadline_ns + (int64_t)GRACE_MS * 1000000;
    struct shm_backend *shm = NULL;
    cddp_status status = handshake->params.rank == 0 ? give_reply(handshake, &shm)
                                                     : await_reply(handshake, &shm);

    if (status == CDDP_OK) {
        status = cddpi_shm_await_attached(shm, deadline, look_for_refusal, handshake);
    }
    if (status != CDDP_OK && shm != NULL) {
        cddpi_shm_ops.close(&shm->base);
        return status;
    }
    CDDPI_TRY(status);
    *out = shm;
    return CDDP_OK;
}

static cddp_status attach_alone(const struct cddpi_open_params *params, struct shm_backend **out)
{
    uint64_t nonce;
    int fd;
    cddp_status status;

    CDDPI_TRY(cddpi_shm_block_create(1, &nonce, &fd));
    status = cddpi_shm_attach(params, fd, nonce, out);
    close(fd);
    return status;
}

cddp_status cddpi_shm_open(const struct cddpi_members *members, struct cddpi_backend **out)
{
    const struct cddpi_launch_env *env = members->env;
    struct handshake handshake = {
        members,
        members->rendezvous,
        {members->local_rank, members->local_size, env->timeout_ms, members->locals},
        "",
        "",
        -1};
    struct shm_backend *shm = NULL;
    cddp_status status;

    if (members->local_size == 1) {
        CDDPI_TRY(attach_alone(&handshake.params, &shm));
        *out = &shm->base;
        return CDDP_OK;
    }
    snprintf(handshake.reply, sizeof handshake.reply, "host/%d/reply", members->host);
    snprintf(handshake.refused, sizeof handshake.refused, "host/%d/refused", members->host);
    status = join_ranks(&handshake, &shm);
    if (status == CDDP_OK && members->local_rank == 0 && !env->hosts_store && !env->removes_file) {
        cddpi_rendezvous_delete(handshake.rendezvous, handshake.reply);
    }
    cddpi_fd_close(&handshake.fd);
    CDDPI_TRY(status);
    *out = &shm->base;
    return CDDP_OK;
}

/* Attach to the offered block. Does not wait for the other ranks, since one may fail. Once all
 * agree, it is known that all have attached.
 */
static cddp_status attach_offered(const struct cddpi_open_params *params,
                                  const struct shm_block_place *offer, struct shm_backend **out)
{
    cddp_status status;
    int fd;

    if (offer->fd < 0) {
        return CDDP_OK; /* the new rank 0 could not create the block: it gives the reason when all
                           ranks agree */
    }
    CDDPI_TRY(cddpi_process_open_fd(offer->pid, offer->start_time, offer->fd, 0, &fd));
    status = cddpi_shm_attach(params, fd, offer->nonce, out);
    close(fd);
    return status;
}

/* A rank that fails still takes part in all exchanges, so that no other rank waits in vain. */
cddp_status cddpi_shm_split(cddp_group *group, const struct cddpi_open_params *params, int first,
                            bool joins, struct cddpi_backend **out)
{
    void *offers = NULL;
    struct shm_block_place mine = {.pid = getpid(), .fd = -1};
    struct shm_backend *backend = NULL;
    cddp_status own = CDDP_OK;
    cddp_status status;

    mine.start_time = cddpi_process_start_time();
    if (joins && first == group->rank) {
        own = cddpi_shm_block_create(params->world_size, &mine.nonce, &mine.fd);
    }
    status = cddpi_all_gather_bytes(group, &mine, sizeof mine, &offers);
    if (status == CDDP_OK) {
        if (own == CDDP_OK && joins) {
            own = attach_offered(params, (const struct shm_block_place *)offers + first, &backend);
        }
        status = cddpi_agree(group, own);
    }
    cddpi_fd_close(&mine.fd);
    cddpi_free(offers);
    if (status == CDDP_OK) {
        *out = backend != NULL ? &backend->base : NULL;
    } else if (backend != NULL) {
        cddpi_shm_ops.close(&backend->base);
    }
    return status;
}
