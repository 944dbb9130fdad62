/* network.c - owns what lies between hosts: how long messages take, and the store that the process
 * of node 0 (or the head) serves, whose table of keys is the real one.
 *
 * A message over a connection is neither lost nor overtaken by a later one over the same
 * connection. While its direction is blocked, it waits (TCP repeats it), so it may arrive long
 * after its sender has given the connection up, and after messages over the next connection. */
#include "tests/sim/sim.h"

#include "store/store_table.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_OF(pointer)                                                                        \
    ((struct sim_message *)((char *)(pointer)-offsetof(struct sim_message, waiter)))

int64_t sim_arrival(int from, int to)
{
    int64_t free_ns = sim.blocked_until_ns[from][to];
    int64_t delay_ns = from == to ? 20000 : sim_between(50, 2000) * 1000;

    if (from != to && sim_chance(1)) {
        delay_ns += sim_between(1, 400) * SIM_MS; /* a packet is lost and repeated */
    }
    if (free_ns == SIM_NEVER) {
        return SIM_NEVER;
    }
    if (free_ns > sim.now_ns) {
        return free_ns + sim_between(1, 1000) * SIM_MS;
    }
    return sim.now_ns + delay_ns;
}

bool sim_can_reach(int from, int to)
{
    return sim.blocked_until_ns[from][to] <= sim.now_ns &&
           sim.blocked_until_ns[to][from] <= sim.now_ns;
}

struct sim_message *sim_message_create(void)
{
    for (int i = 0; i < SIM_MESSAGES; i++) {
        struct sim_message *message = &sim.messages[(sim.message_hint + i) % SIM_MESSAGES];

        if (!message->is_used) {
            sim.message_hint = (int)(message - sim.messages) + 1;
            *message = (struct sim_message){.is_used = true};
            return message;
        }
    }
    sim_break("the simulator has no room for so many messages");
    return &sim.messages[0];
}

void sim_message_release(struct sim_message *message)
{
    cddpi_value_release(message->value);
    message->value = NULL;
    message->is_used = false;
}

/* Pass the message on in direction @p way of its connection: 0 to the store, 1 back. */
static void carry(struct sim_message *message, int way)
{
    struct sim_node *node = &sim.nodes[message->node];
    struct sim_side *side = &node->link.sides[message->side];
    int there = sim_store_host();
    int64_t at_ns = way == 0 ? sim_arrival(node->host, there) : sim_arrival(there, node->host);

    if (at_ns == SIM_NEVER || sim.hosts[way == 0 ? there : node->host].is_off) {
        sim_message_release(message);
        return;
    }
    if (message->connection == side->connection) {
        at_ns = at_ns > side->arrives_ns[way] ? at_ns : side->arrives_ns[way];
        side->arrives_ns[way] = at_ns;
    }
    sim_at(at_ns, way == 0 ? SIM_REQUEST : SIM_ANSWER, (int)(message - sim.messages), 0, 0);
}

void sim_send(struct sim_message *message)
{
    carry(message, 0);
}

static void answer(struct sim_message *message, cddp_status status)
{
    message->status = status;
    carry(message, 1);
}

static struct cddpi_slice key_of(const struct sim_message *message)
{
    return (struct cddpi_slice){(const uint8_t *)message->key, strlen(message->key)};
}

/* An event of the job's log, or a word to the ranks, is in the store now. */
static void note_key(const struct sim_message *message)
{
    struct cddpi_node_event *event;

    if (strncmp(message->key, SIM_RANKS, strlen(SIM_RANKS)) == 0) {
        sim_in(0, SIM_TOLD, atoi(message->key + strlen(SIM_RANKS)), 0, 0);
        return;
    }
    if (strncmp(message->key, SIM_JOB "/event/", strlen(SIM_JOB "/event/")) != 0) {
        return;
    }
    if (sim.event_count == SIM_EVENTS) {
        sim_break("the log has no room for so many events");
        return;
    }
    event = &sim.events[sim.event_count];
    if (cddpi_node_event_decode(message->value->data, message->value->bytes, event) != CDDP_OK) {
        sim_break("what a node publishes is not an event");
        return;
    }
    sim.event_count++;
    sim.log_count++;
    sim_say("log %s: %s", message->key, sim_event_words(event));
    sim_rule_appended(event);
}

static void perform(struct sim_message *message, enum cddpi_store_op op)
{
    struct cddpi_store_request request = {.op = op, .want_value = true, .key = key_of(message)};
    struct cddpi_effect effect;
    struct cddpi_table_outcome outcome;
    struct cddpi_waiter *woken = NULL;

    if (message->value != NULL) {
        request.value = (struct cddpi_slice){message->value->data, message->value->bytes};
    }
    cddpi_table_decide(sim.table, &request, &effect, &outcome);
    if (effect.kind != CDDPI_EFFECT_NONE) {
        (void)cddpi_table_commit(sim.table, &effect, &woken);
        note_key(message);
    }
    cddpi_value_release(message->value);
    message->value = outcome.value;
    message->is_set = outcome.flag;
    cddpi_effect_fini(&effect);
    if (op == CDDPI_STORE_GET && outcome.status == CDDP_ERR_NOT_FOUND) {
        (void)cddpi_table_park(sim.table, key_of(message), &message->waiter);
        sim_in(message->wait_ms * SIM_MS, SIM_WAITED, (int)(message - sim.messages), 0,
               message->number);
        return;
    }
    answer(message, outcome.status);
    while (woken != NULL) {
        struct sim_message *waiting = MESSAGE_OF(woken);

        woken = woken->next;
        waiting->waiter.entry = NULL;
        perform(waiting, CDDPI_STORE_GET);
    }
}

void sim_store_take(struct sim_message *message)
{
    if (sim.hosts[sim_store_host()].is_off) {
        sim_message_release(message); /* nothing answers */
        return;
    }
    if (!sim_store_is_served()) {
        answer(message, CDDP_ERR_IO);
        return;
    }
    switch (message->request) {
    case CDDPI_LINK_SET:
        perform(message, CDDPI_STORE_SET);
        break;
    case CDDPI_LINK_COMPARE_SET:
        perform(message, CDDPI_STORE_COMPARE_SET);
        break;
    case CDDPI_LINK_GET:
        perform(message, CDDPI_STORE_GET);
        break;
    case CDDPI_LINK_TRY_GET:
        perform(message, CDDPI_STORE_TRY_GET);
        break;
    default:
        answer(message, CDDP_OK);
        break;
    }
}

void sim_store_waited(struct sim_message *message, int64_t number)
{
    if (message->is_used && message->number == number && message->waiter.entry != NULL) {
        cddpi_table_unpark(sim.table, &message->waiter);
        message->waiter.entry = NULL;
        answer(message, CDDP_ERR_TIMEOUT);
    }
}

/* The connection of @p node has closed: its last word replaces its sign of life. */
void sim_store_gone(const struct sim_node *node)
{
    struct sim_message *message;

    if (!sim_store_is_served()) {
        return;
    }
    message = sim_message_create();
    message->node = node->number;
    message->request = CDDPI_LINK_SET;
    message->connection = -1;
    cddpi_link_beat_key(&node->link.state, node->number, message->key);
    message->value = cddpi_value_create(CDDPI_NODE_GONE, strlen(CDDPI_NODE_GONE));
    perform(message, CDDPI_STORE_SET);
}

static void drop_waiters(void)
{
    for (int i = 0; i < SIM_MESSAGES; i++) {
        if (sim.messages[i].is_used && sim.messages[i].waiter.entry != NULL) {
            cddpi_table_unpark(sim.table, &sim.messages[i].waiter);
            sim.messages[i].waiter.entry = NULL;
            sim_message_release(&sim.messages[i]);
        }
    }
}

void sim_store_end(bool is_silent)
{
    int there = sim_store_host();

    drop_waiters();
    for (int i = sim.plan.has_head ? 0 : 1; !is_silent && i < sim.node_count; i++) {
        for (int side = 0; side < 2; side++) {
            sim_at(sim_arrival(there, sim.nodes[i].host), SIM_RESET, i, side,
                   sim.nodes[i].link.sides[side].connection);
        }
    }
}

void sim_store_fini(void)
{
    if (sim.table == NULL) {
        return;
    }
    drop_waiters();
    for (int i = 0; i < SIM_MESSAGES; i++) {
        if (sim.messages[i].is_used) {
            sim_message_release(&sim.messages[i]);
        }
    }
    cddpi_table_destroy(sim.table);
    sim.table = NULL;
}
