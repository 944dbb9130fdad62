/* launch_env.c - reads who this process is: from options, or from the environment, in which its
 * launcher says so (launch_judge.c finds out which one that is); and where its ranks meet. */
#include "group/launch_env.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/struct_size.h"
#include "group/launch_hydra.h"
#include "group/launch_judge.h"
#include "group/launch_kubernetes.h"
#include "group/launch_slurm.h"
#include "group/launch_token.h"
#include "group/launch_variable.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RANKS = 1 << 20 };

static bool is_directory(const char *path)
{
    struct stat stat_of;

    return path != NULL && stat(path, &stat_of) == 0 && S_ISDIR(stat_of.st_mode);
}

/* Job names come from outside: what a file name should not hold becomes '_'. */
static void clean(char *text)
{
    for (; *text != '\0'; text++) {
        if (!isalnum((unsigned char)*text) && *text != '-' && *text != '.') {
            *text = '_';
        }
    }
}

/* A folder below $TMPDIR or /tmp that only this user can write; rank 0 removes it once all have
 * joined. One for each rendezvous, so that no job removes another's. */
static cddp_status own_folder(const char *name, char *out, size_t bytes)
{
    const char *base = cddpi_launch_variable("TMPDIR");
    struct stat stat_of;

    if (base == NULL) {
        base = "/tmp";
    }
    if ((size_t)snprintf(out, bytes, "%s/cddp-%ld-%s", base, (long)getuid(), name) >= bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: TMPDIR is too long");
    }
    if (mkdir(out, 0700) != 0 && errno != EEXIST) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "join: make folder %s", out);
    }
    if (lstat(out, &stat_of) != 0 || !S_ISDIR(stat_of.st_mode) || stat_of.st_uid != getuid() ||
        (stat_of.st_mode & 0077) != 0) {
        return cddpi_fail(CDDP_ERR_IO, "join: %s is not a folder of this user alone (mode 0700)",
                          out);
    }
    return CDDP_OK;
}

/* Let the rendezvous be the file @p name in @p folder; NULL: in a folder of its own. */
static cddp_status use_file(struct cddpi_launch_env *env, const char *folder, const char *name)
{
    if (folder == NULL) {
        cddp_status status = own_folder(name, env->folder, sizeof env->folder);

        if (status != CDDP_OK) {
            return status;
        }
        folder = env->folder;
    }
    if ((size_t)snprintf(env->store, sizeof env->store, "file://%s/%s.store", folder, name) >=
        sizeof env->store) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: the path %s/%s is too long", folder, name);
    }
    env->removes_file = true;
    return CDDP_OK;
}

/* torchrun's job and generation, of one rank, too. */
static cddp_status read_elastic(struct cddpi_launch_env *env, int *out_restarts)
{
    const char *run = cddpi_launch_variable("TORCHELASTIC_RUN_ID");
    const char *restart = cddpi_launch_variable("TORCHELASTIC_RESTART_COUNT");
    cddp_status status = CDDP_OK;

    *out_restarts = 0;
    if (restart != NULL) {
        status = cddpi_launch_number("torchrun", "TORCHELASTIC_RESTART_COUNT", 0, INT_MAX,
                                     out_restarts);
    }
    if (status == CDDP_OK && env->generation == 0) {
        env->generation = (uint32_t)*out_restarts;
    }
    if (status == CDDP_OK && env->job[0] == '\0' && run != NULL) {
        snprintf(env->job, sizeof env->job, "%s", run);
    }
    return status;
}

static cddp_status use_torchrun(struct cddpi_launch_env *env)
{
    const char *host = cddpi_launch_variable("MASTER_ADDR");
    const char *run = cddpi_launch_variable("TORCHELASTIC_RUN_ID");
    const char *agent = cddpi_launch_variable("TORCHELASTIC_USE_AGENT_STORE");
    int restarts = 0;
    int port = 0;
    cddp_status status;

    if (host == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: RANK and WORLD_SIZE are set, MASTER_ADDR not");
    }
    status = cddpi_launch_port("torchrun", "MASTER_PORT", &port);
    if (status == CDDP_OK) {
        status = read_elastic(env, &restarts);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (agent != NULL && strcmp(agent, "True") == 0 && env->local_world_size < env->world_size) {
        port = port < 65535 ? port + 1 : port - 1; /* torch's own store has the port */
    } else if (agent != NULL && strcmp(agent, "True") == 0) {
        char name[300];

        snprintf(name, sizeof name, "torchrun-%.80s-%d-%.120s-%d", host, port,
                 run != NULL ? run : "", restarts);
        clean(name);
        return use_file(env, NULL, name);
    }
    if ((size_t)snprintf(env->store, sizeof env->store,
                         strchr(host, ':') != NULL ? "tcp://[%s]:%d" : "tcp://%s:%d", host,
                         port) >= sizeof env->store) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: MASTER_ADDR is too long");
    }
    env->hosts_store = true;
    return CDDP_OK;
}

/* Where the user says that ranks of an mpirun meet: rank 0 serves the store there. */
static bool use_given_store(struct cddpi_launch_env *env)
{
    const char *store = cddpi_launch_given_store();

    if (store == NULL) {
        return false;
    }
    snprintf(env->store, sizeof env->store, "%s", store);
    env->hosts_store = strncmp(store, "tcp://", 6) == 0;
    return true;
}

static cddp_status use_open_mpi(struct cddpi_launch_env *env)
{
    const char *space = cddpi_launch_variable("PMIX_NAMESPACE");
    const char *folder = cddpi_launch_variable("PMIX_SERVER_TMPDIR");
    char name[160];

    if (space == NULL) {
        space = cddpi_launch_variable("OMPI_MCA_ess_base_jobid");
    }
    if (space == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: Open MPI's variables are set, but neither "
                                             "PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid");
    }
    if (!is_directory(folder)) {
        folder = cddpi_launch_variable("OMPI_FILE_LOCATION");
    }
    snprintf(name, sizeof name, "openmpi-%.120s", space);
    clean(name);
    if (env->job[0] == '\0') {
        snprintf(env->job, sizeof env->job, "%s", name);
    }
    if (use_given_store(env)) {
        return CDDP_OK;
    }
    if (env->local_world_size < env->world_size) {
        env->rendezvous_by_mpi = true;
        return CDDP_OK;
    }
    return use_file(env, is_directory(folder) ? folder : NULL, name);
}

/* Hydra, and others that give ranks numbers and nothing by which they could meet elsewhere. */
static cddp_status use_hydra(struct cddpi_launch_env *env, const struct cddpi_claim *claim)
{
    bool is_one_host = claim->local_size == claim->size || claim->nodes == 1;
    char start[32] = "";
    char name[96];
    long proxy;

    if (use_given_store(env)) {
        return CDDP_OK;
    }
    if (!is_one_host) {
        env->rendezvous_by_mpi = true;
        return CDDP_OK;
    }
    proxy = cddpi_launch_proxy(claim->by, start, sizeof start);
    snprintf(name, sizeof name, "%s-%ld-%s",
             claim->by == CDDPI_BY_HYDRA ? "hydra" : cddpi_launcher_name(claim->by), proxy, start);
    clean(name);
    if (env->job[0] == '\0') {
        snprintf(env->job, sizeof env->job, "%s", name);
    }
    return use_file(env, NULL, name);
}

static cddp_status use_slurm(struct cddpi_launch_env *env)
{
    const char *job = cddpi_launch_variable("SLURM_JOB_ID");
    const char *step = cddpi_launch_slurm_step();
    char name[160];
    bool one_node;
    cddp_status status;

    if (job == NULL || step == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: SLURM_PROCID is set, %s",
                          job == NULL ? "SLURM_JOB_ID not"
                                      : "SLURM_STEP_ID not: a batch script starts ranks by srun");
    }
    snprintf(name, sizeof name, "slurm-%.60s.%.60s", job, step);
    clean(name);
    if (env->job[0] == '\0') {
        snprintf(env->job, sizeof env->job, "%s", name);
    }
    status = cddpi_launch_slurm(env, name, &one_node);
    return status == CDDP_OK && one_node ? use_file(env, NULL, name) : status;
}

/* Flux names the job; what it runs on it does not say. */
static cddp_status use_flux(struct cddpi_launch_env *env, const struct cddpi_claim *claim)
{
    const char *job = cddpi_launch_variable("FLUX_JOB_ID");
    char name[160];

    if (job == NULL) {
        return use_hydra(env, claim);
    }
    snprintf(name, sizeof name, "flux-%.120s", job);
    clean(name);
    if (env->job[0] == '\0') {
        snprintf(env->job, sizeof env->job, "%s", name);
    }
    if (use_given_store(env)) {
        return CDDP_OK;
    }
    if (claim->nodes != 1 && claim->local_size != claim->size) {
        env->rendezvous_by_mpi = true;
        return CDDP_OK;
    }
    return use_file(env, NULL, name);
}

static cddp_status use_cddp_run(struct cddpi_launch_env *env)
{
    const char *store = cddpi_env(CDDPI_ENV_STORE);

    if (store == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: CDDP_RANK and CDDP_WORLD_SIZE are set, CDDP_STORE not");
    }
    snprintf(env->store, sizeof env->store, "%s", store);
    return CDDP_OK;
}

/* Where ranks meet that were started by @p claim's launcher. */
static cddp_status find_rendezvous(const struct cddpi_claim *claim, struct cddpi_launch_env *env)
{
    switch (claim->by) {
    case CDDPI_BY_CDDP_RUN:
        return use_cddp_run(env);
    case CDDPI_BY_TORCHRUN:
        return use_torchrun(env);
    case CDDPI_BY_OPEN_MPI:
        return use_open_mpi(env);
    case CDDPI_BY_FLUX:
        return use_flux(env, claim);
    case CDDPI_BY_SLURM:
        return use_slurm(env);
    case CDDPI_BY_INDEXED_JOB:
        return cddpi_launch_meet_indexed_job(env);
    case CDDPI_BY_KUBEFLOW:
        return cddpi_launch_meet_kubeflow(env);
    case CDDPI_BY_HYDRA:
    case CDDPI_BY_MVAPICH:
    case CDDPI_BY_JSM:
    case CDDPI_BY_PALS:
    case CDDPI_LAUNCHERS:
        break;
    }
    return use_hydra(env, claim);
}

/* Whether @p claim's launcher says where ranks meet. */
static bool knows_place(const struct cddpi_claim *claim)
{
    switch (claim->by) {
    case CDDPI_BY_CDDP_RUN:
        return cddpi_env(CDDPI_ENV_STORE) != NULL;
    case CDDPI_BY_TORCHRUN:
        return cddpi_launch_variable("MASTER_ADDR") != NULL;
    default:
        return true;
    }
}

/* Of those that agree about who this process is, the first that says where the ranks meet. */
static const struct cddpi_claim *choose_place(const struct cddpi_finding *finding)
{
    for (int i = 0; i < finding->agreeing_count; i++) {
        const struct cddpi_claim *claim = &finding->claims[finding->agreeing[i]];

        if (knows_place(claim)) {
            return claim;
        }
    }
    return &finding->claims[finding->chosen];
}

/* Ranks of a launcher that does not say how they are placed are all on this machine, unless it
 * counts machines: then they are spread evenly. */
static void place(const struct cddpi_claim *claim, struct cddpi_launch_env *env)
{
    int each = claim->nodes > 1 ? (claim->size + claim->nodes - 1) / claim->nodes : claim->size;

    env->local_rank = claim->local_rank >= 0 ? claim->local_rank : env->rank % each;
    env->local_world_size = claim->local_size > 0 ? claim->local_size : each;
    if (env->local_rank >= env->local_world_size) {
        env->local_world_size = env->local_rank + 1;
    }
}

cddp_status cddpi_launch_meet(const struct cddpi_finding *finding, struct cddpi_launch_env *env)
{
    const struct cddpi_claim *claim = choose_place(finding);

    snprintf(env->says, sizeof env->says, "%s", finding->claims[finding->chosen].says);
    env->origin = cddpi_launcher_name(claim->by);
    return find_rendezvous(claim, env);
}

/* Each text once in a process, however many groups it makes. */
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

/* @p has_rendezvous: the options say where ranks meet, so the environment need not. */
static cddp_status from_finding(const struct cddpi_finding *finding, bool has_rendezvous,
                                struct cddpi_launch_env *env)
{
    const struct cddpi_claim *claim = &finding->claims[finding->chosen];
    const struct cddpi_claim *where = choose_place(finding);
    cddp_status status = CDDP_OK;
    int restarts;

    env->origin = cddpi_launcher_name(claim->by);
    snprintf(env->says, sizeof env->says, "%s", claim->says);
    env->rank = claim->rank;
    env->world_size = claim->size;
    place(claim, env);
    if (claim->by == CDDPI_BY_TORCHRUN && claim->size == 1) {
        status = read_elastic(env, &restarts);
    } else if (claim->alone[0] != '\0') {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s", claim->alone);
    } else if (claim->is_pod) {
        status = cddpi_launch_one_process(claim);
    }
    if (status != CDDP_OK || claim->size == 1 ||
        (has_rendezvous && (!knows_place(where) || where->by == CDDPI_BY_CDDP_RUN))) {
        return status;
    }
    return cddpi_launch_meet(finding, env);
}

/* @p has_job: the options name it. */
static cddp_status from_environment(struct cddpi_launch_env *env, bool has_rendezvous, bool has_job)
{
    struct cddpi_finding *finding = cddpi_zalloc(sizeof *finding);
    cddp_status status;

    if (finding == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "join: no memory to look at the environment");
    }
    status = cddpi_launch_judge(false, finding);
    if (status != CDDP_OK) {
        (void)cddpi_fail_prefix(status, "join");
    } else {
        warn_once(finding->warning);
        if (finding->reason[0] != '\0') {
            cddpi_log(CDDPI_LOG_INFO, "join: %s", finding->reason);
        }
    }
    if (status == CDDP_OK && finding->is_in_cddp_run && !has_job) {
        env->job[0] = '\0'; /* that of cddp-run's own ranks */
    }
    if (status == CDDP_OK && finding->chosen < 0) {
        env->origin = "a lone process";
        env->world_size = env->local_world_size = 1;
    } else if (status == CDDP_OK) {
        status = from_finding(finding, has_rendezvous, env);
    }
    cddpi_free(finding);
    return status;
}

/* @p by_env: the rendezvous is env://, so MASTER_ADDR and MASTER_PORT may say where ranks meet. */
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
    if (env->local_world_size == 0) {
        env->local_world_size = env->world_size;
        env->local_rank = env->rank;
    }
    if (env->local_world_size < 1 || env->local_world_size > env->world_size ||
        env->local_rank < 0 || env->local_rank >= env->local_world_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: local rank %d of %d", env->local_rank,
                          env->local_world_size);
    }
    if (options->rendezvous == NULL && cddpi_env(CDDPI_ENV_STORE) != NULL) {
        snprintf(env->store, sizeof env->store, "%s", cddpi_env(CDDPI_ENV_STORE));
    } else if (by_env && env->world_size > 1) {
        return use_torchrun(env);
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
    size_t least = offsetof(cddp_group_options, device); /* what the first callers knew */

    if (options != NULL) {
        cddp_status status = cddpi_struct_read("group options", "CDDP_GROUP_OPTIONS_INIT", options,
                                               sizeof read, least, &read);

        if (status != CDDP_OK) {
            return status;
        }
    }
    *out = read;
    return CDDP_OK;
}

cddp_status cddpi_launch_env_read(const cddp_group_options *given, struct cddpi_launch_env *out)
{
    cddp_group_options read = CDDP_GROUP_OPTIONS_INIT;
    const cddp_group_options *options = &read;
    struct cddpi_launch_env env = {0};
    cddp_status status = cddpi_group_options_read(given, &read);
    bool by_env = status == CDDP_OK && read.rendezvous != NULL &&
                  strcmp(read.rendezvous, "env://") == 0;

    if (status != CDDP_OK) {
        return status;
    }
    if (by_env) {
        read.rendezvous = NULL; /* where the environment says, as without options */
    }
    copy_text(env.job, sizeof env.job, options->job, CDDPI_ENV_JOB);
    copy_text(env.token, sizeof env.token, options->token, CDDPI_ENV_TOKEN);
    env.generation = options->generation != 0
                         ? options->generation
                         : (uint32_t)cddpi_env_integer(CDDPI_ENV_GENERATION, 0, UINT32_MAX, 0);
    env.timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : cddpi_env_timeout_ms();
    status = options->world_size != 0
                 ? from_options(options, by_env, &env)
                 : from_environment(&env, options->rendezvous != NULL, options->job != NULL);
    if (status != CDDP_OK) {
        return status;
    }
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
    status = env.hosts_store ? cddpi_launch_need_token(&env) : CDDP_OK;
    if (status == CDDP_OK) {
        *out = env;
    }
    return status;
}

cddp_status cddpi_launch_env_ranks(int *rank, int *world_size, int *local_rank,
                                   int *local_world_size)
{
    struct cddpi_launch_env env;
    cddp_status status = cddpi_launch_env_read(NULL, &env);

    if (status == CDDP_OK) {
        *rank = env.rank;
        *world_size = env.world_size;
        *local_rank = env.local_rank;
        *local_world_size = env.local_world_size;
    }
    return status;
}
