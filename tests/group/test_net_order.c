/* test_net_order.c - collectives between hosts, all simulated in this process, over a carrier that,
 * like tcp, reads a connection only as far as messages are expected. No order in which hosts and
 * connections make progress may let hosts wait for each other for ever. */
#include "base/alloc.h"
#include "group/net/net.h"
#include "group/net/net_collective.h"
#include "group/net/net_plan.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

enum { HOSTS = 5, COUNT = 12 << 14, MESSAGES = 1024, RUNS = 80 };

static uint64_t state;

static int draw(int below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int)((state >> 11) % (uint64_t)below);
}

/* What is between two hosts in one direction: of so many messages the data are under way, and
 * their senders go on; others are done when they arrive. */
struct message {
    struct cddpi_transfer *send; /* NULL: it is done */
    uint32_t tag;
    size_t bytes;
    void *data;
};
struct wire {
    struct message messages[MESSAGES];
    int first, taken, end;
    int room;
    struct cddpi_transfer *recvs[MESSAGES]; /* NULL: done */
    int wanted;
    int delay; /* of so many turns it takes, one brings something, on average */
};

static struct wire wires[HOSTS][HOSTS]; /* from, to */
static bool is_slow;                    /* connections are idle at random */
static int arrivals;

struct ordered_carrier {
    struct cddpi_carrier base; /* first: see ordered_of() */
    int host;
};

static inline struct ordered_carrier *ordered_of(struct cddpi_carrier *base)
{
    return (struct ordered_carrier *)(void *)base;
}

/* Take as many messages as there is room for. */
static void take(struct wire *wire)
{
    for (; wire->taken < wire->end && wire->taken - wire->first < wire->room; wire->taken++) {
        struct message *message = &wire->messages[wire->taken];

        message->data = malloc(message->bytes + 1);
        if (message->bytes > 0) {
            memcpy(message->data, message->send->data, message->bytes);
        }
        message->send->is_done = true;
        message->send = NULL;
    }
}

static cddp_status start(struct cddpi_carrier *base, struct cddpi_transfer *transfer)
{
    struct ordered_carrier *carrier = ordered_of(base);
    struct wire *wire = transfer->is_send ? &wires[carrier->host][transfer->peer]
                                          : &wires[transfer->peer][carrier->host];

    assert_true(wire->end < MESSAGES && wire->wanted < MESSAGES);
    if (transfer->is_send) {
        wire->messages[wire->end++] = (struct message){transfer, transfer->tag, transfer->bytes,
                                                       NULL};
        take(wire);
    } else {
        wire->recvs[wire->wanted++] = transfer;
    }
    return CDDP_OK;
}

/* Let the first message of @p wire arrive, if somebody wants it. */
static bool arrive(struct wire *wire)
{
    struct message *message = &wire->messages[wire->first];

    for (int i = 0; wire->first < wire->end && i < wire->wanted; i++) {
        struct cddpi_transfer *recv = wire->recvs[i];

        if (recv != NULL && recv->tag == message->tag) {
            assert_int_equal(recv->bytes, message->bytes);
            if (recv->bytes > 0) {
                memcpy(recv->data, message->send != NULL ? message->send->data : message->data,
                       recv->bytes);
            }
            if (message->send != NULL) {
                message->send->is_done = true;
                wire->taken++;
            }
            free(message->data);
            recv->is_done = true;
            wire->recvs[i] = NULL;
            wire->first++;
            take(wire);
            arrivals++;
            return true;
        }
    }
    return false;
}

static cddp_status progress(struct cddpi_carrier *base, bool *out_any)
{
    struct ordered_carrier *carrier = ordered_of(base);

    for (int from = 0; from < HOSTS; from++) {
        struct wire *wire = &wires[from][carrier->host];

        while ((!is_slow || draw(wire->delay) == 0) && arrive(wire)) {
            *out_any = true;
        }
    }
    return CDDP_OK;
}

static bool forget(struct cddpi_carrier *base)
{
    (void)base;
    return true;
}

static const struct cddpi_carrier_ops carrier_ops = {
    .name = "in order", .start = start, .progress = progress, .forget = forget};

/* One host with one rank. */
struct host {
    struct net_backend net;
    struct ordered_carrier carrier;
    struct cddpi_group_op op;
    float data[COUNT];
    bool is_done;
};

static struct host hosts[HOSTS];
static int numbers[HOSTS + 1];
static int zeros[HOSTS];

static void init_host(int h, int n, struct cddpi_link link)
{
    static struct cddpi_backend alone; /* within a host nothing moves */
    struct host *host = &hosts[h];

    host->carrier.base.ops = &carrier_ops;
    host->carrier.host = h;
    host->net = (struct net_backend){.rank = h,
                                     .size = n,
                                     .host = h,
                                     .host_count = n,
                                     .local_size = 1,
                                     .host_of = numbers,
                                     .local_of = zeros,
                                     .by_host = numbers,
                                     .first = numbers,
                                     .leaders = numbers,
                                     .leader_count = 1,
                                     .inner = &alone,
                                     .carrier = &host->carrier.base,
                                     .link = link};
    assert_true(cddpi_tree_init(n, numbers, n, &host->net.tree));
    assert_int_equal(cddpi_net_collective_open(&host->net), CDDP_OK);
    for (int i = 0; i < COUNT; i++) {
        host->data[i] = (float)(i % 1000 + h);
    }
    host->is_done = false;
    host->op = (struct cddpi_group_op){.kind = CDDPI_ALL_REDUCE,
                                       .type = CDDP_F32,
                                       .op = CDDP_OP_SUM,
                                       .count = COUNT,
                                       .in = host->data,
                                       .out = host->data,
                                       .number = 1};
}

static void fini_host(struct host *host)
{
    cddpi_net_drop(&host->net.base, &host->op);
    for (int a = 0; a < CDDPI_ALGORITHMS; a++) {
        cddpi_net_plan_fini(&host->net.plans[a]);
    }
    cddpi_net_collective_close(&host->net);
    cddpi_tree_fini(&host->net.tree);
}

/* Returns whether the host came further. */
static bool advance(struct host *host)
{
    int before = arrivals;

    if (host->is_done) {
        return false;
    }
    assert_int_equal(cddpi_net_advance(&host->net.base, &host->op, &host->is_done), CDDP_OK);
    return arrivals > before || host->is_done;
}

/* Hosts get their turn at random, then, when that brings nothing, each with all that can arrive. */
static bool run(int n)
{
    for (int idle = 0; idle < 2;) {
        bool any = false;

        is_slow = idle == 0;
        for (int i = 0; i < 20 * n; i++) {
            any = advance(&hosts[is_slow ? draw(n) : i % n]) || any;
        }
        idle = any ? 0 : idle + 1;
    }
    for (int h = 0; h < n; h++) {
        if (!hosts[h].is_done) {
            return false;
        }
    }
    return true;
}

/* Which algorithm the hosts have taken. */
static enum cddpi_algorithm algorithm_of(const struct host *host)
{
    int a = 0;

    while (a < CDDPI_ALGORITHMS - 1 && !host->net.plans[a].is_made) {
        a++;
    }
    return (enum cddpi_algorithm)a;
}

static void check_sums(int n)
{
    for (int h = 0; h < n; h++) {
        for (int i = 0; i < COUNT; i++) {
            assert_true(hosts[h].data[i] == (float)(i % 1000 * n + n * (n - 1) / 2));
        }
    }
}

static void run_once(int seed, int n)
{
    struct cddpi_link link = {1e-9, 1e9, 1e12}; /* so that pieces are as small as they get */

    state = 88172645463325252u + (uint64_t)seed;
    memset(wires, 0, sizeof wires);
    for (int i = 0; i < HOSTS * HOSTS; i++) {
        struct wire *wire = &wires[i / HOSTS][i % HOSTS];

        wire->delay = draw(3) == 0 ? 60 : 1 + draw(4);
        wire->room = draw(3) == 0 ? 0 : draw(12);
    }
    for (int h = 0; h < n; h++) {
        init_host(h, n, link);
    }
    if (!run(n)) {
        fail_msg("%d hosts wait for each other, by %s, with seed %d", n,
                 cddpi_algorithm_names[algorithm_of(&hosts[0])], seed);
    }
    check_sums(n);
    for (int h = 0; h < n; h++) {
        fini_host(&hosts[h]);
    }
}

static void no_order_of_arrival_lets_hosts_wait_for_each_other(void **unused)
{
    (void)unused;
    for (int i = 0; i <= HOSTS; i++) {
        numbers[i] = i;
    }
    for (int seed = 1; seed <= RUNS; seed++) {
        run_once(seed, 2 + seed % (HOSTS - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_of_arrival_lets_hosts_wait_for_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
