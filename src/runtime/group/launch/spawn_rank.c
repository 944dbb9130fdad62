/* spawn_rank.c - owns a forked rank's side of cddp_spawn(): its environment, its function, its
 * end. */
#include "group/launch/spawn.h"

#include "base/child.h"
#include "group/launch/launch_claim.h"
#include "store/server.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void set_text(const char *name, const char *text)
{
    if (setenv(name, text, 1) != 0) {
        fprintf(stderr, "no memory for %s in the environment\n", name);
        _exit(127);
    }
}

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    set_text(name, text);
}

/* Set the same variables as the launcher (launcher/supervise/worker.c). */
static void set_environment(const struct cddpi_spawn_job *job, int rank)
{
    static const char *const ranks[] = {"CDDP_RANK", "CDDP_LOCAL_RANK", "RANK", "LOCAL_RANK",
                                        "ROLE_RANK"};
    static const char *const sizes[] = {"CDDP_WORLD_SIZE", "CDDP_LOCAL_WORLD_SIZE", "WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"};
    char inherited[1024];
    char store[64];

    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        set_number(ranks[i], rank);
        set_number(sizes[i], job->world_size);
    }
    snprintf(store, sizeof store, "tcp://127.0.0.1:%u", cddpi_store_server_port(job->server));
    /* variables that the rank inherits through the caller */
    cddpi_launchers_inherited(store, inherited, sizeof inherited);
    set_text("CDDP_INHERITED", inherited);
    set_text("CDDP_STORE", store);
    set_text("CDDP_TOKEN", job->token);
    set_text("CDDP_JOB", job->name);
    set_number("CDDP_GENERATION", 0);
    set_number("GROUP_RANK", 0);
    set_number("GROUP_WORLD_SIZE", 1);
    set_text("ROLE_NAME", "default");
    set_text("MASTER_ADDR", "127.0.0.1");
    set_number("MASTER_PORT", job->master_port);
    set_number("TORCHELASTIC_RESTART_COUNT", 0);
    set_number("TORCHELASTIC_MAX_RESTARTS", 0);
    set_text("TORCHELASTIC_RUN_ID", job->name);
    /* these belong to the caller's own rank, if a launcher started the caller */
    (void)unsetenv("CDDP_REPORT_FD");
    (void)unsetenv("CDDP_KEEP_FDS");
    (void)unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

/* Wait until all ranks are forked. False: some rank could not be forked. */
static bool pass_gate(const struct cddpi_spawn_job *job)
{
    char byte;
    ssize_t got;

    close(job->gate[1]);
    do {
        got = read(job->gate[0], &byte, 1);
    } while (got < 0 && errno == EINTR);
    close(job->gate[0]);
    return got == 1;
}

/* Handles pthread_exit() in the rank's function: other threads, for example of a group, would keep
 * the process alive forever, and at the end its status would be 0. */
static void leave_thread(void *argument)
{
    (void)argument;
    fprintf(stderr, "the thread of the rank's function ended before the function returned\n");
    fflush(NULL);
    _exit(1);
}

static cddp_status run_function(const struct cddpi_spawn_job *job, int rank)
{
    cddp_status result;

    pthread_cleanup_push(leave_thread, NULL);
    result = job->fn(job->state, rank);
    pthread_cleanup_pop(0);
    return result;
}

void cddpi_spawn_rank(const struct cddpi_spawn_job *job, int rank)
{
    struct cddpi_spawn_end *end = &job->ends[rank];
    cddp_status result;

    if (!cddpi_child_begin(job->parent, 0) || !pass_gate(job)) {
        _exit(127);
    }
    close(job->master_fd);
    set_environment(job, rank);
    cddpi_store_server_destroy(job->server); /* closes this process's copies of the descriptors */
    cddpi_error_clear();
    result = run_function(job, rank);
    end->result = result == CDDP_OK ? CDDP_OK : cddpi_fail_returned(result, CDDP_ERR_PEER);
    end->failure = *cddpi_last_failure();
    atomic_store(&end->returned, true);
    fflush(NULL);
    _exit(result == CDDP_OK ? 0 : 1);
}
