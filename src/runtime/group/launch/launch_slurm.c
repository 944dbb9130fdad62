/* launch_slurm.c - reads which step of a Slurm job this is, the step's nodes and the ranks on each,
 * and where ranks of several nodes meet.
 *
 * Rank 0 serves the store on the step's first node, on port 20000 + (16 x job id + step id) modulo
 * 10000. All ranks can compute it, and jobs that share a node rarely have the same port. CDDP_STORE
 * overrides it. */
#include "group/launch/launch_slurm.h"

#include "base/error.h"
#include "base/number.h"
#include "group/launch/launch_token.h"
#include "group/launch/launch_variable.h"
#include "group/launch/slurm_list.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_PORT = 20000, PORTS = 10000, STEPS = 16, MOST_NODES = 1 << 20 };

/* The numbers of steps that srun has not created: a job's script, and salloc's shell. */
static const char batch_step[] = "4294967291";
static const char interactive_step[] = "4294967290";

/* Read a step's own variable, or else that of its job, which srun sets for the step, too. */
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

/* Without a list: spread the ranks evenly over the nodes. */
static struct cddpi_slurm_tasks spread(int ranks)
{
    const char *name;
    const char *text = step_variable("SLURM_STEP_NUM_NODES", "SLURM_NNODES", &name);
    int64_t nodes = 1;

    if (text == NULL || !cddpi_parse_integer(text, 1, ranks, &nodes)) {
        nodes = 1;
    }
    return (struct cddpi_slurm_tasks){(int)nodes, ranks, (int)((ranks + nodes - 1) / nodes)};
}

/* Read the ranks of this node into @p env, and those of all nodes into @p out. */
static cddp_status read_tasks(struct cddpi_launch_env *env, struct cddpi_slurm_tasks *out)
{
    struct cddpi_slurm_tasks tasks = spread(env->world_size);
    const char *name;
    const char *list = step_variable("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", &name);
    int node = 0;

    if (cddpi_launch_has("SLURM_NODEID")) {
        CDDPI_TRY(cddpi_launch_number("Slurm", "SLURM_NODEID", 0, CDDPI_SLURM_LIST_MAX, &node));
    }
    if (list != NULL && !cddpi_slurm_tasks(list, node, &tasks)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: %s=%s does not say how many ranks node %d (SLURM_NODEID) has",
                          name, list, node);
    }
    if (tasks.total != env->world_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s=%s makes %d ranks, %s is %d", name, list,
                          tasks.total, cddpi_launcher_size_name(CDDPI_BY_SLURM), env->world_size);
    }
    if (env->local_rank >= tasks.local_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: SLURM_LOCALID is %d, but node %d has %d ranks (%s=%s)",
                          env->local_rank, node, tasks.local_size, name, list);
    }
    if (env->rank == 0 && node != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: rank 0 is on node %d of the step, not on its first one, where "
                          "the others look for it: set CDDP_STORE=tcp://HOST:PORT, HOST being its "
                          "node, for all ranks",
                          node);
    }
    *out = tasks;
    return CDDP_OK;
}

const char *cddpi_launch_slurm_step(void)
{
    return cddpi_launch_variable("SLURM_STEP_ID");
}

/* The number of the job's nodes; 0: not given. */
static int count_nodes(void)
{
    const char *text = cddpi_launch_variable("SLURM_JOB_NUM_NODES");
    int64_t nodes = 0;

    text = text != NULL ? text : cddpi_launch_variable("SLURM_NNODES");
    return text != NULL && cddpi_parse_integer(text, 1, MOST_NODES, &nodes) ? (int)nodes : 0;
}

int cddpi_launch_slurm_idle_nodes(bool *out_is_batch)
{
    const char *step = cddpi_launch_slurm_step();
    bool is_rank = cddpi_launch_variable("SLURM_PROCID") != NULL && step != NULL &&
                   strcmp(step, batch_step) != 0 && strcmp(step, interactive_step) != 0;

    /* salloc's own shell has no SLURM_PROCID */
    *out_is_batch = cddpi_launch_variable("SLURM_PROCID") != NULL &&
                    (step == NULL || strcmp(step, batch_step) == 0);
    return is_rank || cddpi_launch_variable("SLURM_JOB_ID") == NULL ? 0 : count_nodes();
}

static void be_script(struct cddpi_claim *claim)
{
    claim->wrong[0] = '\0';
    claim->is_script = true;
    claim->is_partial = false;
    claim->rank = claim->local_rank = claim->node = 0;
    claim->size = claim->local_size = claim->nodes = 1;
}

/* Read a job's script, which has the numbers of its job. */
static void read_script(struct cddpi_claim *claim)
{
    int tasks = claim->size;

    be_script(claim);
    if (tasks > 1) {
        snprintf(claim->alone, sizeof claim->alone,
                 "%s: SLURM_PROCID is set, SLURM_STEP_ID not: this is the job's script itself, "
                 "and a batch script starts ranks by srun; unset SLURM_PROCID to train alone",
                 claim->says);
    } else if (count_nodes() > 1) {
        snprintf(claim->alone, sizeof claim->alone,
                 "this is the script of a job on %d nodes (SLURM_JOB_NUM_NODES, "
                 "SLURM_STEP_ID not): a batch script starts ranks by srun; unset SLURM_PROCID to "
                 "train alone",
                 count_nodes());
    }
}

/* Read salloc's shell. salloc starts it with srun --preserve-env, which leaves SLURM_NTASKS at the
 * job's value. */
static void read_shell(struct cddpi_claim *claim)
{
    if (cddpi_launch_variable("SLURM_STEP_NUM_TASKS") == NULL || claim->size == 1) {
        be_script(claim);
    }
}

void cddpi_launch_read_slurm(struct cddpi_claim *claim)
{
    const char *name;
    const char *list = step_variable("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", &name);
    const char *step = cddpi_launch_slurm_step();
    struct cddpi_slurm_tasks tasks;

    if (step == NULL || strcmp(step, batch_step) == 0) {
        read_script(claim);
    } else if (strcmp(step, interactive_step) == 0) {
        read_shell(claim);
    }
    if (claim->is_script || claim->size <= 0) {
        return;
    }
    if (list == NULL) {
        tasks = spread(claim->size);
    } else if (!cddpi_slurm_tasks(list, claim->node >= 0 ? claim->node : 0, &tasks) ||
               tasks.total != claim->size) {
        return; /* the error is reported when the list is used */
    }
    claim->local_size = tasks.local_size;
    claim->nodes = tasks.nodes;
}

static uint64_t number_of(const char *name)
{
    const char *text = cddpi_launch_variable(name);
    int64_t number;

    return text != NULL && cddpi_parse_integer(text, 0, INT64_MAX, &number) ? (uint64_t)number : 0;
}

/* Use the store of rank 0 on the step's first node. */
static cddp_status use_first_node(struct cddpi_launch_env *env)
{
    const char *name;
    const char *list = step_variable("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", &name);
    char host[CDDPI_HOST_NAME_BYTES];
    uint64_t port = number_of("SLURM_JOB_ID") % PORTS * STEPS + number_of("SLURM_STEP_ID") % PORTS;

    if (cddpi_launch_use_given_store(env)) {
        return CDDP_OK;
    }
    if (list == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: the step has several nodes, but neither "
                                             "SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST is set");
    }
    if (!cddpi_slurm_host(list, 0, host)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s=%.500s is not a list of hosts", name, list);
    }
    snprintf(env->store, sizeof env->store, "tcp://%s:%d", host, FIRST_PORT + (int)(port % PORTS));
    env->hosts_store = true;
    return CDDP_OK;
}

cddp_status cddpi_launch_slurm(struct cddpi_launch_env *env, const char *name, bool *out_one_node)
{
    struct cddpi_slurm_tasks tasks = {0, 0, 0};

    CDDPI_TRY(read_tasks(env, &tasks));
    env->local_world_size = tasks.local_size;
    *out_one_node = tasks.nodes == 1;
    if (*out_one_node) {
        return CDDP_OK;
    }
    CDDPI_TRY(use_first_node(env));
    return env->hosts_store
               ? cddpi_launch_token(env, name, cddpi_launch_variable("SLURM_SUBMIT_DIR"))
               : CDDP_OK;
}
