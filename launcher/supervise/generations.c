/* generations.c - owns the loop of a job from its first start to its last: it runs the generations
 * of this machine's ranks, and waits for events between them. While ranks run, supervise.c waits.
 */
#include "launcher/supervise/generations.h"

#include "launcher/ctl/ctl.h"
#include "launcher/nodes/node_link.h"
#include "launcher/nodes/nodes.h"
#include "launcher/supervise/replace_card.h"
#include "launcher/supervise/supervision.h"

#include "base/clock.h"
#include "base/file.h"

#include <stdio.h>

enum { LOOK_MS = 1000 };

/* With several machines, the number of ranks is known only now: check that the configuration is
 * valid for it. */
static bool is_valid(struct cddpi_nodes *nodes, struct cddpi_generation_outcome *outcome)
{
    const struct cddpi_job *job = nodes->job;
    struct cddpi_node_event event = {.kind = CDDPI_EVENT_FAILURE, .rank = -1};

    if (nodes->link == NULL || job->options.config == NULL || job->generation > 0 ||
        (job->options.is_agent && cddpi_membership_index(&nodes->members) != 0)) {
        return true; /* with --hosts, only the first node checks: the message appears once */
    }
    outcome->exit_status = cddpi_command_validate(&job->command, job->world_size);
    if (outcome->exit_status == 0) {
        return true;
    }
    event.node = nodes->members.self;
    event.exit_status = outcome->exit_status & 255;
    snprintf(event.text, sizeof event.text, "cddp-train refuses %.500s there", job->options.config);
    cddpi_node_link_publish(nodes->link, &event);
    return false;
}

/* Wait for the next event. */
static void wait_once(struct cddpi_nodes *nodes)
{
    struct cddpi_wait *wait = nodes->wait;
    int left_ms = nodes->members.deadline_ns == CDDPI_JOB_NEVER
                      ? LOOK_MS
                      : cddpi_left_ms(nodes->members.deadline_ns);
    bool goes_on = cddpi_wait_for_two(
        wait, nodes->link != NULL ? cddpi_node_link_fd(nodes->link) : -1, cddpi_ctl_fd(nodes->ctl),
        left_ms < LOOK_MS ? left_ms : LOOK_MS);
    int number = wait->number;

    if (number != 0) {
        wait->number = 0;
        wait->is_over = false;
        CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_SIGNALLED, .number = number);
    } else if (!goes_on) {
        CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_ORPHANED);
    }
    if (wait->announced != 0) {
        number = wait->announced;
        wait->announced = 0;
        CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_SIGNALLED, .number = number);
    }
    cddpi_ctl_serve(nodes->ctl);
    cddpi_nodes_hear(nodes);
    CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_TIME);
    cddpi_ctl_look(nodes->ctl);
}

int cddpi_generations_run(struct cddpi_nodes *nodes)
{
    struct cddpi_wait *wait = nodes->wait;

    nodes->ctl = cddpi_ctl_begin(nodes, nodes->job->options.config != NULL);
    CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_BEGIN);
    while (nodes->members.phase != CDDPI_MEMBERS_OVER) {
        struct cddpi_generation_outcome outcome = {.exit_status = 0};
        int ranks;

        if (!nodes->is_due) {
            wait_once(nodes);
            continue;
        }
        nodes->is_due = false;
        if (is_valid(nodes, &outcome)) {
            outcome = cddpi_supervise(nodes->job, wait->monitor, wait->signal_fd, wait->output);
        }
        cddpi_ctl_take_ranks_end(nodes->ctl);
        ranks = cddpi_cards_settle(nodes, &outcome);
        CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_RANKS_ENDED, .outcome = outcome,
                           .number = ranks);
    }
    cddpi_held_end(nodes->job, wait);
    cddpi_fd_close(&nodes->job->report_fd);
    cddpi_fd_close(&nodes->job->reports);
    cddpi_rank_memory_release(&nodes->job->memory);
    cddpi_ctl_end(nodes->ctl, nodes->members.exit_status);
    nodes->ctl = NULL;
    return nodes->members.exit_status;
}
