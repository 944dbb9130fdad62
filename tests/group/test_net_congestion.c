/* test_net_congestion.c - which congestion control algorithm of the kernel the tcp carrier sends
 * with. */
#include "group/net/tcp/congestion.h"
#include "support/carrier.h"
#include "support/failure.h"
#include "support/test.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN SUPPORT_TOKEN
enum { DESCRIPTORS = 256 };

static bool control_of(int fd, char out[17])
{
    socklen_t bytes = 16;

    memset(out, 0, 17);
    return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, out, &bytes) == 0;
}

/* A connection of this process with itself. */
static void connect_pair(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(ends[0], (const struct sockaddr *)&address, sizeof address), 0);
    ends[1] = accept(listener, NULL, NULL);
    assert_true(ends[1] >= 0);
    close(listener);
}

static void bbr_is_unfit_for_hosts_that_are_near(void **state)
{
    (void)state;
    assert_true(cddpi_tcp_congestion_is_unfit("bbr", 40));
    assert_true(cddpi_tcp_congestion_is_unfit("bbr2", 999));
    assert_false(cddpi_tcp_congestion_is_unfit("bbr", 20000));
    assert_false(cddpi_tcp_congestion_is_unfit("bbr", UINT32_MAX)); /* it is not known */
    assert_false(cddpi_tcp_congestion_is_unfit("cubic", 40));
    assert_false(cddpi_tcp_congestion_is_unfit("dctcp", 40));
}

static void a_connection_by_loopback_does_not_stay_with_bbr(void **state)
{
    char name[17];
    int ends[2];

    (void)state;
    connect_pair(ends);
    if (setsockopt(ends[0], IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) != 0) {
        close(ends[0]);
        close(ends[1]);
        print_message("this kernel has no bbr, or not for this user\n");
        skip();
    }
    cddpi_tcp_congestion_choose(ends[0]);
    assert_true(control_of(ends[0], name));
    assert_string_equal(name, "reno");
    close(ends[0]);
    close(ends[1]);
}

static void another_default_stays(void **state)
{
    char name[17];
    int ends[2];

    (void)state;
    connect_pair(ends);
    assert_int_equal(setsockopt(ends[0], IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);
    cddpi_tcp_congestion_choose(ends[0]);
    assert_true(control_of(ends[0], name));
    assert_string_equal(name, "reno");
    close(ends[0]);
    close(ends[1]);
}

struct chosen {
    struct carrier_job *job;
    char name[17];
};

/* One that everybody may use and that is not this host's default. */
static bool another_one(char out[17])
{
    char allowed[256] = "";
    char system[17] = "";
    char *rest = allowed;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "r");
    bool found = false;

    (void)control_of(fd, system);
    if (file != NULL && fgets(allowed, sizeof allowed, file) != NULL) {
        for (char *name; !found && (name = strtok_r(rest, " \n", &rest)) != NULL;) {
            found = strcmp(name, system) != 0 && strlen(name) <= 16;
            memcpy(out, name, found ? strlen(name) + 1 : 0);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    close(fd);
    return found;
}

static int chosen_rank(int rank, int world_size, void *argument)
{
    const struct chosen *wanted = argument;
    struct carrier_rank self;
    int connections = 0;
    int chosen = 0;

    (void)world_size;
    setenv("CDDP_CONGESTION", wanted->name, 1);
    setenv("CDDP_SOCKETS", "3", 1);
    CHECK(carrier_open(&cddpi_tcp_carrier, wanted->job, rank, TOKEN, SUPPORT_TIMEOUT_MS, &self) ==
          CDDP_OK);
    CHECK(carrier_exchange(&self, 4, 0) == 0);
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        struct sockaddr_storage peer;
        socklen_t bytes = sizeof peer;
        char name[17];

        if (getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 && peer.ss_family != AF_UNIX &&
            control_of(fd, name)) {
            connections++;
            chosen += strcmp(name, wanted->name) == 0;
        }
    }
    CHECK(connections >= 3);
    CHECK(chosen >= 3);
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void what_the_user_chooses_holds_for_all_connections_of_data(void **state)
{
    struct chosen chosen = {0};

    (void)state;
    if (!another_one(chosen.name)) {
        print_message("this host allows nothing but its default\n");
        skip();
    }
    chosen.job = carrier_job_create(2, NULL);
    assert_non_null(chosen.job);
    assert_int_equal(run_ranks(2, chosen_rank, &chosen), 0);
    carrier_job_free(chosen.job);
}

static int unknown_rank(int rank, int world_size, void *argument)
{
    struct carrier_rank self;

    (void)world_size;
    setenv("CDDP_CONGESTION", "no_such_thing", 1);
    CHECK(failure_is(
        carrier_open(&cddpi_tcp_carrier, argument, rank, TOKEN, SUPPORT_TIMEOUT_MS, &self),
        CDDP_ERR_ARGUMENT, 0, -1, ""));
    CHECK(last_error_has("CDDP_CONGESTION=no_such_thing"));
    carrier_close(&self);
    return 0;
}

static void one_that_the_kernel_does_not_have_lets_no_carrier_open(void **state)
{
    struct carrier_job *job = carrier_job_create(2, NULL);

    (void)state;
    assert_non_null(job);
    assert_int_equal(run_ranks(2, unknown_rank, job), 0);
    carrier_job_free(job);
}

static void one_that_the_kernel_does_not_have_is_refused(void **state)
{
    (void)state;
    setenv("CDDP_CONGESTION", "no_such_thing", 1);
    assert_true(failure_is(cddpi_tcp_congestion_check(), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("CDDP_CONGESTION=no_such_thing"));
    assert_true(last_error_has("tcp_allowed_congestion_control"));
    setenv("CDDP_CONGESTION", "system", 1);
    assert_int_equal(cddpi_tcp_congestion_check(), CDDP_OK);
    setenv("CDDP_CONGESTION", "reno", 1);
    assert_int_equal(cddpi_tcp_congestion_check(), CDDP_OK);
    unsetenv("CDDP_CONGESTION");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bbr_is_unfit_for_hosts_that_are_near),
        cmocka_unit_test(a_connection_by_loopback_does_not_stay_with_bbr),
        cmocka_unit_test(another_default_stays),
        cmocka_unit_test(what_the_user_chooses_holds_for_all_connections_of_data),
        cmocka_unit_test(one_that_the_kernel_does_not_have_is_refused),
        cmocka_unit_test(one_that_the_kernel_does_not_have_lets_no_carrier_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
