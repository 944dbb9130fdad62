/* member_world.c - nodes of a job whose log, ranks and clock are simulated. */
#include "launcher/member_world.h"

struct node nodes[NODES];
struct twist twist;

static struct cddpi_node_event log_of_events[EVENTS];
static int events;
static int64_t now_ns;
static const char *outside_store; /* NULL: node 0 serves the store */

void nodes_append(const struct cddpi_node_event *event)
{
    assert_true(events < EVENTS);
    log_of_events[events++] = *event;
}

static void act(struct node *node, const struct cddpi_membership_action *action)
{
    switch (action->kind) {
    case CDDPI_DO_PUBLISH:
        nodes_append(&action->event);
        break;
    case CDDPI_DO_START:
        if (action->number % twist.multiple != 0) {
            node_feed(node,
                      (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_REFUSED, .number = 2});
        } else if (twist.refuses != 0 && action->number > twist.allowed) {
            node_feed(node, (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_REFUSED,
                                                            .number = twist.refuses});
        } else {
            if (twist.before_start.kind != CDDPI_EVENT_NONE) {
                nodes_append(&twist.before_start);
                twist.before_start.kind = CDDPI_EVENT_NONE;
            }
            nodes_append(&action->event);
        }
        if (twist.is_orphaned) {
            node_feed(node, (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_ORPHANED});
        }
        break;
    case CDDPI_DO_RUN:
        node->runs = true;
        break;
    case CDDPI_DO_TELL:
        node->told = action->job;
        break;
    case CDDPI_DO_SAY:
        snprintf(node->said, sizeof node->said, "%.*s", (int)sizeof node->said - 1, action->text);
        break;
    case CDDPI_DO_TELL_LOSS:
        node->losses++;
        break;
    case CDDPI_DO_FINISH:
        break;
    }
}

void node_feed(struct node *node, struct cddpi_membership_event event)
{
    struct cddpi_membership_actions *actions = calloc(1, sizeof *actions);

    event.now_ns = now_ns;
    cddpi_membership_step(&node->members, &event, actions);
    for (int i = 0; i < actions->count; i++) {
        act(node, &actions->list[i]);
    }
    free(actions);
}

void node_hear(struct node *node, const struct cddpi_node_event *event, int64_t slept_ms)
{
    node_feed(node, (struct cddpi_membership_event){
                        .kind = CDDPI_MEMBERS_HEARD, .heard = event, .slept_ms = slept_ms});
}

void nodes_settle(void)
{
    bool is_news = true;

    while (is_news) {
        is_news = false;
        for (int i = 0; i < NODES; i++) {
            struct node *node = &nodes[i];

            if (node->is_alive && node->heard < events) {
                struct cddpi_node_event event = log_of_events[node->heard++];

                is_news = true;
                node_feed(node, (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_HEARD,
                                                                .heard = &event});
            }
        }
        for (int i = 0; i < NODES && !is_news; i++) {
            if (nodes[i].is_alive && nodes[i].members.deadline_ns <= now_ns) {
                node_feed(&nodes[i], (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_TIME});
                is_news = nodes[i].heard < events;
            }
        }
    }
}

int nodes_events(void)
{
    return events;
}

void nodes_wait(int64_t milliseconds)
{
    now_ns += milliseconds * 1000000;
    nodes_settle();
}

static void come(int number, int initial, int least, int most)
{
    struct node *node = &nodes[number];

    *node = (struct node){.members = {.list = node->list,
                                      .outside_store = outside_store,
                                      .room = ROOM,
                                      .self = number,
                                      .least = least,
                                      .most = most,
                                      .is_elastic = least < most,
                                      .max_restarts = least < most ? -1 : 0,
                                      .gather_ms = 60000},
                          .is_alive = true};
    for (int i = 0; i < initial; i++) {
        (void)cddpi_membership_add(&node->members, i, "host", 2);
    }
    node_feed(node, (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_BEGIN});
}

static void begin_at(const char *store, const struct cddpi_node_event *event, int count, int least,
                     int most)
{
    memset(nodes, 0, sizeof nodes);
    outside_store = store;
    events = 0;
    now_ns = INT64_C(1000000000);
    twist = (struct twist){.multiple = 1};
    if (event != NULL) {
        nodes_append(event);
    }
    for (int i = count - 1; i >= 0; i--) {
        come(i, count, least, most);
    }
    nodes_settle();
}

void nodes_begin(int count, int least, int most)
{
    begin_at(NULL, NULL, count, least, most);
}

void nodes_begin_alone(int least_ranks, int most_ranks)
{
    nodes_begin(1, 1, 1);
    nodes[0].members.is_alone = true;
    nodes[0].members.is_elastic = true;
    nodes[0].members.least_ranks = least_ranks;
    nodes[0].members.most_ranks = most_ranks;
}

void nodes_begin_after(const struct cddpi_node_event *event, int count, int least, int most)
{
    begin_at(NULL, event, count, least, most);
}

void nodes_begin_outside(int count, int least, int most)
{
    begin_at("tcp://head:29500", NULL, count, least, most);
}

void node_join(int number, int initial, int least, int most)
{
    nodes_append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_JOIN, .node = number, .number = 2, .rank = -1, .text = "late"});
    come(number, initial, least, most);
    nodes_settle();
}

static void end_ranks(int number, struct cddpi_generation_outcome outcome)
{
    assert_true(nodes[number].runs);
    nodes[number].runs = false;
    node_feed(&nodes[number], (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_RANKS_ENDED,
                                                              .outcome = outcome});
    nodes_settle();
}

void node_end_ranks(int number, int exit_status, bool has_saved)
{
    end_ranks(number, (struct cddpi_generation_outcome){.exit_status = exit_status,
                                                        .has_saved = has_saved});
}

void node_end_ranks_kept(int number, int exit_status)
{
    end_ranks(number,
              (struct cddpi_generation_outcome){.exit_status = exit_status, .has_kept = true});
}

void node_end_ranks_for_good(int number, int exit_status)
{
    end_ranks(number,
              (struct cddpi_generation_outcome){.exit_status = exit_status, .must_end = true});
}

void nodes_end_ranks(int exit_status, bool has_saved)
{
    bool run[NODES];

    for (int i = 0; i < NODES; i++) {
        run[i] = nodes[i].runs;
    }
    for (int i = 0; i < NODES; i++) { /* the last of them may begin the next generation */
        if (run[i]) {
            node_end_ranks(i, exit_status, has_saved);
        }
    }
}

void node_lose(int number)
{
    nodes[number].is_alive = false;
    nodes[number].runs = false;
    nodes_append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_LOST, .node = number, .rank = -1, .exit_status = 1, .text = "gone"});
    nodes_settle();
}

void node_signal(int number, int signal)
{
    node_feed(&nodes[number],
              (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_SIGNALLED, .number = signal});
    nodes_settle();
}

void node_fail_rank(int number)
{
    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                            .generation = nodes[number].members.generation,
                                            .node = number,
                                            .exit_status = 1,
                                            .may_restart = true});
    nodes_settle();
}

void node_cannot_start(int number)
{
    int generation = nodes[number].members.generation;

    nodes_append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                            .generation = generation,
                                            .node = number,
                                            .rank = -1,
                                            .exit_status = 126,
                                            .text = "no process is left"});
    nodes_settle();
    for (int i = 0; i < NODES; i++) {
        if (nodes[i].runs && nodes[i].members.generation == generation) {
            node_end_ranks(i, i == number ? 126 : 1, false);
        }
    }
}

void node_leave_rank(int number, int rank)
{
    node_feed(&nodes[number],
              (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_RANK_LEAVES, .number = rank});
}

void assert_runs(int number, int generation, int first_rank, int world_size)
{
    const struct node *node = &nodes[number];

    assert_true(node->runs);
    assert_int_equal(node->members.generation, generation);
    assert_int_equal(node->members.world_size, world_size);
    assert_int_equal(cddpi_membership_find(&node->members, number)->first_rank, first_rank);
}

void assert_over(int number, int exit_status)
{
    assert_int_equal(nodes[number].members.phase, CDDPI_MEMBERS_OVER);
    assert_int_equal(nodes[number].members.exit_status, exit_status);
}
