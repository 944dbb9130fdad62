/* launch_env.c - reads who this process is: from options, or from the environment of cddp-run,
 * torchrun, Open MPI, MPICH's and Intel MPI's Hydra, Slurm or Kubernetes. */
#include "group/launch_env.h"

#include "base/env.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "group/launch_hydra.h"
#include "group/launch_kubernetes.h"
#include "group/launch_slurm.h"
#include "group/launch_token.h"
#include "group/launch_variable.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RANKS = 1 << 20 };

/* One launcher's names. `local_*` may be missing: then all ranks are on this machine. */
struct names {
    const char *origin;
    const char *rank, *world_size, *local_rank, *local_world_size;
};

static const struct names cddp_run = {"cddp-run", "CDDP_RANK", "CDDP_WORLD_SIZE", "CDDP_LOCAL_RANK",
                                      "CDDP_LOCAL_WORLD_SIZE"};
static const struct names torchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE"};
static const struct names open_mpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
/* MPICH's and Intel MPI's mpirun */
static const struct names hydra = {"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                   "MPI_LOCALNRANKS"};
/* the local size is one of a list: launch_slurm.c */
static const struct names slurm = {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL};

static cddp_status read_ranks(const struct names *names, struct cddpi_launch_env *env)
{
    cddp_status status = cddpi_launch_number(names->origin, names->world_size, 1, MAX_RANKS,
                                             &env->world_size);

    env->origin = names->origin;
    if (status == CDDP_OK) {
        status = cddpi_launch_number(names->origin, names->rank, 0, env->world_size - 1,
                                     &env->rank);
    }
    env->local_rank = env->rank;
    env->local_world_size = env->world_size;
    if (status == CDDP_OK && names->local_world_size != NULL &&
        cddpi_launch_variable(names->local_world_size) != NULL) {
        status = cddpi_launch_number(names->origin, names->local_world_size, 1, env->world_size,
                                     &env->local_world_size);
    }
    if (status == CDDP_OK && cddpi_launch_variable(names->local_rank) != NULL) {
        status = cddpi_launch_number(names->origin, names->local_rank, 0, env->local_world_size - 1,
                                     &env->local_rank);
    }
    return status;
}

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
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "join: make folder %s (%s)", out,
                                cddpi_launch_variable("TMPDIR") != NULL
                                    ? "below TMPDIR, which has to be there"
                                    : "TMPDIR can name another place than /tmp");
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

static cddp_status use_torchrun(struct cddpi_launch_env *env)
{
    const char *host = cddpi_launch_variable("MASTER_ADDR");
    const char *run = cddpi_launch_variable("TORCHELASTIC_RUN_ID");
    const char *restart = cddpi_launch_variable("TORCHELASTIC_RESTART_COUNT");
    const char *agent = cddpi_launch_variable("TORCHELASTIC_USE_AGENT_STORE");
    int restarts = 0;
    int port = 0;
    cddp_status status;

    if (host == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: RANK and WORLD_SIZE are set, MASTER_ADDR not");
    }
    status = cddpi_launch_number("torchrun", "MASTER_PORT", 1, 65535, &port);
    if (status == CDDP_OK && restart != NULL) {
        status = cddpi_launch_number("torchrun", "TORCHELASTIC_RESTART_COUNT", 0, INT_MAX,
                                     &restarts);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (env->generation == 0) {
        env->generation = (uint32_t)restarts;
    }
    if (env->job[0] == '\0' && run != NULL) {
        snprintf(env->job, sizeof env->job, "%s", run);
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
    const char *store = cddpi_env(CDDPI_ENV_STORE);

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

static cddp_status use_hydra(struct cddpi_launch_env *env)
{
    char start[32] = "";
    char name[96];
    long proxy;

    if (use_given_store(env)) {
        return CDDP_OK;
    }
    if (cddpi_launch_variable(hydra.local_world_size) == NULL ||
        env->local_world_size < env->world_size) {
        env->rendezvous_by_mpi = true;
        return CDDP_OK;
    }
    proxy = cddpi_launch_hydra_proxy(start, sizeof start);
    snprintf(name, sizeof name, "hydra-%ld-%s", proxy, start);
    clean(name);
    if (env->job[0] == '\0') {
        snprintf(env->job, sizeof env->job, "%s", name);
    }
    return use_file(env, NULL, name);
}

static cddp_status use_slurm(struct cddpi_launch_env *env)
{
    const char *job = cddpi_launch_variable("SLURM_JOB_ID");
    const char *step = cddpi_launch_variable("SLURM_STEP_ID");
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

/* No launcher sets only one of a pair: the other was lost, and this process would train alone. */
static cddp_status check_pairs(void)
{
    static const struct names *const all[] = {&torchrun, &open_mpi, &hydra};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool has_rank = cddpi_launch_variable(all[i]->rank) != NULL;
        bool has_size = cddpi_launch_variable(all[i]->world_size) != NULL;

        if (has_rank != has_size) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "join: %s is set, but %s is not: set both, as %s does, or unset both "
                              "to train alone",
                              has_rank ? all[i]->rank : all[i]->world_size,
                              has_rank ? all[i]->world_size : all[i]->rank, all[i]->origin);
        }
    }
    return CDDP_OK;
}

/* @p has_rendezvous: the options say where ranks meet, so the environment need not. */
static cddp_status from_environment(struct cddpi_launch_env *env, bool has_rendezvous)
{
    cddp_status status;

    if (cddpi_env(CDDPI_ENV_RANK) != NULL ||
        (cddpi_env(CDDPI_ENV_WORLD_SIZE) != NULL && !cddpi_launch_is_indexed_job())) {
        const char *store = cddpi_env(CDDPI_ENV_STORE);

        status = read_ranks(&cddp_run, env);
        if (status == CDDP_OK && store != NULL) {
            snprintf(env->store, sizeof env->store, "%s", store);
        } else if (status == CDDP_OK && env->world_size > 1 && !has_rendezvous) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "join: CDDP_RANK and CDDP_WORLD_SIZE are set, CDDP_STORE not");
        }
        return status;
    }
    if (cddpi_launch_variable("RANK") != NULL && cddpi_launch_variable("WORLD_SIZE") != NULL) {
        status = read_ranks(&torchrun, env);
        if (status == CDDP_OK) {
            status = cddpi_launch_pod(env);
        }
        return status == CDDP_OK && env->world_size > 1 &&
                       (!has_rendezvous || cddpi_launch_variable("MASTER_ADDR") != NULL)
                   ? use_torchrun(env)
                   : status;
    }
    if (cddpi_launch_variable("OMPI_COMM_WORLD_RANK") != NULL) {
        status = read_ranks(&open_mpi, env);
        return status == CDDP_OK && env->world_size > 1 ? use_open_mpi(env) : status;
    }
    /* srun sets PMI's variables, too, where it serves them, but not these */
    if (cddpi_launch_variable("PMI_RANK") != NULL && cddpi_launch_variable("PMI_SIZE") != NULL &&
        (cddpi_launch_variable("MPI_LOCALRANKID") != NULL ||
         cddpi_launch_variable("SLURM_PROCID") == NULL)) {
        status = read_ranks(&hydra, env);
        return status == CDDP_OK && env->world_size > 1 ? use_hydra(env) : status;
    }
    if (cddpi_launch_variable("SLURM_PROCID") != NULL) {
        status = read_ranks(&slurm, env);
        return status == CDDP_OK && env->world_size > 1 ? use_slurm(env) : status;
    }
    if (cddpi_launch_is_indexed_job()) {
        return cddpi_launch_indexed_job(env);
    }
    if (cddpi_launch_is_elastic_job()) {
        return cddpi_launch_elastic_job(env);
    }
    env->origin = "a lone process";
    env->world_size = env->local_world_size = 1;
    return check_pairs();
}

/* @p by_env: the rendezvous is env://, so MASTER_ADDR and MASTER_PORT may say where ranks meet. */
static cddp_status from_options(const cddp_group_options *options, bool by_env,
                                struct cddpi_launch_env *env)
{
    env->origin = "options";
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
    status = options->world_size != 0 ? from_options(options, by_env, &env)
                                      : from_environment(&env, options->rendezvous != NULL);
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
