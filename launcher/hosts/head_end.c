/* head_end.c - owns the deadlines of a job on a list of hosts, for the cddp-run that started it:
 * how long it waits for hosts to come and for ranks to end, and the steps in which it ends agents.
 * It also follows the log of a job with a fixed number of hosts (of other jobs: head_follow.c). A
 * host that is silent extends no deadline. Only two things do: a sign that a rank is still saving,
 * and, once, that node 0 has come, which has the same deadline and says more. */
#include "launcher/hosts/head.h"

#include "launcher/nodes/node_place.h"
#include "launcher/supervise/monitor.h"

#include "base/clock.h"

#include <sys/wait.h>

enum {
    SETTLE_MS = 2000, /* after one agent failed: others may be about to fail for the same reason */
    HURRY_MS = 1000,  /* for a step of ending the remaining agents, after a second signal */
    FIRST_NEWS_MS = 10000, /* after this time, missing hosts are named; once node 0 has arrived, it
                              names them */
    NEWS_MS = 60000,
    LOOK_MS = 500,
    ANSWER_MS = 2000 /* timeout of our own store */
};

/* Whether all hosts have arrived and ranks are being started. */
static bool has_begun(const struct cddpi_head *head)
{
    return head->nodes.members.start.kind != CDDPI_EVENT_NONE;
}

static int64_t moment_after(int64_t milliseconds)
{
    return cddpi_deadline_ns((uint32_t)(milliseconds < UINT32_MAX ? milliseconds : UINT32_MAX));
}

void cddpi_head_end_within(struct cddpi_head *head, int64_t milliseconds)
{
    int64_t deadline_ns = moment_after(milliseconds);

    head->deadline_ns = deadline_ns < head->deadline_ns ? deadline_ns : head->deadline_ns;
}

void cddpi_head_wait_patiently(struct cddpi_head *head, int64_t milliseconds)
{
    int64_t patience_ns = moment_after(milliseconds);

    if (patience_ns < head->patience_ns) {
        head->patience_ns = patience_ns;
        head->patience_ms = milliseconds;
    }
}

void cddpi_head_extend_patience(struct cddpi_head *head)
{
    if (head->patience_ns != INT64_MAX) {
        head->patience_ns = moment_after(head->patience_ms);
    }
}

/* Print which hosts are given up, unless the job has ended or had not begun. */
static void say_left(struct cddpi_head *head, const char *text)
{
    for (int i = 0; i < head->hosts.count; i++) {
        if (head->agents[i].pid > 0 && !head->agents[i].has_ended && has_begun(head) &&
            head->nodes.members.end.kind == CDDPI_EVENT_NONE) {
            cddpi_output_say(head->output, "%s %s", cddpi_head_agent_name(head, i), text);
        }
    }
}

bool cddpi_head_end_agents(struct cddpi_head *head)
{
    switch (head->steps++) {
    case 0: /* an agent ends when its input is closed */
        say_left(head, "has not ended: closing the connection to it");
        for (int i = 0; i < head->hosts.count; i++) {
            cddpi_head_close_input(&head->agents[i]);
        }
        break;
    case 1: /* kill what connects us to it, such as ssh */
        say_left(head, "has still not ended: killing what leads to it; processes of the job may be "
                       "left there");
        for (int i = 0; i < head->hosts.count; i++) {
            if (head->agents[i].pid > 0 && !head->agents[i].has_ended) {
                kill(-head->agents[i].pid, SIGKILL);
            }
        }
        break;
    default:
        return false;
    }
    head->begin_ns = head->news_ns = head->patience_ns = head->empty_ns = INT64_MAX;
    head->deadline_ns = moment_after(head->is_hurried ? HURRY_MS : CDDPI_HEAD_LAST_MS);
    return true;
}

void cddpi_head_take_signal(struct cddpi_head *head, int number)
{
    bool is_ending = sigismember(&head->monitor->ending, number) == 1;
    int64_t now_ns = cddpi_now_ns();

    if (!has_begun(head)) {
        if (is_ending) {
            cddpi_output_say(head->output, "SIG%s: ending before all hosts had come",
                             sigabbrev_np(number));
            head->exit_status = 128 + number;
            (void)cddpi_head_end_agents(head);
        }
        return;
    }
    if (is_ending && head->asked_signal == 0) {
        head->asked_signal = number;
        head->asked_ns = now_ns;
        cddpi_head_wait_patiently(head, head->options->grace_ms * 3 + CDDPI_HEAD_MARGIN_MS);
        if (head->nodes.members.asked_signal == 0) {
            cddpi_output_say(head->output,
                             "SIG%s: stopping all ranks on %d hosts; after %g s, or at a second "
                             "signal, they are killed",
                             sigabbrev_np(number), cddpi_head_count_running(head),
                             (double)head->options->grace_ms * 3 / 1000);
        }
    } else if (is_ending && number != SIGHUP &&
               now_ns - head->asked_ns > CDDPI_SAME_REQUEST_MS * INT64_C(1000000)) {
        head->is_hurried = true;
        cddpi_head_end_within(head, HURRY_MS);
    }
    CDDPI_PUBLISH(head->nodes.link, .kind = CDDPI_EVENT_SIGNAL, .node = -1, .number = number,
                  .exit_status = 1);
}

/* Agent @p i has ended, and all its earlier events have arrived: decide whether its end was
 * expected. */
static void lose_agent(struct cddpi_head *head, int i)
{
    const struct cddpi_agent *agent = &head->agents[i];
    bool is_over = head->nodes.members.end.kind != CDDPI_EVENT_NONE;
    struct cddpi_node_event lost = {
        .kind = CDDPI_EVENT_LOST, .node = i, .rank = -1, .exit_status = 1};
    char *text = lost.text;

    if (is_over || !has_begun(head)) {
        cddpi_head_close_input(&head->agents[i]);
    }
    if (is_over && agent->status == 0) {
        return; /* as expected */
    }
    cddpi_head_word_end(head, i, text, sizeof lost.text);
    if (head->exit_status == 0) {
        head->exit_status = agent->status != 0 ? cddpi_exit_status(agent->status) : 1;
    }
    if (!has_begun(head)) {
        cddpi_head_say_unstarted(head, i, text);
        cddpi_head_end_within(head, SETTLE_MS);
    } else if (!is_over) {
        cddpi_node_link_publish(head->nodes.link, &lost);
        cddpi_head_end_within(head,
                              head->options->grace_ms * 3 + CDDPI_HEAD_FAILED_MS); /* unless the
                                                                other nodes react to the event */
    } else if (head->nodes.members.end.exit_status == 0) {
        cddpi_output_say(head->output, "%s: %s after the job's end",
                         cddpi_node_name(&head->nodes, i), text);
    }
}

/* A host is gone, so the ranks of the other hosts are asked to end. */
static void take_loss(struct cddpi_head *head, const struct cddpi_node_event *event)
{
    int lost = 0;

    if (head->nodes.members.end.kind != CDDPI_EVENT_NONE) {
        return;
    }
    cddpi_output_say(head->output, "%s is lost: %s", cddpi_node_name(&head->nodes, event->node),
                     event->text);
    for (int i = 0; i < head->hosts.count; i++) {
        lost += head->nodes.members.list[i].is_lost;
    }
    if (lost == head->hosts.count) {
        cddpi_head_end_within(head, SETTLE_MS); /* there is no host left to wait for */
    }
    cddpi_head_wait_patiently(head, head->options->grace_ms *
                                            (head->nodes.members.asked_signal != 0 ? 3 : 1) +
                                        CDDPI_HEAD_MARGIN_MS);
}

void cddpi_head_take_event(struct cddpi_head *head, const struct cddpi_node_event *event)
{
    bool is_first = head->nodes.members.failure.kind == CDDPI_EVENT_NONE;
    bool is_news = event->kind == CDDPI_EVENT_LOST && event->node >= 0 &&
                   event->node < head->hosts.count &&
                   !head->nodes.members.list[event->node].is_lost;

    if (event->node >= head->hosts.count) {
        return; /* no node of ours */
    }
    if (event->kind == CDDPI_EVENT_LOST && event->node >= 0 &&
        head->agents[event->node]
            .has_ended) { /* the agent itself may still run there: closing its input ends it */
        cddpi_head_close_input(&head->agents[event->node]);
    }
    if (head->steps > 0) { /* later events are consequences of our ending the agents */
        head->unexplained -= event->kind == CDDPI_EVENT_BYE && event->node < 0;
        return;
    }
    cddpi_nodes_take(&head->nodes, event, head->output);
    switch (event->kind) {
    case CDDPI_EVENT_BYE: /* published by reap_agents() for an agent that has ended */
        if (event->node < 0 && event->number < head->hosts.count) {
            head->unexplained--;
            lose_agent(head, event->number);
        }
        break;
    case CDDPI_EVENT_LOST:
        if (is_news) {
            take_loss(head, event);
        }
        break;
    case CDDPI_EVENT_FAILURE:
    case CDDPI_EVENT_FOLLOW:
        cddpi_head_wait_patiently(head, head->options->grace_ms + CDDPI_HEAD_FAILED_MS);
        break;
    case CDDPI_EVENT_SIGNAL:
        if (sigismember(&head->monitor->ending, event->number) == 1) {
            cddpi_head_wait_patiently(head, head->options->grace_ms * 3 + CDDPI_HEAD_MARGIN_MS);
        }
        break;
    case CDDPI_EVENT_SAVING:
        cddpi_head_extend_patience(head);
        break;
    case CDDPI_EVENT_START:
        cddpi_rendezvous_forget(&head->rendezvous, event->generation);
        head->begin_ns = head->news_ns = INT64_MAX;
        head->patience_ns = head->nodes.members.asked_signal == 0 ? INT64_MAX : head->patience_ns;
        break;
    case CDDPI_EVENT_END:
        cddpi_head_end_within(head, CDDPI_HEAD_LAST_MS);
        break;
    case CDDPI_EVENT_CUT: /* no host can be reached through the store */
        cddpi_output_say(head->output, "this cddp-run has lost the job's store: %s", event->text);
        (void)cddpi_head_end_agents(head);
        break;
    default:
        break;
    }
    if (is_first && head->nodes.members.failure.kind != CDDPI_EVENT_NONE && head->alive > 0 &&
        head->steps == 0) {
        cddpi_output_say(head->output,
                         "stopping the other ranks on %d hosts; after %g s they are killed",
                         head->hosts.count, (double)head->options->grace_ms / 1000);
    }
}

/* List the hosts whose cddp-run has not written its record to the store, as "0 (alpha), 2 (gamma)".
 * *out_first_is_there: node 0 has arrived. */
static void list_missing(struct cddpi_head *head, char *out, size_t bytes, bool *out_first_is_there)
{
    const struct cddpi_job_rendezvous *rendezvous = &head->rendezvous;
    cddp_store *store = NULL;
    char key[CDDPI_PLACE_KEY_BYTES];
    size_t used = 0;
    int missing = 0;
    cddp_status status = cddpi_place_open_store(rendezvous->store, rendezvous->token, ANSWER_MS,
                                                &store);

    out[0] = '\0';
    *out_first_is_there = false;
    for (int i = 0; i < head->hosts.count; i++) {
        void *record = NULL;

        snprintf(key, sizeof key, CDDPI_PLACE_NODE_KEY, rendezvous->job, i);
        if (status == CDDP_OK && cddp_store_try_get(store, key, &record, NULL) == CDDP_OK) {
            cddp_free(record);
            *out_first_is_there = *out_first_is_there || i == 0;
        } else if (missing++ < CDDPI_HEAD_NAMED && used < bytes) {
            used += (size_t)snprintf(out + used, bytes - used, "%s%d (%.64s)", used > 0 ? ", " : "",
                                     i, head->hosts.hosts[i].name);
        }
    }
    if (missing > CDDPI_HEAD_NAMED && used < bytes) {
        snprintf(out + used, bytes - used, " and %d more", missing - CDDPI_HEAD_NAMED);
    }
    cddp_store_close(store);
}

/* Names missing hosts only until node 0 has arrived, which knows more and names them itself. */
void cddpi_head_await(struct cddpi_head *head)
{
    bool is_late = cddpi_left_ms(head->begin_ns) == 0;
    bool first_is_there;
    char missing[2048];
    char refused[CDDPI_REFUSED_BYTES];

    if (head->begin_ns == INT64_MAX) {
        return;
    }
    cddpi_refused_publish(&head->rendezvous, &head->refused);
    if (!is_late && cddpi_left_ms(head->news_ns) > 0) {
        return;
    }
    list_missing(head, missing, sizeof missing, &first_is_there);
    head->news_ns = moment_after(NEWS_MS);
    if (is_late && first_is_there && !head->has_waited_longer) {
        head->has_waited_longer = true; /* node 0 has the same deadline, tells all nodes, and lets
                                           them read its answer */
        head->begin_ns = moment_after(CDDPI_HEAD_MARGIN_MS);
    } else if (is_late) {
        cddpi_refused_say(&head->refused, refused);
        cddpi_output_say(head->output,
                         missing[0] != '\0'
                             ? "of %d hosts these did not come within %g s: %s. Does %.200s reach "
                               "them, and run the command that it is given?%s%s"
                             : "%d hosts have come within %g s, but the job did not start%s",
                         head->hosts.count, head->timeout_ms / 1000.0, missing, head->options->ssh,
                         refused[0] != '\0' ? " The job's store has refused " : "", refused);
        head->exit_status = head->exit_status != 0 ? head->exit_status : 1;
        (void)cddpi_head_end_agents(head);
    } else if (!first_is_there) {
        cddpi_output_say(head->output, "of %d hosts these have not come yet: %s", head->hosts.count,
                         missing);
    }
}

void cddpi_head_begin_waiting(struct cddpi_head *head)
{
    head->timeout_ms = cddpi_place_timeout_ms(head->options);
    head->begin_ns = moment_after(head->timeout_ms);
    head->news_ns = moment_after(FIRST_NEWS_MS);
    head->patience_ns = INT64_MAX;
    head->deadline_ns = INT64_MAX;
    head->empty_ns = INT64_MAX;
}

int64_t cddpi_head_next_ns(const struct cddpi_head *head)
{
    int64_t end_ns = head->patience_ns < head->deadline_ns ? head->patience_ns : head->deadline_ns;
    int64_t begin_ns = head->begin_ns < head->news_ns ? head->begin_ns : head->news_ns;
    int64_t look_ns = moment_after(LOOK_MS); /* when to publish refused clients again */

    if (head->begin_ns != INT64_MAX && look_ns < begin_ns) {
        begin_ns = look_ns;
    }
    return end_ns < begin_ns ? end_ns : begin_ns;
}

bool cddpi_head_is_overdue(const struct cddpi_head *head)
{
    return cddpi_left_ms(head->awake_ns) == 0 &&
           (cddpi_left_ms(head->patience_ns) == 0 || cddpi_left_ms(head->deadline_ns) == 0);
}

void cddpi_head_await_last(struct cddpi_head *head)
{
    cddpi_head_end_within(head, CDDPI_HEAD_LAST_MS);
}
