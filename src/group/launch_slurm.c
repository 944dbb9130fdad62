/* launch_slurm.c - reads a Slurm step's nodes: ranks of each, and where ranks of several nodes find
 * each other.
 *
 * Rank 0 holds the store, on the step's first node, at port 20000 + (16 x job id + step id) modulo
 * 10000: all ranks know it, and jobs that share a node hardly ever have the same. CDDP_STORE
 * overrides it. */
#include "group/launch_slurm.h"

#include "base/env.h"
#include "base/error.h"
#include "base/number.h"
#include "group/launch_token.h"
#include "group/launch_variable.h"
#include "group/slurm_list.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_PORT = 20000, PORTS = 10000, STEPS = 16 };

/* A step's own variable, else that of its job, which srun sets for the step, too. */
static const char *step_variable(const char *step, const char *job, const char **out_name)
{
    const char *value = cddpi_launch_variable(step);

    *out_name = step;
    if (value == NULL) {
        value = cddpi_launch_variable(job);
        *out_name = job;
    }
    return value;
}

/* The ranks of this node; @p out: of all nodes. */
static cddp_status read_tasks(struct cddpi_launch_env *env, struct cddpi_slurm_tasks *out)
{
    struct cddpi_slurm_tasks tasks = {1, env->world_size, env->world_size};
    const char *name;
    const char *list = step_variable("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", &name);
    int node = 0;
    cddp_status status = CDDP_OK;

    if (cddpi_launch_variable("SLURM_NODEID") != NULL) {
        status = cddpi_launch_number("Slurm", "SLURM_NODEID", 0, CDDPI_SLURM_LIST_MAX, &node);
    }
    if (status == CDDP_OK && list != NULL && !cddpi_slurm_tasks(list, node, &tasks)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: %s=%s does not say how many ranks node %d (SLURM_NODEID) has",
                          name, list, node);
    }
    if (status == CDDP_OK && tasks.total != env->world_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s=%s makes %d ranks, SLURM_NTASKS is %d", name,
                          list, tasks.total, env->world_size);
    }
    if (status == CDDP_OK && env->local_rank >= tasks.local_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: SLURM_LOCALID is %d, but node %d has %d ranks (%s=%s)",
                          env->local_rank, node, tasks.local_size, name, list);
    }
    if (status == CDDP_OK && env->rank == 0 && node != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: rank 0 is on node %d of the step, not on its first one, where "
                          "the others look for it: set CDDP_STORE=tcp://HOST:PORT, HOST being its "
                          "node, for all ranks",
                          node);
    }
    *out = tasks;
    return status;
}

static uint64_t number_of(const char *name)
{
    const char *text = cddpi_launch_variable(name);
    int64_t number;

    return text != NULL && cddpi_parse_integer(text, 0, INT64_MAX, &number) ? (uint64_t)number : 0;
}

/* The store in rank 0. */
static cddp_status use_first_node(struct cddpi_launch_env *env)
{
    const char *given = cddpi_env(CDDPI_ENV_STORE);
    const char *name;
    const char *list = step_variable("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", &name);
    char host[CDDPI_HOST_NAME_BYTES];
    uint64_t port = number_of("SLURM_JOB_ID") % PORTS * STEPS + number_of("SLURM_STEP_ID") % PORTS;

    if (given != NULL) {
        snprintf(env->store, sizeof env->store, "%s", given);
    } else if (list == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: the step has several nodes, but neither "
                                             "SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST is set");
    } else if (!cddpi_slurm_host(list, 0, host)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s=%.500s is no list of hosts", name, list);
    } else {
        snprintf(env->store, sizeof env->store, "tcp://%s:%d", host,
                 FIRST_PORT + (int)(port % PORTS));
    }
    env->hosts_store = strncmp(env->store, "tcp://", 6) == 0;
    return CDDP_OK;
}

cddp_status cddpi_launch_slurm(struct cddpi_launch_env *env, const char *name, bool *out_one_node)
{
    struct cddpi_slurm_tasks tasks = {0, 0, 0};
    cddp_status status = read_tasks(env, &tasks);

    if (status != CDDP_OK) {
        return status;
    }
    env->local_world_size = tasks.local_size;
    *out_one_node = tasks.nodes == 1;
    if (*out_one_node) {
        return CDDP_OK;
    }
    status = use_first_node(env);
    return status == CDDP_OK && env->hosts_store
               ? cddpi_launch_token(env, name, cddpi_launch_variable("SLURM_SUBMIT_DIR"))
               : status;
}
