/* parallel.c - runs test cases at the same time, each in its own process. */
#include "support/parallel.h"

#include <sys/prctl.h>

enum { MOST_CASES = 64 };

struct running_case {
    pid_t pid;
    FILE *said; /* its output */
};

/* The process of one case. cmocka reports its result: the exit status is the number of failures,
 * and a skipped case prints that it was skipped. */
static void __attribute__((noreturn))
be_case(const char *name, const struct CMUnitTest *test, FILE *said)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(fileno(said), STDOUT_FILENO);
    dup2(fileno(said), STDERR_FILENO);
    exit(_cmocka_run_group_tests(name, test, 1, NULL, NULL) == 0 ? 0 : 1);
}

static void await_case(void **state)
{
    struct running_case *running = *state;
    static char said[1 << 16];
    int status = -1;
    size_t bytes;

    assert_true(waitpid(running->pid, &status, 0) == running->pid);
    rewind(running->said);
    bytes = fread(said, 1, sizeof said - 1, running->said);
    fclose(running->said);
    said[bytes] = '\0';
    if (status != 0) {
        fail_msg("wait status %d:\n%s", status, said);
    }
    if (strstr(said, "[  SKIPPED ]") != NULL) {
        print_message("%s", said);
        skip();
    }
}

int run_all_in_parallel(const char *name, const struct CMUnitTest *tests, size_t count)
{
    struct CMUnitTest waits[MOST_CASES];
    struct running_case running[MOST_CASES];

    for (size_t i = 0; i < count; i++) {
        if (i == MOST_CASES || (running[i].said = tmpfile()) == NULL) {
            fprintf(stderr, "%s: case %zu cannot be started\n", name, i);
            return 1;
        }
        fflush(NULL);
        running[i].pid = fork();
        if (running[i].pid == 0) {
            be_case(name, &tests[i], running[i].said);
        }
        waits[i] = (struct CMUnitTest){tests[i].name, await_case, NULL, NULL, &running[i]};
    }
    return _cmocka_run_group_tests(name, waits, count, NULL, NULL);
}
