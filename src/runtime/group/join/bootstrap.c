/* bootstrap.c - owns the bootstrap: rank 0 serves a store and sends its addresses to all ranks,
 * each rank finds an address that it can reach, and all agree on the result, so that no rank waits
 * for one that failed. */
#include "group/join/bootstrap.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "group/join/group_agree.h"
#include "group/net/mpi_module.h"
#include "group/net/tcp/address.h"
#include "store/message.h"
#include "store/server.h"
#include "store/store_stream.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    OWN_FILES = 64, /* open files that rank 0 needs in addition to the server */
    REACH_MS = 20000,
    /* what the ranks exchange has these sizes in every version */
    ARRIVAL_BYTES = 1024,
    OFFER_BYTES = 4096
};

/* Where a rank runs. Loopback connects ranks whose places are equal. */
struct bootstrap_place {
    char machine[256];                 /* from $CDDP_HOST_ID, else from the kernel */
    char network[CDDPI_MACHINE_BYTES]; /* the network namespace */
};

/* What a rank sends to all others about itself. */
struct arrival {
    struct bootstrap_place place;
    bool has_token; /* the rank has its own token */
    bool encrypts;  /* CDDP_ENCRYPT=1 */
};

CDDPI_MESSAGE_FORM(cddpi_arrival_form, ARRIVAL, struct arrival, ARRIVAL_BYTES,
                   CDDPI_TEXT(struct arrival, place.machine),
                   CDDPI_TEXT(struct arrival, place.network),
                   CDDPI_NUMBER(struct arrival, has_token, 0, 1),
                   CDDPI_NUMBER(struct arrival, encrypts, 0, 1));

/* What rank 0 sends to all others, without encryption. */
struct bootstrap_offer {
    struct tcp_offer at;
    char token[33]; /* "": all ranks have a token, which is never sent; else a token for this group
                       only */
    char job[256];
};

CDDPI_MESSAGE_FORM(cddpi_offer_form, OFFER, struct bootstrap_offer, OFFER_BYTES,
                   CDDPI_BYTES(struct bootstrap_offer, at),
                   CDDPI_TEXT(struct bootstrap_offer, token),
                   CDDPI_TEXT(struct bootstrap_offer, job));

/* @p result: what the caller's function returned. */
static cddp_status result_of(const cddp_bootstrap *bootstrap, const char *what, cddp_status result)
{
    const char *name = cddp_status_name(result);

    if (result == CDDP_OK) {
        return CDDP_OK;
    }
    if (cddpi_last_failure()->status == (int32_t)result) { /* the function has set the text */
        return cddpi_fail_prefix(result, "joining");
    }
    return cddpi_fail(cddpi_is_error((int32_t)result) ? result : CDDP_ERR_PEER,
                      "joining: the bootstrap's %s returned %d (%s) on rank %d of %d: it is "
                      "the caller's function, and fails where another rank has not come to this "
                      "call, or has ended: see the output of the others",
                      what, (int)result, name != NULL ? name : "not a status", bootstrap->rank,
                      bootstrap->world_size);
}

static cddp_status gather(void *context, const void *own, size_t bytes, void *out_all)
{
    const cddp_bootstrap *bootstrap = context;

    cddpi_error_clear();
    return result_of(bootstrap, "all_gather",
                     bootstrap->all_gather(bootstrap->state, own, bytes, out_all));
}

static struct cddpi_exchange exchange_by(const cddp_bootstrap *bootstrap)
{
    return (struct cddpi_exchange){.context = (void *)(uintptr_t)bootstrap,
                                   .world_size = bootstrap->world_size,
                                   .all_gather = gather};
}

static void read_place(struct bootstrap_place *out)
{
    const char *given = cddpi_env(CDDPI_ENV_HOST_ID);
    char machine[CDDPI_MACHINE_BYTES];

    cddpi_machine(machine);
    memset(out, 0, sizeof *out);
    snprintf(out->machine, sizeof out->machine, "%s", given != NULL ? given : machine);
    (void)!readlink("/proc/self/ns/net", out->network, sizeof out->network - 1);
}

/* Exchange the arrivals of all ranks, in rank order. Release the result with cddpi_free(), also
 * after a failure. */
static cddp_status exchange_arrivals(const cddp_bootstrap *bootstrap,
                                     const struct cddpi_launch_env *env, struct arrival **out)
{
    struct cddpi_exchange exchange = exchange_by(bootstrap);
    struct arrival own = {.has_token = env->token[0] != '\0',
                          .encrypts = cddpi_env_integer(CDDPI_ENV_ENCRYPT, 0, 1, 0) == 1};
    uint8_t block[ARRIVAL_BYTES];
    struct arrival *arrivals;
    void *all;
    cddp_status status;

    read_place(&own.place);
    arrivals = cddpi_zalloc_array((size_t)bootstrap->world_size, sizeof *arrivals);
    status = arrivals != NULL ? cddpi_message_pack(&cddpi_arrival_form, &own, block, sizeof block)
                              : cddpi_fail(CDDP_ERR_NO_MEMORY, "joining: no memory");
    *out = arrivals;
    CDDPI_TRY(cddpi_agree_and_gather_by(&exchange, status, block, sizeof block, &all));
    for (int rank = 0; rank < bootstrap->world_size && status == CDDP_OK; rank++) {
        status = cddpi_message_unpack(&cddpi_arrival_form,
                                      (uint8_t *)all + (size_t)rank * sizeof block, sizeof block,
                                      &arrivals[rank]);
        if (status != CDDP_OK) {
            (void)cddpi_fail_prefix(status, "joining: what rank %d sends", rank);
        }
    }
    cddpi_free(all);
    return status;
}

static void count_locals(const cddp_bootstrap *bootstrap, const struct arrival *all,
                         struct cddpi_launch_env *env)
{
    env->rank = bootstrap->rank;
    env->world_size = bootstrap->world_size;
    env->local_rank = env->local_world_size = 0;
    for (int rank = 0; rank < bootstrap->world_size; rank++) {
        if (memcmp(all[rank].place.machine, all[bootstrap->rank].place.machine,
                   sizeof all[rank].place.machine) == 0) {
            env->local_rank += rank < bootstrap->rank;
            env->local_world_size++;
        }
    }
}

static bool is_near(const struct arrival *a, const struct arrival *b)
{
    return memcmp(&a->place, &b->place, sizeof a->place) == 0;
}

/* The first rank without its own token; -1: all ranks have one. */
static int find_without_token(const struct arrival *all, int count)
{
    for (int rank = 0; rank < count; rank++) {
        if (!all[rank].has_token) {
            return rank;
        }
    }
    return -1;
}

/* Fail if a rank wants encryption but some rank has no token. Gives the same result on all
 * ranks. */
static cddp_status check_secrets(const struct arrival *all, int count)
{
    int without = find_without_token(all, count);

    for (int rank = 0; without >= 0 && rank < count; rank++) {
        if (all[rank].encrypts) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "joining: rank %d has CDDP_ENCRYPT=1, and rank %d no token: one that "
                              "rank 0 makes would travel unencrypted. Set CDDP_TOKEN to the same "
                              "secret for all ranks (openssl rand -hex 16 prints one)",
                              rank, without);
        }
    }
    return CDDP_OK;
}

/* Rank 0's part. @p without: a rank without a token; -1: all ranks have one. */
static cddp_status serve_store(struct cddpi_launch_env *env, bool is_local, int without,
                               struct bootstrap_offer *offer)
{
    struct cddpi_store_server_options options = {.reserved = OWN_FILES, .token = env->token};

    memcpy(offer->job, env->job, sizeof offer->job);
    if (without >= 0) {
        if (env->token[0] != '\0') {
            cddpi_log(CDDPI_LOG_WARN,
                      "joining: rank %d has no CDDP_TOKEN, so the ranks get another one, which "
                      "travels unencrypted: set CDDP_TOKEN for all ranks",
                      without);
        }
        cddpi_store_token(offer->token);
        options.token = offer->token;
    }
    options.host = is_local ? "127.0.0.1" : "::";
    CDDPI_TRY(cddpi_store_server_create(&options, &env->server));
    CDDPI_TRY(cddpi_tcp_offer_make(&offer->at));
    offer->at.port = cddpi_store_server_port(env->server);
    return CDDP_OK;
}

/* Choose the address that this rank uses. @p by_loopback: loopback reaches rank 0. */
static cddp_status take_offer(const struct bootstrap_offer *offer, bool by_loopback,
                              struct cddpi_launch_env *env)
{
    struct cddpi_address address = {"127.0.0.1", offer->at.port};

    if (!by_loopback) {
        cddp_status status = cddpi_tcp_reachable(
            &offer->at, env->join_timeout_ms < REACH_MS ? env->join_timeout_ms : REACH_MS,
            address.host);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(
                status,
                "joining: rank 0's store is not to be reached. Set CDDP_STORE=tcp://host:port"
                ", an address of rank 0's host that all others reach, and CDDP_TOKEN to a "
                "secret, for all ranks. What was tried");
        }
    }
    cddpi_address_url(&address, env->store);
    if (offer->token[0] != '\0') {
        memcpy(env->token, offer->token, sizeof offer->token);
    }
    memcpy(env->job, offer->job, sizeof env->job);
    env->hosts_store = true;
    env->removes_file = false;
    return CDDP_OK;
}

static cddp_status rendezvous_at(const cddp_bootstrap *bootstrap, const struct arrival *all,
                                 struct cddpi_launch_env *env)
{
    struct cddpi_exchange exchange = exchange_by(bootstrap);
    struct bootstrap_offer offer = {.at = {.port = 0}};
    uint8_t block[OFFER_BYTES] = {0};
    cddp_status status = CDDP_OK;
    bool is_local = true; /* all ranks reach rank 0 by loopback */

    count_locals(bootstrap, all, env);
    for (int rank = 0; rank < env->world_size; rank++) {
        is_local = is_local && is_near(&all[rank], &all[0]);
    }
    if (env->rank == 0) {
        status = serve_store(env, is_local, find_without_token(all, env->world_size), &offer);
        if (status == CDDP_OK) {
            status = cddpi_message_pack(&cddpi_offer_form, &offer, block, sizeof block);
        }
    }
    CDDPI_TRY(cddpi_agree_by(&exchange, status));
    cddpi_error_clear();
    CDDPI_TRY(result_of(bootstrap, "broadcast",
                        bootstrap->broadcast(bootstrap->state, block, sizeof block)));
    status = cddpi_message_unpack(&cddpi_offer_form, block, sizeof block, &offer);
    if (status == CDDP_OK && !cddpi_tcp_offer_is_valid(&offer.at)) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "it is damaged");
    }
    status = status == CDDP_OK ? take_offer(&offer, is_near(&all[0], &all[env->rank]), env)
                               : cddpi_fail_prefix(status, "joining: what rank 0 sends");
    return cddpi_agree_by(&exchange, status);
}

static void close_server(struct cddpi_launch_env *env)
{
    cddpi_store_server_destroy(env->server);
    env->server = NULL;
}

cddp_status cddpi_bootstrap_rendezvous(const cddp_bootstrap *bootstrap,
                                       struct cddpi_launch_env *env)
{
    struct arrival *all = NULL;
    cddp_status status;

    if (bootstrap->world_size == 1) {
        env->rank = env->local_rank = 0;
        env->world_size = env->local_world_size = 1;
        env->store[0] = '\0';
        return CDDP_OK;
    }
    CDDPI_TRY_GOTO(out, status, exchange_arrivals(bootstrap, env, &all));
    CDDPI_TRY_GOTO(out, status, check_secrets(all, bootstrap->world_size));
    CDDPI_TRY_GOTO(out, status, rendezvous_at(bootstrap, all, env));
    env->bootstrap = *bootstrap;

out:
    if (status != CDDP_OK) {
        close_server(env);
    }
    cddpi_free(all);
    return status;
}

cddp_status cddpi_bootstrap_end(struct cddpi_launch_env *env, cddp_status status)
{
    struct cddpi_exchange exchange = exchange_by(&env->bootstrap);
    struct cddpi_failure own = *cddpi_last_failure();
    cddp_status cause;

    if (env->bootstrap.world_size == 0) {
        return status;
    }
    /* a rank that waited in vain knows less than the rank that is missing */
    cause = cddpi_agree_by(&exchange, status == CDDP_ERR_TIMEOUT ? CDDP_OK : status);
    if (cause == CDDP_OK) {
        cause = status != CDDP_OK ? cddpi_fail_again(status, &own) : CDDP_OK;
        cause = cddpi_agree_by(&exchange, cause);
    }
    close_server(env);
    /* on this rank, its own status and reason are the better ones */
    return status != CDDP_OK && status != CDDP_ERR_TIMEOUT && status != CDDP_ERR_PEER
               ? cddpi_fail_again(status, &own)
               : cause;
}

cddp_status cddpi_bootstrap_rendezvous_by_mpi(struct cddpi_launch_env *env)
{
    const struct cddpi_mpi_module *module;
    cddp_bootstrap bootstrap = CDDP_BOOTSTRAP_INIT;
    int rank = env->rank;
    int world_size = env->world_size;
    cddp_status status = cddpi_mpi_module_open(&module);

    if (status == CDDP_OK) {
        status = module->bootstrap(env->join_timeout_ms, &bootstrap);
    }
    if (status == CDDP_OK && (bootstrap.rank != rank || bootstrap.world_size != world_size)) {
        status = cddpi_fail(CDDP_ERR_UNAVAILABLE,
                            "MPI says that this is rank %d of %d, mpirun's "
                            "variables that it is rank %d of %d: the module's MPI is not mpirun's",
                            bootstrap.rank, bootstrap.world_size, rank, world_size);
    }
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(
            status,
            "joining: the ranks that %s started are on several hosts, and cannot meet by "
            "MPI. Set CDDP_STORE=tcp://host:port, an address of rank 0's host and a free port, and "
            "CDDP_TOKEN to a secret, for all ranks (mpirun -x NAME, or -genv NAME VALUE). Why MPI "
            "cannot",
            env->origin);
    }
    return cddpi_bootstrap_rendezvous(&bootstrap, env);
}
