/* launch_env.c - reads who this process is and where its ranks meet, either from options, or from
 * the variables of its launcher (launch_judge.c finds out which launcher that is). */
#include "group/launch/launch_env.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/types.h"
#include "group/launch/launch_judge.h"
#include "group/launch/launch_kubernetes.h"
#include "group/launch/launch_place.h"
#include "group/launch/launch_token.h"
#include "group/launch/launch_variable.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 1 << 20 };

/* Set the local rank and size if the launcher does not give them: all ranks are on this machine; if
 * the launcher gives a number of machines, they are spread evenly. */
static void place(const struct cddpi_claim *claim, struct cddpi_launch_env *env)
{
    int each = claim->nodes > 1 ? (claim->size + claim->nodes - 1) / claim->nodes : claim->size;

    env->local_rank = claim->local_rank >= 0 ? claim->local_rank : env->rank % each;
    env->local_world_size = claim->local_size > 0 ? claim->local_size : each;
    if (env->local_rank >= env->local_world_size) {
        env->local_world_size = env->local_rank + 1;
    }
}

/* Log each text only once per process, even if it creates several groups. */
static void warn_once(const char *text)
{
    static char said[CDDPI_REASON_BYTES];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool is_new;

    pthread_mutex_lock(&lock);
    is_new = text[0] != '\0' && strcmp(said, text) != 0;
    if (is_new) {
        snprintf(said, sizeof said, "%s", text);
    }
    pthread_mutex_unlock(&lock);
    if (is_new) {
        cddpi_log(CDDPI_LOG_WARN, "%s", text);
    }
}

/* @p has_rendezvous: the options say where the ranks meet, so the environment does not need to. */
static cddp_status from_finding(const struct cddpi_finding *finding, bool has_rendezvous,
                                struct cddpi_launch_env *env)
{
    const struct cddpi_claim *claim = &finding->claims[finding->chosen];
    const struct cddpi_claim *where = cddpi_launch_place(finding);
    cddp_status status = CDDP_OK;
    int restarts;

    env->origin = cddpi_launcher_name(claim->by);
    snprintf(env->says, sizeof env->says, "%s", claim->says);
    env->rank = claim->rank;
    env->world_size = claim->size;
    place(claim, env);
    if (claim->by == CDDPI_BY_TORCHRUN && claim->size == 1) {
        status = cddpi_launch_read_elastic(env, &restarts);
    } else if (claim->alone[0] != '\0') {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s", claim->alone);
    } else if (claim->is_pod) {
        status = cddpi_launch_one_process(claim);
    }
    if (status != CDDP_OK || claim->size == 1 ||
        (has_rendezvous && (!cddpi_launch_knows_place(where) || where->by == CDDPI_BY_CDDP_RUN))) {
        return status;
    }
    return cddpi_launch_meet(finding, env);
}

/* @p has_job: the options name the job. */
static cddp_status from_environment(struct cddpi_launch_env *env, bool has_rendezvous, bool has_job)
{
    struct cddpi_finding *finding = cddpi_zalloc(sizeof *finding);
    cddp_status status;

    CDDPI_TRY_MEMORY(finding != NULL, "join: no memory to look at the environment");
    status = cddpi_launch_judge(false, finding);
    if (status != CDDP_OK) {
        (void)cddpi_fail_prefix(status, "join");
        goto end;
    }
    warn_once(finding->warning);
    if (finding->reason[0] != '\0') {
        cddpi_log(CDDPI_LOG_INFO, "join: %s", finding->reason);
    }
    if (finding->is_in_cddp_run && !has_job) {
        env->job[0] = '\0'; /* that is the job of cddp-run's own ranks */
    }
    if (finding->chosen < 0) {
        env->origin = "a lone process";
        env->world_size = env->local_world_size = 1;
    } else {
        status = from_finding(finding, has_rendezvous, env);
    }

end:
    cddpi_free(finding);
    return status;
}

/* @p by_env: the rendezvous is env://, so MASTER_ADDR and MASTER_PORT may say where the ranks
 * meet. */
static cddp_status from_options(const cddp_group_options *options, bool by_env,
                                struct cddpi_launch_env *env)
{
    env->origin = "options";
    snprintf(env->says, sizeof env->says, "the options rank=%d and world_size=%d", options->rank,
             options->world_size);
    env->world_size = options->world_size;
    env->rank = options->rank;
    env->local_world_size = options->local_world_size;
    env->local_rank = options->local_rank;
    if (env->world_size < 1 || env->world_size > MAX_RANKS || env->rank < 0 ||
        env->rank >= env->world_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: rank %d of %d", env->rank, env->world_size);
    }
    /* 0: the ranks find out while they join (members.h) */
    if (env->local_world_size != 0 &&
        (env->local_world_size < 1 || env->local_world_size > env->world_size ||
         env->local_rank < 0 || env->local_rank >= env->local_world_size)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: local rank %d of %d", env->local_rank,
                          env->local_world_size);
    }
    if (options->rendezvous == NULL && cddpi_env(CDDPI_ENV_STORE) != NULL) {
        snprintf(env->store, sizeof env->store, "%s", cddpi_env(CDDPI_ENV_STORE));
    } else if (by_env && env->world_size > 1) {
        return cddpi_launch_meet_torchrun(env);
    } else if (options->rendezvous == NULL && env->world_size > 1) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: options give rank %d of %d, but no rendezvous, and CDDP_STORE is "
                          "not set",
                          env->rank, env->world_size);
    }
    return CDDP_OK;
}

static void copy_text(char *out, size_t bytes, const char *option, enum cddpi_env otherwise)
{
    const char *text = option != NULL ? option : cddpi_env(otherwise);

    if (text != NULL) {
        snprintf(out, bytes, "%s", text);
    }
}

cddp_status cddpi_group_options_read(const cddp_group_options *options, cddp_group_options *out)
{
    cddp_group_options read = CDDP_GROUP_OPTIONS_INIT;

    if (options != NULL) {
        CDDPI_TRY(cddpi_struct_read("group options", "CDDP_GROUP_OPTIONS_INIT", options,
                                    sizeof read, &read));
        CDDPI_TRY(cddpi_reserved_check("group options", read.reserved, sizeof read.reserved));
    }
    *out = read;
    return CDDP_OK;
}

cddp_status cddpi_launch_env_read(const cddp_group_options *given, struct cddpi_launch_env *out)
{
    cddp_group_options read = CDDP_GROUP_OPTIONS_INIT;
    const cddp_group_options *options = &read;
    struct cddpi_launch_env env = {0};
    bool by_env;

    CDDPI_TRY(cddpi_group_options_read(given, &read));
    by_env = read.rendezvous != NULL && strcmp(read.rendezvous, "env://") == 0;
    if (by_env) {
        read.rendezvous = NULL; /* the environment defines the place, as without options */
    }
    copy_text(env.job, sizeof env.job, options->job, CDDPI_ENV_JOB);
    copy_text(env.token, sizeof env.token, options->token, CDDPI_ENV_TOKEN);
    env.generation = options->generation != 0
                         ? options->generation
                         : (uint32_t)cddpi_env_integer(CDDPI_ENV_GENERATION, 0, UINT32_MAX, 0);
    env.timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : cddpi_env_timeout_ms();
    env.join_timeout_ms = options->join_timeout_ms != 0 ? options->join_timeout_ms : env.timeout_ms;
    CDDPI_TRY(options->world_size != 0
                  ? from_options(options, by_env, &env)
                  : from_environment(&env, options->rendezvous != NULL, options->job != NULL));
    if (by_env && strcmp(env.origin, "a lone process") == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: the rendezvous is env://, but RANK and "
                                             "WORLD_SIZE are not set, nor another launcher's "
                                             "variables");
    }
    if (options->rendezvous != NULL) {
        if (strlen(options->rendezvous) >= sizeof env.store) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "join: the rendezvous is too long");
        }
        snprintf(env.store, sizeof env.store, "%s", options->rendezvous);
        env.rendezvous_by_mpi = false;
        env.hosts_store = strncmp(env.store, "tcp://", 6) == 0;
        env.removes_file = false;
    }
    if (env.job[0] == '\0') {
        snprintf(env.job, sizeof env.job, "cddp");
    }
    if (env.hosts_store) {
        CDDPI_TRY(cddpi_launch_need_token(&env));
    }
    *out = env;
    return CDDP_OK;
}
