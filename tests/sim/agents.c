/* agents.c - the cddp-run that starts a job on a list of hosts (the head): it drives the real state
 * machine head_state.c, as head.c and head_actions.c of the launcher do; and what leads from it to
 * hosts, such as ssh. meet.c has the nodes until they have met. */
#include "tests/sim/sim_head.h"

#include "tests/sim/meet.h"

#include <signal.h>
#include <string.h>

struct sim_head sim_head;

/* --- agents --- */

void sim_agent_ends(int host, int exit_status, bool closes)
{
    struct sim_agent *agent = &sim_head.agents[host];

    if (!agent->is_alive) {
        return;
    }
    agent->is_alive = false;
    if (closes && agent->node >= 0) {
        sim_at(sim_arrival(SIM_STORE_HOST, host), SIM_INPUT_ENDS, agent->node, 0, 0);
    }
    sim_in(sim_between(1, 20) * SIM_MS, SIM_AGENT_ENDED, host, exit_status, agent->start);
}

void sim_agent_node_gone(const struct sim_node *node, bool is_silent, int exit_status)
{
    const struct sim_agent *agent = &sim_head.agents[node->host];

    if (agent->node == node->number && agent->is_alive && !is_silent) {
        sim_at(sim_arrival(node->host, SIM_STORE_HOST), SIM_AGENT_ENDED, node->host, exit_status,
               agent->start);
    }
}

/* The connection from before is reset, sooner or later. */
void sim_agent_host_back(int host)
{
    sim.hosts[host].is_off = false;
    sim_say("h%d has power again", host);
    if (sim_head.agents[host].node >= 0 && sim_chance(50)) {
        sim_in(sim_between(10, 10000) * SIM_MS, SIM_AGENT_ENDED, host, 255,
               sim_head.agents[host].start);
    }
}

static void start_agent(int host)
{
    struct sim_agent *agent = &sim_head.agents[host];

    *agent = (struct sim_agent){.is_alive = true, .start = agent->start + 1, .node = -1};
    sim_say("the head starts node %d on h%d", sim_head.hosts[host].node, host);
    sim_in(sim_between(30, 1500) * SIM_MS, SIM_AGENT_RUNS, host, 0, agent->start);
}

/* The command that starts cddp-run on @p host has got so far that it does. */
static void run_agent(int host)
{
    static const int statuses[] = {255, 127, 1, 0};
    struct sim_agent *agent = &sim_head.agents[host];
    bool is_reached = !sim.hosts[host].is_off && sim_can_reach(SIM_STORE_HOST, host);

    if (sim.now_ns < sim_head.hangs_until_ns[host]) {
        sim_say("what leads to h%d hangs", host);
    } else if (sim.now_ns < sim_head.fails_until_ns[host]) {
        sim_agent_ends(host, statuses[sim_between(0, 3)], false);
    } else if (!is_reached && sim_chance(50)) {
        sim_agent_ends(host, 255, false);
    } else if (!is_reached || sim_is_frozen(host)) {
        sim_in(SIM_S, SIM_AGENT_RUNS, host, 0, agent->start);
    } else if (agent->is_closed) {
        sim_agent_ends(host, 1, false);
    } else if (!sim_meet_come(host, sim_head.hosts[host].node)) {
        sim_agent_ends(host, 255, false);
    } else {
        agent->node = sim_head.hosts[host].node;
    }
}

static void close_agent(int host)
{
    struct sim_agent *agent = &sim_head.agents[host];

    agent->is_closed = true;
    if (agent->node >= 0 && agent->is_alive && !sim_planted(SIM_PLANT_HEAD_NO_END)) {
        sim_at(sim_arrival(SIM_STORE_HOST, host), SIM_INPUT_ENDS, agent->node, 0, 0);
    }
}

/* --- actions --- */

static void publish(enum cddpi_node_event_kind kind, int node, int number, const char *text)
{
    struct cddpi_node_event event = {
        .kind = kind, .node = node, .rank = -1, .number = number, .exit_status = 1};

    snprintf(event.text, sizeof event.text, "%s", text);
    sim_link_publish(&sim.nodes[SIM_WATCHER], &event);
}

static void act(const struct cddpi_head_action *action)
{
    int host = action->host;

    sim_rule_agent(host, action->kind);
    switch (action->kind) {
    case CDDPI_HEAD_START:
        sim_head.is_to_start[host] = true;
        break;
    case CDDPI_HEAD_CLOSE:
        close_agent(host);
        break;
    case CDDPI_HEAD_KILL:
        if (sim_planted(SIM_PLANT_HEAD_NO_END)) {
            sim.planted++;
        } else {
            sim_agent_ends(host, 128 + SIGKILL, true);
        }
        break;
    case CDDPI_HEAD_LOOK:
        sim_head.is_to_look = true;
        break;
    case CDDPI_HEAD_BEGIN:
        sim_head.is_to_begin = true;
        break;
    case CDDPI_HEAD_PUBLISH_BYE:
        publish(CDDPI_EVENT_BYE, -1, host, "");
        break;
    case CDDPI_HEAD_PUBLISH_LOST:
        if (sim_planted(SIM_PLANT_HEAD_HIDE_END)) {
            sim.planted++;
        } else {
            publish(CDDPI_EVENT_LOST, sim_head.hosts[host].node, CDDPI_LOST_HOST,
                    "what leads to it has ended");
        }
        break;
    case CDDPI_HEAD_PUBLISH_LATE:
        publish(CDDPI_EVENT_LOST, action->number, CDDPI_LOST_LATE, "its ranks did not end in time");
        break;
    case CDDPI_HEAD_PUBLISH_STRAY:
        publish(CDDPI_EVENT_LOST, action->number, CDDPI_LOST_HOST,
                "what led to it had ended before it came");
        break;
    case CDDPI_HEAD_PUBLISH_SIGNAL:
        publish(CDDPI_EVENT_SIGNAL, -1, action->number, "");
        break;
    case CDDPI_HEAD_RELEASE:
    case CDDPI_HEAD_FORM:
    case CDDPI_HEAD_FORGET:
        break;
    default:
        sim_head_says(action);
        break;
    }
}

/* --- the head --- */

static void step(const struct cddpi_head_event *event)
{
    struct cddpi_head_event timed = *event;

    timed.now_ns = sim_clock(SIM_STORE_HOST);
    if (sim_planted(SIM_PLANT_HEAD_HASTY) && event->kind == CDDPI_HEAD_TIME) {
        sim.planted++;
        timed.now_ns += 100 * SIM_S;
    }
    cddpi_head_state_step(&sim_head.state, &timed);
    for (int i = 0; i < sim_head.state.action_count; i++) {
        act(&sim_head.actions[i]);
    }
}

#define STEP(...) step(&(const struct cddpi_head_event){__VA_ARGS__})

static void look(void)
{
    int missing = 0;

    for (int i = 0; i < sim.plan.hosts; i++) {
        const struct cddpi_head_host *host = &sim_head.hosts[i];
        bool has_come = sim_meet_has_come(host->node);

        if (sim.plan.is_elastic && has_come && !host->has_ended && !host->has_come) {
            sim_say("node %d on h%d has come", host->node, i);
            STEP(.kind = CDDPI_HEAD_CAME, .host = i);
        }
        missing += sim.plan.is_elastic ? !cddpi_head_is_there(&sim_head.state, i) : !has_come;
    }
    if (sim_planted(SIM_PLANT_HEAD_EARLY)) {
        sim.planted += missing;
        missing = missing > 0 ? missing - 1 : 0;
    }
    STEP(.kind = CDDPI_HEAD_LOOKED, .number = missing, .is_first_there = sim_meet_has_come(0));
}

static void begin(void)
{
    for (int i = 0; i < sim.plan.hosts; i++) {
        if (cddpi_head_is_there(&sim_head.state, i)) {
            sim_meet_add(sim_head.hosts[i].node, i);
        }
    }
    for (int i = 0; i < sim.met_count; i++) {
        (void)cddpi_membership_add(&sim_head.members, sim.met[i].number, "",
                                   sim.plan.nproc[sim.met[i].host]);
    }
    sim_rule_met();
    sim_head.members.outside_store = SIM_STORE;
    sim_head.members.is_elastic = true;
    sim_head.has_plan = true;
    sim_outside_begin();
    STEP(.kind = CDDPI_HEAD_MET);
}

static void follow_up(void)
{
    if (sim_head.is_to_look) {
        sim_head.is_to_look = false;
        look();
    }
    if (sim_head.is_to_begin) {
        sim_head.is_to_begin = false;
        begin();
    }
    for (int i = 0; i < sim.plan.hosts; i++) {
        if (sim_head.is_to_start[i]) {
            sim_head.is_to_start[i] = false;
            start_agent(i);
            STEP(.kind = CDDPI_HEAD_STARTED, .host = i);
        }
    }
}

static void set_timer(void)
{
    int64_t due_ns = sim_head.state.due_ns;

    if (due_ns != sim_head.timer_ns) {
        sim_head.timer_ns = due_ns;
        sim_head.timer++;
        sim_at(sim_when(SIM_STORE_HOST, due_ns), SIM_HEAD_TIME, 0, 0, sim_head.timer);
    }
}

/* One turn of the head's loop. */
static void turn(const struct cddpi_head_event *event)
{
    if (event != NULL) {
        step(event);
        follow_up();
    }
    if (sim_planted(SIM_PLANT_HEAD_NO_TIME) && sim_head.has_plan) {
        sim.planted++;
        return;
    }
    STEP(.kind = CDDPI_HEAD_TIME);
    follow_up();
    if (sim_head.state.is_over) {
        sim_head.exit_status = cddpi_head_exit_status(&sim_head.state);
        sim_say("the head ends with status %d", sim_head.exit_status);
        sim_rule_head_exit();
        sim_head_gone(false);
        return;
    }
    sim_rule_head_waits();
    set_timer();
}

#define TURN(...) turn(&(const struct cddpi_head_event){__VA_ARGS__})

void sim_head_hear(const struct cddpi_node_event *event, bool is_in_log)
{
    sim_head.heard += is_in_log;
    sim_head.is_apart = sim_head.is_apart || !is_in_log;
    if (sim_planted(SIM_PLANT_HEAD_DEAF) && event->kind == CDDPI_EVENT_LOST) {
        sim.planted++;
        return;
    }
    if (sim_planted(SIM_PLANT_HEAD_UNEXPLAINED) && event->kind == CDDPI_EVENT_BYE &&
        event->node < 0 && !sim_head.state.members->end.kind) {
        sim.planted++;
        return;
    }
    TURN(.kind = CDDPI_HEAD_HEARD, .heard = event);
    if (sim_head.is_alive && sim_head.state.steps == 0 && !sim_head.is_apart) {
        sim_rule_members_view(&sim_head.members, sim_head.heard, "the head");
    }
}

void sim_head_signal(int number)
{
    if (sim_head.is_alive) {
        TURN(.kind = CDDPI_HEAD_SIGNALLED, .number = number);
    }
}

void sim_head_gone(bool is_silent)
{
    sim_head.is_alive = false;
    sim_head.gone_ns = sim.now_ns;
    sim.nodes[SIM_WATCHER].is_alive = false;
    sim.hosts[SIM_STORE_HOST].is_off = is_silent;
    for (int i = 0; i < sim.plan.hosts && !is_silent; i++) {
        sim_agent_ends(i, 128 + SIGKILL, true);
    }
    sim_store_end(is_silent);
}

static void report_end(int host, int exit_status)
{
    struct sim_agent *agent = &sim_head.agents[host];

    if (agent->is_reported || !sim_head.is_alive) {
        return;
    }
    agent->is_alive = false;
    agent->is_reported = true;
    if (sim_head.first_end < 0 && sim_head.state.steps == 0) {
        sim_head.first_end = exit_status;
    }
    if (sim_planted(SIM_PLANT_HEAD_STATUS)) {
        sim.planted += exit_status != 0;
        exit_status = 0;
    }
    sim_say("the head sees that the agent of h%d has ended with status %d", host, exit_status);
    TURN(.kind = CDDPI_HEAD_ENDED, .host = host, .number = exit_status);
}

void sim_head_event(const struct sim_event *event)
{
    const struct sim_agent *agent = &sim_head.agents[event->a];

    switch (event->kind) {
    case SIM_HEAD_TIME:
        if (event->c == sim_head.timer && sim_head.is_alive) {
            sim_head.timer_ns = 0;
            turn(NULL);
        }
        break;
    case SIM_AGENT_RUNS:
        if (event->c == agent->start && agent->is_alive) {
            run_agent(event->a);
        }
        break;
    case SIM_AGENT_ENDED:
        if (event->c == agent->start) {
            report_end(event->a, event->b);
        }
        break;
    case SIM_HOST_BACK:
        sim_agent_host_back(event->a);
        break;
    default:
        break;
    }
}

void sim_head_begin(void)
{
    static struct cddpi_membership_actions actions; /* static, since it is large */
    struct cddpi_membership *members = &sim_head.members;

    memset(&sim_head, 0, sizeof sim_head);
    sim_head.is_alive = true;
    sim_head.first_end = -1;
    *members = (struct cddpi_membership){.list = sim_head.list,
                                         .room = SIM_NODES,
                                         .most = SIM_NODES,
                                         .self = -1,
                                         .phase = CDDPI_MEMBERS_AWAIT,
                                         .generation = -1,
                                         .leaving_rank = -1,
                                         .deadline_ns = CDDPI_JOB_NEVER,
                                         .max_restarts = sim.plan.max_restarts,
                                         .is_silent = true};
    sim_head.state = (struct cddpi_head_state){.hosts = sim_head.hosts,
                                               .count = sim.plan.hosts,
                                               .members = members,
                                               .member_actions = &actions,
                                               .actions = sim_head.actions,
                                               .action_room = SIM_HEAD_ACTIONS,
                                               .is_elastic = sim.plan.is_elastic,
                                               .least = sim.plan.least,
                                               .most = sim.plan.most,
                                               .grace_ms = sim.plan.grace_ms,
                                               .settle_ns = 3000 * SIM_MS,
                                               .timeout_ms = (uint32_t)sim.plan.gather_ms};
    STEP(.kind = CDDPI_HEAD_BEGINS);
    for (int i = 0; i < sim.plan.hosts; i++) {
        if (!sim.plan.is_elastic) {
            sim_meet_add(i, i);
            (void)cddpi_membership_add(members, i, "", sim.plan.nproc[i]); /* or 1 */
        }
    }
    if (!sim.plan.is_elastic) {
        sim_outside_begin();
    }
    for (int i = 0; i < sim.plan.hosts; i++) {
        start_agent(i);
        STEP(.kind = CDDPI_HEAD_STARTED, .host = i);
    }
    turn(NULL);
}
