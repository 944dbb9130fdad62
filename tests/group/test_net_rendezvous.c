/* test_net_rendezvous.c - what hosts that form a group request from the store: how often, as
 * counted by the server, and whether each host receives what all have published. */
#include "base/clock.h"
#include "group/join/rendezvous.h"
#include "group/net/net.h"
#include "group/net/net_exchange.h"
#include "store/server.h"
#include "support/failure.h"
#include "support/test.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_HOSTS = 40, EXCHANGES = 3, RECORD_BYTES = 300, PART_BYTES = 1000 };

#define TOKEN SUPPORT_TOKEN

/* Where the ranks of a test meet: a store in a process of its own. Ranks that were forked beside
 * its thread might find a lock taken for ever, a sanitizer's above all. */
struct job {
    pid_t keeper;
    int commands, answers;
    char url[64];
    int hosts;
};

/* Says its port, then, when it is told to end, what it was asked. */
static int keep_store(int commands, int answers)
{
    struct cddpi_store_server_options options = {.token = TOKEN};
    struct cddpi_store_server *server;
    struct cddpi_store_served served;
    char word;
    int port;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(cddpi_store_server_create(&options, &server) == CDDP_OK);
    port = cddpi_store_server_port(server);
    CHECK(write(answers, &port, sizeof port) == sizeof port);
    CHECK(read(commands, &word, 1) == 1);
    cddpi_store_server_served(server, &served);
    CHECK(write(answers, &served, sizeof served) == sizeof served);
    cddpi_store_server_destroy(server);
    return 0;
}

static void open_job(struct job *job, int hosts)
{
    int commands[2], answers[2];
    int port = 0;

    job->hosts = hosts;
    assert_int_equal(pipe(commands), 0);
    assert_int_equal(pipe(answers), 0);
    job->keeper = fork();
    assert_true(job->keeper >= 0);
    if (job->keeper == 0) {
        _exit(keep_store(commands[0], answers[1]));
    }
    close(commands[0]);
    close(answers[1]);
    job->commands = commands[1];
    job->answers = answers[0];
    assert_int_equal(read(job->answers, &port, sizeof port), sizeof port);
    snprintf(job->url, sizeof job->url, "tcp://127.0.0.1:%d", port);
}

static struct cddpi_store_served close_job(struct job *job)
{
    struct cddpi_store_served served;
    int status;

    assert_int_equal(write(job->commands, "", 1), 1);
    assert_int_equal(read(job->answers, &served, sizeof served), sizeof served);
    assert_int_equal(waitpid(job->keeper, &status, 0), job->keeper);
    assert_int_equal(status, 0);
    close(job->commands);
    close(job->answers);
    return served;
}

/* The one rank of a host. */
struct host {
    struct net_backend net;
    struct cddpi_backend inner;
    struct cddpi_launch_env env;
    struct cddpi_rendezvous rendezvous;
    struct net_exchange exchange;
    int ranks[MOST_HOSTS + 1];
};

/* Operations of one rank. */
static cddp_status alone(struct cddpi_backend *backend, struct cddpi_group_op *op, bool *out_done)
{
    (void)backend;
    if (op->kind == CDDPI_GATHER) {
        memcpy(op->out, op->in, op->count);
    }
    *out_done = true;
    return CDDP_OK;
}

static void abort_alone(struct cddpi_backend *backend, const struct cddpi_failure *failure)
{
    (void)backend;
    (void)failure;
}

static const struct cddpi_backend_ops alone_ops = {.advance = alone, .abort = abort_alone};

static cddp_status open_host(const struct job *job, int number, struct host *out)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;

    memset(out, 0, sizeof *out);
    for (int r = 0; r <= job->hosts; r++) {
        out->ranks[r] = r;
    }
    out->net.rank = out->net.host = number;
    out->net.size = out->net.host_count = job->hosts;
    out->net.local_size = 1;
    out->net.first = out->net.by_host = out->net.leaders = out->ranks;
    out->inner.ops = &alone_ops;
    out->net.inner = &out->inner;
    out->net.timeout_ms = SUPPORT_TIMEOUT_MS;
    snprintf(out->env.store, sizeof out->env.store, "%s", job->url);
    out->env.join_timeout_ms = SUPPORT_TIMEOUT_MS;
    out->rendezvous.env = &out->env;
    out->rendezvous.deadline_ns = cddpi_deadline_ns(SUPPORT_TIMEOUT_MS);
    cddpi_net_exchange_init(&out->exchange, &out->net);
    out->exchange.rendezvous = &out->rendezvous;
    options.url = job->url;
    options.token = TOKEN;
    return cddp_store_open(&options, &out->rendezvous.store);
}

static cddp_status say(struct host *host, const void *own, size_t bytes, void *out_all)
{
    return host->exchange.base.all_gather(host->exchange.base.context, own, bytes, out_all);
}

/* What host @p host says in exchange @p number. */
static void fill(int host, int number, unsigned char record[RECORD_BYTES])
{
    for (int i = 0; i < RECORD_BYTES; i++) {
        record[i] = (unsigned char)(host * 31 + number * 7 + i);
    }
}

static int exchange_rank(int rank, int world_size, void *argument)
{
    static unsigned char all[MOST_HOSTS * RECORD_BYTES];
    const struct job *job = argument;
    unsigned char record[RECORD_BYTES];
    struct host host;

    CHECK(open_host(job, rank, &host) == CDDP_OK);
    host.exchange.part_bytes = PART_BYTES;
    for (int number = 0; number < EXCHANGES; number++) {
        fill(rank, number, record);
        CHECK(say(&host, record, sizeof record, all) == CDDP_OK);
        for (int other = 0; other < world_size; other++) {
            fill(other, number, record);
            CHECK(memcmp(all + (size_t)other * sizeof record, record, sizeof record) == 0);
        }
    }
    cddp_store_close(host.rendezvous.store);
    return 0;
}

/* Values are cut in parts here. */
static void every_host_gets_what_all_have_said(void **state)
{
    static const int hosts[] = {2, 3, 7, 8, 13, MOST_HOSTS};

    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        struct job job;

        open_job(&job, hosts[i]);
        assert_int_equal(run_ranks(hosts[i], exchange_rank, &job), 0);
        (void)close_job(&job);
    }
}

static int small_rank(int rank, int world_size, void *argument)
{
    int32_t all[MOST_HOSTS];
    struct host host;

    CHECK(open_host(argument, rank, &host) == CDDP_OK);
    for (int number = 0; number < EXCHANGES; number++) {
        int32_t own = rank + 1000 * number;

        CHECK(say(&host, &own, sizeof own, all) == CDDP_OK);
        for (int other = 0; other < world_size; other++) {
            CHECK(all[other] == other + 1000 * number);
        }
    }
    cddp_store_close(host.rendezvous.store);
    return 0;
}

static int log2_up(int n)
{
    int log = 0;

    while (1 << log < n) {
        log++;
    }
    return log;
}

/* In each exchange a host sets its key, reads host 0's, deletes its last one, and reads one for
 * each of its children in a binomial tree. */
static void an_exchange_costs_the_store_4_requests_a_host_and_a_host_their_logarithm(void **state)
{
    static const int hosts[] = {2, 3, 8, 16, 33, MOST_HOSTS};

    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        struct cddpi_store_served served;
        struct job job;

        open_job(&job, hosts[i]);
        assert_int_equal(run_ranks(hosts[i], small_rank, &job), 0);
        served = close_job(&job);
        print_message("%d hosts: %llu requests, at most %llu of one\n", hosts[i],
                      (unsigned long long)served.requests, (unsigned long long)served.most);
        assert_in_range(served.requests, 1, EXCHANGES * 4 * (uint64_t)hosts[i]);
        assert_in_range(served.most, 1, (uint64_t)(EXCHANGES * (log2_up(hosts[i]) + 3)));
    }
}

/* As cddp-run starts it: the store is not rank 0's. */
static cddp_status join(const struct job *job, int rank, int world_size, cddp_group **out)
{
    char name[32];

    snprintf(name, sizeof name, "test host %d", rank);
    setenv("CDDP_HOST_ID", name, 1);
    setenv("CDDP_CARRIER", "tcp", 1);
    setenv("CDDP_SOCKETS", "1", 1);
    setenv("CDDP_STORE", job->url, 1);
    setenv("CDDP_TOKEN", TOKEN, 1);
    setenv("CDDP_JOB", "test", 1);
    support_setenv_number("CDDP_RANK", rank);
    support_setenv_number("CDDP_WORLD_SIZE", world_size);
    setenv("CDDP_LOCAL_RANK", "0", 1);
    setenv("CDDP_LOCAL_WORLD_SIZE", "1", 1);
    setenv("CDDP_TIMEOUT_MS", "300000", 1);
    setenv("CDDP_DEVICE", "cpu", 1);
    return cddp_group_create(NULL, out);
}

static int join_rank(int rank, int world_size, void *argument)
{
    float sum = (float)rank;
    cddp_group *group;

    CHECK(join(argument, rank, world_size, &group) == CDDP_OK);
    CHECK(cddp_all_reduce(group, &sum, &sum, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(sum == (float)(world_size * (world_size - 1) / 2));
    cddp_group_destroy(group);
    return 0;
}

/* All that a rank does until the group is there, over real connections between its leaders. */
static void a_group_costs_the_store_as_many_requests_a_host_however_many_hosts_it_has(void **state)
{
    enum { REQUESTS = 32 }; /* of a host */
    static const int hosts[] = {2, 4, 8, 16};

    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        struct cddpi_store_served served;
        struct job job;

        open_job(&job, hosts[i]);
        assert_int_equal(run_ranks(hosts[i], join_rank, &job), 0);
        served = close_job(&job);
        print_message("%d hosts join: %llu requests, %.1f a host\n", hosts[i],
                      (unsigned long long)served.requests, (double)served.requests / hosts[i]);
        assert_in_range(served.requests, 1, REQUESTS * (uint64_t)hosts[i]);
    }
}

/* On one core, which it has alone as far as its host goes. */
static int lone_rank(int rank, int world_size, void *argument)
{
    cpu_set_t cores;
    cddp_group *group;
    int core = 0;

    CHECK(sched_getaffinity(0, sizeof cores, &cores) == 0);
    while (!CPU_ISSET(core, &cores)) {
        core++;
    }
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    CHECK(sched_setaffinity(0, sizeof cores, &cores) == 0);
    CHECK(join(argument, rank, world_size, &group) == CDDP_OK);
    CHECK(group->local_world_size == 1);
    CHECK(group->queue.yields == 0 && group->queue.spin_ns > 0);
    cddp_group_destroy(group);
    return 0;
}

/* Ranks of other hosts take nothing of a host's cores. */
static void a_rank_that_has_its_host_alone_spins_for_what_comes(void **state)
{
    struct job job;

    (void)state;
    open_job(&job, 3);
    assert_int_equal(run_ranks(3, lone_rank, &job), 0);
    (void)close_job(&job);
}

/* Host @p number's turn in an exchange whose deadline has passed. */
static int late_host(const struct job *job, int number, bool knows_all_others)
{
    int32_t own = number;
    int32_t all[MOST_HOSTS];
    bool existed;
    struct host host;

    CHECK(open_host(job, number, &host) == CDDP_OK);
    host.rendezvous.deadline_ns = 1;
    CHECK(say(&host, &own, sizeof own, all) == CDDP_ERR_TIMEOUT);
    CHECK(!knows_all_others || last_error_has("joining: rank 5 did not come to tcp://"));
    CHECK(cddp_store_delete(host.rendezvous.store, "net/refused", &existed) == CDDP_OK && existed);
    cddp_store_close(host.rendezvous.store);
    return 0;
}

/* One after the other: only host 5 of 8 does not come, for which 4 waits, for which 0 waits. */
static int late_rank(int rank, int world_size, void *argument)
{
    static const int order[] = {7, 6, 3, 2, 1, 4, 0, 7, 1, 3};

    (void)rank;
    (void)world_size;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        CHECK(late_host(argument, order[i], i >= 5) == 0);
    }
    return 0;
}

static void a_host_that_does_not_come_is_named_also_by_those_that_wait_for_others(void **state)
{
    struct job job;

    (void)state;
    open_job(&job, 8);
    assert_int_equal(run_ranks(1, late_rank, &job), 0);
    (void)close_job(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_host_gets_what_all_have_said),
        cmocka_unit_test(an_exchange_costs_the_store_4_requests_a_host_and_a_host_their_logarithm),
        cmocka_unit_test(a_group_costs_the_store_as_many_requests_a_host_however_many_hosts_it_has),
        cmocka_unit_test(a_rank_that_has_its_host_alone_spins_for_what_comes),
        cmocka_unit_test(a_host_that_does_not_come_is_named_also_by_those_that_wait_for_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
