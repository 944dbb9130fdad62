/* test_net_tcp_hosts.c - the tcp carrier between hosts that are network namespaces, connected by
 * veth pairs: addresses, reachability and cables are real. Skipped where namespaces are not
 * permitted. */
#include "base/clock.h"
#include "group/net/tcp/tcp.h"
#include "support/carrier.h"
#include "support/failure.h"
#include "support/test.h"

#include <sched.h>

#define TOKEN SUPPORT_TOKEN
enum {
    WAIT_MS = SUPPORT_TIMEOUT_MS,
    NOTE_PID = 0,
    HEARTBEAT_MS = 3000,
    SLOW_MS = 10000 /* more than what this machine, busy with other tests, takes to look */
};

__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
    char command[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command) == 0;
}

static int try_namespace(int rank, int world_size, void *argument)
{
    (void)rank;
    (void)world_size;
    (void)argument;
    if (unshare(CLONE_NEWNET) != 0 || !run("ip link add v0 type veth peer name v9 2>/dev/null")) {
        return 1;
    }
    return 0;
}

static void skip_without_namespaces(void)
{
    if (run_ranks(1, try_namespace, NULL) != 0) {
        print_message("network namespaces are not permitted here, or there is no ip command\n");
        skip();
    }
}

/* Two hosts with cables v0 and v1 between them: 10.77.0.R and 10.78.0.R, fd77::R and fd78::R, and
 * each with v2, which leads nowhere: 10.99.R.1. */
static int make_host(struct carrier_job *job, int rank, bool has_v4)
{
    CHECK(unshare(CLONE_NEWNET) == 0);
    atomic_store(&job->notes[NOTE_PID + rank], (int)getpid());
    CHECK(run("ip link set lo up && ip link add v2 type veth peer name v3 && "
              "ip addr add 10.99.%d.1/24 dev v2 && ip link set v2 up && ip link set v3 up",
              rank));
    CHECK(carrier_meet(job));
    for (int cable = 0; cable < 2 && rank == 0; cable++) {
        CHECK(run("ip link add v%d type veth peer name v%d netns %d", cable, cable,
                  atomic_load(&job->notes[NOTE_PID + 1])));
    }
    CHECK(carrier_meet(job));
    for (int cable = 0; cable < 2; cable++) {
        CHECK(!has_v4 || run("ip addr add 10.7%d.0.%d/24 dev v%d", 7 + cable, rank + 1, cable));
        CHECK(run("ip link set v%d up && ip addr add fd7%d::%d/64 dev v%d nodad 2>/dev/null || "
                  "test ! -e /proc/net/if_inet6",
                  cable, 7 + cable, rank + 1, cable));
    }
    return carrier_meet(job) ? 0 : 1;
}

struct job {
    struct carrier_job *shared;
    const char *interfaces[2]; /* CDDP_SOCKET_IFNAME by rank */
    const char *way;           /* NULL, or what the way from rank 0 to rank 1 says */
    const char *all[2]; /* NULL, or the interfaces that lead to the other host, in any order */
    bool has_v4;
};

static int exchange_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    CHECK(make_host(job->shared, rank, job->has_v4) == 0);
    if (job->interfaces[rank] != NULL) {
        setenv("CDDP_SOCKET_IFNAME", job->interfaces[rank], 1);
    }
    CHECK(carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, &self) == CDDP_OK);
    CHECK(carrier_exchange(&self, 3, 0) == 0);
    if (job->way != NULL) {
        const char *via = tcp_of(self.carrier)->pairs[1 - rank]->via;

        if (strstr(via, job->way) == NULL) {
            fprintf(stderr, "connected by %s, not %s\n", via, job->way);
            return 1;
        }
    }
    if (job->all[0] != NULL) {
        char names[112];

        CHECK(self.ops->interfaces(self.carrier, names, sizeof names));
        if (strcmp(names, job->all[0]) != 0 && strcmp(names, job->all[1]) != 0) {
            fprintf(stderr, "the other host is reached by %s\n", names);
            return 1;
        }
        CHECK(self.ops->interfaces(self.carrier, names, 5)); /* room for one */
        CHECK(strcmp(names, "v0") == 0 || strcmp(names, "v1") == 0);
    }
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void exchange_between_hosts(const char *first, const char *second, const char *way,
                                   bool has_v4)
{
    struct job job = {carrier_job_create(2, NULL), {first, second}, way, {NULL, NULL}, has_v4};

    assert_non_null(job.shared);
    assert_int_equal(run_ranks(2, exchange_rank, &job), 0);
    carrier_job_free(job.shared);
}

static void one_of_many_addresses_reaches_the_peer(void **state)
{
    (void)state;
    skip_without_namespaces();
    exchange_between_hosts(NULL, NULL, NULL, true);
}

/* Not v2, which leads nowhere. */
static void all_interfaces_between_hosts_are_known(void **state)
{
    struct job job = {carrier_job_create(2, NULL), {NULL, NULL}, NULL, {"v0,v1", "v1,v0"}, true};

    (void)state;
    skip_without_namespaces();
    assert_int_equal(run_ranks(2, exchange_rank, &job), 0);
    carrier_job_free(job.shared);
}

static void chosen_interfaces_are_used(void **state)
{
    (void)state;
    skip_without_namespaces();
    exchange_between_hosts("v1", "v1", "8", true);
    exchange_between_hosts("^v0,v2,lo", "=v1", "8", true);
}

static void hosts_without_ipv4_connect(void **state)
{
    (void)state;
    skip_without_namespaces();
    if (access("/proc/net/if_inet6", R_OK) != 0) {
        print_message("this kernel has no IPv6\n");
        skip();
    }
    exchange_between_hosts("v0", "v0", "fd77", false);
}

/* What one of them offers leads nowhere, so only it can connect. */
static void one_direction_that_connects_is_enough(void **state)
{
    (void)state;
    skip_without_namespaces();
    exchange_between_hosts("v2", "v0", NULL, true);
    exchange_between_hosts("v0", "v2", NULL, true);
}

static int unreachable_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    CHECK(make_host(job->shared, rank, true) == 0);
    setenv("CDDP_SOCKET_IFNAME", "v2", 1);
    CHECK(failure_is(carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, 700, &self),
                     CDDP_ERR_PEER, 0, 1, ""));
    CHECK(last_error_has("10.99."));
    CHECK(last_error_has("CDDP_SOCKET_IFNAME"));
    carrier_close(&self);
    return 0;
}

static void hosts_that_do_not_reach_each_other_say_what_was_tried(void **state)
{
    struct job job = {carrier_job_create(2, NULL), {NULL, NULL}, NULL, {NULL, NULL}, true};

    (void)state;
    skip_without_namespaces();
    assert_int_equal(run_ranks(2, unreachable_rank, &job), 0);
    carrier_job_free(job.shared);
}

/* After how long a silence the peer was given up, in seconds, as the failure says it; or -1. */
static double silence(void)
{
    const char *last = strstr(cddp_last_error(), "its host has not answered for ");
    double seconds;
    double limit;

    return last != NULL &&
                   sscanf(last,
                          "its host has not answered for %lf s, and may be silent for %lf s "
                          "(CDDP_HEARTBEAT_MS)",
                          &seconds, &limit) == 2 &&
                   limit * 1000 == HEARTBEAT_MS
               ? seconds
               : -1;
}

/* Nothing is sent when the cable is pulled, and no packet tells it. */
static int cable_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;
    uint8_t data[100];
    struct cddpi_transfer transfer = carrier_transfer(1 - rank, false, CDDPI_NET_COLLECTIVES, 1,
                                                      data, sizeof data);
    int64_t begin_ns;

    (void)world_size;
    CHECK(make_host(job->shared, rank, true) == 0);
    support_setenv_number("CDDP_HEARTBEAT_MS", HEARTBEAT_MS);
    CHECK(carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, &self) == CDDP_OK);
    CHECK(carrier_exchange(&self, 1, 0) == 0);
    CHECK(self.ops->start(self.carrier, &transfer) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    if (rank == 0) {
        CHECK(run("ip link set v0 down && ip link set v1 down"));
    }
    CHECK(failure_is(carrier_wait_failure(&self, WAIT_MS), CDDP_ERR_PEER, -1, 1 - rank, ""));
    print_message("rank %d: %s\n", rank, cddp_last_error());
    CHECK(silence() * 1000 >= HEARTBEAT_MS);
    CHECK(silence() * 1000 <= HEARTBEAT_MS + SLOW_MS);
    self.ops->forget(self.carrier);
    begin_ns = cddpi_now_ns();
    carrier_close(&self);
    CHECK(cddpi_now_ns() - begin_ns < INT64_C(60000000000));
    return 0;
}

static void a_pulled_cable_is_noticed_on_both_sides(void **state)
{
    struct job job = {carrier_job_create(2, NULL), {NULL, NULL}, NULL, {NULL, NULL}, true};

    (void)state;
    skip_without_namespaces();
    assert_int_equal(run_ranks(2, cable_rank, &job), 0);
    carrier_job_free(job.shared);
}

/* Several times, since what is under way when the cable is pulled differs. */
static int flapping_rank(int rank, int world_size, void *argument)
{
    enum { TIMES = 4, LIMIT_MS = 1000, PAUSE_US = 1200000 };
    struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    CHECK(make_host(job->shared, rank, true) == 0);
    support_setenv_number("CDDP_HEARTBEAT_MS", LIMIT_MS);
    CHECK(carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, &self) == CDDP_OK);
    for (int i = 0; i < TIMES; i++) {
        CHECK(carrier_exchange(&self, 1, 0) == 0);
        CHECK(carrier_meet(self.job));
        if (rank == 0) {
            CHECK(run("ip link set v0 down && ip link set v1 down && sleep 0.8 && "
                      "ip link set v0 up && ip link set v1 up"));
            CHECK(!job->has_v4 || run("ip addr show v0 | grep -q 10.77.0.1"));
        }
        CHECK(carrier_meet(self.job));
        usleep(PAUSE_US); /* until it would be lost at the latest */
        if (self.ops->check(self.carrier) != CDDP_OK) {
            fprintf(stderr, "rank %d, time %d: %s\n", rank, i, cddp_last_error());
            return 1;
        }
    }
    CHECK(carrier_exchange(&self, 1, 0) == 0);
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void a_cable_that_is_out_for_less_than_the_limit_is_borne(void **state)
{
    struct job job = {carrier_job_create(2, NULL), {"v0,v1", "v0,v1"}, NULL, {NULL, NULL}, true};

    (void)state;
    skip_without_namespaces();
    assert_int_equal(run_ranks(2, flapping_rank, &job), 0);
    carrier_job_free(job.shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_many_addresses_reaches_the_peer),
        cmocka_unit_test(all_interfaces_between_hosts_are_known),
        cmocka_unit_test(chosen_interfaces_are_used),
        cmocka_unit_test(hosts_without_ipv4_connect),
        cmocka_unit_test(one_direction_that_connects_is_enough),
        cmocka_unit_test(hosts_that_do_not_reach_each_other_say_what_was_tried),
        cmocka_unit_test(a_pulled_cable_is_noticed_on_both_sides),
        cmocka_unit_test(a_cable_that_is_out_for_less_than_the_limit_is_borne),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
