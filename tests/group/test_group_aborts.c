/* test_group_aborts.c - ranks that give up, or fail by themselves: every other rank is told which
 * and why. */
#include "base/alloc.h"
#include "group/join/group_agree.h"
#include "support/failure.h"
#include "support/group_fault.h"

#include <cddp/process.h>
#include <sys/mman.h>

enum { COUNT = 100 };

static int abort_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    float data[COUNT] = {0};
    cddp_group *group;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == n - 1) {
        support_sleep_ms(20);
        cddp_group_abort(group, "loss is not a number");
        CHECK(cddp_barrier(group, NULL) == CDDP_ERR_BROKEN);
    } else {
        CHECK(failure_is(reduce(group, fault, data, COUNT), CDDP_ERR_PEER, n - 1, n - 1, NULL));
        CHECK(failure_is(cddp_barrier(group, NULL), CDDP_ERR_BROKEN, n - 1, n - 1, NULL));
        CHECK(last_error_has(": loss is not a number"));
    }
    cddp_group_destroy(group);
    return 0;
}

static void an_abort_tells_every_rank_its_reason(void **state)
{
    (void)state;
    run_fault(abort_rank, (struct fault){.culprit = -1}, false);
}

/* A rank that does not lead its host gives up, and the others of its host leave at once, without
 * another call. */
static int abort_idle_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    const char *id;
    int32_t host;
    int32_t hosts[8];
    float data[COUNT] = {0};
    cddp_group *group;
    int culprit = (n + 1) / 2;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    id = getenv("CDDP_HOST_ID");
    host = id != NULL ? id[strlen(id) - 1] : 0;
    if (rank == culprit) {
        *fault->done = false;
    }
    CHECK(cddp_all_gather(group, &host, hosts, 1, CDDP_I32, NULL) == CDDP_OK);
    if (rank == culprit) {
        support_sleep_ms(20);
        cddp_group_abort(group, "loss is not a number");
        *fault->done = true;
    } else if (host != hosts[culprit] || rank == 0) {
        CHECK(failure_is(reduce(group, fault, data, COUNT), CDDP_ERR_PEER, culprit, culprit, NULL));
    } else {
        for (int i = 0; i < TIMEOUT_MS && !*fault->done; i++) {
            support_sleep_ms(1);
        }
        if (fault->which == 1) {
            exit(0);
        }
    }
    cddp_group_destroy(group);
    return 0;
}

static void an_abort_is_told_to_other_hosts_even_if_all_of_its_own_leave(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        atomic_bool *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_ptr_not_equal(done, MAP_FAILED);
        run_fault(abort_idle_rank, (struct fault){.which = which, .culprit = -1, .done = done},
                  false);
        munmap(done, sizeof *done);
    }
}

/* What a rank gives up with begins with its name, or with another's: each is said once. */
static int abort_by_name_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    float data[COUNT] = {0};
    cddp_group *group;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == 1) {
        (void)cddpi_fail_rank(CDDP_ERR_STATE, fault->which, "loss is not a number");
        cddpi_error_blame(fault->which);
        cddp_group_abort(group, cddp_last_error());
        CHECK(
            failure_is(cddp_barrier(group, NULL), CDDP_ERR_BROKEN, fault->which, fault->which, ""));
    } else {
        CHECK(failure_is(reduce(group, fault, data, COUNT), CDDP_ERR_PEER, fault->which,
                         fault->which, ""));
    }
    CHECK(strcmp(cddp_last_error(), fault->which == 1 ? "rank 1: loss is not a number"
                                                      : "rank 5: loss is not a number") == 0);
    cddp_group_destroy(group);
    return 0;
}

static void an_abort_says_a_rank_once(void **state)
{
    (void)state;
    run_fault(abort_by_name_rank, (struct fault){.which = 1, .culprit = -1}, false);
    run_fault(abort_by_name_rank, (struct fault){.which = 5, .culprit = -1}, false);
}

/* Ranks of odd numbers fail, each in its words; later those of a part do, where they are others. */
static int agree_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    struct cddpi_failure own = {.status = CDDP_OK};
    char expected[256] = "rank 1: no. 1 has no luck";
    cddp_group *group;
    cddp_group *part;
    int last = n - 1;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddpi_agree(group, CDDP_OK) == CDDP_OK);
    for (int named = 0; named < 2; named++) { /* by itself already, or by who agrees */
        cddp_status mine = rank % 2 == 0 ? CDDP_OK
                           : rank == 1   ? cddpi_fail_rank(CDDP_ERR_IO, named ? rank : -1,
                                                           "no. %d has no luck", rank)
                                         : cddpi_fail(CDDP_ERR_FORMAT, "neither");

        CHECK(failure_is(cddpi_agree(group, mine), CDDP_ERR_IO, 1, 1, ""));
        CHECK(strcmp(cddp_last_error(), expected) == 0);
    }
    if (rank % 2 == 1) {
        (void)cddpi_fail(CDDP_ERR_IO, "no. %d has no luck", rank);
        own = *cddpi_last_failure();
    }
    if (n > 5) {
        snprintf(expected, sizeof expected,
                 "rank 1: no. 1 has no luck; rank 3: no. 3 has no luck; and 1 more ranks failed");
    }
    CHECK(failure_is(cddpi_agree_on_failure(group, &own, 2), CDDP_ERR_IO, 1, 1, ""));
    CHECK(strcmp(cddp_last_error(), expected) == 0);
    /* the part's rank 0 is the job's last */
    CHECK(cddp_group_split(group, 0, -rank, &part) == CDDP_OK);
    CHECK(failure_is(cddpi_agree(part, rank == last ? cddpi_fail(CDDP_ERR_IO, "no") : CDDP_OK),
                     CDDP_ERR_IO, 0, last, ""));
    CHECK(cddp_barrier(group, NULL) == CDDP_OK); /* nothing of it harmed the group */
    cddp_group_destroy(part);
    cddp_group_destroy(group);
    return 0;
}

static void ranks_agree_on_the_first_failure_with_its_name(void **state)
{
    (void)state;
    run_fault(agree_rank, (struct fault){.culprit = -1}, false);
}

static void count_line(void *lines, const cddp_log_record *record)
{
    if (strstr(record->line, "a work handle is destroyed") != NULL &&
        strstr(record->line, "nobody gets its error: ") != NULL) {
        ++*(int *)lines;
    }
}

/* Nobody waits for two operations that fail. */
static int drop_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    float values[2] = {1, 1};
    cddp_group *group;
    cddp_work *works[2];
    int lines = 0;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    if (rank == fault->culprit) {
        *fault->started = 0;
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == fault->culprit) {
        for (int i = 0; i < TIMEOUT_MS && *fault->started < n - 1; i++) {
            support_sleep_ms(1);
        }
        _exit(0);
    }
    cddp_log_set_sink(count_line, &lines);
    for (int i = 0; i < 2; i++) {
        CHECK(cddp_all_reduce(group, &values[i], &values[i], 1, CDDP_F32, CDDP_OP_SUM, &works[i]) ==
              CDDP_OK);
    }
    ++*fault->started;
    cddp_work_destroy(works[0]);
    CHECK(lines == 1);
    cddp_work_destroy(works[1]);
    CHECK(lines == 1);
    cddp_group_destroy(group);
    return 0;
}

static void an_error_that_nobody_waits_for_is_logged_once(void **state)
{
    atomic_int *started = mmap(NULL, sizeof *started, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_ptr_not_equal(started, MAP_FAILED);
    run_fault(drop_rank, (struct fault){.culprit = 0, .started = started}, true);
    munmap(started, sizeof *started);
}

static int full_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    cddp_group *group;
    float data[COUNT] = {0};
    void *memory;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    if (rank == n - 1) {
        cddpi_alloc_fail_nth(1);
    }
    CHECK(cddp_group_alloc(group, 4096, 0, &memory) ==
          (rank == n - 1 ? CDDP_ERR_NO_MEMORY : CDDP_ERR_PEER));
    CHECK(reduce(group, fault, data, COUNT) == CDDP_ERR_BROKEN);
    cddp_group_destroy(group);
    return 0;
}

static void memory_that_one_rank_lacks_fails_on_all(void **state)
{
    (void)state;
    run_fault(full_rank, (struct fault){.culprit = -1}, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_tells_every_rank_its_reason),
        cmocka_unit_test(an_abort_is_told_to_other_hosts_even_if_all_of_its_own_leave),
        cmocka_unit_test(an_abort_says_a_rank_once),
        cmocka_unit_test(ranks_agree_on_the_first_failure_with_its_name),
        cmocka_unit_test(an_error_that_nobody_waits_for_is_logged_once),
        cmocka_unit_test(memory_that_one_rank_lacks_fails_on_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
