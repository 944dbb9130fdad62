/* test_child.c - a forked process ends together with its parent, and at its deadline. */
#include "base/child.h"
#include "base/error.h"
#include "support/test.h"

#include <fcntl.h>
#include <poll.h>

/* Whether all who have the other end of the pipe @p fd have ended. */
static int have_ended(int fd)
{
    struct pollfd event = {fd, POLLIN, 0};
    char byte;

    return poll(&event, 1, SUPPORT_TIMEOUT_MS) == 1 && read(fd, &byte, 1) == 0;
}

static void a_child_ends_at_its_deadline_whatever_it_executes(void **state)
{
    pid_t self = getpid();
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0) {
        sigset_t all;

        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        signal(SIGALRM, SIG_IGN);
        if (cddpi_child_begin(self, 1)) {
            execlp("sleep", "sleep", "1000", (char *)NULL);
        }
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

static void a_child_ends_with_its_parent(void **state)
{
    int ends[2];
    int told[2];
    char byte;
    pid_t parent;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(told), 0);
    parent = fork();
    if (parent == 0) {
        pid_t self = getpid();

        if (fork() == 0 && cddpi_child_begin(self, 0)) {
            (void)!write(told[1], "", 1);
        }
        pause();
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(told[0], &byte, 1), 1);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    assert_true(have_ended(ends[0]));
    close(ends[0]);
    close(told[0]);
    close(told[1]);
}

static void a_child_whose_parent_is_gone_already_is_told(void **state)
{
    int told[2];
    char byte = 0;
    pid_t parent;

    (void)state;
    assert_int_equal(pipe(told), 0);
    parent = fork();
    if (parent == 0) {
        pid_t self = getpid();

        if (fork() == 0) {
            while (getppid() == self) {
                support_sleep_ms(1);
            }
            (void)!write(told[1], cddpi_child_begin(self, 0) ? "1" : "0", 1);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_int_equal(byte, '0');
    close(told[0]);
    close(told[1]);
}

static void a_process_too_many_is_said_with_the_limit(void **state)
{
    (void)state;
    assert_int_equal(cddpi_child_fail(EAGAIN, "rank 3"), CDDP_ERR_IO);
    assert_string_equal(cddp_last_error(),
                        "starting rank 3: Resource temporarily unavailable (too many processes and "
                        "threads of this user for ulimit -u, or of this control group)");
    assert_int_equal(cddpi_child_fail(ENOMEM, "rank 3"), CDDP_ERR_IO);
    assert_string_equal(cddp_last_error(), "starting rank 3: Cannot allocate memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_ends_at_its_deadline_whatever_it_executes),
        cmocka_unit_test(a_child_ends_with_its_parent),
        cmocka_unit_test(a_child_whose_parent_is_gone_already_is_told),
        cmocka_unit_test(a_process_too_many_is_said_with_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
