/* head_follow.c - owns what the cddp-run that started the nodes makes of the log of a job that goes
 * on without hosts: it tells the user who comes and goes, gives up hosts that do not end their
 * ranks, and ends if no host is left. The nodes decide all else (membership.h). */
#include "launcher/hosts/head.h"

#include "launcher/supervise/monitor.h"

#include "base/clock.h"

#define LATE_NS INT64_C(1000000000)   /* a turn that begins so late has stood still */
#define AWAKE_NS INT64_C(2000000000)  /* after that: the log is heard */
#define AGAIN_NS INT64_C(30000000000) /* not again before: a slow machine has deadlines, too */

static bool has_ended(const struct cddpi_head *head)
{
    return head->nodes.members.end.kind != CDDPI_EVENT_NONE;
}

/* A node is lost. */
static void take_loss(struct cddpi_head *head, const struct cddpi_node_event *event)
{
    int i = cddpi_head_find_agent(head, event->node);

    cddpi_output_say(head->output, "%s is lost: %s", cddpi_node_name(&head->nodes, event->node),
                     event->text);
    if (i >= 0) {
        cddpi_head_drop_agent(head, i);
    }
}

/* Ranks of this generation have failed or are lost, so the others end. */
static void take_failure(struct cddpi_head *head)
{
    int count = cddpi_head_count_running(head);

    head->failed_ns = cddpi_now_ns();
    cddpi_head_wait_patiently(head, head->options->grace_ms + CDDPI_HEAD_FAILED_MS);
    if (count > 0 && head->nodes.members.asked_signal == 0) {
        cddpi_output_say(head->output,
                         "stopping the other ranks on %d host%s; after %g s they are killed", count,
                         count == 1 ? "" : "s", (double)head->options->grace_ms / 1000);
    }
}

static void take_join(struct cddpi_head *head, const struct cddpi_node_event *event)
{
    int i = cddpi_head_find_agent(head, event->node);

    cddpi_output_say(head->output, "%s has come", cddpi_node_name(&head->nodes, event->node));
    if (i >= 0) {
        cddpi_head_agent_came(head, i);
    }
}

/* A generation begins. What its first rank writes, such as a line of progress, is shown at once. */
static void take_start(struct cddpi_head *head)
{
    const struct cddpi_membership *members = &head->nodes.members;
    bool is_first = true;

    cddpi_rendezvous_forget(&head->rendezvous, members->generation);
    head->failed_ns = 0;
    head->patience_ns = members->asked_signal == 0 ? INT64_MAX : head->patience_ns;
    for (int i = 0; i < members->count; i++) {
        int agent = cddpi_head_find_agent(head, members->list[i].node);

        if (members->list[i].is_there && agent >= 0) {
            bool is_raw = is_first && members->list[i].ranks > 0;

            is_first = is_first && !is_raw;
            if (members->list[i].ranks > 0 && head->agents[agent].ranks_ns == 0) {
                head->agents[agent].ranks_ns = members->start_ns;
            }
            cddpi_relay_change(&head->agents[agent].err,
                               is_raw ? CDDPI_RELAY_RAW : CDDPI_RELAY_LINES);
        }
    }
}

static void take_end(struct cddpi_head *head)
{
    cddpi_head_end_within(head, CDDPI_HEAD_LAST_MS);
    cddpi_head_stop_starting(head);
}

/* An event of this process: agent @p i has ended. */
static void take_agents_end(struct cddpi_head *head, int i)
{
    if (i < head->hosts.count) {
        head->unexplained--;
        cddpi_head_explain_agent(head, i);
    }
}

void cddpi_head_follow(struct cddpi_head *head, const struct cddpi_node_event *event)
{
    struct cddpi_membership *members = &head->nodes.members;
    const struct cddpi_job_member *member = cddpi_membership_find(members, event->node);
    bool was_there = member != NULL && member->is_there;
    bool was_leaving = member != NULL && member->is_leaving;
    bool was_ended = has_ended(head);
    bool had_failed = members->failure.kind != CDDPI_EVENT_NONE ||
                      members->follow.kind != CDDPI_EVENT_NONE;
    int generation = members->generation;

    if (event->kind == CDDPI_EVENT_BYE && event->node < 0) {
        take_agents_end(head, event->number);
    }
    if (head->steps > 0) { /* later events are consequences of our ending the agents */
        return;
    }
    cddpi_nodes_take(&head->nodes, event, head->output);
    if (event->kind == CDDPI_EVENT_CUT) { /* no host can be reached through the store */
        cddpi_output_say(head->output, "this cddp-run has lost the job's store: %s", event->text);
        (void)cddpi_head_end_agents(head);
        return;
    }
    if (has_ended(head)) {
        if (!was_ended) {
            take_end(head);
        }
        return;
    }
    if (event->kind == CDDPI_EVENT_LOST && was_there) {
        take_loss(head, event);
    }
    if (!had_failed &&
        (members->failure.kind != CDDPI_EVENT_NONE || members->follow.kind != CDDPI_EVENT_NONE)) {
        take_failure(head);
    }
    switch (event->kind) {
    case CDDPI_EVENT_JOIN:
        if (member == NULL && cddpi_membership_find(members, event->node) != NULL) {
            take_join(head, event);
        }
        break;
    case CDDPI_EVENT_LEAVE:
        if (was_there && !was_leaving) {
            cddpi_output_say(head->output, "%s leaves the job",
                             cddpi_node_name(&head->nodes, event->node));
        }
        break;
    case CDDPI_EVENT_SIGNAL:
        if (members->asked_signal != 0 && /* that of a node that is lost does not count */
            sigismember(&head->monitor->ending, event->number) == 1) {
            cddpi_head_wait_patiently(head, head->options->grace_ms * 3 + CDDPI_HEAD_MARGIN_MS);
        }
        break;
    case CDDPI_EVENT_CHANGE:
        if (members->change.kind != CDDPI_EVENT_NONE) {
            cddpi_head_wait_patiently(head, head->options->grace_ms * 3 + CDDPI_HEAD_FAILED_MS);
        }
        break;
    case CDDPI_EVENT_SAVING:
        cddpi_head_extend_patience(head);
        break;
    case CDDPI_EVENT_START:
        if (members->generation > generation) {
            take_start(head);
        }
        break;
    default:
        break;
    }
}

/* Ranks have had the time to end: the job goes on without nodes whose ranks have not. */
static void lose_patience(struct cddpi_head *head)
{
    const struct cddpi_membership *members = &head->nodes.members;

    if (head->nodes.link == NULL || cddpi_head_is_ending(head) ||
        cddpi_left_ms(head->patience_ns) > 0) {
        return;
    }
    head->patience_ns = INT64_MAX;
    for (int i = 0; i < members->count; i++) {
        struct cddpi_node_event lost = {.kind = CDDPI_EVENT_LOST,
                                        .node = members->list[i].node,
                                        .rank = -1,
                                        .exit_status = 1,
                                        .text = "its ranks did not end in time"};

        if (cddpi_head_runs(&members->list[i])) {
            cddpi_node_link_publish(head->nodes.link, &lost);
        }
    }
}

static bool is_any_there(const struct cddpi_membership *members)
{
    for (int i = 0; i < members->count; i++) {
        if (members->list[i].is_there && !members->list[i].has_left) {
            return true;
        }
    }
    return false;
}

/* No host is left, and the job ends with @p exit_status. */
static void give_up(struct cddpi_head *head, int exit_status)
{
    head->exit_status = exit_status;
    (void)cddpi_head_end_agents(head);
}

/* If no host is left, wait for one to come back. */
static void judge_empty(struct cddpi_head *head)
{
    const struct cddpi_membership *members = &head->nodes.members;
    bool may_come = false;

    for (int i = 0; i < head->hosts.count; i++) {
        may_come = may_come || !head->agents[i].is_over;
    }
    if (has_ended(head) || is_any_there(members)) {
        head->empty_ns = INT64_MAX;
    } else if (cddpi_head_is_ending(head)) {
        give_up(head, members->has_checkpoint      ? CDDPI_STOPPED_EARLY
                      : members->asked_signal != 0 ? 128 + members->asked_signal
                                                   : 128 + head->asked_signal);
    } else if (!may_come) {
        cddpi_output_say(head->output, "all hosts have left. The job ends; started again, it goes "
                                       "on from its last checkpoint");
        give_up(head, CDDPI_TOO_FEW);
    } else if (head->empty_ns == INT64_MAX) {
        head->empty_ns = cddpi_deadline_ns(head->timeout_ms);
        cddpi_output_say(head->output,
                         "no host is left: waiting for one to come back for up to %g s (--timeout)",
                         head->timeout_ms / 1000.0);
    } else if (cddpi_left_ms(head->empty_ns) == 0) {
        cddpi_output_say(head->output,
                         "no host came back within %g s. The job ends; started again, it goes on "
                         "from its last checkpoint",
                         head->timeout_ms / 1000.0);
        give_up(head, CDDPI_TOO_FEW);
    }
}

void cddpi_head_note_turn(struct cddpi_head *head, int64_t due_ns)
{
    int64_t now_ns = cddpi_now_ns();

    if (due_ns != INT64_MAX && now_ns - due_ns > LATE_NS && now_ns - head->awake_ns > AGAIN_NS) {
        head->awake_ns = now_ns + AWAKE_NS;
    }
}

void cddpi_head_tend(struct cddpi_head *head)
{
    bool is_awake = cddpi_left_ms(head->awake_ns) == 0;

    if (head->steps == 0 && !head->has_met) {
        cddpi_head_meet(head);
    }
    if (head->steps == 0 && is_awake) {
        lose_patience(head);
        cddpi_head_tend_agents(head);
    }
    if (head->steps == 0 && head->has_met && is_awake) {
        judge_empty(head);
    }
    if (head->steps == 0 && head->alive == 0 && cddpi_head_is_ending(head)) {
        cddpi_head_await_last(head);
    }
}

int64_t cddpi_head_tend_ns(const struct cddpi_head *head)
{
    int64_t next_ns = head->patience_ns < head->deadline_ns ? head->patience_ns : head->deadline_ns;
    int64_t agents_ns = cddpi_head_agents_due_ns(head);

    next_ns = agents_ns < next_ns ? agents_ns : next_ns;
    next_ns = head->empty_ns < next_ns ? head->empty_ns : next_ns;
    next_ns = cddpi_left_ms(head->awake_ns) > 0 ? head->awake_ns : next_ns; /* whatever is due */
    return !head->has_met && head->steps == 0 && head->look_ns < next_ns ? head->look_ns : next_ns;
}

bool cddpi_head_goes_on(const struct cddpi_head *head)
{
    bool may_come = false;

    for (int i = 0; head->is_elastic && i < head->hosts.count; i++) {
        may_come = may_come || !head->agents[i].is_over;
    }
    return head->alive > 0 || head->unexplained > 0 || (may_come && !cddpi_head_is_ending(head));
}
