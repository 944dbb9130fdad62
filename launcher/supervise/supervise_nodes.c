/* supervise_nodes.c - passes the events of the other machines to the state machine. */
#include "launcher/supervise/supervision.h"

#include "launcher/nodes/nodes.h"

/* A rank on another machine has failed, or a node is lost. */
static void take_failure(struct cddpi_supervision *run, const struct cddpi_node_event *event)
{
    const struct cddpi_nodes *nodes = run->job->nodes;
    char text[CDDPI_EVENT_TEXT_BYTES + CDDPI_HOST_BYTES + 64];

    if (event->kind != CDDPI_EVENT_FAILURE && nodes->self == 0 && event->node > 0) {
        /* the lost node's cddp-run could not tell the ranks that wait for its ranks, so node 0
         * does */
        snprintf(text, sizeof text, "%s is lost: %s", cddpi_node_name(nodes, event->node),
                 event->text);
        cddpi_rendezvous_tell(&run->job->rendezvous, run->job->generation, text);
    }
    if (event->kind != CDDPI_EVENT_FAILURE || event->node != nodes->self) {
        CDDPI_FEED(run, .kind = CDDPI_JOB_FAILED_THERE, .exit_status = event->exit_status,
                   .may_restart = event->may_restart);
    }
}

static void take_event(struct cddpi_supervision *run, const struct cddpi_node_event *event)
{
    switch (event->kind) {
    case CDDPI_EVENT_FAILURE:
    case CDDPI_EVENT_LOST:
    case CDDPI_EVENT_CUT:
        take_failure(run, event);
        break;
    case CDDPI_EVENT_FOLLOW:
        CDDPI_FEED(run, .kind = CDDPI_JOB_HEARD, .exit_status = event->exit_status,
                   .may_restart = event->may_restart);
        break;
    case CDDPI_EVENT_SIGNAL:
        CDDPI_FEED(run, .kind = CDDPI_JOB_SIGNALLED, .number = event->number, .node = event->node);
        break;
    default:
        break;
    }
}

void cddpi_supervision_nodes(struct cddpi_supervision *run)
{
    struct cddpi_node_event event;

    while (cddpi_node_link_next(run->job->nodes->link, &event)) {
        cddpi_nodes_take(run->job->nodes, &event, run->output);
        take_event(run, &event);
    }
}

void cddpi_supervision_catch_up(struct cddpi_supervision *run)
{
    const struct cddpi_nodes *nodes = run->job->nodes;

    if (nodes == NULL) {
        return;
    }
    take_event(run, &nodes->failure);
    take_event(run, &nodes->follow);
    if (nodes->asked_signal != 0) {
        CDDPI_FEED(run, .kind = CDDPI_JOB_SIGNALLED, .number = nodes->asked_signal, .node = -1);
    }
}

void cddpi_supervision_pass_signal(struct cddpi_supervision *run, int number, int64_t now_ns)
{
    const struct cddpi_nodes *nodes = run->job->nodes;

    if (nodes == NULL || nodes->is_cut) {
        CDDPI_FEED(run, .kind = CDDPI_JOB_SIGNALLED, .number = number, .node = -1,
                   .now_ns = now_ns);
        return;
    }
    cddpi_node_link_publish(nodes->link,
                            &(struct cddpi_node_event){.kind = CDDPI_EVENT_SIGNAL,
                                                       .generation = run->job->generation,
                                                       .node = nodes->self,
                                                       .rank = -1,
                                                       .number = number});
}
