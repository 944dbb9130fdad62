/* test_launcher_membership.c - what the nodes of a job decide together: a few histories told by
 * hand. Only the decisions are real: a log that all nodes read in the same order, ranks that end
 * when the test says so, and a clock that the test sets. tests/sim makes thousands of such
 * histories up. */
#include "launcher/nodes/membership.h"
#include "support/test.h"

#include <signal.h>

enum { NODES = 6, ROOM = 12, EVENTS = 128 };

struct node {
    struct cddpi_membership members;
    struct cddpi_job_member list[ROOM];
    int heard; /* events of the log */
    bool is_alive;
    bool runs;                   /* its ranks run */
    struct cddpi_job_event told; /* the last thing its ranks were told */
    char said[4096];
};

static struct cddpi_node_event log_of_events[EVENTS];
static int events;
static struct node nodes[NODES];
static int64_t now_ns;
static const char *outside_store; /* NULL: node 0 serves the store */
static int refuses;               /* CDDPI_DO_START fails with this exit status; 0: it does not */
static int allowed;               /* but not for so many ranks */
static struct cddpi_node_event before_start; /* comes into the log before the next START */
static bool is_orphaned;                     /* node 0 is, before it hears its next START */
static int multiple; /* CDDPI_DO_START refuses other numbers of ranks than its multiples */

static void feed(struct node *node, struct cddpi_membership_event event);

static void append(const struct cddpi_node_event *event)
{
    assert_true(events < EVENTS);
    log_of_events[events++] = *event;
}

static void act(struct node *node, const struct cddpi_membership_action *action)
{
    switch (action->kind) {
    case CDDPI_DO_PUBLISH:
        append(&action->event);
        break;
    case CDDPI_DO_START:
        if (action->number % multiple != 0) {
            feed(node, (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_REFUSED, .number = 2});
        } else if (refuses != 0 && action->number > allowed) {
            feed(node,
                 (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_REFUSED, .number = refuses});
        } else {
            if (before_start.kind != CDDPI_EVENT_NONE) {
                append(&before_start);
                before_start.kind = CDDPI_EVENT_NONE;
            }
            append(&action->event);
        }
        if (is_orphaned) {
            feed(node, (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_ORPHANED});
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
    case CDDPI_DO_FINISH:
        break;
    }
}

static void feed(struct node *node, struct cddpi_membership_event event)
{
    struct cddpi_membership_actions *actions = calloc(1, sizeof *actions);

    event.now_ns = now_ns;
    cddpi_membership_step(&node->members, &event, actions);
    for (int i = 0; i < actions->count; i++) {
        act(node, &actions->list[i]);
    }
    free(actions);
}

/* All nodes hear all events, and see the time. */
static void settle(void)
{
    bool is_news = true;

    while (is_news) {
        is_news = false;
        for (int i = 0; i < NODES; i++) {
            struct node *node = &nodes[i];

            if (node->is_alive && node->heard < events) {
                struct cddpi_node_event event = log_of_events[node->heard++];

                is_news = true;
                feed(node,
                     (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_HEARD, .heard = &event});
            }
        }
        for (int i = 0; i < NODES && !is_news; i++) {
            if (nodes[i].is_alive && nodes[i].members.deadline_ns <= now_ns) {
                feed(&nodes[i], (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_TIME});
                is_news = nodes[i].heard < events;
            }
        }
    }
}

static void wait_ms(int64_t milliseconds)
{
    now_ns += milliseconds * 1000000;
    settle();
}

static struct node *come(int number, int initial, int least, int most)
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
    feed(node, (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_BEGIN});
    return node;
}

/* A job that begins with @p count nodes of 2 ranks each. */
static void begin_at(const char *store, int count, int least, int most)
{
    memset(nodes, 0, sizeof nodes);
    outside_store = store;
    events = 0;
    now_ns = INT64_C(1000000000);
    refuses = 0;
    multiple = 1;
    allowed = 0;
    before_start.kind = CDDPI_EVENT_NONE;
    is_orphaned = false;
    for (int i = count - 1; i >= 0; i--) {
        (void)come(i, count, least, most);
    }
    settle();
}

static void begin(int count, int least, int most)
{
    begin_at(NULL, count, least, most);
}

static void begin_outside(int count, int least, int most)
{
    begin_at("tcp://head:29500", count, least, most);
}

static void join(int number, int initial, int least, int most)
{
    append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_JOIN, .node = number, .number = 2, .rank = -1, .text = "late"});
    (void)come(number, initial, least, most);
    settle();
}

static void end_ranks(int number, int exit_status, bool has_saved)
{
    struct cddpi_generation_outcome outcome = {.exit_status = exit_status, .has_saved = has_saved};

    assert_true(nodes[number].runs);
    nodes[number].runs = false;
    feed(&nodes[number],
         (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_RANKS_ENDED, .outcome = outcome});
    settle();
}

static void lose(int number)
{
    nodes[number].is_alive = false;
    nodes[number].runs = false;
    append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_LOST, .node = number, .rank = -1, .exit_status = 1, .text = "gone"});
    settle();
}

static void send_signal(int number, int signal)
{
    feed(&nodes[number],
         (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_SIGNALLED, .number = signal});
    settle();
}

/* A rank of this node fails, and a restart may help. */
static void fail_rank(int number)
{
    append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                      .generation = nodes[number].members.generation,
                                      .node = number,
                                      .exit_status = 1,
                                      .may_restart = true});
    settle();
}

static void assert_runs(int number, int generation, int first_rank, int world_size)
{
    const struct node *node = &nodes[number];

    assert_true(node->runs);
    assert_int_equal(node->members.generation, generation);
    assert_int_equal(node->members.world_size, world_size);
    assert_int_equal(cddpi_membership_find(&node->members, number)->first_rank, first_rank);
}

static void assert_over(int number, int exit_status)
{
    assert_int_equal(nodes[number].members.phase, CDDPI_MEMBERS_OVER);
    assert_int_equal(nodes[number].members.exit_status, exit_status);
}

static void all_nodes_run_the_first_generation_and_end_with_it(void **state)
{
    (void)state;
    begin(3, 3, 3);
    assert_runs(0, 0, 0, 6);
    assert_runs(2, 0, 4, 6);
    for (int i = 0; i < 3; i++) {
        end_ranks(i, 0, true);
    }
    for (int i = 0; i < 3; i++) {
        assert_over(i, 0);
    }
}

static void the_rest_go_on_without_a_lost_node(void **state)
{
    (void)state;
    begin(3, 2, 3);
    lose(1);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_FAILED_THERE);
    end_ranks(0, 1, false);
    assert_false(nodes[0].runs);
    end_ranks(2, 1, false);
    assert_runs(0, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
}

static void a_fixed_job_ends_with_a_lost_node(void **state)
{
    (void)state;
    begin(3, 3, 3);
    lose(1);
    end_ranks(0, 1, false);
    end_ranks(2, 1, false);
    assert_over(0, 1);
    assert_over(2, 1);
}

/* A machine that goes down: its ranks are killed first, and its cddp-run a moment later. */
static void a_fixed_job_ends_if_a_node_is_lost_after_its_ranks(void **state)
{
    (void)state;
    begin(2, 2, 2);
    nodes[0].members.max_restarts = nodes[1].members.max_restarts = 3;
    append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                      .node = 1,
                                      .rank = 2,
                                      .exit_status = 137,
                                      .may_restart = true});
    settle();
    end_ranks(1, 137, false);
    lose(1);
    end_ranks(0, 143, false);
    wait_ms(1);
    assert_over(0, 137);
}

/* Slurm announces the end of its time to cddp-run, which tells all ranks. */
static void ranks_that_save_since_the_time_is_over_are_not_started_again(void **state)
{
    (void)state;
    begin(2, 2, 2);
    nodes[0].members.max_restarts = nodes[1].members.max_restarts = 3;
    send_signal(1, SIGUSR1);
    assert_int_equal(nodes[0].told.number, SIGUSR1);
    append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                      .node = 0,
                                      .rank = 0,
                                      .exit_status = CDDPI_STOPPED_EARLY,
                                      .may_restart = true});
    settle();
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    wait_ms(1);
    assert_over(0, CDDPI_STOPPED_EARLY);
    assert_over(1, CDDPI_STOPPED_EARLY);
}

/* Which may have a lower number than those that run. */
static void a_late_node_does_not_lead_those_that_came_before(void **state)
{
    (void)state;
    begin_outside(2, 1, 3);
    for (int i = 0; i < 2; i++) { /* nodes 1 and 2 were the first */
        for (int k = 0; k < 2; k++) {
            nodes[i].list[k].node++;
        }
    }
    nodes[2] = nodes[1];
    nodes[1] = nodes[0];
    nodes[0] = (struct node){.is_alive = false};
    for (int i = 1; i < 3; i++) {
        nodes[i].members.list = nodes[i].list;
        nodes[i].members.self = i;
    }
    append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_JOIN, .node = 0, .number = 2, .rank = -1, .text = "late"});
    settle();
    wait_ms(5000);
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    end_ranks(2, CDDPI_STOPPED_EARLY, true);
    assert_runs(1, 1, 0, 6);
    assert_runs(2, 1, 2, 6);
}

static void a_late_node_is_let_in_at_a_step_that_is_saved(void **state)
{
    (void)state;
    begin(2, 1, 3);
    join(2, 2, 1, 3);
    assert_true(nodes[0].told.kind != CDDPI_JOB_CHANGED);
    wait_ms(5000);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[1].told.number, SIGTERM);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 6);
    assert_runs(2, 1, 4, 6);
}

static void a_node_that_is_asked_to_leave_ends_with_status_3(void **state)
{
    (void)state;
    begin(3, 2, 3);
    send_signal(1, SIGTERM);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    for (int i = 0; i < 3; i++) {
        end_ranks(i, CDDPI_STOPPED_EARLY, true);
    }
    assert_over(1, CDDPI_STOPPED_EARLY);
    assert_runs(2, 1, 2, 4);
    send_signal(2, SIGINT);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_SIGNALLED);
}

static void too_few_nodes_wait_for_others_and_end_with_status_4(void **state)
{
    (void)state;
    begin(2, 2, 3);
    lose(1);
    end_ranks(0, 1, false);
    assert_int_equal(nodes[0].members.phase, CDDPI_MEMBERS_ENDED);
    join(2, 2, 2, 3);
    wait_ms(1000);
    assert_runs(0, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
    lose(2);
    end_ranks(0, 1, false);
    wait_ms(61000);
    assert_over(0, CDDPI_TOO_FEW);
}

static void more_nodes_than_the_most_wait_until_one_leaves(void **state)
{
    (void)state;
    begin(2, 1, 2);
    join(2, 2, 1, 2);
    wait_ms(5000);
    assert_false(nodes[2].runs);
    assert_int_equal(nodes[0].told.now_ns, 0); /* its ranks were told nothing */
    lose(1);
    end_ranks(0, 1, false);
    assert_runs(0, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
}

/* Such as train.micro_batch, which limits the number of ranks. */
static void a_late_node_whose_ranks_the_configuration_refuses_waits(void **state)
{
    (void)state;
    begin(2, 1, 4);
    refuses = 2;
    allowed = 5;
    join(2, 2, 1, 4);
    wait_ms(5000);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_non_null(strstr(nodes[0].said, "generation 1: 4 ranks on 2 nodes"));
    assert_runs(0, 1, 0, 4);
    assert_false(nodes[2].runs);
    wait_ms(5000);
    assert_int_equal(nodes[0].members.change.kind, CDDPI_EVENT_NONE); /* it is not tried again */
    lose(1);
    end_ranks(0, 1, false);
    assert_runs(0, 2, 0, 4);
    assert_runs(2, 2, 2, 4);
}

/* A job on nodes 0 and 1, which node 2 has joined under generation 1. */
static void begin_with_newcomer(void)
{
    begin(2, 1, 4);
    join(2, 2, 1, 4);
    wait_ms(5000);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(2, 1, 4, 6);
}

static void fail_ranks(int number)
{
    int generation = nodes[number].members.generation;

    append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                      .node = number,
                                      .generation = generation,
                                      .rank = 0,
                                      .exit_status = 7,
                                      .may_restart = true});
    settle();
    for (int i = 0; i < NODES; i++) {
        if (nodes[i].runs) {
            end_ranks(i, 7, false);
        }
    }
}

static void a_newcomer_that_fails_at_once_is_expelled(void **state)
{
    (void)state;
    begin_with_newcomer();
    fail_ranks(2);
    assert_over(2, 7);
    assert_non_null(strstr(nodes[2].said, "the others go on without this node"));
    assert_runs(0, 2, 0, 4);
    assert_runs(1, 2, 2, 4);
    wait_ms(5000);
    assert_int_equal(nodes[0].members.change.kind, CDDPI_EVENT_NONE);
}

static void a_newcomer_with_which_others_fail_again_and_again_is_expelled(void **state)
{
    (void)state;
    begin_with_newcomer();
    fail_ranks(1);
    wait_ms(1000);
    assert_runs(2, 2, 4, 6);
    fail_ranks(0);
    assert_over(2, 7);
    assert_runs(0, 3, 0, 4);
}

static void a_newcomer_that_was_useful_is_restarted_like_others(void **state)
{
    (void)state;
    begin_with_newcomer();
    wait_ms(CDDPI_SHORT_LIFE_MS);
    fail_ranks(2);
    wait_ms(1000);
    assert_runs(2, 2, 4, 6);
    fail_ranks(2);
    wait_ms(1000);
    assert_runs(2, 3, 4, 6);
}

static void what_an_expelled_node_says_changes_nothing(void **state)
{
    (void)state;
    begin(3, 2, 3);
    append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 1, .rank = -1});
    settle(); /* it is alive and hears that */
    end_ranks(0, 1, false);
    end_ranks(2, 1, false);
    assert_runs(0, 1, 0, 4);
    end_ranks(1, 7, false);
    assert_over(1, 7);
    assert_runs(0, 1, 0, 4);
    append(&(struct cddpi_node_event){
        .kind = CDDPI_EVENT_FAILURE, .node = 1, .rank = 2, .exit_status = 7, .generation = 1});
    settle();
    assert_int_equal(nodes[0].members.failure.kind, CDDPI_EVENT_NONE);
}

/* Such as one for which there was no room. */
static void the_loss_of_a_node_that_was_never_let_in_is_no_failure(void **state)
{
    (void)state;
    begin(2, 1, 3);
    append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 99, .rank = -1});
    settle();
    assert_int_equal(nodes[0].members.failure.kind, CDDPI_EVENT_NONE);
    assert_int_equal(nodes[0].told.now_ns, 0); /* its ranks were told nothing */
}

static void a_rank_that_is_asked_to_end_is_left_out(void **state)
{
    (void)state;
    begin(1, 1, 1);
    nodes[0].members.is_alone = true;
    nodes[0].members.is_elastic = true;
    nodes[0].members.least_ranks = 1;
    nodes[0].members.most_ranks = 2;
    feed(&nodes[0],
         (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_RANK_LEAVES, .number = 1});
    settle();
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[0].told.number, 0);
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 1);
}

static void leave(int number, int rank)
{
    feed(&nodes[number],
         (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_RANK_LEAVES, .number = rank});
}

/* Also before the first leave is heard, and while ranks save. */
static void ranks_of_a_node_leave_one_after_the_other(void **state)
{
    (void)state;
    begin(3, 2, 3);
    leave(2, 4);
    leave(2, 5);
    settle();
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[1].told.number, 0); /* all ranks know */
    leave(1, 3);
    settle();
    for (int i = 0; i < 3; i++) {
        end_ranks(i, CDDPI_STOPPED_EARLY, true);
    }
    assert_over(2, CDDPI_STOPPED_EARLY);
    assert_runs(0, 1, 0, 3);
    assert_runs(1, 1, 2, 3);
}

static void a_rank_that_the_job_needs_is_replaced(void **state)
{
    (void)state;
    begin(2, 1, 2);
    for (int rank = 0; rank < 2; rank++) { /* node 0 serves the store */
        leave(0, rank);
        settle();
    }
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 3);
    leave(0, 0);
    settle();
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_CHANGED);
    assert_non_null(strstr(nodes[0].members.change.text, "rank 0 leaves, and another"));
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 2, 0, 3);
}

/* The ranks of a node may have saved and ended before it hears that members change. */
static void a_rank_leaves_and_all_end_before_the_change_is_heard(void **state)
{
    (void)state;
    begin(2, 1, 2);
    nodes[0].is_alive = false; /* it is slow */
    leave(1, 2);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    nodes[0].is_alive = true;
    settle();
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 3);
    assert_runs(1, 1, 2, 3);
}

static void a_rank_that_leaves_does_not_keep_a_job_that_ends(void **state)
{
    (void)state;
    begin(2, 1, 2);
    send_signal(0, SIGTERM);
    leave(1, 3);
    settle();
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    assert_over(0, CDDPI_STOPPED_EARLY);
    assert_over(1, CDDPI_STOPPED_EARLY);
}

/* Node 0's user asks for @p event. */
static void wish(struct cddpi_node_event event)
{
    event.rank = -1;
    feed(&nodes[0], (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_ASKED, .heard = &event});
    settle();
}

static void what_a_user_asks_for_happens_on_all_nodes(void **state)
{
    (void)state;
    begin(3, 1, 3);
    wish((struct cddpi_node_event){.kind = CDDPI_EVENT_SIGNAL, .number = SIGURG});
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_SIGNALLED);
    assert_int_equal(nodes[1].told.number, SIGURG);
    assert_int_equal(nodes[1].members.asked_signal, 0); /* the job goes on */
    wish((struct cddpi_node_event){.kind = CDDPI_EVENT_SIZE, .node = 2, .number = 1});
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    assert_int_equal(nodes[2].told.number, SIGTERM); /* all ranks must hear of it */
    for (int i = 0; i < 3; i++) {
        end_ranks(i, CDDPI_STOPPED_EARLY, true);
    }
    assert_runs(2, 1, 4, 5);
    wish((struct cddpi_node_event){.kind = CDDPI_EVENT_LEAVE, .node = 1, .number = SIGTERM});
    for (int i = 0; i < 3; i++) {
        end_ranks(i, CDDPI_STOPPED_EARLY, true);
    }
    assert_over(1, CDDPI_STOPPED_EARLY);
    assert_runs(2, 2, 2, 3);
}

static void a_start_that_names_a_node_that_is_gone_is_void(void **state)
{
    (void)state;
    begin(3, 1, 3);
    lose(1);
    before_start = (struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 2, .rank = -1};
    end_ranks(0, 1, false);
    end_ranks(2, 1, false);
    assert_runs(0, 1, 0, 2);
    assert_over(2, 1);
}

static void nothing_begins_after_the_end_of_the_job(void **state)
{
    (void)state;
    begin(2, 1, 2);
    fail_rank(1);
    is_orphaned = true;
    end_ranks(0, 1, false);
    end_ranks(1, 1, false);
    assert_false(nodes[0].runs);
    assert_true(nodes[1].runs); /* it hears START before END */
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_FAILED_THERE);
    end_ranks(1, 1, false);
    assert_over(0, 1);
    assert_over(1, 1);
}

static void only_restarts_after_failures_are_counted(void **state)
{
    (void)state;
    begin(3, 1, 3);
    fail_rank(0); /* since it misses ranks of node 1 */
    lose(1);
    end_ranks(0, 1, false);
    end_ranks(2, 1, false);
    assert_runs(2, 1, 2, 4);
    assert_int_equal(nodes[2].members.made, 0);
    fail_rank(2);
    end_ranks(0, 1, false);
    end_ranks(2, 1, false);
    assert_runs(2, 2, 2, 4);
    assert_int_equal(nodes[2].members.made, 1);
    assert_int_equal(nodes[0].members.restarts.made, 1);
}

static void a_node_may_leave_while_others_are_waited_for(void **state)
{
    (void)state;
    begin(3, 3, 4);
    lose(1);
    end_ranks(0, 1, false);
    end_ranks(2, 1, false);
    send_signal(2, SIGTERM);
    assert_over(2, CDDPI_STOPPED_EARLY);
}

static void a_node_whose_launcher_is_killed_is_lost_and_the_rest_go_on(void **state)
{
    (void)state;
    begin(2, 1, 2);
    feed(&nodes[1], (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_ORPHANED});
    settle();
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_FAILED_THERE);
    end_ranks(1, 137, false);
    assert_over(1, 137);
    end_ranks(0, 1, false);
    assert_runs(0, 1, 0, 2);
}

static void the_next_node_leads_when_node_0_is_lost(void **state)
{
    (void)state;
    begin_outside(3, 1, 3);
    assert_runs(0, 0, 0, 6);
    lose(0);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_FAILED_THERE);
    end_ranks(1, 1, false);
    end_ranks(2, 1, false);
    assert_runs(1, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
    assert_int_equal(nodes[2].members.start.node, 1);
    lose(1);
    end_ranks(2, 1, false);
    assert_runs(2, 2, 0, 2);
    join(3, 3, 1, 3);
    wait_ms(5000);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    end_ranks(2, CDDPI_STOPPED_EARLY, true);
    assert_runs(3, 3, 2, 4);
    end_ranks(2, 0, true);
    end_ranks(3, 0, true);
    assert_over(2, 0);
    assert_over(3, 0);
}

/* Node @p number publishes a decision. */
static void decide(enum cddpi_node_event_kind kind, int number, int generation, const char *text)
{
    struct cddpi_node_event event = {
        .kind = kind, .node = number, .rank = -1, .generation = generation};

    snprintf(event.text, sizeof event.text, "%s", text);
    append(&event);
    settle();
}

static void a_decision_behind_its_leaders_loss_is_ignored(void **state)
{
    (void)state;
    begin_outside(3, 1, 3);
    lose(0);
    decide(CDDPI_EVENT_END, 0, 0, "");
    decide(CDDPI_EVENT_CHANGE, 0, 0, "late");
    decide(CDDPI_EVENT_START, 0, 1, "0-2");
    assert_int_equal(nodes[1].members.generation, 0);
    assert_int_equal(nodes[1].members.end.kind, CDDPI_EVENT_NONE);
    assert_int_equal(nodes[2].members.change.kind, CDDPI_EVENT_NONE);
    end_ranks(1, 1, false);
    end_ranks(2, 1, false);
    assert_runs(1, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
}

static void a_decision_before_its_leaders_loss_counts(void **state)
{
    (void)state;
    begin_outside(3, 1, 3);
    lose(2);
    end_ranks(1, 1, false);
    nodes[0].is_alive = false; /* its last word is the start of a generation with itself */
    decide(CDDPI_EVENT_DONE, 0, 0, "");
    decide(CDDPI_EVENT_START, 0, 1, "0-1");
    assert_runs(1, 1, 2, 4);
    lose(0);
    end_ranks(1, 1, false);
    assert_runs(1, 2, 0, 2);
}

static void node_0_leaves_when_it_is_asked_if_the_store_is_outside(void **state)
{
    (void)state;
    begin_outside(3, 2, 3);
    send_signal(0, SIGTERM);
    assert_int_equal(nodes[2].told.kind, CDDPI_JOB_CHANGED);
    for (int i = 0; i < 3; i++) {
        end_ranks(i, CDDPI_STOPPED_EARLY, true);
    }
    assert_over(0, CDDPI_STOPPED_EARLY);
    assert_runs(1, 1, 0, 4);
    assert_runs(2, 1, 2, 4);
}

static void a_leader_that_is_lost_after_its_ranks_have_ended_changes_nothing(void **state)
{
    (void)state;
    begin_outside(2, 1, 2);
    end_ranks(0, 0, true);
    lose(0);
    end_ranks(1, 0, true);
    assert_over(1, 0);
}

static void a_node_that_waits_leads_if_no_other_is_left(void **state)
{
    (void)state;
    begin_outside(2, 1, 2);
    join(2, 2, 1, 2);
    wait_ms(5000);
    lose(1);
    lose(0);
    assert_runs(2, 1, 0, 2);
}

static void restarts_are_counted_across_leaders(void **state)
{
    (void)state;
    begin_outside(3, 1, 3);
    for (int i = 0; i < 3; i++) {
        nodes[i].members.max_restarts = 1;
    }
    fail_rank(2);
    for (int i = 0; i < 3; i++) {
        end_ranks(i, 7, false);
    }
    assert_runs(2, 1, 4, 6);
    lose(0);
    end_ranks(1, 1, false);
    end_ranks(2, 1, false);
    assert_runs(1, 2, 0, 4);
    fail_rank(2);
    end_ranks(1, 1, false);
    end_ranks(2, 7, false);
    assert_over(1, 1);
    assert_over(2, 1);
}

static void all_end_when_an_outside_store_is_lost(void **state)
{
    const struct cddpi_node_event cut = {
        .kind = CDDPI_EVENT_CUT, .rank = -1, .exit_status = 1, .text = "it is closed"};

    (void)state;
    begin_outside(2, 1, 2);
    for (int i = 0; i < 2; i++) {
        feed(&nodes[i],
             (struct cddpi_membership_event){.kind = CDDPI_MEMBERS_HEARD, .heard = &cut});
        assert_string_equal(nodes[i].said,
                            "the job's store at tcp://head:29500 is lost: it is closed");
        nodes[i].heard = EVENTS; /* nothing more */
    }
    for (int i = 0; i < 2; i++) {
        end_ranks(i, 1, false);
        assert_over(i, 1);
    }
}

static void the_loss_of_a_node_whose_ranks_have_ended_is_no_failure(void **state)
{
    (void)state;
    begin(3, 1, 3);
    end_ranks(1, 0, true);
    lose(1);
    assert_int_equal(nodes[0].told.now_ns, 0); /* its ranks were told nothing */
    end_ranks(0, 0, true);
    end_ranks(2, 0, true);
    assert_over(0, 0);
    assert_over(2, 0);
}

static void pipelines_leave_in_whole_replicas(void **state)
{
    (void)state;
    begin(1, 1, 1);
    nodes[0].members.is_alone = true;
    nodes[0].members.is_elastic = true;
    nodes[0].members.least_ranks = 2;
    nodes[0].members.most_ranks = 4;
    append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_SIZE, .number = 4, .rank = -1});
    settle();
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 1, 0, 4);
    multiple = 2;
    leave(0, 3);
    settle();
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 2, 0, 2);
    leave(0, 1); /* no replica would be left */
    settle();
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    assert_runs(0, 3, 0, 2);
}

static void a_node_whose_replica_lost_its_other_half_waits_for_one(void **state)
{
    (void)state;
    begin(4, 1, 6);
    multiple = 4;
    lose(3);
    for (int i = 0; i < 3; i++) {
        end_ranks(i, 1, false);
    }
    assert_runs(0, 1, 0, 4);
    assert_runs(1, 1, 2, 4);
    assert_false(nodes[2].runs);
    join(4, 4, 1, 6);
    wait_ms(5000);
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_CHANGED);
    end_ranks(0, CDDPI_STOPPED_EARLY, true);
    end_ranks(1, CDDPI_STOPPED_EARLY, true);
    assert_runs(2, 2, 4, 8);
    assert_runs(4, 2, 6, 8);
}

static void a_configuration_that_no_number_of_ranks_pleases_ends_the_job(void **state)
{
    (void)state;
    begin(3, 1, 3);
    multiple = 100;
    lose(2);
    end_ranks(0, 1, false);
    end_ranks(1, 1, false);
    assert_over(0, 2);
    assert_over(1, 2);
}

/* Ranks that start handle no signals yet, but what the job has done before is saved. */
static void a_job_that_is_asked_to_end_as_a_generation_starts_has_its_checkpoint(void **state)
{
    (void)state;
    for (int has_saved = 0; has_saved < 2; has_saved++) {
        begin(1, 1, 2);
        leave(0, 1);
        settle();
        end_ranks(0, CDDPI_STOPPED_EARLY, has_saved);
        assert_runs(0, 1, 0, 1);
        send_signal(0, SIGTERM);
        end_ranks(0, 128 + SIGTERM, false);
        assert_over(0, has_saved ? CDDPI_STOPPED_EARLY : 128 + SIGTERM);
    }
}

/* Else they would save, after a later generation may have begun. */
static void the_ranks_of_an_expelled_node_are_killed(void **state)
{
    (void)state;
    begin(3, 1, 3);
    append(&(struct cddpi_node_event){.kind = CDDPI_EVENT_LOST, .node = 1, .rank = -1});
    settle();
    assert_int_equal(nodes[0].told.kind, CDDPI_JOB_FAILED_THERE);
    assert_int_equal(nodes[1].told.kind, CDDPI_JOB_ORPHANED);
    end_ranks(1, 137, false);
    assert_over(1, 137);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_nodes_run_the_first_generation_and_end_with_it),
        cmocka_unit_test(the_rest_go_on_without_a_lost_node),
        cmocka_unit_test(a_fixed_job_ends_with_a_lost_node),
        cmocka_unit_test(a_fixed_job_ends_if_a_node_is_lost_after_its_ranks),
        cmocka_unit_test(ranks_that_save_since_the_time_is_over_are_not_started_again),
        cmocka_unit_test(a_late_node_does_not_lead_those_that_came_before),
        cmocka_unit_test(a_late_node_is_let_in_at_a_step_that_is_saved),
        cmocka_unit_test(a_node_that_is_asked_to_leave_ends_with_status_3),
        cmocka_unit_test(too_few_nodes_wait_for_others_and_end_with_status_4),
        cmocka_unit_test(more_nodes_than_the_most_wait_until_one_leaves),
        cmocka_unit_test(a_late_node_whose_ranks_the_configuration_refuses_waits),
        cmocka_unit_test(a_newcomer_that_fails_at_once_is_expelled),
        cmocka_unit_test(a_newcomer_with_which_others_fail_again_and_again_is_expelled),
        cmocka_unit_test(a_newcomer_that_was_useful_is_restarted_like_others),
        cmocka_unit_test(what_an_expelled_node_says_changes_nothing),
        cmocka_unit_test(the_loss_of_a_node_that_was_never_let_in_is_no_failure),
        cmocka_unit_test(a_rank_that_is_asked_to_end_is_left_out),
        cmocka_unit_test(ranks_of_a_node_leave_one_after_the_other),
        cmocka_unit_test(a_rank_that_the_job_needs_is_replaced),
        cmocka_unit_test(pipelines_leave_in_whole_replicas),
        cmocka_unit_test(a_node_whose_replica_lost_its_other_half_waits_for_one),
        cmocka_unit_test(a_configuration_that_no_number_of_ranks_pleases_ends_the_job),
        cmocka_unit_test(a_job_that_is_asked_to_end_as_a_generation_starts_has_its_checkpoint),
        cmocka_unit_test(a_rank_leaves_and_all_end_before_the_change_is_heard),
        cmocka_unit_test(a_rank_that_leaves_does_not_keep_a_job_that_ends),
        cmocka_unit_test(what_a_user_asks_for_happens_on_all_nodes),
        cmocka_unit_test(a_start_that_names_a_node_that_is_gone_is_void),
        cmocka_unit_test(nothing_begins_after_the_end_of_the_job),
        cmocka_unit_test(only_restarts_after_failures_are_counted),
        cmocka_unit_test(a_node_may_leave_while_others_are_waited_for),
        cmocka_unit_test(a_node_whose_launcher_is_killed_is_lost_and_the_rest_go_on),
        cmocka_unit_test(the_next_node_leads_when_node_0_is_lost),
        cmocka_unit_test(a_decision_behind_its_leaders_loss_is_ignored),
        cmocka_unit_test(a_decision_before_its_leaders_loss_counts),
        cmocka_unit_test(node_0_leaves_when_it_is_asked_if_the_store_is_outside),
        cmocka_unit_test(a_leader_that_is_lost_after_its_ranks_have_ended_changes_nothing),
        cmocka_unit_test(a_node_that_waits_leads_if_no_other_is_left),
        cmocka_unit_test(restarts_are_counted_across_leaders),
        cmocka_unit_test(all_end_when_an_outside_store_is_lost),
        cmocka_unit_test(the_loss_of_a_node_whose_ranks_have_ended_is_no_failure),
        cmocka_unit_test(the_ranks_of_an_expelled_node_are_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
