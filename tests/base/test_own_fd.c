/* test_own_fd.c - descriptors that child processes do not inherit. */
#include "base/child.h"

#include "support/test.h"

#include <cddp/status.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/resource.h>

enum { SIZE = 3 };

/* Connections of a process that dies, and what its child waits for. */
struct test {
    int ends[SIZE][2];
    int signal[2];
};

static int set_up(void **state)
{
    struct test *test = calloc(1, sizeof *test);
    int status = pipe(test->signal);

    for (int i = 0; i < SIZE; i++) {
        status |= socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, test->ends[i]);
    }
    *state = test;
    return status;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

/* Take every number that is left, so that a fork begins with none. */
static void fill_table(void)
{
    struct rlimit limit = {64, 64};

    setrlimit(RLIMIT_NOFILE, &limit);
    while (dup(STDIN_FILENO) >= 0) {
        continue;
    }
}

/* Owns one end of each pair, leaves a child behind, and dies. */
static void be_process(struct test *test, bool is_full)
{
    char go;

    for (int i = 0; i < SIZE; i++) {
        close(test->ends[i][1]);
        (void)cddpi_own_fd(test->ends[i][0]);
    }
    if (is_full) {
        fill_table();
    }
    if (fork() == 0) {
        close(test->signal[1]);
        _exit(read(test->signal[0], &go, 1) != 0); /* until the test ends */
    }
    raise(SIGKILL);
}

static void expect_ends(struct test *test, bool is_full)
{
    char byte;
    pid_t process = fork();

    if (process == 0) {
        be_process(test, is_full);
    }
    for (int i = 0; i < SIZE; i++) {
        close(test->ends[i][0]);
    }
    assert_int_equal(waitpid(process, NULL, 0), process);
    for (int i = 0; i < SIZE; i++) {
        struct pollfd end = {test->ends[i][1], POLLIN, 0};

        assert_int_equal(poll(&end, 1, 2000), 1);
        assert_int_equal(read(end.fd, &byte, 1), 0);
        close(end.fd);
    }
    close(test->signal[0]);
    close(test->signal[1]);
}

static void a_connection_ends_with_its_process_though_a_child_lives(void **state)
{
    expect_ends(*state, false);
}

static void it_does_so_when_no_descriptor_is_left(void **state)
{
    expect_ends(*state, true);
}

/* In a child: 0 if @p fd is a number in use that leads nowhere. */
static int look_at_own(int fd)
{
    char byte = 0;
    int other = dup(STDIN_FILENO);

    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK(write(fd, &byte, 1) < 0 && errno == ENOTCONN);
    CHECK(other >= 0 && other != fd);
    cddpi_own_fd_close(fd);
    CHECK(fcntl(fd, F_GETFD) < 0);
    return 0;
}

static void a_child_keeps_the_number(void **state)
{
    struct test *test = *state;
    int fd = cddpi_own_fd(test->ends[0][0]);
    int status = -1;
    char byte = 7;
    pid_t child;

    signal(SIGPIPE, SIG_IGN);
    child = fork();
    if (child == 0) {
        _exit(look_at_own(fd));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(write(fd, &byte, 1), 1); /* and the parent its connection */
    assert_int_equal(read(test->ends[0][1], &byte, 1), 1);
    cddpi_own_fd_close(fd);
    assert_int_equal(read(test->ends[0][1], &byte, 1), 0);
}

static void a_number_that_was_given_up_is_anybodys(void **state)
{
    struct test *test = *state;
    int fd = cddpi_own_fd(test->ends[0][0]);
    int status = -1;
    pid_t child;

    cddpi_own_fd_close(fd);
    assert_int_equal(dup2(test->signal[1], fd), fd);
    child = fork();
    if (child == 0) {
        _exit(write(fd, "", 1) != 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A child of a child: what the first one owns is not its own child's either. */
static int first_child(const struct test *test)
{
    struct pollfd end = {test->ends[1][1], POLLIN, 0};
    char byte;
    pid_t second;
    int ready;

    (void)cddpi_own_fd(test->ends[1][0]);
    second = fork();
    if (second == 0) {
        support_sleep_ms(SUPPORT_TIMEOUT_MS);
        _exit(0);
    }
    cddpi_own_fd_close(test->ends[1][0]);
    ready = poll(&end, 1, 2000);
    kill(second, SIGKILL);
    CHECK(ready == 1 && read(end.fd, &byte, 1) == 0);
    return 0;
}

static void a_child_may_own_some_itself(void **state)
{
    struct test *test = *state;
    int fd = cddpi_own_fd(test->ends[0][0]);
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        _exit(first_child(test));
    }
    close(test->ends[1][0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    cddpi_own_fd_close(fd);
}

static void none_is_nothing(void **state)
{
    (void)state;
    errno = EMFILE;
    assert_int_equal(cddpi_own_fd(-1), -1);
    assert_int_equal(errno, EMFILE);
    cddpi_own_fd_close(-1);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_connection_ends_with_its_process_though_a_child_lives),
        TEST(it_does_so_when_no_descriptor_is_left),
        TEST(a_child_keeps_the_number),
        TEST(a_number_that_was_given_up_is_anybodys),
        TEST(a_child_may_own_some_itself),
        TEST(none_is_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
