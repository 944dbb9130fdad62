/* generations.c - owns the restarts of a job: the decision whether a next generation starts, on
 * this machine and in agreement with the other nodes. */
#include "launcher/supervise/generations.h"

#include "launcher/nodes/nodes.h"
#include "launcher/supervise/restarts.h"
#include "launcher/supervise/supervision.h"

#include "base/clock.h"

#include <stdio.h>

/* Wait before a restart. Returns false, with *exit_status, if the job has to end instead. */
static bool wait_to_restart(struct cddpi_job *job, int64_t milliseconds, struct cddpi_wait *wait,
                            int *exit_status)
{
    if (job->nodes != NULL) {
        return cddpi_nodes_pause(job, milliseconds, wait, exit_status);
    }
    if (cddpi_wait_for(wait, -1, (int)milliseconds)) {
        return true;
    }
    *exit_status = wait->number != 0 ? 128 + wait->number : *exit_status;
    return false;
}

/* With several machines, the number of ranks is known only now: check that the configuration is
 * valid for it. */
static bool is_valid(struct cddpi_job *job, struct cddpi_generation_outcome *outcome)
{
    struct cddpi_node_event event = {.kind = CDDPI_EVENT_FAILURE, .rank = -1};

    if (job->nodes == NULL || job->options.config == NULL || job->generation > 0 ||
        (job->options.is_agent && job->nodes->self != 0)) { /* with --hosts, only node 0 checks, so
                                                               that the message appears once */
        return true;
    }
    outcome->exit_status = cddpi_command_validate(&job->command, job->world_size);
    if (outcome->exit_status == 0) {
        return true;
    }
    event.node = job->nodes->self;
    event.exit_status = outcome->exit_status & 255;
    snprintf(event.text, sizeof event.text, "cddp-train refuses %.500s there", job->options.config);
    cddpi_node_link_publish(job->nodes->link, &event);
    return false;
}

/* Run one generation, on all machines. */
static void run_generation(struct cddpi_job *job, struct cddpi_wait *wait,
                           struct cddpi_generation_outcome *outcome)
{
    *outcome = (struct cddpi_generation_outcome){.exit_status = 0};
    if (job->nodes != NULL && !cddpi_nodes_begin(job, wait, &outcome->exit_status)) {
        return;
    }
    if (is_valid(job, outcome)) {
        *outcome = cddpi_supervise(job, wait->monitor, wait->signal_fd, wait->output);
    }
    if (job->nodes != NULL) {
        cddpi_nodes_finish(job, wait, outcome);
    }
}

int cddpi_generations_run(struct cddpi_job *job, struct cddpi_wait *wait)
{
    bool decides = job->nodes == NULL || job->nodes->self == 0;
    struct cddpi_restarts restarts = {.made = 0};

    for (;;) {
        int64_t began = cddpi_now_ns();
        struct cddpi_generation_outcome outcome;
        int64_t pause_ms = 0;
        enum cddpi_restart next;

        run_generation(job, wait, &outcome);
        next = !decides && outcome.may_restart /* node 0 has decided */
                   ? CDDPI_RESTART_NOW
                   : cddpi_restarts_next(&restarts, job->options.max_restarts, &outcome,
                                         (cddpi_now_ns() - began) / 1000000, &pause_ms);
        if (next == CDDPI_RESTART_GIVE_UP) {
            cddpi_output_say(wait->output,
                             "giving up, with %d restarts left: %d times in a row the job failed "
                             "within %d s and without a checkpoint",
                             job->options.max_restarts - job->generation, CDDPI_MOST_FRUITLESS,
                             CDDPI_SHORT_LIFE_MS / 1000);
        }
        if (next != CDDPI_RESTART_NOW ||
            (decides && !wait_to_restart(job, pause_ms, wait, &outcome.exit_status))) {
            return outcome.exit_status;
        }
        job->generation++;
        if (job->nodes == NULL || !job->nodes->is_silent || job->nodes->self == 0) {
            cddpi_output_say(wait->output, "restarting (%d of %d) under generation %d",
                             job->generation, job->options.max_restarts, job->generation);
        }
    }
}
