/* launch_node.c - reads which machine this cddp-run is, if another launcher started it: that
 * launcher's processes are the machines, with one cddp-run on each. */
#include "group/launch/launch_node.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/number.h"
#include "group/launch/launch_env.h"
#include "group/launch/launch_judge.h"
#include "group/launch/launch_place.h"
#include "group/launch/launch_slurm.h"
#include "group/launch/launch_variable.h"

#include <string.h>

/* Warn about scripts and shells of other batch systems whose allocation has several machines. */
static void warn_of_machines(struct cddpi_launch_node *node)
{
    static const char *const names[] = {"PBS_NUM_NODES", "NHOSTS"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = cddpi_launch_variable(names[i]);
        int64_t count;

        if (text != NULL && cddpi_parse_integer(text, 2, INT32_MAX, &count)) {
            snprintf(node->warning, sizeof node->warning,
                     "the batch job has %lld machines (%s), and ranks start on this one alone: "
                     "--hosts starts them on all",
                     (long long)count, names[i]);
            return;
        }
    }
}

/* Fail in a batch script whose job has several machines: the script runs on one of them only, and
 * nobody reads its output in time. In a shell, a warning is enough, since a user sees it. */
static cddp_status check_allocation(const struct cddpi_launch_given *given,
                                    struct cddpi_launch_node *node)
{
    bool is_batch = false;
    int nodes = cddpi_launch_slurm_idle_nodes(&is_batch);

    if (given->nodes > 0 || given->has_rdzv || given->starts_hosts) {
        return CDDP_OK;
    }
    if (nodes < 2) {
        warn_of_machines(node);
        return CDDP_OK;
    }
    if (is_batch) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "Slurm's job has %d nodes (SLURM_JOB_NUM_NODES), and this is its script, "
                          "on one of them: let srun --ntasks-per-node=1 start cddp-run on each, or "
                          "give --hosts; --nnodes 1 trains on this one alone",
                          nodes);
    }
    snprintf(node->warning, sizeof node->warning,
             "Slurm's job has %d nodes (SLURM_JOB_NUM_NODES), and ranks start on this one alone: "
             "srun --ntasks-per-node=1 cddp-run ... starts them on each",
             nodes);
    return CDDP_OK;
}

/* Read where the machines meet according to the launcher. This process is the launcher's only rank
 * on its machine. */
static cddp_status read_place(const struct cddpi_finding *finding, struct cddpi_launch_node *node)
{
    struct cddpi_launch_env env = {.rank = node->node,
                                   .world_size = node->nodes,
                                   .local_world_size = 1,
                                   .join_timeout_ms = cddpi_env_timeout_ms(),
                                   .token = "later"};
    const char *store = cddpi_launch_given_store();
    cddp_status status = CDDP_OK;

    if (store == NULL && !cddpi_launch_knows_place(cddpi_launch_place(finding))) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "MASTER_ADDR is not set");
    } else if (store != NULL && strncmp(store, "tcp://", 6) == 0 &&
               finding->claims[finding->chosen].by != CDDPI_BY_CDDP_RUN) {
        snprintf(env.store, sizeof env.store, "%s", store);
    } else {
        status = cddpi_launch_meet(finding, &env);
    }
    if (status == CDDP_OK && strncmp(env.store, "tcp://", 6) == 0) {
        snprintf(node->rdzv, sizeof node->rdzv, "%s", env.store);
        return CDDP_OK;
    }
    if (status == CDDP_OK) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "%s does not say where they meet", node->origin);
    }
    return cddpi_fail_suffix(
        status,
        ". %s started this cddp-run as node %d of %d (%s): say where they meet "
        "with --rdzv tcp://HOST:PORT, an address of node 0's; --nnodes 1 "
        "trains on this machine alone",
        node->origin, node->node, node->nodes, node->says);
}

/* Check that the launcher starts one process per machine, otherwise several cddp-runs would be on
 * one machine. */
static cddp_status check_one_a_node(const struct cddpi_claim *claim,
                                    const struct cddpi_launch_node *node)
{
    if (claim->by == CDDPI_BY_CDDP_RUN) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "this cddp-run was started in each of %d ranks of another one (%s), and "
                          "would start a job of its own in each: start it once; --nnodes 1 starts "
                          "these jobs",
                          claim->size, node->says);
    }
    if (claim->is_pod || claim->nodes == claim->size ||
        (claim->nodes == 0 && claim->local_size <= 1)) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "%s started %d of this cddp-run, several on a machine (%s), and each would "
                      "start ranks of its own: let it start one on each machine, or the program "
                      "itself in the place of cddp-run; --nnodes 1 starts a job of its own in each",
                      node->origin, claim->size, node->says);
}

/* Check the number of nodes that the user has given against the launcher's. A job whose nodes come
 * and go may have fewer than its most, and others wait. */
static cddp_status check_number(const struct cddpi_claim *claim,
                                const struct cddpi_launch_given *given,
                                const struct cddpi_launch_node *node)
{
    if (given->least > claim->size) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT, "--nnodes %d:%d needs at least %d nodes, and %s has started %d (%s)",
            given->least, given->nodes, given->least, node->origin, claim->size, node->says);
    }
    if (given->nodes == 0 || given->nodes == claim->size || given->least > 0) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "--nnodes %d and %s (%s) contradict each other: give --node-rank and "
                      "--rdzv as well, unset %s, or leave --nnodes out",
                      given->nodes, node->origin, node->says, node->unset);
}

static cddp_status from_claim(const struct cddpi_finding *finding,
                              const struct cddpi_launch_given *given,
                              struct cddpi_launch_node *node)
{
    const struct cddpi_claim *claim = &finding->claims[finding->chosen];

    snprintf(node->says, sizeof node->says, "%s", claim->says);
    snprintf(node->unset, sizeof node->unset, "%s", claim->unset);
    snprintf(node->origin, sizeof node->origin, "%s", cddpi_launcher_name(claim->by));
    node->nproc = claim->nproc;
    if (claim->size < 2) {
        return claim->is_script ? check_allocation(given, node) : CDDP_OK;
    }
    if (given->starts_hosts) {
        return claim->is_pod ? CDDP_OK
                             : cddpi_fail(CDDP_ERR_ARGUMENT,
                                          "%s started %d of this cddp-run (%s), and with a list of "
                                          "hosts each would start the whole job: start it once",
                                          node->origin, claim->size, node->says);
    }
    CDDPI_TRY(check_number(claim, given, node));
    CDDPI_TRY(check_one_a_node(claim, node));
    node->node = claim->rank;
    node->nodes = claim->size;
    node->least = claim->least;
    if (claim->least > 0 && cddpi_launch_has("PET_MAX_RESTARTS")) {
        CDDPI_TRY(cddpi_launch_number(node->origin, "PET_MAX_RESTARTS", 0, INT32_MAX,
                                      &node->max_restarts));
    }
    return given->has_rdzv ? CDDP_OK : read_place(finding, node);
}

cddp_status cddpi_launch_node_read(const struct cddpi_launch_given *given,
                                   struct cddpi_launch_node *out)
{
    const char *count = cddpi_launch_variable("PET_NPROC_PER_NODE");
    struct cddpi_finding *finding;
    cddp_status status;

    *out = (struct cddpi_launch_node){.nodes = 1, .max_restarts = -1};
    /* if the options define everything, launchers' variables are neither needed nor read */
    if (given->nodes == 1 || (given->nodes > 1 && given->has_rdzv && given->has_node)) {
        return CDDP_OK;
    }
    finding = cddpi_zalloc(sizeof *finding);
    CDDPI_TRY_MEMORY(finding != NULL, "no memory to look at the environment");
    status = cddpi_launch_judge(true, finding);
    if (status == CDDP_OK) {
        snprintf(out->warning, sizeof out->warning, "%s", finding->warning);
        status = finding->chosen < 0 ? check_allocation(given, out)
                                     : from_claim(finding, given, out);
        out->per_gpu = out->nproc == 0 && count != NULL && strcmp(count, "gpu") == 0;
    }
    cddpi_free(finding);
    return status;
}

cddp_status cddpi_launch_node_token(char *out, size_t bytes, char *out_file, size_t file_bytes)
{
    struct cddpi_finding *finding = cddpi_zalloc(sizeof *finding);
    struct cddpi_launch_env *env = cddpi_zalloc(sizeof *env);
    cddp_status status = CDDP_OK;

    out[0] = out_file[0] = '\0';
    if (finding == NULL || env == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory to look at the environment");
    } else if (cddpi_launch_judge(true, finding) == CDDP_OK && finding->chosen >= 0 &&
               finding->claims[finding->chosen].by == CDDPI_BY_SLURM) {
        env->rank = finding->claims[finding->chosen].rank;
        env->world_size = finding->claims[finding->chosen].size;
        env->local_world_size = 1;
        env->join_timeout_ms = cddpi_env_timeout_ms();
        status = cddpi_launch_meet(finding, env);
        if (status == CDDP_OK) {
            snprintf(out, bytes, "%s", env->token);
            snprintf(out_file, file_bytes, "%s", env->token_file);
        }
    }
    cddpi_free(finding);
    cddpi_free(env);
    return status;
}

/* Print what a claim says about ranks and machines. */
static void print_claim(FILE *to, const struct cddpi_claim *claim)
{
    fprintf(to, "  %-12s %s", cddpi_launcher_name(claim->by), claim->says);
    if (claim->local_size > 0 && claim->local_rank >= 0) {
        fprintf(to, "; local rank %d of %d", claim->local_rank, claim->local_size);
    }
    if (claim->nodes > 0 && claim->node >= 0) {
        fprintf(to, "; node %d of %d", claim->node, claim->nodes);
    }
    if (claim->is_script) {
        fprintf(to, "; a job's script or shell, and no rank");
    }
    fprintf(to, "\n");
}

static void print_rank(FILE *to, const struct cddpi_finding *finding, cddp_status status)
{
    const struct cddpi_claim *claim = finding->chosen >= 0 ? &finding->claims[finding->chosen]
                                                           : NULL;

    if (status != CDDP_OK) {
        fprintf(to, "  as a rank: not known: %s\n", cddp_last_error());
    } else if (claim != NULL && claim->alone[0] != '\0') {
        fprintf(to, "  as a rank: not one: %s\n", claim->alone);
    } else if (claim == NULL) {
        fprintf(to, "  as a rank: alone; no launcher's variables say otherwise\n");
    } else {
        fprintf(to, "  as a rank: %d of %d, by %s\n", claim->rank, claim->size,
                cddpi_launcher_name(claim->by));
    }
    if (finding->reason[0] != '\0') {
        fprintf(to, "  because %s\n", finding->reason);
    }
    if (finding->warning[0] != '\0') {
        fprintf(to, "  warning: %s\n", finding->warning);
    }
}

void cddpi_launch_describe(FILE *to)
{
    struct cddpi_launch_given given = {.nodes = 0};
    struct cddpi_launch_node node;
    struct cddpi_finding *finding = cddpi_zalloc(sizeof *finding);
    cddp_status status;

    if (finding == NULL) {
        return;
    }
    status = cddpi_launch_judge(false, finding);
    for (int i = 0; i < finding->count; i++) {
        print_claim(to, &finding->claims[i]);
    }
    print_rank(to, finding, status);
    if (cddpi_launch_node_read(&given, &node) != CDDP_OK) {
        fprintf(to, "  as cddp-run: nothing is started: %s\n", cddp_last_error());
    } else if (node.nodes > 1) {
        fprintf(to, "  as cddp-run: node %d of %d, which meet at %s\n", node.node, node.nodes,
                node.rdzv);
    } else {
        fprintf(to, "  as cddp-run: this machine alone\n");
    }
    cddpi_free(finding);
}
