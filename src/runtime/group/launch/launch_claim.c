/* launch_claim.c - owns the table of launchers, and reads the variables of most of them. Slurm's
 * steps and Kubernetes' pods have their own rules: launch_slurm.c, launch_kubernetes.c. */
#include "group/launch/launch_claim.h"

#include "base/env.h"
#include "base/hash.h"
#include "base/number.h"
#include "group/launch/launch_kubernetes.h"
#include "group/launch/launch_slurm.h"
#include "group/launch/launch_variable.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 1 << 20, NAMES = 4, STARTERS = 10 };

/* One launcher's variable names. If there are several for one value, the first that is set
 * counts. */
static const struct launch_claim_row {
    const char *name;
    const char *rank[NAMES], *size[NAMES], *local_rank[NAMES], *local_size[NAMES];
    const char *node[NAMES], *nodes[NAMES];
    const char *others[NAMES]; /* more variables of the launcher, which distinguish its jobs */
    const char *starters[STARTERS];
} rows[CDDPI_LAUNCHERS] = {
    [CDDPI_BY_CDDP_RUN] = {.name = "cddp-run",
                           .rank = {"CDDP_RANK"},
                           .size = {"CDDP_WORLD_SIZE"},
                           .local_rank = {"CDDP_LOCAL_RANK"},
                           .local_size = {"CDDP_LOCAL_WORLD_SIZE"},
                           .starters = {"cddp-run"}},
    [CDDPI_BY_TORCHRUN] = {.name = "torchrun",
                           .rank = {"RANK"},
                           .size = {"WORLD_SIZE"},
                           .local_rank = {"LOCAL_RANK"},
                           .local_size = {"LOCAL_WORLD_SIZE"},
                           .node = {"GROUP_RANK"},
                           .nodes = {"GROUP_WORLD_SIZE"},
                           .others = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"},
                           .starters = {"torchrun", "pt_elastic", "accelerate", "deepspeed"}},
    [CDDPI_BY_OPEN_MPI] = {.name = "Open MPI",
                           .rank = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"},
                           .size = {"OMPI_COMM_WORLD_SIZE"},
                           .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
                           .local_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
                           .others = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
                           .starters = {"orted", "prted", "mpirun", "mpiexec", "orterun", "prterun",
                                        "prte", "prun", "oshrun"}},
    [CDDPI_BY_HYDRA] = {.name = "Hydra",
                        .rank = {"PMI_RANK"},
                        .size = {"PMI_SIZE"},
                        .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
                        .local_size = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
                        .others = {"PMI_FD", "PMI_PORT"},
                        .starters = {"hydra_pmi_proxy", "hydra_bstrap_pr", "mpiexec.hydra"}},
    [CDDPI_BY_MVAPICH] = {.name = "MVAPICH",
                          .rank = {"MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"},
                          .size = {"MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE"},
                          .local_rank = {"MV2_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_RANK"},
                          .local_size = {"MV2_COMM_WORLD_LOCAL_SIZE", "MVP_COMM_WORLD_LOCAL_SIZE"},
                          .others = {"MPIRUN_ID"},
                          .starters = {"mpispawn", "mpirun_rsh", "hydra_pmi_proxy"}},
    [CDDPI_BY_JSM] = {.name = "jsrun",
                      .rank = {"JSM_NAMESPACE_RANK"},
                      .size = {"JSM_NAMESPACE_SIZE"},
                      .local_rank = {"JSM_NAMESPACE_LOCAL_RANK"},
                      .local_size = {"JSM_NAMESPACE_LOCAL_SIZE"},
                      .others = {"JSM_SMPI_JOBID"},
                      .starters = {"jsmd", "jsrun"}},
    [CDDPI_BY_PALS] = {.name = "PALS",
                       .rank = {"PALS_RANKID"},
                       .size = {"PALS_SIZE", "PMI_SIZE"},
                       .local_rank = {"PALS_LOCAL_RANKID"},
                       .local_size = {"PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"},
                       .node = {"PALS_NODEID"},
                       .others = {"PALS_APID"},
                       .starters = {"palsd", "apshepherd"}},
    [CDDPI_BY_FLUX] = {.name = "Flux",
                       .rank = {"FLUX_TASK_RANK"},
                       .size = {"FLUX_JOB_SIZE"},
                       .local_rank = {"FLUX_TASK_LOCAL_ID"},
                       .nodes = {"FLUX_JOB_NNODES"},
                       .others = {"FLUX_JOB_ID"},
                       .starters = {"flux-shell"}},
    /* the local size is an entry of a list: launch_slurm.c */
    [CDDPI_BY_SLURM] = {.name = "Slurm",
                        .rank = {"SLURM_PROCID"},
                        .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
                        .local_rank = {"SLURM_LOCALID"},
                        .node = {"SLURM_NODEID"},
                        .nodes = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"},
                        .others = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
                        .starters = {"slurmstepd"}},
    [CDDPI_BY_INDEXED_JOB] = {.name = "Kubernetes",
                              .rank = {"JOB_COMPLETION_INDEX"},
                              .size = {"CDDP_WORLD_SIZE", "WORLD_SIZE"},
                              .others = {"JOBSET_NAME", "JOB_INDEX"}},
    [CDDPI_BY_KUBEFLOW] = {.name = "Kubeflow",
                           .rank = {"PET_NODE_RANK"},
                           .size = {"PET_NNODES"},
                           .others = {"PET_RDZV_ENDPOINT", "PET_MASTER_ADDR"}},
};

const char *cddpi_launcher_name(enum cddpi_launcher by)
{
    return rows[by].name;
}

/* The first of @p names that is set; NULL: no variable is set. */
static const char *first_set(const char *const names[NAMES])
{
    for (int i = 0; i < NAMES && names[i] != NULL; i++) {
        if (cddpi_launch_variable(names[i]) != NULL) {
            return names[i];
        }
    }
    return NULL;
}

const char *cddpi_launcher_size_name(enum cddpi_launcher by)
{
    return first_set(rows[by].size);
}

const char *const *cddpi_launcher_starters(enum cddpi_launcher by)
{
    return rows[by].starters;
}

void cddpi_claim_mention(struct cddpi_claim *claim, const char *name)
{
    const char *value = name != NULL ? cddpi_launch_variable(name) : NULL;
    size_t said = strlen(claim->says);
    size_t named = strlen(claim->unset);

    if (value == NULL) {
        return;
    }
    snprintf(claim->says + said, sizeof claim->says - said, "%s%s=%.60s", said > 0 ? ", " : "",
             name, value);
    snprintf(claim->unset + named, sizeof claim->unset - named, "%s%s", named > 0 ? " " : "", name);
}

bool cddpi_claim_number(struct cddpi_claim *claim, const char *name, int64_t low, int64_t high,
                        int *out)
{
    int64_t number;

    if (name == NULL || claim->wrong[0] != '\0') {
        return false;
    }
    if (!cddpi_parse_integer(cddpi_launch_variable(name), low, high, &number)) {
        snprintf(claim->wrong, sizeof claim->wrong,
                 "%s=%.200s is not a whole number from %" PRId64 " to %" PRId64, name,
                 cddpi_launch_variable(name), low, high);
        return false;
    }
    *out = (int)number;
    return true;
}

/* Check that both of a pair are set. No launcher sets only one, so the other was lost, and this
 * process would train alone. */
static void need_pair(struct cddpi_claim *claim, const struct launch_claim_row *row,
                      const char *rank, const char *size)
{
    const char *there = rank != NULL ? rank : size;
    const char *missing = rank != NULL ? row->size[0] : row->rank[0];

    claim->is_partial = true;
    snprintf(claim->wrong, sizeof claim->wrong,
             "%s is set, but %s is not: set both, as %s does, or unset both to train alone", there,
             missing, row->name);
}

/* Read rank, sizes and nodes from @p row's variables. */
static void read_numbers(const struct launch_claim_row *row, struct cddpi_claim *claim)
{
    const char *rank = first_set(row->rank);
    const char *size = first_set(row->size);
    int most;

    claim->rank_name = rank;
    claim->size_name = size;
    cddpi_claim_mention(claim, rank);
    cddpi_claim_mention(claim, size);
    (void)cddpi_claim_number(claim, size, 1, MAX_RANKS, &claim->size);
    most = claim->size > 0 ? claim->size : MAX_RANKS;
    (void)cddpi_claim_number(claim, rank, 0, most - 1, &claim->rank);
    (void)cddpi_claim_number(claim, first_set(row->local_size), 1, most, &claim->local_size);
    (void)cddpi_claim_number(claim, first_set(row->local_rank), 0,
                             (claim->local_size > 0 ? claim->local_size : most) - 1,
                             &claim->local_rank);
    (void)cddpi_claim_number(claim, first_set(row->nodes), 1, MAX_RANKS, &claim->nodes);
    (void)cddpi_claim_number(claim, first_set(row->node), 0, MAX_RANKS - 1, &claim->node);
    if (claim->wrong[0] == '\0' && (rank == NULL || size == NULL)) {
        need_pair(claim, row, rank, size);
    }
}

/* Read RANK and WORLD_SIZE, which are torchrun's or a wrapper's, unless they number pods. */
static bool read_torchrun(struct cddpi_claim *claim)
{
    bool is_of_ranks = cddpi_launch_has("LOCAL_RANK") || cddpi_launch_has("LOCAL_WORLD_SIZE");

    if (!cddpi_launch_has("RANK") && cddpi_launch_has("JOB_COMPLETION_INDEX")) {
        return false; /* WORLD_SIZE is an indexed Job's size */
    }
    if (!is_of_ranks && cddpi_launch_is_kubeflow()) {
        return false; /* Kubeflow's claim uses them */
    }
    read_numbers(&rows[CDDPI_BY_TORCHRUN], claim);
    if (!is_of_ranks && cddpi_launch_has("KUBERNETES_SERVICE_HOST")) {
        claim->is_pod = true;
        claim->local_rank = 0;
        claim->local_size = 1;
        claim->nproc = cddpi_launch_pod_nproc();
    }
    return true;
}

/* Other launchers that provide PMI to their ranks also set PMI's variables. */
static void read_mpi(enum cddpi_launcher by, struct cddpi_claim *claim)
{
    bool is_served = cddpi_launch_has("SLURM_PROCID") || cddpi_launch_has("FLUX_TASK_RANK") ||
                     cddpi_launch_has("PALS_RANKID");

    read_numbers(&rows[by], claim);
    if (by == CDDPI_BY_HYDRA) {
        claim->is_echo = is_served && !cddpi_launch_has("MPI_LOCALRANKID");
    } else if (by == CDDPI_BY_OPEN_MPI && !cddpi_launch_has("OMPI_COMM_WORLD_RANK") &&
               !cddpi_launch_has("OMPI_COMM_WORLD_SIZE")) {
        claim->is_echo = is_served;
        snprintf(claim->wrong, sizeof claim->wrong,
                 "PMIX_RANK=%s says that a PMIx launcher started this process, and nothing "
                 "says how many others: start it by mpirun, or set CDDP_RANK, CDDP_WORLD_SIZE and "
                 "CDDP_STORE; unset PMIX_RANK to train alone",
                 cddpi_launch_variable("PMIX_RANK"));
    }
}

/* Whether the variables of @p by are set. Some of them alone do not show the launcher. */
static bool is_claimed(enum cddpi_launcher by)
{
    bool is_any = first_set(rows[by].rank) != NULL || first_set(rows[by].size) != NULL;

    switch (by) {
    case CDDPI_BY_CDDP_RUN:
        return is_any &&
               (cddpi_launch_has("CDDP_RANK") || !cddpi_launch_has("JOB_COMPLETION_INDEX"));
    case CDDPI_BY_INDEXED_JOB:
        return cddpi_launch_has("JOB_COMPLETION_INDEX");
    case CDDPI_BY_KUBEFLOW:
        return cddpi_launch_is_kubeflow();
    case CDDPI_BY_SLURM:
        return cddpi_launch_has("SLURM_PROCID");
    case CDDPI_BY_PALS:
        return cddpi_launch_has("PALS_RANKID"); /* PMI_SIZE is not only PALS's */
    default:
        return is_any;
    }
}

bool cddpi_claim_read(enum cddpi_launcher by, struct cddpi_claim *out)
{
    *out = (struct cddpi_claim){.by = by, .rank = -1, .local_rank = -1, .node = -1};
    if (!is_claimed(by)) {
        return false;
    }
    switch (by) {
    case CDDPI_BY_TORCHRUN:
        return read_torchrun(out);
    case CDDPI_BY_INDEXED_JOB:
        cddpi_launch_read_indexed_job(out);
        break;
    case CDDPI_BY_KUBEFLOW:
        cddpi_launch_read_kubeflow(out);
        break;
    case CDDPI_BY_CDDP_RUN:
        read_numbers(&rows[by], out);
        break;
    case CDDPI_BY_SLURM:
        read_numbers(&rows[by], out);
        cddpi_launch_read_slurm(out);
        break;
    default:
        read_mpi(by, out);
    }
    return true;
}

static uint64_t add_text(uint64_t hash, const char *text)
{
    return cddpi_hash_add(cddpi_hash_text(hash, text), '\n');
}

/* A digest of @p by's variables, without those that cddp-run sets itself; 0: no variable is set. */
static unsigned long long digest_of(enum cddpi_launcher by)
{
    const struct launch_claim_row *row = &rows[by];
    const char *const *lists[] = {row->rank,       row->size, row->others, row->local_rank,
                                  row->local_size, row->node, row->nodes};
    uint64_t hash = cddpi_hash_start;
    bool is_any = false;

    for (size_t list = 0; list < sizeof lists / sizeof *lists; list++) {
        for (int i = 0; i < NAMES && lists[list][i] != NULL; i++) {
            const char *name = lists[list][i];
            bool is_ours = strncmp(name, "CDDP_", 5) == 0 || strcmp(name, "WORLD_SIZE") == 0;
            const char *value = is_ours ? NULL : cddpi_launch_variable(name);

            is_any = is_any || value != NULL;
            hash = add_text(hash, value);
        }
    }
    return is_any ? hash : 0;
}

/* Whether cddp-run sets this launcher's variables: its own and torchrun's. These are not inherited
 * through it. */
static bool is_set_by_us(enum cddpi_launcher by)
{
    return by == CDDPI_BY_CDDP_RUN || by == CDDPI_BY_TORCHRUN;
}

static uint64_t digest_of_store(const char *store)
{
    return add_text(cddpi_hash_start, store);
}

void cddpi_launchers_inherited(const char *store, char *out, size_t bytes)
{
    size_t used = (size_t)snprintf(out, bytes, "store:%016" PRIx64, digest_of_store(store));

    for (int by = 0; by < CDDPI_LAUNCHERS && used < bytes; by++) {
        unsigned long long digest = is_set_by_us(by) ? 0 : digest_of(by);

        if (digest != 0) {
            used += (size_t)snprintf(out + used, bytes - used, ",%s:%016llx", rows[by].name,
                                     digest);
        }
    }
}

const char *cddpi_launch_given_store(void)
{
    const char *store = cddpi_env(CDDPI_ENV_STORE);
    const char *inherited = cddpi_env(CDDPI_ENV_INHERITED);
    char entry[40];

    snprintf(entry, sizeof entry, "store:%016" PRIx64, digest_of_store(store));
    return store == NULL || (inherited != NULL && strstr(inherited, entry) != NULL) ? NULL : store;
}

bool cddpi_launch_use_given_store(struct cddpi_launch_env *env)
{
    const char *store = cddpi_launch_given_store();

    if (store == NULL) {
        return false;
    }
    snprintf(env->store, sizeof env->store, "%s", store);
    env->hosts_store = strncmp(store, "tcp://", 6) == 0;
    return true;
}

bool cddpi_launcher_is_inherited(enum cddpi_launcher by, const char *text)
{
    char entry[96];

    snprintf(entry, sizeof entry, "%s:%016llx", rows[by].name, digest_of(by));
    return !is_set_by_us(by) && text != NULL && strstr(text, entry) != NULL;
}
