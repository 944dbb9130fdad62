/* world.c - owns virtual time: what happens next, on which host, and the hosts' clocks. */
#include "tests/sim/sim_head.h"

#include "tests/sim/meet.h"

#include <stddef.h>
#include <string.h>

struct sim sim;

enum { MOST_EVENTS = 400000 };

uint64_t sim_random(void)
{
    uint64_t z = (sim.state += 0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

int64_t sim_between(int64_t least, int64_t most)
{
    return least + (int64_t)(sim_random() % (uint64_t)(most - least + 1));
}

bool sim_chance(int percent)
{
    return (int)(sim_random() % 100) < percent;
}

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void push(const struct sim_event *event)
{
    int at = sim.heap_count++;

    if (sim.heap_count == (int)(sizeof sim.heap / sizeof sim.heap[0])) {
        sim.heap_count--;
        sim_break("the simulator has no room for so many events");
        return;
    }
    while (at > 0 && is_before(event, &sim.heap[(at - 1) / 2])) {
        sim.heap[at] = sim.heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim.heap[at] = *event;
}

static struct sim_event pop(void)
{
    struct sim_event first = sim.heap[0];
    struct sim_event last = sim.heap[--sim.heap_count];
    int at = 0;

    for (int child = 1; child < sim.heap_count; child = 2 * at + 1) {
        child += child + 1 < sim.heap_count && is_before(&sim.heap[child + 1], &sim.heap[child]);
        if (!is_before(&sim.heap[child], &last)) {
            break;
        }
        sim.heap[at] = sim.heap[child];
        at = child;
    }
    sim.heap[at] = last;
    return first;
}

void sim_at(int64_t at_ns, enum sim_kind kind, int a, int b, int64_t c)
{
    struct sim_event event = {at_ns, sim.order++, kind, a, b, c};

    if (at_ns != SIM_NEVER) {
        push(&event);
    }
}

void sim_in(int64_t delay_ns, enum sim_kind kind, int a, int b, int64_t c)
{
    sim_at(sim.now_ns + delay_ns, kind, a, b, c);
}

int64_t sim_clock(int host)
{
    const struct sim_host *there = &sim.hosts[host];

    return there->offset_ns + sim.now_ns - there->slept_ns +
           sim.now_ns / 1000000 * there->drift_ppm;
}

int64_t sim_when(int host, int64_t clock_ns)
{
    int64_t left_ns = clock_ns - sim_clock(host);

    if (clock_ns == SIM_NEVER) {
        return SIM_NEVER;
    }
    if (left_ns < 0) {
        left_ns = 0;
    }
    return sim.now_ns + left_ns - left_ns / 1000000 * sim.hosts[host].drift_ppm + 1000;
}

bool sim_is_frozen(int host)
{
    return sim.now_ns < sim.hosts[host].frozen_until_ns;
}

/* The host on which @p event happens; -1: on none. */
static int host_of(const struct sim_event *event)
{
    switch (event->kind) {
    case SIM_DISTURB:
    case SIM_COME:
    case SIM_STEP:
    case SIM_AGENT_RUNS:
    case SIM_HOST_BACK:
        return -1;
    case SIM_HEAD_TIME:
    case SIM_AGENT_ENDED:
        return SIM_STORE_HOST;
    case SIM_MEET:
    case SIM_INPUT_ENDS:
    case SIM_NODE_TIME:
    case SIM_NODE_HEAR:
    case SIM_NODE_RANKS:
    case SIM_NODE_EXIT:
    case SIM_OVERDUE:
    case SIM_RESET:
    case SIM_TELL:
        return sim.nodes[event->a].host;
    case SIM_ANSWER:
        return sim.nodes[sim.messages[event->a].node].host;
    case SIM_REQUEST:
    case SIM_WAITED:
    case SIM_GONE:
    case SIM_TOLD:
        return sim_store_host();
    case SIM_SAVING:
    case SIM_SAVED:
        return sim.ranks[sim.groups[event->a].ids[0]].host;
    default:
        return sim.ranks[event->a].host;
    }
}

/* A process that checks a configuration, or starts ranks, takes no other event meanwhile. */
static int64_t busy_until_ns(const struct sim_event *event)
{
    switch (event->kind) {
    case SIM_NODE_TIME:
    case SIM_NODE_HEAR:
    case SIM_NODE_RANKS:
        return sim.nodes[event->a].busy_until_ns;
    case SIM_RANK_REAPED:
        return sim.nodes[sim.ranks[event->a].node].busy_until_ns;
    default:
        return 0;
    }
}

static void handle_of_node(const struct sim_event *event)
{
    struct sim_node *node = &sim.nodes[event->a];

    if (!node->is_alive) {
        return;
    }
    switch (event->kind) {
    case SIM_NODE_TIME:
        if (event->c == node->timer) {
            sim_node_time(node);
        }
        break;
    case SIM_NODE_HEAR:
        sim_node_hear(node, event->c != 0 ? &sim.events[event->b] : &node->link.own, event->c != 0);
        break;
    case SIM_NODE_RANKS:
        sim_node_start_ranks(node, event->b);
        break;
    case SIM_NODE_EXIT:
        sim_node_gone(node, false);
        break;
    case SIM_MEET:
        sim_meet_look(node);
        break;
    case SIM_INPUT_ENDS:
        sim_meet_input_ends(node);
        break;
    case SIM_OVERDUE:
        sim_link_overdue(node, (enum cddpi_link_side)event->b, event->c);
        break;
    case SIM_RESET:
        sim_link_reset(node, (enum cddpi_link_side)event->b, (int)event->c);
        break;
    default:
        sim_link_tell(node);
        break;
    }
}

static void handle(const struct sim_event *event)
{
    struct sim_message *message = &sim.messages[event->a & (SIM_MESSAGES - 1)];

    switch (event->kind) {
    case SIM_DISTURB:
        sim_disturb(&sim.plan.list[event->a]);
        break;
    case SIM_COME:
        sim_node_come(event->a, event->b, false);
        break;
    case SIM_REQUEST:
        sim_store_take(message);
        break;
    case SIM_ANSWER:
        if (sim.nodes[message->node].is_alive) {
            sim_link_answered(&sim.nodes[message->node], message);
        }
        sim_message_release(message);
        break;
    case SIM_WAITED:
        sim_store_waited(message, event->c);
        break;
    case SIM_GONE:
        sim_store_gone(&sim.nodes[event->a]);
        break;
    case SIM_TOLD:
        sim_group_told(event->a);
        break;
    case SIM_STEP:
        sim_group_step(event->a);
        break;
    case SIM_SAVING:
        sim_group_saving(event->a);
        break;
    case SIM_SAVED:
        sim_group_saved(event->a, (int)event->c);
        break;
    case SIM_NODE_TIME:
    case SIM_NODE_HEAR:
    case SIM_NODE_RANKS:
    case SIM_NODE_EXIT:
    case SIM_OVERDUE:
    case SIM_RESET:
    case SIM_TELL:
    case SIM_MEET:
    case SIM_INPUT_ENDS:
        handle_of_node(event);
        break;
    case SIM_HEAD_TIME:
    case SIM_AGENT_RUNS:
    case SIM_AGENT_ENDED:
    case SIM_HOST_BACK:
        sim_head_event(event);
        break;
    default:
        sim_rank_event(event);
        break;
    }
}

static bool is_quiet(void)
{
    if (sim.plan.has_head && sim_head.is_alive) {
        return false;
    }
    for (int i = 0; i < sim.node_count; i++) {
        if (sim.nodes[i].is_alive) {
            return false;
        }
    }
    for (int i = 0; i < sim.rank_count; i++) {
        if (sim.ranks[i].is_alive) {
            return false;
        }
    }
    return sim.now_ns >= sim.quiet_ns;
}

static void set_up(uint64_t seed, int plant, bool tells)
{
    memset(&sim, 0, offsetof(struct sim, events));
    sim.seed = seed;
    sim.state = seed * 0x2545f4914f6cdd1d + 1;
    sim.plant = plant;
    sim.tells = tells;
    sim.last_formed = -1;
    sim.table = cddpi_table_create();
    for (int i = 0; i <= SIM_NODES; i++) { /* a head's nodes have numbers with gaps */
        sim.nodes[i].lost_at = sim.nodes[i].left_at = -1;
    }
    for (int i = 0; i < SIM_GENERATIONS; i++) {
        for (int k = 0; k < SIM_WORLD; k++) {
            sim.groups[i].ids[k] = -1;
        }
    }
}

/* The first nodes of a job that no head starts. */
static void begin_nodes(void)
{
    for (int i = 0; i < sim.plan.hosts; i++) {
        sim_meet_add(i, i);
    }
    for (int i = 0; i < sim.plan.hosts; i++) {
        sim_node_come(i, sim.plan.nproc[i], true);
    }
    for (int i = 0; i < sim.plan.hosts; i++) {
        sim_node_begin(&sim.nodes[i]);
    }
    sim_outside_begin();
}

/* The plan of this history: @p plan, or (NULL) one that is drawn. */
static void set_plan(const struct sim_plan *plan, enum sim_kind_of_job kind)
{
    if (plan != NULL) {
        sim.plan = *plan;
    } else {
        sim_draw_plan();
    }
    if (kind == SIM_WITH_HEAD && plan == NULL) {
        sim_draw_head();
    }
    if (kind == SIM_WITH_STORE && !sim.plan.is_alone) {
        sim.plan.has_store = true;
    }
}

bool sim_run(uint64_t seed, const struct sim_plan *plan, int plant, enum sim_kind_of_job kind,
             bool tells)
{
    set_up(seed, plant, tells);
    set_plan(plan, kind);
    sim_begin_plan();
    if (sim.plan.has_head) {
        sim_head_begin();
    } else {
        begin_nodes();
    }
    while (sim.heap_count > 0 && sim.broken[0] == '\0' && !is_quiet()) {
        struct sim_event event = pop();
        int host = host_of(&event);
        int64_t later_ns = host >= 0 ? sim.hosts[host].frozen_until_ns : 0;
        int64_t busy_ns = busy_until_ns(&event);

        sim.now_ns = event.at_ns;
        later_ns = later_ns > busy_ns ? later_ns : busy_ns;
        if (later_ns > sim.now_ns) {
            event.at_ns = later_ns;
            push(&event);
            continue;
        }
        handle(&event);
        sim_rule_time();
        if (++sim.handled > MOST_EVENTS) {
            sim_break("it does not come to rest: %d events", MOST_EVENTS);
        }
    }
    if (sim.broken[0] == '\0') {
        sim_rule_finally();
    }
    sim_store_fini();
    for (int i = 0; i < sim.node_count; i++) {
        sim_link_fini(&sim.nodes[i]);
    }
    if (sim.plan.has_store || sim.plan.has_head) {
        sim_link_fini(&sim.nodes[SIM_WATCHER]);
    }
    return sim.broken[0] == '\0';
}
