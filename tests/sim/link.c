/* link.c - drives the real state machine of a node's link with the job's store (link_state.c) over
 * the simulated network, as link_threads.c does over the real one. */
#include "tests/sim/sim.h"

#include "store/store_table.h"

#include <string.h>

enum { CLOSE_MS = 3000 };

static void drive(struct sim_node *node, enum cddpi_link_side side);

static struct cddpi_link_now now_of(const struct sim_node *node)
{
    int64_t now_ns = sim_clock(node->host);

    return (struct cddpi_link_now){now_ns, now_ns + sim.hosts[node->host].slept_ns};
}

int64_t sim_slept_ms(const struct sim_node *node)
{
    struct cddpi_link_now now = now_of(node);

    return sim.plan.is_alone || !cddpi_membership_is_dispensable(&node->members)
               ? 0
               : cddpi_link_slept_ms(&node->link.state, &now);
}

/* Whether @p node is the process that has started the nodes, and serves their store. */
static bool is_head(const struct sim_node *node)
{
    return sim.plan.has_head && node->number == SIM_WATCHER;
}

static void send(struct sim_node *node, enum cddpi_link_side side,
                 const struct cddpi_link_request *request)
{
    struct sim_side *there = &node->link.sides[side];
    struct sim_message *message = sim_message_create();

    if (request->kind == CDDPI_LINK_RECONNECT) {
        there->connection++;
        there->arrives_ns[0] = there->arrives_ns[1] = 0;
    }
    message->node = node->number;
    message->side = side;
    message->request = request->kind;
    message->connection = there->connection;
    message->number = there->request = ++sim.requests;
    message->wait_ms = request->wait_ms;
    snprintf(message->key, sizeof message->key, "%s", request->key);
    if (request->value != NULL) {
        message->value = cddpi_value_create(request->value, request->bytes);
    }
    if (!is_head(node)) { /* it waits for 60 s, and its own process always answers */
        sim_at(sim_when(node->host, request->until_ns), SIM_OVERDUE, node->number, (int)side,
               message->number);
    }
    sim_send(message);
}

/* Let @p side do what it has to do next. */
static void drive(struct sim_node *node, enum cddpi_link_side side)
{
    struct sim_side *there = &node->link.sides[side];
    struct cddpi_link_now now = now_of(node);
    struct cddpi_link_request request;

    cddpi_link_next(&node->link.state, side, &now, &request);
    there->request = 0;
    there->waits = request.kind == CDDPI_LINK_WAIT;
    if (there->waits) {
        there->request = ++sim.requests;
        sim_at(sim_when(node->host, request.until_ns), SIM_OVERDUE, node->number, (int)side,
               there->request);
    } else if (request.kind != CDDPI_LINK_OVER) {
        send(node, side, &request);
    } else if (side == CDDPI_LINK_TELLER && node->link.state.is_ending) {
        sim_in(0, SIM_NODE_EXIT, node->number, 0, 0);
    }
}

static void take(struct sim_node *node, enum cddpi_link_side side,
                 const struct cddpi_link_answer *answer)
{
    struct cddpi_link_now now = now_of(node);
    bool is_event = answer->status == CDDP_OK && side == CDDPI_LINK_HEARER &&
                    node->link.state.hearer.asked == CDDPI_LINK_GET;
    struct cddpi_node_event event;

    cddpi_link_take(&node->link.state, side, &now, answer, &event);
    if (is_event && event.kind != CDDPI_EVENT_CUT) {
        sim_in(0, SIM_NODE_HEAR, node->number, (int)node->link.state.hearer.number - 1, 1);
    } else if (event.kind != CDDPI_EVENT_NONE) {
        node->link.own = event;
        sim_say("%s notices: %s", sim_node_name(node), sim_event_words(&event));
        sim_in(0, SIM_NODE_HEAR, node->number, 0, 0);
    }
    drive(node, side);
}

/* For a planted fault: a sign of life that is always new. */
static const char *fresh_beat(void)
{
    static char beat[24];

    snprintf(beat, sizeof beat, "%lld", (long long)sim.requests);
    return beat;
}

void sim_link_answered(struct sim_node *node, const struct sim_message *message)
{
    const struct sim_side *there = &node->link.sides[message->side];

    const char *beat = fresh_beat();

    if (message->connection != there->connection || message->number != there->request) {
        return;
    }
    if (sim_planted(SIM_PLANT_NO_WATCH) &&
        node->number == (sim.plan.has_store ? (int)SIM_WATCHER : (int)CDDPI_LEADER) &&
        message->request == CDDPI_LINK_TRY_GET) {
        sim.planted++;
        take(node, message->side,
             &(const struct cddpi_link_answer){.value = beat, .bytes = strlen(beat), .error = ""});
    } else {
        take(node, message->side,
             &(const struct cddpi_link_answer){
                 .status = message->status,
                 .is_set = message->is_set,
                 .value = message->value != NULL ? message->value->data : NULL,
                 .bytes = message->value != NULL ? message->value->bytes : 0,
                 .error = message->status == CDDP_OK ? "" : "the connection is refused"});
    }
}

void sim_link_overdue(struct sim_node *node, enum cddpi_link_side side, int64_t request)
{
    if (node->link.sides[side].request != request) {
        return;
    }
    if (node->link.sides[side].waits) {
        drive(node, side);
    } else {
        take(node, side,
             &(const struct cddpi_link_answer){.status = CDDP_ERR_TIMEOUT, .error = "no answer"});
    }
}

void sim_link_reset(struct sim_node *node, enum cddpi_link_side side, int connection)
{
    const struct sim_side *there = &node->link.sides[side];

    if (there->connection == connection && there->request != 0 && !there->waits) {
        take(node, side,
             &(const struct cddpi_link_answer){.status = CDDP_ERR_IO,
                                               .error = "the connection is broken"});
    }
}

/* The teller waits, and something is to be told. */
static void wake_teller(struct sim_node *node)
{
    if (node->link.sides[CDDPI_LINK_TELLER].waits) {
        sim_in(0, SIM_TELL, node->number, 0, 0);
    }
}

void sim_link_tell(struct sim_node *node)
{
    if (node->link.sides[CDDPI_LINK_TELLER].waits && cddpi_link_wants_to_tell(&node->link.state)) {
        drive(node, CDDPI_LINK_TELLER);
    }
}

/* A job on one machine hears what it has published. */
static void publish_alone(const struct sim_node *node, const struct cddpi_node_event *event)
{
    if (sim.event_count == SIM_EVENTS) {
        sim_break("the log has no room for so many events");
        return;
    }
    sim.events[sim.event_count] = *event;
    sim.log_count++;
    sim_say("log: %s", sim_event_words(event));
    sim_rule_appended(event);
    sim_in(0, SIM_NODE_HEAR, node->number, sim.event_count++, 1);
}

void sim_link_publish(struct sim_node *node, const struct cddpi_node_event *event)
{
    if (sim.plan.is_alone) {
        publish_alone(node, event);
        return;
    }
    cddpi_link_publish(&node->link.state, event);
    wake_teller(node);
}

void sim_link_tell_ranks(struct sim_node *node, int generation)
{
    char key[32];

    if (sim.plan.is_alone) {
        sim_in(0, SIM_TOLD, generation, 0, 0);
        return;
    }
    snprintf(key, sizeof key, SIM_RANKS "%d", generation);
    cddpi_link_set(&node->link.state, key, "a rank has failed");
    wake_teller(node);
}

void sim_link_open(struct sim_node *node)
{
    uint32_t look_ms = cddpi_silence_look_ms(sim.plan.limit_ms);
    uint32_t answer_ms = sim.plan.limit_ms / 8;
    int numbers[SIM_HOSTS];
    struct cddpi_link_now now = now_of(node);
    struct cddpi_link_options options = {.job = SIM_JOB,
                                         .self = node->number == SIM_WATCHER ? -1 : node->number,
                                         .has_outside_store = sim.plan.has_store,
                                         .nodes = numbers,
                                         .count = sim.met_count,
                                         .limit_ms = sim.plan.limit_ms,
                                         .look_ms = look_ms,
                                         .can_mend = !is_head(node),
                                         .answer_ms = is_head(node)      ? 60000
                                                      : answer_ms < 500  ? 500
                                                      : answer_ms > 1500 ? 1500
                                                                         : answer_ms};

    if (sim.plan.is_alone) {
        return;
    }
    for (int i = 0; i < sim.met_count; i++) {
        numbers[i] = sim.met[i].number;
    }
    if (cddpi_link_init(&options, &now, &node->link.state) != CDDP_OK) {
        sim_break("a link cannot be made");
        return;
    }
    drive(node, CDDPI_LINK_TELLER);
    drive(node, CDDPI_LINK_HEARER);
}

void sim_link_close(struct sim_node *node)
{
    if (sim.plan.is_alone || node->link.state.is_cut) {
        sim_in(0, SIM_NODE_EXIT, node->number, 0, 0);
        return;
    }
    cddpi_link_end(&node->link.state, sim_clock(node->host) + CLOSE_MS * SIM_MS);
    wake_teller(node);
}

void sim_link_fini(struct sim_node *node)
{
    if (!sim.plan.is_alone) {
        cddpi_link_fini(&node->link.state);
    }
}
