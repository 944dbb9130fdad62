/* rendezvous.c - owns the connection to the store while ranks join, and the waits for keys in it.
 */
#include "group/join/rendezvous.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "group/launch/local_token.h"
#include "store/server.h"
#include "store/store.h"
#include "store/store_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOK_MS = 500,      /* ms between two checks of the launcher's keys, */
    LOOK_PER_RANKS = 4, /* plus the number of ranks divided by this, since all ranks check */
    FIRST_LOOKS = 8, /* a rank that waits for all ranks makes its first check this much earlier, */
    WAIT_KEYS = 16384, /* maximum keys in one message */
    OWN_FILES = 64     /* open files that a rank with the store's server needs for itself */
};

/* Prefixes of keys: see rendezvous.h. */
#define MEMBER "member/"
#define ENDED "ended/"
#define FAILURE "failure"

/* Connect. If that takes long, log which rank waits for which rank. */
static cddp_status connect_slowly(struct cddpi_rendezvous *rendezvous, cddp_store_options *options)
{
    const struct cddpi_launch_env *env = rendezvous->env;
    uint32_t first_ms = env->join_timeout_ms < CDDPI_FIRST_NEWS_MS ? env->join_timeout_ms
                                                                   : CDDPI_FIRST_NEWS_MS;
    cddp_status status;

    options->timeout_ms = first_ms;
    status = cddp_store_open(options, &rendezvous->store);
    if (status == CDDP_ERR_TIMEOUT && first_ms < env->join_timeout_ms) {
        cddpi_log(CDDPI_LOG_WARN,
                  "joining job %s: rank %d of %d has waited %u s for rank 0, or cddp-run, to serve "
                  "%s (%s): %s",
                  env->job, env->rank, env->world_size, first_ms / 1000, env->store, env->says,
                  cddp_last_error());
        options->timeout_ms = env->join_timeout_ms - first_ms;
        status = cddp_store_open(options, &rendezvous->store);
    }
    if (status == CDDP_ERR_TIMEOUT && env->says[0] != '\0') {
        return cddpi_fail_suffix(status, " (this is rank %d of %d: %s)", env->rank, env->world_size,
                                 env->says);
    }
    CDDPI_TRY(status);
    cddpi_store_set_timeout(rendezvous->store, env->join_timeout_ms);
    return CDDP_OK;
}

/* Start rank 0's server at the address in the store's URL. */
static cddp_status serve_store(struct cddpi_rendezvous *rendezvous)
{
    const struct cddpi_launch_env *env = rendezvous->env;
    struct cddpi_store_server_options server = {.token = env->token, .reserved = OWN_FILES};
    struct cddpi_address address;

    if (cddpi_address_parse(env->store + strlen("tcp://"), &address) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_ARGUMENT, "join: %s", env->store);
    }
    server.host = address.host;
    server.port = address.port;
    server.other_hosts = env->local_world_size != 0 && env->local_world_size < env->world_size;
    return cddpi_store_server_create(&server, &rendezvous->server);
}

void cddpi_rendezvous_prefix(const struct cddpi_launch_env *env, char out[CDDPI_PREFIX_BYTES])
{
    snprintf(out, CDDPI_PREFIX_BYTES, "%s/%u/", env->job, env->generation);
}

static cddp_status connect_to(struct cddpi_rendezvous *rendezvous, struct cddpi_launch_env *env,
                              bool reads_token)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    char prefix[CDDPI_PREFIX_BYTES];
    char own[40];
    cddp_status status;

    cddpi_rendezvous_prefix(env, prefix);
    options.url = env->store;
    if (rendezvous->server != NULL && cddpi_store_server_is_everywhere(rendezvous->server)) {
        snprintf(own, sizeof own, "tcp://127.0.0.1:%u",
                 cddpi_store_server_port(rendezvous->server)); /* this host may not know the name */
        options.url = own;
    }
    options.token = env->token;
    options.prefix = prefix;
    if (reads_token) {
        options.timeout_ms = env->join_timeout_ms;
        return cddpi_local_token_open(env, &options, rendezvous->deadline_ns, &rendezvous->store);
    }
    status = connect_slowly(rendezvous, &options);
    if (status == CDDP_ERR_AUTH && env->token_file[0] != '\0') {
        return cddpi_fail_suffix(status,
                                 "; it is from %s, which the nodes do not share: set CDDP_TOKEN to "
                                 "the same text for all ranks",
                                 env->token_file);
    }
    return status;
}

static cddp_status open_store(struct cddpi_rendezvous *rendezvous, struct cddpi_launch_env *env)
{
    bool is_local = cddpi_local_token_is_needed(env);
    bool serves = env->hosts_store && env->rank == 0 && env->server == NULL;
    cddp_status status = CDDP_OK;

    if (is_local && serves) {
        cddpi_store_token(env->token);
    }
    if (serves) {
        status = serve_store(rendezvous);
    }
    if (status != CDDP_OK && cddpi_last_errno() == EADDRINUSE) {
        if (is_local) {
            env->token[0] = '\0'; /* the other server's token is in the file */
        }
        return cddpi_rendezvous_name_rival(rendezvous, env, status);
    }
    CDDPI_TRY(status);
    if (is_local && serves) {
        CDDPI_TRY(cddpi_local_token_write(env));
    }
    CDDPI_TRY(connect_to(rendezvous, env, is_local && !serves));
    return cddpi_file_token_share(env, rendezvous->store);
}

cddp_status cddpi_rendezvous_open(struct cddpi_launch_env *env, struct cddpi_rendezvous *out)
{
    cddp_status status;

    *out = (struct cddpi_rendezvous){.env = env,
                                     .deadline_ns = cddpi_deadline_ns(env->join_timeout_ms),
                                     .news_ns = cddpi_deadline_ns(CDDPI_FIRST_NEWS_MS),
                                     .news_ms = 2 * CDDPI_FIRST_NEWS_MS};
    cddpi_log(CDDPI_LOG_INFO, "joining job %s as rank %d of %d (%s), through %s", env->job,
              env->rank, env->world_size, env->origin, env->store);
    status = open_store(out, env);
    if (status != CDDP_OK) {
        cddpi_rendezvous_close(out, false);
    }
    return status;
}

void cddpi_rendezvous_set(struct cddpi_rendezvous *rendezvous, const char *key, const char *text)
{
    if (cddp_store_set(rendezvous->store, key, text, strlen(text)) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "joining: could not set %s: %s", key, cddp_last_error());
    }
}

void cddpi_rendezvous_delete(struct cddpi_rendezvous *rendezvous, const char *key)
{
    if (cddp_store_delete(rendezvous->store, key, NULL) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_DEBUG, "joining: could not delete %s: %s", key, cddp_last_error());
    }
}

void cddpi_rendezvous_member(int rank, char out[CDDPI_MEMBER_KEY_BYTES])
{
    snprintf(out, CDDPI_MEMBER_KEY_BYTES, MEMBER "%d", rank);
}

/* CDDP_ERR_PEER once the launcher or a rank has reported that a rank failed; CDDP_ERR_MISMATCH if
 * another process has joined as this rank. */
static cddp_status check_failure(struct cddpi_rendezvous *rendezvous)
{
    struct cddpi_store_pair *said = NULL;
    size_t count = 0;
    cddp_status status = CDDP_OK;

    if (cddpi_store_list_values(rendezvous->store, FAILURE, &said, &count) != CDDP_OK) {
        return CDDP_OK;
    }
    for (size_t i = 0; i < count && status == CDDP_OK; i++) {
        status = strcmp(said[i].key, FAILURE) == 0
                     ? cddpi_fail(CDDP_ERR_PEER, "joining job %s: %.1000s", rendezvous->env->job,
                                  said[i].value)
                     : cddpi_rendezvous_contest(rendezvous, &said[i]);
    }
    cddpi_free(said);
    return status;
}

/* @p told: what the launcher wrote: the exit status, 0 or that of a rank that was asked to end; if
 * the rank wrote to stderr, then its last line after a '\n'. */
static cddp_status fail_ended(const struct cddpi_rendezvous *rendezvous, int rank, const char *told)
{
    const char *line = strchr(told, '\n');

    return cddpi_fail(
        CDDP_ERR_PEER, "joining job %s: rank %d ended, with status %d, before it joined%s%.200s",
        rendezvous->env->job, rank, atoi(told),
        line != NULL ? "; the last line of its stderr: " : "", line != NULL ? line + 1 : "");
}

/* The same; also fails if @p rank ended without writing @p key. */
static cddp_status check_launcher(struct cddpi_rendezvous *rendezvous, const char *key, int rank)
{
    char ended[32];
    void *told;
    void *value;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(check_failure(rendezvous));
    snprintf(ended, sizeof ended, ENDED "%d", rank);
    if (cddp_store_try_get(rendezvous->store, ended, &told, NULL) != CDDP_OK) {
        return CDDP_OK;
    }
    if (cddp_store_try_get(rendezvous->store, key, &value, NULL) == CDDP_OK) {
        cddp_free(value); /* the rank had written the key before it ended */
    } else {
        status = fail_ended(rendezvous, rank, told);
    }
    cddp_free(told);
    return status;
}

/* How long a rank waits between two checks of the launcher's keys. */
static int look_ms(const struct cddpi_rendezvous *rendezvous)
{
    return LOOK_MS + rendezvous->env->world_size / LOOK_PER_RANKS;
}

cddp_status cddpi_rendezvous_await(struct cddpi_rendezvous *rendezvous, const char *key, int rank,
                                   int64_t deadline_ns, void **out, size_t *out_bytes)
{
    for (;;) {
        int left = cddpi_left_ms(deadline_ns);
        int look = look_ms(rendezvous);
        int slice = left > look ? look : left > 0 ? left : 1;
        cddp_status status = cddp_store_get(rendezvous->store, key, (uint32_t)slice, out,
                                            out_bytes);

        if (status != CDDP_ERR_TIMEOUT) {
            return status;
        }
        CDDPI_TRY(check_launcher(rendezvous, key, rank));
        cddpi_rendezvous_tell_for_0(rendezvous);
        if (left <= slice) {
            return CDDP_ERR_TIMEOUT;
        }
    }
}

void cddpi_rendezvous_members_fini(struct cddpi_member_values *values)
{
    cddpi_free(values->pairs);
    cddpi_free(values->of);
    memset(values, 0, sizeof *values);
}

/* The rank at the end of @p key, which begins with @p start; -1: not a rank of the job. */
static int rank_of(const struct cddpi_rendezvous *rendezvous, const char *key, const char *start)
{
    int64_t rank;

    return cddpi_parse_integer(key + strlen(start), 0, rendezvous->env->world_size - 1, &rank)
               ? (int)rank
               : -1;
}

cddp_status cddpi_rendezvous_members(struct cddpi_rendezvous *rendezvous,
                                     struct cddpi_member_values *out)
{
    struct cddpi_member_values values = {.count = 0};
    size_t count = 0;

    CDDPI_TRY(cddpi_store_list_values(rendezvous->store, MEMBER, &values.pairs, &count));
    values.of = cddpi_zalloc_array((size_t)rendezvous->env->world_size, sizeof *values.of);
    if (values.of == NULL) {
        cddpi_rendezvous_members_fini(&values);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "joining: no memory for %d ranks",
                          rendezvous->env->world_size);
    }
    for (size_t i = 0; i < count; i++) {
        int rank = rank_of(rendezvous, values.pairs[i].key, MEMBER);

        if (rank >= 0 && values.of[rank] == NULL) {
            values.of[rank] = &values.pairs[i];
            values.count++;
        }
    }
    *out = values;
    return CDDP_OK;
}

/* Wait up to @p slice_ms for the keys of members that are missing in @p values, with one
 * message. */
static cddp_status await_missing(struct cddpi_rendezvous *rendezvous,
                                 const struct cddpi_member_values *values, int slice_ms)
{
    int missing = rendezvous->env->world_size - values->count;
    size_t count = (size_t)(missing < WAIT_KEYS ? missing : WAIT_KEYS);
    char(*keys)[CDDPI_MEMBER_KEY_BYTES] = cddpi_zalloc_array(count, sizeof *keys);
    const char **list = cddpi_zalloc_array(count, sizeof *list);
    cddp_status status = CDDP_ERR_NO_MEMORY;
    size_t used = 0;

    if (keys != NULL && list != NULL) {
        for (int rank = 0; used < count; rank++) {
            if (values->of[rank] == NULL) {
                cddpi_rendezvous_member(rank, keys[used]);
                list[used] = keys[used];
                used++;
            }
        }
        status = cddp_store_wait(rendezvous->store, list, count, (uint32_t)slice_ms);
    } else {
        (void)cddpi_fail(status, "joining: no memory for %zu keys", count);
    }
    cddpi_free(keys);
    cddpi_free(list);
    return status;
}

static cddp_status read_again(struct cddpi_rendezvous *rendezvous,
                              struct cddpi_member_values *values)
{
    cddpi_rendezvous_members_fini(values);
    return cddpi_rendezvous_members(rendezvous, values);
}

/* The same, but CDDP_ERR_PEER once the launcher has reported that a rank failed, or ended without
 * having joined. */
static cddp_status look_again(struct cddpi_rendezvous *rendezvous,
                              struct cddpi_member_values *values)
{
    struct cddpi_store_pair *ended = NULL;
    size_t count = 0;
    cddp_status status;

    CDDPI_TRY(check_failure(rendezvous));
    CDDPI_TRY(cddpi_store_list_values(rendezvous->store, ENDED, &ended, &count));
    status = read_again(rendezvous, values);
    for (size_t i = 0; i < count && status == CDDP_OK; i++) {
        int rank = rank_of(rendezvous, ended[i].key, ENDED);

        /* if the rank had written its key before it ended, it would be among the members, which
         * were read later */
        if (rank >= 0 && values->of[rank] == NULL) {
            status = fail_ended(rendezvous, rank, ended[i].value);
        }
    }
    cddpi_free(ended);
    return status;
}

cddp_status cddpi_rendezvous_await_members(struct cddpi_rendezvous *rendezvous,
                                           struct cddpi_member_check check, int64_t deadline_ns,
                                           struct cddpi_member_values *out)
{
    struct cddpi_member_values values = {.count = 0};
    int slice = look_ms(rendezvous) / FIRST_LOOKS;
    cddp_status status;

    CDDPI_TRY(cddpi_rendezvous_members(rendezvous, &values));
    for (;;) {
        int left = cddpi_left_ms(deadline_ns);

        CDDPI_TRY_GOTO(fail, status, check.look(check.context, &values));
        if (values.count == rendezvous->env->world_size) {
            *out = values;
            return CDDP_OK;
        }
        if (left == 0) {
            status = CDDP_ERR_TIMEOUT;
            goto fail;
        }
        status = await_missing(rendezvous, &values, slice < left ? slice : left);
        if (status == CDDP_ERR_TIMEOUT) {
            CDDPI_TRY_GOTO(fail, status, look_again(rendezvous, &values));
            cddpi_rendezvous_tell_missing(rendezvous, &values);
        } else {
            CDDPI_TRY_GOTO(fail, status,
                           status == CDDP_OK ? read_again(rendezvous, &values) : status);
        }
        slice = 2 * slice < look_ms(rendezvous) ? 2 * slice : look_ms(rendezvous);
    }

fail:
    cddpi_rendezvous_members_fini(&values);
    return status;
}

static bool is_file(const struct cddpi_launch_env *env)
{
    return strncmp(env->store, "file://", 7) == 0;
}

/* Delete this rank's key, which would otherwise count for the next group with the same name. */
static void delete_member(struct cddpi_rendezvous *rendezvous)
{
    char key[CDDPI_MEMBER_KEY_BYTES];

    cddpi_rendezvous_member(rendezvous->env->rank, key);
    cddpi_rendezvous_delete(rendezvous, key);
}

cddp_store *cddpi_rendezvous_keep(struct cddpi_rendezvous *rendezvous)
{
    cddp_store *store = rendezvous->store;

    if (!is_file(rendezvous->env) || rendezvous->env->removes_file) {
        return NULL;
    }
    delete_member(rendezvous);
    rendezvous->store = NULL;
    return store;
}

void cddpi_rendezvous_close(struct cddpi_rendezvous *rendezvous, bool complete)
{
    if (rendezvous->store != NULL && complete && !rendezvous->env->hosts_store &&
        !rendezvous->env->removes_file) {
        delete_member(rendezvous);
        if (!is_file(rendezvous->env)) {
            cddpi_rendezvous_forget_rank(rendezvous); /* a file is removed with its last user */
        }
    }
    cddp_store_close(rendezvous->store);
    cddpi_local_token_remove(rendezvous->env); /* while this process still has the port */
    cddpi_store_server_destroy(rendezvous->server);
    if (rendezvous->env->removes_file && rendezvous->env->rank == 0) {
        (void)unlink(rendezvous->env->store + strlen("file://"));
        if (rendezvous->env->folder[0] != '\0') {
            (void)rmdir(rendezvous->env->folder);
        }
    }
}
