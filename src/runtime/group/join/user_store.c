/* user_store.c - owns the store for a group's user. Rank 0 serves a separate one for the group, so
 * that it exists under every launcher, and has no keys of a launcher. The ranks find it through the
 * group's own collectives, like those of an MPI program. */
#include "group/join/user_store.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/engine/group_entry.h"
#include "group/group.h"
#include "group/join/bootstrap.h"
#include "group/join/group_agree.h"
#include "store/server.h"

#include <cddp/exchange.h>

#include <sodium.h>
#include <stdio.h>

static cddp_status broadcast(void *state, void *data, size_t bytes)
{
    return cddp_broadcast(state, data, bytes, CDDP_U8, 0, NULL);
}

static cddp_status all_gather(void *state, const void *own, size_t bytes, void *out_all)
{
    return cddp_all_gather(state, own, out_all, bytes, CDDP_U8, NULL);
}

/* With one rank, no exchange is needed to find the store. */
static cddp_status serve_self(struct cddpi_launch_env *env)
{
    struct cddpi_store_server_options options = {.token = env->token, .host = "127.0.0.1"};

    cddpi_store_token(env->token);
    CDDPI_TRY(cddpi_store_server_create(&options, &env->server));
    snprintf(env->store, sizeof env->store, "tcp://127.0.0.1:%u",
             cddpi_store_server_port(env->server));
    return CDDP_OK;
}

void cddpi_user_store_token(const char *token, const uint8_t nonce[CDDPI_NONCE_BYTES], char out[33])
{
    static const uint8_t nobody[CDDPI_NONCE_BYTES];
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    uint8_t made[CDDPI_AUTH_BYTES];

    cddpi_auth_key(token, "cddp group store", key);
    cddpi_auth_make(key, "token", nonce, nobody, made);
    sodium_bin2hex(out, 33, made, 16);
    sodium_memzero(key, sizeof key);
    sodium_memzero(made, sizeof made);
}

static cddp_status serve_store(cddp_group *group, struct cddpi_launch_env *env)
{
    cddp_bootstrap bootstrap = CDDP_BOOTSTRAP_INIT;
    uint8_t nonce[CDDPI_NONCE_BYTES];

    bootstrap.state = group;
    bootstrap.rank = group->rank;
    bootstrap.world_size = group->world_size;
    bootstrap.broadcast = broadcast;
    bootstrap.all_gather = all_gather;
    if (group->world_size == 1) {
        return serve_self(env);
    }
    if (group->token[0] != '\0') { /* derive the store's own; else rank 0 makes one for all */
        cddpi_random_bytes(nonce, sizeof nonce);
        CDDPI_TRY(cddp_broadcast(group, nonce, sizeof nonce, CDDP_U8, 0, NULL));
        cddpi_user_store_token(group->token, nonce, env->token);
    }
    return cddpi_bootstrap_rendezvous(&bootstrap, env);
}

/* Serve the store on rank 0, and open it on every rank or on no rank. */
static cddp_status make_store(cddp_group *group)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    struct cddpi_launch_env *env = cddpi_zalloc(sizeof *env);
    cddp_store *store = NULL;
    cddp_status status = CDDP_OK;

    if (env == NULL) {
        status = cddpi_fail_rank(CDDP_ERR_NO_MEMORY, group->rank,
                                 "group_store_create: no memory for %zu bytes", sizeof *env);
    }
    CDDPI_TRY_GOTO(out, status, cddpi_agree(group, status));
    env->join_timeout_ms = group->timeout_ms;
    CDDPI_TRY_GOTO(out, status, serve_store(group, env));
    options.url = env->store;
    options.token = env->token;
    options.timeout_ms = group->timeout_ms;
    status = cddpi_agree(group, cddp_store_open(&options, &store));
    if (status == CDDP_OK) {
        group->user_store = store;
        group->user_store_server = env->server;
    } else {
        cddp_store_close(store);
        cddpi_store_server_destroy(env->server);
    }

out:
    cddpi_free(env);
    return status;
}

cddp_status cddp_group_store_create(cddp_group *group, cddp_store **out)
{
    CDDPI_ENTER_GROUP(group, "group_store_create");
    if (out == NULL) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "group_store_create: out is NULL");
    }
    if (group->user_store == NULL) {
        cddp_status status = make_store(group);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "group_store_create");
        }
    }
    *out = group->user_store;
    return CDDP_OK;
}

cddp_store *cddp_group_store(const cddp_group *group)
{
    return cddpi_group_may_ask(group, "group_store") ? group->user_store : NULL;
}
