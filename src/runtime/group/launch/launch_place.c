/* launch_place.c - finds out where and how ranks meet: as the launcher says, or from what all its
 * ranks know. */
#include "group/launch/launch_place.h"

#include "base/env.h"
#include "base/error.h"
#include "group/launch/launch_daemon.h"
#include "group/launch/launch_kubernetes.h"
#include "group/launch/launch_slurm.h"
#include "group/launch/launch_variable.h"
#include "group/launch/local_token.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool is_directory(const char *path)
{
    struct stat stat_of;

    return path != NULL && stat(path, &stat_of) == 0 && S_ISDIR(stat_of.st_mode);
}

/* Replace characters that do not belong in a file name by '_', since job names come from
 * outside. */
static void clean(char *text)
{
    for (; *text != '\0'; text++) {
        if (!isalnum((unsigned char)*text) && *text != '-' && *text != '.') {
            *text = '_';
        }
    }
}

/* Clean @p name, which then names the job, unless it has a name. */
static void name_job(struct cddpi_launch_env *env, char *name)
{
    clean(name);
    if (env->job[0] == '\0') {
        snprintf(env->job, sizeof env->job, "%s", name);
    }
}

static bool is_one_host(const struct cddpi_claim *claim)
{
    return claim->local_size == claim->size || claim->nodes == 1;
}

/* Use the file @p name in @p folder for the rendezvous. @p folder NULL: in a new folder for this
 * rendezvous, which rank 0 removes once all ranks have joined. */
static cddp_status use_file(struct cddpi_launch_env *env, const char *folder, const char *name)
{
    if (folder == NULL) {
        CDDPI_TRY(cddpi_own_folder_make(name, env->folder, sizeof env->folder));
        folder = env->folder;
    }
    if ((size_t)snprintf(env->store, sizeof env->store, "file://%s/%s.store", folder, name) >=
        sizeof env->store) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: the path %s/%s is too long", folder, name);
    }
    env->removes_file = true;
    return CDDP_OK;
}

cddp_status cddpi_launch_read_elastic(struct cddpi_launch_env *env, int *out_restarts)
{
    const char *run = cddpi_launch_variable("TORCHELASTIC_RUN_ID");
    const char *restart = cddpi_launch_variable("TORCHELASTIC_RESTART_COUNT");

    *out_restarts = 0;
    if (restart != NULL) {
        CDDPI_TRY(cddpi_launch_number("torchrun", "TORCHELASTIC_RESTART_COUNT", 0, INT_MAX,
                                      out_restarts));
    }
    if (env->generation == 0) {
        env->generation = (uint32_t)*out_restarts;
    }
    if (env->job[0] == '\0' && run != NULL) {
        snprintf(env->job, sizeof env->job, "%s", run);
    }
    return CDDP_OK;
}

cddp_status cddpi_launch_meet_torchrun(struct cddpi_launch_env *env)
{
    const char *host = cddpi_launch_variable("MASTER_ADDR");
    const char *run = cddpi_launch_variable("TORCHELASTIC_RUN_ID");
    const char *agent = cddpi_launch_variable("TORCHELASTIC_USE_AGENT_STORE");
    int restarts = 0;
    int port = 0;

    if (host == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: RANK and WORLD_SIZE are set, MASTER_ADDR not");
    }
    CDDPI_TRY(cddpi_launch_port("torchrun", "MASTER_PORT", &port));
    CDDPI_TRY(cddpi_launch_read_elastic(env, &restarts));
    if (agent != NULL && strcmp(agent, "True") == 0 && env->local_world_size < env->world_size) {
        port = port < 65535 ? port + 1 : port - 1; /* torch's own store uses the port */
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

/* Whether the ranks meet where the user says, or by MPI because they are on several hosts. */
static bool needs_no_file(struct cddpi_launch_env *env, bool on_one_host)
{
    if (cddpi_launch_use_given_store(env)) {
        return true;
    }
    env->rendezvous_by_mpi = !on_one_host;
    return !on_one_host;
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
    name_job(env, name);
    return needs_no_file(env, env->local_world_size >= env->world_size)
               ? CDDP_OK
               : use_file(env, is_directory(folder) ? folder : NULL, name);
}

/* For Hydra and other launchers that give ranks numbers, but nothing else by which they could
 * meet. */
static cddp_status use_hydra(struct cddpi_launch_env *env, const struct cddpi_claim *claim)
{
    char start[32] = "";
    char name[96];
    long proxy;

    if (needs_no_file(env, is_one_host(claim))) {
        return CDDP_OK;
    }
    proxy = cddpi_launch_proxy(claim->by, start, sizeof start);
    snprintf(name, sizeof name, "%s-%ld-%s",
             claim->by == CDDPI_BY_HYDRA ? "hydra" : cddpi_launcher_name(claim->by), proxy, start);
    name_job(env, name);
    return use_file(env, NULL, name);
}

static cddp_status use_slurm(struct cddpi_launch_env *env)
{
    const char *job = cddpi_launch_variable("SLURM_JOB_ID");
    const char *step = cddpi_launch_slurm_step();
    char name[160];
    bool one_node;

    if (job == NULL || step == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: SLURM_PROCID is set, %s",
                          job == NULL ? "SLURM_JOB_ID not"
                                      : "SLURM_STEP_ID not: a batch script starts ranks by srun");
    }
    snprintf(name, sizeof name, "slurm-%.60s.%.60s", job, step);
    name_job(env, name);
    CDDPI_TRY(cddpi_launch_slurm(env, name, &one_node));
    return one_node ? use_file(env, NULL, name) : CDDP_OK;
}

/* For Flux, which gives the job's name but not its machines. */
static cddp_status use_flux(struct cddpi_launch_env *env, const struct cddpi_claim *claim)
{
    const char *job = cddpi_launch_variable("FLUX_JOB_ID");
    char name[160];

    if (job == NULL) {
        return use_hydra(env, claim);
    }
    snprintf(name, sizeof name, "flux-%.120s", job);
    name_job(env, name);
    return needs_no_file(env, is_one_host(claim)) ? CDDP_OK : use_file(env, NULL, name);
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

/* Find where the ranks that @p claim's launcher started meet. */
static cddp_status find_rendezvous(const struct cddpi_claim *claim, struct cddpi_launch_env *env)
{
    switch (claim->by) {
    case CDDPI_BY_CDDP_RUN:
        return use_cddp_run(env);
    case CDDPI_BY_TORCHRUN:
        return cddpi_launch_meet_torchrun(env);
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

bool cddpi_launch_knows_place(const struct cddpi_claim *claim)
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

const struct cddpi_claim *cddpi_launch_place(const struct cddpi_finding *finding)
{
    for (int i = 0; i < finding->agreeing_count; i++) {
        const struct cddpi_claim *claim = &finding->claims[finding->agreeing[i]];

        if (cddpi_launch_knows_place(claim)) {
            return claim;
        }
    }
    return &finding->claims[finding->chosen];
}

cddp_status cddpi_launch_meet(const struct cddpi_finding *finding, struct cddpi_launch_env *env)
{
    const struct cddpi_claim *claim = cddpi_launch_place(finding);

    snprintf(env->says, sizeof env->says, "%s", finding->claims[finding->chosen].says);
    env->origin = cddpi_launcher_name(claim->by);
    return find_rendezvous(claim, env);
}
