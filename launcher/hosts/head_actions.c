/* head_actions.c - carries out what the head's machine decides. */
#include "launcher/hosts/head.h"

#include "launcher/nodes/node_link.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"

#include <signal.h>

static void publish_lost(struct cddpi_head *head, const struct cddpi_head_action *action)
{
    struct cddpi_node_event lost = {
        .kind = CDDPI_EVENT_LOST, .node = action->number, .rank = -1, .exit_status = 1};

    if (action->kind == CDDPI_HEAD_PUBLISH_LOST) {
        lost.node = head->state.hosts[action->host].node;
        cddpi_head_word_end(head, action->host, lost.text, sizeof lost.text);
    } else if (action->kind == CDDPI_HEAD_PUBLISH_LATE) {
        lost.number = CDDPI_LOST_LATE;
        snprintf(lost.text, sizeof lost.text, "its ranks did not end in time");
    } else {
        snprintf(lost.text, sizeof lost.text, "what led to it had ended before it came");
    }
    cddpi_node_link_publish(head->nodes.link, &lost);
}

static void act(struct cddpi_head *head, const struct cddpi_head_action *action)
{
    struct cddpi_agent *agent = action->host >= 0 ? &head->agents[action->host] : NULL;

    switch (action->kind) {
    case CDDPI_HEAD_START:
        agent->is_to_start = true;
        break;
    case CDDPI_HEAD_CLOSE:
        cddpi_fd_close(&agent->input);
        break;
    case CDDPI_HEAD_KILL:
        kill(-agent->pid, SIGKILL);
        break;
    case CDDPI_HEAD_RELEASE:
        cddpi_head_release_held(agent, action->number != 0);
        break;
    case CDDPI_HEAD_FORM:
        cddpi_relay_change(&agent->err, action->number != 0 ? CDDPI_RELAY_RAW : CDDPI_RELAY_LINES);
        break;
    case CDDPI_HEAD_LOOK:
        head->is_to_look = true;
        break;
    case CDDPI_HEAD_BEGIN:
        head->is_to_begin = true;
        break;
    case CDDPI_HEAD_FORGET:
        cddpi_rendezvous_forget(&head->rendezvous, action->number);
        break;
    case CDDPI_HEAD_PUBLISH_BYE:
        CDDPI_PUBLISH(head->nodes.link, .kind = CDDPI_EVENT_BYE, .node = -1, .number = action->host,
                      .exit_status = 1);
        break;
    case CDDPI_HEAD_PUBLISH_LOST:
    case CDDPI_HEAD_PUBLISH_LATE:
    case CDDPI_HEAD_PUBLISH_STRAY:
        publish_lost(head, action);
        break;
    case CDDPI_HEAD_PUBLISH_SIGNAL:
        CDDPI_PUBLISH(head->nodes.link, .kind = CDDPI_EVENT_SIGNAL, .node = -1,
                      .number = action->number, .exit_status = 1);
        break;
    default:
        cddpi_head_say(head, action);
        break;
    }
}

static void step(struct cddpi_head *head, const struct cddpi_head_event *event)
{
    struct cddpi_head_event timed = *event;

    timed.now_ns = cddpi_now_ns();
    cddpi_head_state_step(&head->state, &timed);
    for (int i = 0; i < head->state.action_count; i++) {
        act(head, &head->state.actions[i]);
    }
}

#define STEP(head, ...) step((head), &(const struct cddpi_head_event){__VA_ARGS__})

/* Elastic: look whether the node of host @p i has come. */
static void look_for(struct cddpi_head *head, int i)
{
    char why[CDDPI_REFUSAL_BYTES];

    if (head->state.hosts[i].has_ended || head->state.hosts[i].has_come) {
        return;
    }
    if (cddpi_head_look_for(head, i, why)) {
        STEP(head, .kind = CDDPI_HEAD_CAME, .host = i);
    } else if (why[0] != '\0') {
        cddpi_output_say(head->output, "%s", why);
        STEP(head, .kind = CDDPI_HEAD_REFUSES, .number = 2);
    }
}

static void look(struct cddpi_head *head)
{
    char missing[2048];
    bool is_first_there = false;
    int count;

    for (int i = 0; head->state.is_elastic && i < head->hosts.count && head->state.steps == 0;
         i++) {
        look_for(head, i);
    }
    count = cddpi_head_list_missing(head, missing, sizeof missing, &is_first_there);
    STEP(head, .kind = CDDPI_HEAD_LOOKED, .number = count, .is_first_there = is_first_there);
}

static void begin(struct cddpi_head *head)
{
    if (cddpi_head_let_meet(head) == CDDP_OK) {
        STEP(head, .kind = CDDPI_HEAD_MET);
    } else {
        cddpi_output_say(head->output, "%s", cddp_last_error());
        STEP(head, .kind = CDDPI_HEAD_REFUSES, .number = 2);
    }
}

/* Start the agent of host @p i again. */
static void start(struct cddpi_head *head, int i)
{
    head->agents[i].is_to_start = false;
    cddpi_head_finish_agent(&head->agents[i]);
    cddpi_head_init_agent(head, i);
    if (cddpi_head_start(head, i) == CDDP_OK) {
        STEP(head, .kind = CDDPI_HEAD_STARTED, .host = i);
    } else {
        cddpi_output_say(head->output, "%s", cddp_last_error());
        STEP(head, .kind = CDDPI_HEAD_UNSTARTED, .host = i);
    }
}

void cddpi_head_feed(struct cddpi_head *head, const struct cddpi_head_event *event)
{
    step(head, event);
    if (head->is_to_look) {
        head->is_to_look = false;
        look(head);
    }
    if (head->is_to_begin) {
        head->is_to_begin = false;
        begin(head);
    }
    for (int i = 0; i < head->hosts.count; i++) {
        if (head->agents[i].is_to_start) {
            start(head, i);
        }
    }
}
