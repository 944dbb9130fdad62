/* head_report.c - owns the last line and the exit status of the cddp-run that started a job on a
 * list of hosts. */
#include "launcher/hosts/head.h"

/* A job that goes on without hosts: those that it has lost on the way are no failure, and what
 * failed first is said of the last generation. */
static int report_elastic(struct cddpi_head *head)
{
    const struct cddpi_membership *members = &head->nodes.members;
    const struct cddpi_node_event *failure = members->failure.kind != CDDPI_EVENT_NONE
                                                 ? &members->failure
                                                 : &members->follow;
    int exit_status = members->end.kind != CDDPI_EVENT_NONE ? members->end.exit_status
                      : head->exit_status != 0              ? head->exit_status
                      : head->asked_signal != 0             ? 128 + head->asked_signal
                                                            : 1;

    if (failure->kind != CDDPI_EVENT_NONE && failure->kind != CDDPI_EVENT_CUT && exit_status != 0 &&
        exit_status != CDDPI_STOPPED_EARLY && members->asked_signal == 0) {
        cddpi_output_say(head->output, "the first to fail was %s: %s",
                         cddpi_member_name(members, failure->node), failure->text);
    }
    return exit_status;
}

int cddpi_head_report(struct cddpi_head *head)
{
    const struct cddpi_membership *nodes = &head->nodes.members;
    const struct cddpi_node_event *failure = nodes->failure.kind != CDDPI_EVENT_NONE
                                                 ? &nodes->failure
                                                 : &nodes->follow;
    bool is_known = nodes->end.kind != CDDPI_EVENT_NONE; /* node 0 has received the results of all
                                                            nodes */
    int exit_status = is_known ? nodes->end.exit_status : head->exit_status;

    if (head->is_elastic) {
        return report_elastic(head);
    }
    if (failure->kind != CDDPI_EVENT_NONE) {
        cddpi_output_say(head->output, "the first to fail was %s: %s",
                         cddpi_member_name(nodes, failure->node), failure->text);
        exit_status = failure->kind == CDDPI_EVENT_LOST ? 1
                      : exit_status != 0                ? exit_status
                                                        : failure->exit_status;
    }
    if (exit_status != 0 || head->exit_status != 0) {
        return exit_status != 0 ? exit_status : head->exit_status;
    }
    return is_known ? 0 : head->asked_signal != 0 ? 128 + head->asked_signal : 1;
}
