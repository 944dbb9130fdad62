/* launch_kubernetes.c - reads the variables of pods: JOB_COMPLETION_INDEX of an indexed Job, alone
 * or in a JobSet; RANK, WORLD_SIZE and PET_* of Kubeflow Trainer v1 (PyTorchJob); only PET_* of v2
 * (TrainJob). Each pod is either one rank, alone on its own host, or one node of cddp-run, which
 * starts several ranks there. */
#include "group/launch/launch_kubernetes.h"

#include "base/error.h"
#include "base/number.h"
#include "group/launch/launch_variable.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PODS = 1 << 20, DEFAULT_PORT = 29500 /* torchrun's */ };

static const char *either(const char *first, const char *second)
{
    const char *value = cddpi_launch_variable(first);

    return value != NULL ? value : cddpi_launch_variable(second);
}

bool cddpi_launch_is_kubeflow(void)
{
    return cddpi_launch_has("PET_NNODES") || cddpi_launch_has("PET_NODE_RANK") ||
           cddpi_launch_has("PET_RDZV_ENDPOINT");
}

/* "auto" and other words count as not given. */
int cddpi_launch_pod_nproc(void)
{
    const char *count = either("PET_NPROC_PER_NODE", "PET_N_PROC_PER_NODE");
    int64_t number = 0;

    return count != NULL && cddpi_parse_integer(count, 1, MAX_PODS, &number) ? (int)number : 0;
}

static void be_alone(struct cddpi_claim *claim)
{
    claim->is_pod = true;
    claim->local_rank = 0;
    claim->local_size = 1;
    claim->node = claim->rank;
    claim->nodes = claim->size;
}

/* Use the store that rank 0 serves at @p host, which is "name", "name:port" or an address. */
static cddp_status use_host(struct cddpi_launch_env *env, const char *host, int port)
{
    const char *colon = strrchr(host, ':');
    bool bare_v6 = colon != NULL && strchr(host, ':') != colon && host[0] != '[';
    bool has_port = colon != NULL && !bare_v6 && host[strlen(host) - 1] != ']';
    int length;

    if (has_port) {
        length = snprintf(env->store, sizeof env->store, "tcp://%s", host);
    } else {
        length = snprintf(env->store, sizeof env->store, bare_v6 ? "tcp://[%s]:%d" : "tcp://%s:%d",
                          host, port);
    }
    if ((size_t)length >= sizeof env->store) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: the host's name is too long");
    }
    env->hosts_store = true;
    return CDDP_OK;
}

/* Read variable @p name, if it is set. */
static cddp_status read_port(const struct cddpi_launch_env *env, const char *name, int *out)
{
    return cddpi_launch_has(name) ? cddpi_launch_port(env->origin, name, out) : CDDP_OK;
}

/* Whether this is not the first Job of a JobSet, which numbers the pods of each of its Jobs from
 * 0. */
static bool is_later_job(void)
{
    const char *index = either("JOB_GLOBAL_INDEX", "JOB_INDEX");
    int64_t number = 0;

    return index != NULL && cddpi_parse_integer(index, 1, MAX_PODS, &number);
}

void cddpi_launch_read_indexed_job(struct cddpi_claim *claim)
{
    const char *size = NULL;

    if (cddpi_launch_has("CDDP_WORLD_SIZE") && !cddpi_launch_has("CDDP_RANK")) {
        size = "CDDP_WORLD_SIZE";
    } else if (cddpi_launch_has("WORLD_SIZE") && !cddpi_launch_has("RANK")) {
        size = "WORLD_SIZE";
    }
    claim->rank_name = "JOB_COMPLETION_INDEX";
    claim->size_name = size;
    cddpi_claim_mention(claim, claim->rank_name);
    cddpi_claim_mention(claim, size);
    (void)cddpi_claim_number(claim, size, 1, MAX_PODS, &claim->size);
    (void)cddpi_claim_number(claim, "JOB_COMPLETION_INDEX", 0,
                             (claim->size > 0 ? claim->size : MAX_PODS) - 1, &claim->rank);
    claim->is_partial = claim->size == 0;
    if (claim->wrong[0] == '\0' && claim->size > 1 && is_later_job()) {
        snprintf(claim->wrong, sizeof claim->wrong,
                 "JOB_COMPLETION_INDEX=%d counts the pods of one Job of the JobSet, and this "
                 "is not its first (JOB_INDEX=%.20s): set RANK and WORLD_SIZE to count the pods of "
                 "all its Jobs",
                 claim->rank, either("JOB_GLOBAL_INDEX", "JOB_INDEX"));
    }
    be_alone(claim);
}

/* Use the host name of pod 0 of a JobSet's first Job, which follows from the labels. */
static cddp_status use_jobset(struct cddpi_launch_env *env, int port)
{
    const char *set = cddpi_launch_variable("JOBSET_NAME");
    const char *job = cddpi_launch_variable("REPLICATED_JOB_NAME");
    char host[600];

    if (set == NULL || job == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: %s, but neither MASTER_ADDR nor CDDP_STORE is set: name pod 0 "
                          "there, as JOB-0.SERVICE, SERVICE being a headless service of the Job",
                          env->says);
    }
    snprintf(host, sizeof host, "%.180s-%.180s-0-0.%.180s", set, job, set);
    return use_host(env, host, port);
}

cddp_status cddpi_launch_meet_indexed_job(struct cddpi_launch_env *env)
{
    const char *host = cddpi_launch_variable("MASTER_ADDR");
    int port = DEFAULT_PORT;

    if (cddpi_launch_use_given_store(env)) {
        return CDDP_OK;
    }
    CDDPI_TRY(read_port(env, "MASTER_PORT", &port));
    return host != NULL ? use_host(env, host, port) : use_jobset(env, port);
}

cddp_status cddpi_launch_one_process(const struct cddpi_claim *claim)
{
    if (claim->least != 0 && claim->least != claim->size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: PET_NNODES=%d:%d is no fixed number of pods, and this is one rank "
                          "of them: let the pod's command be cddp-run ..., which goes on when pods "
                          "come and go, or give the elastic policy the same minReplicas and "
                          "maxReplicas",
                          claim->least, claim->size);
    }
    if (claim->nproc < 2) {
        return CDDP_OK;
    }
    return cddpi_fail(
        CDDP_ERR_ARGUMENT,
        "join: the job wants %d processes a pod (PET_NPROC_PER_NODE), and this is one "
        "without LOCAL_RANK: let the pod's command be cddp-run --nproc %d ..., which "
        "starts them and meets the other pods by the same variables",
        claim->nproc, claim->nproc);
}

/* Read the number of pods, "3", or that of an elastic policy, "1:3". */
static void read_pods(struct cddpi_claim *claim)
{
    const char *text = cddpi_launch_variable("PET_NNODES");
    const char *colon = strchr(text, ':');
    int64_t least = 0;
    int64_t pods;
    char first[16];

    snprintf(first, sizeof first, "%.*s", colon != NULL ? (int)(colon - text) : 0, text);
    if (!cddpi_parse_integer(colon != NULL ? colon + 1 : text, 1, MAX_PODS, &pods) ||
        (colon != NULL && !cddpi_parse_integer(first, 1, pods, &least))) {
        snprintf(claim->wrong, sizeof claim->wrong,
                 "PET_NNODES=%.100s is neither a number of pods nor MIN:MAX, as an elastic policy "
                 "gives",
                 text);
        return;
    }
    claim->size = (int)pods;
    claim->least = (int)least;
}

/* Read the number at the end of the pod's host name, which the operator sets: JOB-worker-2. */
static void read_pod_number(struct cddpi_claim *claim)
{
    char name[256] = "";
    size_t begin;
    int64_t number;

    (void)gethostname(name, sizeof name - 1);
    name[strcspn(name, ".")] = '\0';
    begin = strlen(name);
    while (begin > 0 && isdigit((unsigned char)name[begin - 1])) {
        begin--;
    }
    if (begin > 0 && name[begin - 1] == '-' &&
        cddpi_parse_integer(name + begin, 0, claim->size - 1, &number)) {
        claim->rank = (int)number;
    } else {
        snprintf(claim->wrong, sizeof claim->wrong,
                 "PET_NNODES=%d is set, but neither PET_NODE_RANK nor RANK is, and the host "
                 "name %.100s does not end in a pod's number from 0 to %d: set PET_NODE_RANK",
                 claim->size, name, claim->size - 1);
    }
}

/* Read Trainer v1's variables: RANK is the pod's number; WORLD_SIZE is the number of pods times
 * nprocPerNode, if that is a number (before version 1.6, the number of pods). */
static void read_first_trainer(struct cddpi_claim *claim)
{
    int processes = 0;
    int rank = 0;

    cddpi_claim_mention(claim, "RANK");
    cddpi_claim_mention(claim, "WORLD_SIZE");
    if (!cddpi_claim_number(claim, "WORLD_SIZE", 1, MAX_PODS, &processes) ||
        !cddpi_claim_number(claim, "RANK", 0, processes - 1, &rank)) {
        return;
    }
    if (claim->size == 0) {
        claim->size = processes;
    }
    if (claim->rank < 0) {
        claim->rank = rank;
    }
    if (claim->rank != rank || rank >= claim->size ||
        (processes != claim->size && (claim->nproc < 1 || processes / claim->nproc != claim->size ||
                                      processes % claim->nproc != 0))) {
        snprintf(claim->wrong, sizeof claim->wrong,
                 "%s contradict each other: RANK and PET_NODE_RANK number pods, and "
                 "WORLD_SIZE is PET_NNODES, or that times PET_NPROC_PER_NODE: unset those that are "
                 "not the job's",
                 claim->says);
    }
}

void cddpi_launch_read_kubeflow(struct cddpi_claim *claim)
{
    bool is_first = cddpi_launch_has("RANK") && cddpi_launch_has("WORLD_SIZE") &&
                    !cddpi_launch_has("LOCAL_RANK") && !cddpi_launch_has("LOCAL_WORLD_SIZE");

    claim->nproc = cddpi_launch_pod_nproc();
    claim->rank_name = cddpi_launch_has("PET_NODE_RANK") ? "PET_NODE_RANK"
                       : is_first                        ? "RANK"
                                                         : NULL;
    claim->size_name = cddpi_launch_has("PET_NNODES") ? "PET_NNODES"
                       : is_first                     ? "WORLD_SIZE"
                                                      : NULL;
    cddpi_claim_mention(claim, "PET_NODE_RANK");
    cddpi_claim_mention(claim, "PET_NNODES");
    if (cddpi_launch_has("PET_NNODES")) {
        read_pods(claim);
    }
    if (cddpi_launch_has("PET_NODE_RANK")) {
        (void)cddpi_claim_number(claim, "PET_NODE_RANK", 0,
                                 (claim->size > 0 ? claim->size : MAX_PODS) - 1, &claim->rank);
    }
    if (is_first && claim->wrong[0] == '\0') {
        read_first_trainer(claim);
    }
    claim->is_partial = claim->size == 0;
    if (claim->wrong[0] == '\0' && claim->is_partial) {
        snprintf(claim->wrong, sizeof claim->wrong,
                 "%s set, but PET_NNODES is not: set it to the number of pods, 1 to train "
                 "alone",
                 cddpi_launch_has("PET_NODE_RANK") ? "PET_NODE_RANK is" : "PET_RDZV_ENDPOINT is");
    } else if (claim->wrong[0] == '\0' && claim->rank < 0 && claim->size == 1) {
        claim->rank = 0;
    } else if (claim->wrong[0] == '\0' && claim->rank < 0) {
        read_pod_number(claim);
    }
    be_alone(claim);
}

cddp_status cddpi_launch_meet_kubeflow(struct cddpi_launch_env *env)
{
    const char *endpoint = cddpi_launch_variable("PET_RDZV_ENDPOINT");
    const char *host = either("PET_MASTER_ADDR", "MASTER_ADDR");
    int port = DEFAULT_PORT;

    if (cddpi_launch_use_given_store(env)) {
        return CDDP_OK;
    }
    if (endpoint != NULL) {
        return use_host(env, endpoint, DEFAULT_PORT);
    }
    if (host == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: %s, but none of PET_RDZV_ENDPOINT, PET_MASTER_ADDR, MASTER_ADDR "
                          "and CDDP_STORE says where the pods meet: set PET_MASTER_ADDR and "
                          "PET_MASTER_PORT to an address of pod 0",
                          env->says);
    }
    CDDPI_TRY(read_port(
        env, cddpi_launch_has("PET_MASTER_ADDR") ? "PET_MASTER_PORT" : "MASTER_PORT", &port));
    return use_host(env, host, port);
}
