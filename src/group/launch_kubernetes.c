/* launch_kubernetes.c - reads what Kubernetes tells a pod: JOB_COMPLETION_INDEX of an indexed Job,
 * and the variables of the training operator, RANK, MASTER_ADDR and PET_*. Each pod is one rank,
 * alone on a host of its own; several ranks a pod are cddp-run's to start. */
#include "group/launch_kubernetes.h"

#include "base/env.h"
#include "base/error.h"
#include "base/number.h"
#include "group/launch_variable.h"

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

bool cddpi_launch_is_indexed_job(void)
{
    return cddpi_launch_variable("JOB_COMPLETION_INDEX") != NULL &&
           either("CDDP_WORLD_SIZE", "WORLD_SIZE") != NULL;
}

bool cddpi_launch_is_elastic_job(void)
{
    return cddpi_launch_variable("PET_RDZV_ENDPOINT") != NULL &&
           cddpi_launch_variable("PET_NNODES") != NULL;
}

static void be_alone(struct cddpi_launch_env *env)
{
    env->local_rank = 0;
    env->local_world_size = 1;
}

/* Rank 0 holds the store at @p host, "name", "name:port" or an address. */
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

cddp_status cddpi_launch_indexed_job(struct cddpi_launch_env *env)
{
    const char *size = cddpi_launch_variable("CDDP_WORLD_SIZE") != NULL ? "CDDP_WORLD_SIZE"
                                                                        : "WORLD_SIZE";
    const char *store = cddpi_env(CDDPI_ENV_STORE);
    const char *host = cddpi_launch_variable("MASTER_ADDR");
    int port = DEFAULT_PORT;
    cddp_status status;

    env->origin = "Kubernetes";
    status = cddpi_launch_number(env->origin, size, 1, MAX_PODS, &env->world_size);
    if (status == CDDP_OK) {
        status = cddpi_launch_number(env->origin, "JOB_COMPLETION_INDEX", 0, env->world_size - 1,
                                     &env->rank);
    }
    if (status == CDDP_OK && cddpi_launch_variable("MASTER_PORT") != NULL) {
        status = cddpi_launch_number(env->origin, "MASTER_PORT", 1, 65535, &port);
    }
    be_alone(env);
    if (status != CDDP_OK || env->world_size == 1) {
        return status;
    }
    if (store != NULL) {
        snprintf(env->store, sizeof env->store, "%s", store);
        env->hosts_store = strncmp(store, "tcp://", 6) == 0;
        return CDDP_OK;
    }
    if (host == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: JOB_COMPLETION_INDEX and %s are set, but neither MASTER_ADDR nor "
                          "CDDP_STORE: name pod 0 there, as JOB-0.SERVICE, SERVICE being a "
                          "headless service of the Job",
                          size);
    }
    return use_host(env, host, port);
}

/* How many processes a pod was meant for must be one: "auto" and other words leave it open. */
static cddp_status check_processes(void)
{
    const char *count = either("PET_NPROC_PER_NODE", "PET_N_PROC_PER_NODE");
    int64_t number;

    if (count != NULL && cddpi_parse_integer(count, 2, MAX_PODS, &number)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: the PyTorchJob wants %s processes a pod (nprocPerNode), and this "
                          "is one without LOCAL_RANK: let the pod's command be cddp-run --nproc "
                          "%s ..., which starts them",
                          count, count);
    }
    return CDDP_OK;
}

/* "3", or "3:3"; between 1 and 3 pods, "1:3", are no number. */
static cddp_status read_pods(int *out)
{
    const char *text = cddpi_launch_variable("PET_NNODES");
    const char *colon = strchr(text, ':');
    char least[16] = "";
    int64_t pods;

    if (colon != NULL) {
        snprintf(least, sizeof least, "%.*s", (int)(colon - text), text);
    }
    if (!cddpi_parse_integer(colon != NULL ? colon + 1 : text, 1, MAX_PODS, &pods) ||
        (colon != NULL && strcmp(least, colon + 1) != 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: PET_NNODES=%s is no fixed number of pods: give the elastic policy "
                          "the same minReplicas and maxReplicas, or none",
                          text);
    }
    *out = (int)pods;
    return CDDP_OK;
}

/* The number at the end of the pod's host name, as the operator names pods: JOB-worker-2. */
static cddp_status read_pod_number(int pods, int *out)
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
    if (begin == 0 || name[begin - 1] != '-' ||
        !cddpi_parse_integer(name + begin, 0, pods - 1, &number)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "join: the PyTorchJob's elastic policy sets no RANK, and the host name "
                          "%s does not end in a pod's number from 0 to %d: set PET_NODE_RANK",
                          name, pods - 1);
    }
    *out = (int)number;
    return CDDP_OK;
}

cddp_status cddpi_launch_elastic_job(struct cddpi_launch_env *env)
{
    cddp_status status;

    env->origin = "PyTorchJob";
    status = check_processes();
    if (status == CDDP_OK) {
        status = read_pods(&env->world_size);
    }
    if (status == CDDP_OK) {
        status = cddpi_launch_variable("PET_NODE_RANK") != NULL
                     ? cddpi_launch_number(env->origin, "PET_NODE_RANK", 0, env->world_size - 1,
                                           &env->rank)
                     : read_pod_number(env->world_size, &env->rank);
    }
    be_alone(env);
    return status == CDDP_OK && env->world_size > 1
               ? use_host(env, cddpi_launch_variable("PET_RDZV_ENDPOINT"), DEFAULT_PORT)
               : status;
}

cddp_status cddpi_launch_pod(struct cddpi_launch_env *env)
{
    if (either("LOCAL_RANK", "LOCAL_WORLD_SIZE") != NULL ||
        either("KUBERNETES_SERVICE_HOST", "PET_NNODES") == NULL) {
        return CDDP_OK;
    }
    be_alone(env);
    return check_processes();
}
