/* launch_dry_run.c - owns what --dry-run prints instead of starting ranks. */
#include "launcher/supervise/launch.h"

#include "launcher/supervise/worker.h"

#include "base/streams.h"

#include <stdio.h>

static void print_rank(const struct cddpi_job *job, int rank)
{
    struct cddpi_core_share share = cddpi_worker_cores(job, rank);
    char cores[256];

    cddpi_cores_text(&job->cores, &share, cores, sizeof cores);
    if (job->options.rdzv == NULL) {
        printf("rank %d: ", rank);
    }
    cddpi_say(stdout, "local rank %d, %s %s, threads %d", rank,
              share.bound ? "cores" : "not bound: any of", cores, share.threads);
    if (job->options.rdzv == NULL) {
        printf(", store tcp://127.0.0.1:(chosen at the start)");
    }
    if (job->log_dir[0] != '\0' && job->options.rdzv == NULL) {
        cddpi_say(stdout, ", log %s/rank-%d.log", job->log_dir, rank);
    }
}

static void print_node(const struct cddpi_launch_options *options, int nproc)
{
    char node[32] = "(by order of arrival)";
    char count[CDDPI_NNODES_BYTES];

    if (options->node_rank >= 0) {
        snprintf(node, sizeof node, "%d", options->node_rank);
    }
    cddpi_say(
        stdout,
        "node %s of %s, which meet at %s: %d ranks here, with numbers behind those of the nodes "
        "before it\n",
        node, cddpi_nnodes_text(options->least, options->nnodes, count), options->rdzv, nproc);
}

/* Say what an elastic job does when members come and go. */
static void print_elastic(const struct cddpi_launch_options *options)
{
    if (options->least == 0) {
        return;
    }
    printf("elastic: the job goes on with %d to %d %s; after failures it restarts ", options->least,
           options->most, options->rdzv != NULL ? "nodes" : "ranks");
    if (options->max_restarts < 0) {
        printf("without limit, as long as it makes progress\n");
    } else {
        printf("at most %d times\n", options->max_restarts);
    }
    if (options->replace_stragglers != NULL) {
        printf("stragglers: a rank is replaced if it needs %g times the median's time for a step "
               "for %g s\n",
               options->straggler_factor, (double)options->straggler_ms / 1000);
    }
}

int cddpi_dry_run_print(const struct cddpi_job *job)
{
    if (job->options.config != NULL) {
        int exit_status = cddpi_command_dry_run(&job->command, job->world_size);

        if (exit_status != 0) {
            return exit_status;
        }
    } else {
        cddpi_say(stdout, "%s", job->command.path);
        for (char **argument = job->command.argv + 1; *argument != NULL; argument++) {
            cddpi_say(stdout, " %s", *argument);
        }
        putchar('\n');
    }
    if (job->options.rdzv != NULL) {
        print_node(&job->options, job->local_world_size);
    }
    print_elastic(&job->options);
    if (job->cores.usable > 0) {
        char usable[640];

        cddpi_cores_print_usable(&job->cores, usable, sizeof usable);
        cddpi_say(stdout, "this machine gives %s\n", usable);
    }
    for (int rank = 0; rank < job->local_world_size; rank++) {
        char **own = NULL;

        print_rank(job, rank);
        if (job->options.config == NULL && job->options.rdzv == NULL) {
            if (cddpi_environment_own(job, rank, &own) != CDDP_OK) {
                fprintf(stderr, "cddp-run: %s\n", cddp_last_error());
                return 1;
            }
            for (char **variable = own; *variable != NULL; variable++) {
                cddpi_say(stdout, "%s %s", variable == own ? ":" : "", *variable);
            }
            cddp_free(own);
        }
        putchar('\n');
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
