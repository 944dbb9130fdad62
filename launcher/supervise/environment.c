/* environment.c - owns the list of environment variables of a rank. */
#include "launcher/supervise/environment.h"

#include "launcher/nodes/nodes.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/launch/launch_claim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_VARIABLES = 48, TEXT_BYTES = 16384 };

struct environment_list {
    char *texts[MAX_VARIABLES + 1];
    int count;
    size_t used;
    bool is_full;
    char bytes[TEXT_BYTES];
};

static void __attribute__((format(printf, 3, 4)))
add_variable(struct environment_list *list, const char *name, const char *format, ...)
{
    char *at = list->bytes + list->used;
    size_t room = sizeof list->bytes - list->used;
    int name_length = snprintf(at, room, "%s=", name);
    int length;
    va_list arguments;

    if (list->count == MAX_VARIABLES || (size_t)name_length >= room) {
        list->is_full = true;
        return;
    }
    va_start(arguments, format);
    length = vsnprintf(at + name_length, room - (size_t)name_length, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)(name_length + length) >= room) {
        list->is_full = true;
        return;
    }
    list->texts[list->count++] = at;
    list->used += (size_t)(name_length + length) + 1;
}

static void add_cddp(struct environment_list *list, const struct cddpi_job *job, int rank)
{
    const struct cddpi_job_rendezvous *meet = &job->rendezvous;
    char inherited[1024];

    cddpi_launchers_inherited(meet->store, inherited, sizeof inherited);
    add_variable(list, "CDDP_RANK", "%d", rank);
    add_variable(list, "CDDP_WORLD_SIZE", "%d", job->world_size);
    add_variable(list, "CDDP_LOCAL_RANK", "%d", rank - job->first_rank);
    add_variable(list, "CDDP_LOCAL_WORLD_SIZE", "%d", job->local_world_size);
    if (meet->store[0] != '\0') {
        add_variable(list, "CDDP_STORE", "%s", meet->store);
        add_variable(list, "CDDP_TOKEN", "%s", meet->token);
        add_variable(list, "CDDP_JOB", "%s", meet->job);
    } else {
        add_variable(list, "CDDP_STORE", "tcp://127.0.0.1:(chosen at the start)");
        add_variable(list, "CDDP_TOKEN", "(random)");
        add_variable(list, "CDDP_JOB", "(random)");
    }
    add_variable(list, "CDDP_GENERATION", "%d", job->generation);
    add_variable(list, "CDDP_INHERITED", "%s", inherited);
    if (job->options.per_gpu && getenv("CDDP_DEVICE") == NULL) {
        add_variable(list, "CDDP_DEVICE", "cuda");
    }
    if (job->options.network_interface != NULL) {
        add_variable(list, "CDDP_SOCKET_IFNAME", "%s", job->options.network_interface);
    }
    if (job->report_fd >= 0) {
        add_variable(list, "CDDP_REPORT_FD", "%d", job->report_fd);
    }
    if (job->options.run_dir != NULL) {
        add_variable(list, "CDDP_RUN_DIR", "%s", job->options.run_dir);
    }
    if (job->options.timeout_ms[0] != '\0') {
        add_variable(list, "CDDP_TIMEOUT_MS", "%s", job->options.timeout_ms);
    }
    /* rank 0 writes to our pipe, so it cannot see that we write to a terminal */
    if (rank == 0 && job->options.tag != CDDPI_TAG_ALL && getenv("CDDP_PROGRESS") == NULL &&
        isatty(STDERR_FILENO)) {
        add_variable(list, "CDDP_PROGRESS", "tty");
    }
}

static void add_torchrun(struct environment_list *list, const struct cddpi_job *job, int rank)
{
    const struct cddpi_job_rendezvous *meet = &job->rendezvous;

    add_variable(list, "RANK", "%d", rank);
    add_variable(list, "WORLD_SIZE", "%d", job->world_size);
    add_variable(list, "LOCAL_RANK", "%d", rank - job->first_rank);
    add_variable(list, "LOCAL_WORLD_SIZE", "%d", job->local_world_size);
    add_variable(list, "GROUP_RANK", "%d", job->nodes != NULL ? job->nodes->self : 0);
    add_variable(list, "GROUP_WORLD_SIZE", "%d", job->nodes != NULL ? job->nodes->count : 1);
    add_variable(list, "ROLE_RANK", "%d", rank);
    add_variable(list, "ROLE_WORLD_SIZE", "%d", job->world_size);
    add_variable(list, "ROLE_NAME", "default");
    add_variable(list, "MASTER_ADDR", "%s",
                 meet->store[0] != '\0' ? meet->master_host : "127.0.0.1");
    if (meet->store[0] != '\0') {
        add_variable(list, "MASTER_PORT", "%u", meet->master_port);
    } else {
        add_variable(list, "MASTER_PORT", "(chosen at the start)");
    }
    add_variable(list, "TORCHELASTIC_RESTART_COUNT", "%d", job->generation);
    add_variable(list, "TORCHELASTIC_MAX_RESTARTS", "%d", job->options.max_restarts);
    add_variable(list, "TORCHELASTIC_RUN_ID", "%s",
                 meet->store[0] != '\0' ? meet->job : "(random)");
}

/* Limit BLAS threads. Otherwise each rank's BLAS would start as many threads as the machine has
 * cores. */
static void add_threads(struct environment_list *list, const struct cddpi_job *job, int rank)
{
    struct cddpi_core_share share = cddpi_cores_share(&job->cores, rank - job->first_rank,
                                                      job->local_world_size, job->bind);

    if (getenv("OMP_NUM_THREADS") != NULL) {
        return; /* OpenBLAS reads it, too */
    }
    add_variable(list, "OMP_NUM_THREADS", "%d", share.threads);
    if (getenv("OPENBLAS_NUM_THREADS") == NULL) {
        add_variable(list, "OPENBLAS_NUM_THREADS", "%d", share.threads);
    }
}

cddp_status cddpi_environment_own(const struct cddpi_job *job, int rank, char ***out)
{
    struct environment_list *list = cddpi_zalloc(sizeof *list);

    if (list == NULL) {
        return cddpi_fail_rank(CDDP_ERR_NO_MEMORY, rank, "no memory for its environment");
    }
    add_cddp(list, job, rank);
    add_torchrun(list, job, rank);
    add_threads(list, job, rank);
    if (list->is_full) {
        cddpi_free(list);
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, rank, "its environment is longer than %d bytes",
                               TEXT_BYTES);
    }
    *out = list->texts; /* the first member, so releasing it releases the whole block */
    return CDDP_OK;
}

static bool is_named_in(const char *variable, char *const *list)
{
    size_t length = strcspn(variable, "=") + 1;

    for (; *list != NULL; list++) {
        if (strncmp(variable, *list, length) == 0) {
            return true;
        }
    }
    return false;
}

cddp_status cddpi_environment_merge(char *const *own, char ***out)
{
    size_t count = 0;
    size_t used = 0;
    char **merged;

    while (environ[count] != NULL) {
        count++;
    }
    merged = cddpi_zalloc_array(count + MAX_VARIABLES + 1, sizeof *merged);
    if (merged == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for an environment of %zu variables",
                          count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_named_in(environ[i], own)) {
            merged[used++] = environ[i];
        }
    }
    for (size_t i = 0; own[i] != NULL; i++) {
        merged[used++] = own[i];
    }
    *out = merged;
    return CDDP_OK;
}
