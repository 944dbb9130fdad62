/* test_group_faults.c - ranks that disagree, leave, die or stop: every other rank is soon told
 * which rank and where. */
#include "base/process.h"
#include "support/failure.h"
#include "support/group_fault.h"

enum { COUNT = 100, BIG = 1 << 20 };

static bool says(const char *text)
{
    return strstr(cddp_last_error(), text) != NULL;
}

/* Whether ranks may be on several hosts, and then do not know each other's processes. */
static bool is_far(void)
{
    const char *backend = getenv("CDDP_BACKEND");

    return backend != NULL && strcmp(backend, "net") == 0;
}

static cddp_status disagree(cddp_group *group, int which, float *data)
{
    switch (which) {
    case 0:
        return cddp_all_reduce(group, data, data, COUNT, CDDP_F32, CDDP_OP_MAX, NULL);
    case 1:
        return cddp_all_reduce(group, data, data, COUNT, CDDP_BF16, CDDP_OP_SUM, NULL);
    case 2:
        return cddp_all_reduce(group, data, data, COUNT - 1, CDDP_F32, CDDP_OP_SUM, NULL);
    case 3:
        return cddp_broadcast(group, data, COUNT, CDDP_F32, 1, NULL);
    case 4:
        return cddp_barrier(group, NULL);
    default:
        return cddp_reduce(group, data, data, COUNT, CDDP_F32, CDDP_OP_SUM, 1, NULL);
    }
}

static int disagree_rank(int rank, int n, void *argument)
{
    static const char *const calls[] = {"rank 1: all_reduce max f32 x 100",
                                        "rank 1: all_reduce sum bf16 x 100",
                                        "rank 1: all_reduce sum f32 x 99",
                                        "rank 1: broadcast f32 x 100 from 1",
                                        "rank 1: barrier",
                                        "rank 1: reduce sum f32 x 100 to 1"};
    const struct fault *fault = argument;
    float data[COUNT] = {0};
    cddp_group *group;
    cddp_status status;
    int64_t start;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    start = cddpi_now_ns();
    status = rank == 1 ? disagree(group, fault->which, data) : reduce(group, fault, data, COUNT);
    CHECK(failure_is(status, CDDP_ERR_MISMATCH, -1, -1, NULL));
    CHECK((cddpi_now_ns() - start) / 1000000 < SOON_MS);
    CHECK(last_error_has(calls[fault->which]));
    CHECK(last_error_has("all_reduce sum f32 x 100"));
    CHECK(last_error_has("#2"));
    CHECK(failure_is(cddp_barrier(group, NULL), CDDP_ERR_BROKEN, -1, -1, NULL));
    cddp_group_destroy(group);
    return 0;
}

static void ranks_that_disagree_are_all_told_who_called_what(void **state)
{
    (void)state;
    for (int which = 0; which < 6; which++) {
        run_fault(disagree_rank, (struct fault){.which = which, .culprit = 1}, false);
    }
}

static int leave_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    float data[COUNT] = {0};
    cddp_group *group;
    int64_t start;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(reduce(group, fault, data, COUNT) == CDDP_OK);
    if (rank != 1) {
        start = cddpi_now_ns();
        CHECK(failure_is(reduce(group, fault, data, COUNT), CDDP_ERR_PEER, ANY_RANK, 1,
                         "all_reduce #2"));
        CHECK((cddpi_now_ns() - start) / 1000000 < SOON_MS);
        CHECK(last_error_has("has left the group"));
    }
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_left_is_named(void **state)
{
    (void)state;
    run_fault(leave_rank, (struct fault){.culprit = 1}, false);
}

static int die_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    float *data = calloc(BIG, sizeof *data);
    cddp_group *group;
    cddp_status status = CDDP_OK;
    int64_t start;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    start = cddpi_now_ns();
    for (int i = 0; status == CDDP_OK; i++) {
        if (rank == fault->culprit && fault->which == 0 && i == 3) {
            raise(SIGKILL);
        }
        if (rank == fault->culprit && fault->which == 1 && i == 0) { /* somewhere in the middle */
            pid_t culprit = getpid();

            if (fork() == 0) {
                support_sleep_ms(40);
                if (getppid() == culprit) {
                    kill(culprit, SIGKILL);
                }
                _exit(0);
            }
        }
        status = reduce(group, fault, data, BIG);
    }
    CHECK(failure_is(status, CDDP_ERR_PEER, ANY_RANK, fault->culprit, "all_reduce #"));
    CHECK((cddpi_now_ns() - start) / 1000000 < SOON_MS);
    CHECK(says("died") || (is_far() && says("has ended without leaving")));
    cddp_group_destroy(group);
    free(data);
    return 0;
}

static void a_rank_that_was_killed_is_named(void **state)
{
    (void)state;
    run_fault(die_rank, (struct fault){.which = 0, .culprit = 1}, true);
    run_fault(die_rank, (struct fault){.which = 1, .culprit = 0}, true);
}

/* Wait for @p work without ever sleeping for long: only asking, or for a millisecond at a time. */
static cddp_status wait_shortly(cddp_work *work, bool asks, int64_t until_ns)
{
    cddp_status status = CDDP_OK;
    bool done = false;

    while (status == CDDP_OK && !done && cddpi_now_ns() < until_ns) {
        status = asks ? cddp_work_test(work, &done) : cddp_work_wait_host(work, 1, &done);
    }
    return status;
}

static int poll_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    float data[COUNT] = {0};
    cddp_group *group;
    cddp_status status;
    cddp_work *work;
    int64_t until_ns;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == fault->culprit) {
        raise(SIGKILL);
    }
    until_ns = cddpi_now_ns() + SOON_MS * INT64_C(1000000);
    status = fault->which < 2
                 ? cddp_all_reduce(group, data, data, COUNT, CDDP_F32, CDDP_OP_SUM, &work)
                 : cddp_recv(group, data, COUNT, CDDP_F32, fault->culprit, &work);
    if (status == CDDP_OK) { /* else another rank has already told */
        status = wait_shortly(work, fault->which % 2 == 0, until_ns);
        cddp_work_destroy(work);
    }
    CHECK(failure_is(status, CDDP_ERR_PEER, ANY_RANK, fault->culprit,
                     fault->which < 2 ? "all_reduce #" : "recv #"));
    cddp_group_destroy(group);
    return 0;
}

static void who_only_asks_whether_work_is_done_hears_of_a_rank_that_was_killed(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        run_fault(poll_rank, (struct fault){.which = which, .culprit = 1}, true);
    }
}

/* A child of ours that kills us, who are stopped, once the other ranks have ended. */
static void have_us_killed_later(const int32_t *pids, int rank, int n)
{
    pid_t self = getpid();

    if (fork() != 0) {
        return;
    }
    for (int other = 0; other < n; other++) {
        while (other != rank && kill(pids[other], 0) == 0 && getppid() == self) {
            support_sleep_ms(2);
        }
    }
    if (getppid() == self) {
        kill(self, SIGKILL);
    }
    _exit(0);
}

static void await_stop(pid_t pid)
{
    while (!cddpi_process_is_stopped(pid)) { /* in vain: we are all killed later */
        support_sleep_ms(2);
    }
}

static int stop_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    int32_t pids[8];
    int32_t pid = getpid();
    float data[COUNT] = {0};
    cddp_group *group;
    cddp_status status;
    int64_t start;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_all_gather(group, &pid, pids, 1, CDDP_I32, NULL) == CDDP_OK);
    group->timeout_ms = fault->timeout_ms; /* not before all are here */
    if (rank == 1) {
        have_us_killed_later(pids, rank, n);
        raise(SIGSTOP);
        return 0; /* killed while it is stopped */
    }
    await_stop(pids[1]);
    start = cddpi_now_ns();
    status = reduce(group, fault, data, COUNT);
    CHECK(status == CDDP_ERR_TIMEOUT || (n > 2 && status == CDDP_ERR_PEER));
    CHECK((cddpi_now_ns() - start) / 1000000 < fault->timeout_ms + SOON_MS);
    CHECK(failure_is(status, status, ANY_RANK, ANY_RANK, "all_reduce #2"));
    if (!is_far() || !says("rank 1 on host")) { /* its own host knows more */
        CHECK(says("rank 1 (pid"));
        CHECK(says("stopped"));
        CHECK(cddpi_last_failure()->is_stopped);
    }
    CHECK(failure_is(cddp_barrier(group, NULL), CDDP_ERR_BROKEN, ANY_RANK, ANY_RANK,
                     "all_reduce #2"));
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_was_stopped_is_named_at_the_deadline(void **state)
{
    struct fault fault = {.timeout_ms = 700, .culprit = 1};

    (void)state;
    /* who is late by more than the deadline is named as well, and then it must be a longer one */
    while (try_fault(stop_rank, fault, true) != 0) {
        fault.timeout_ms *= 5;
        assert_true(fault.timeout_ms < TIMEOUT_MS);
    }
}

static int message_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    float data[COUNT] = {0};
    cddp_group *group;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    if (rank == 0) {
        CHECK(cddp_send(group, data, COUNT, CDDP_F32, 1, NULL) == CDDP_OK);
        CHECK(cddp_barrier(group, NULL) != CDDP_OK);
    } else if (rank == 1) {
        CHECK(failure_is(cddp_recv(group, data, COUNT, CDDP_I32, 0, NULL), CDDP_ERR_MISMATCH, -1,
                         -1, "recv #1"));
        CHECK(last_error_has("rank 0 sends f32 x 100, rank 1 receives i32 x 100"));
    } else {
        CHECK(cddp_barrier(group, NULL) != CDDP_OK);
    }
    cddp_group_destroy(group);
    return 0;
}

static void a_receiver_is_told_that_the_sender_means_something_else(void **state)
{
    (void)state;
    run_fault(message_rank, (struct fault){.culprit = -1}, false);
}

/* Rank 1 waits for a message before there is a connection for messages. */
static int leave_unconnected_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    int64_t start;
    int32_t word;
    cddp_group *group;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == 0) {
        support_sleep_ms(5);
        if (fault->which == 1) {
            exit(0);
        }
    } else if (rank == 1) {
        start = cddpi_now_ns();
        CHECK(failure_is(cddp_recv(group, &word, 1, CDDP_I32, 0, NULL), CDDP_ERR_PEER, ANY_RANK, 0,
                         "recv"));
        CHECK((cddpi_now_ns() - start) / 1000000 < SOON_MS);
    }
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_leaves_before_a_message_is_missed_at_once(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        run_fault(leave_unconnected_rank, (struct fault){.which = which, .culprit = 0}, false);
    }
}

/* Give the next rank a word and get one from the rank before, which is late if there is none. */
static cddp_status pass_on(cddp_group *group, int rank, int n)
{
    float word = 0;
    float from = 0;
    cddp_work *send;
    cddp_status status;

    CDDPI_TRY(cddp_send(group, &word, 1, CDDP_F32, (rank + 1) % n, &send));
    status = cddp_recv(group, &from, 1, CDDP_F32, (rank + n - 1) % n, NULL);
    if (status == CDDP_OK) {
        status = cddp_work_wait(send);
    }
    cddp_work_destroy(send);
    return status;
}

/* Each rank waits for a message of the one before it; rank 1 sends no more. */
static int chain_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    cddp_status status = CDDP_OK;
    cddp_group *group;
    int64_t start;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    start = cddpi_now_ns();
    for (int i = 0; status == CDDP_OK && (rank != 1 || i < 3); i++) {
        status = pass_on(group, rank, n);
    }
    if (rank != 1) {
        CHECK(status == CDDP_ERR_PEER || status == CDDP_ERR_BROKEN);
        CHECK((cddpi_now_ns() - start) / 1000000 < SOON_MS);
        CHECK(cddpi_error_culprit() == 1);
    } else if (fault->which == 1) {
        exit(0);
    } else if (fault->which == 2) {
        raise(SIGKILL);
    } else if (fault->which == 3) {
        cddp_group_abort(group, "loss is not a number");
    }
    if (fault->which == 4) {
        _exit(0); /* also those that have just been told of rank 1 go without a word */
    }
    cddp_group_destroy(group);
    return 0;
}

static void the_first_rank_that_fails_is_named_along_a_chain_of_messages(void **state)
{
    (void)state;
    for (int which = 0; which < 5; which++) {
        run_fault(chain_rank, (struct fault){.which = which, .culprit = 1}, which == 2);
    }
}

/* Rank 0 sends its last message and leaves; later rank 1 receives it, and then needs others. */
static int late_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    float *data = calloc(BIG, sizeof *data);
    cddp_group *group;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == 0) {
        CHECK(cddp_send(group, data, BIG, CDDP_F32, 1, NULL) == CDDP_OK);
    } else if (rank == 1) {
        support_sleep_ms(50);
        CHECK(cddp_recv(group, data, BIG, CDDP_F32, 0, NULL) == CDDP_OK);
    }
    for (int i = 0; i < 40 && n > 2; i++) { /* in all longer than it takes to miss a rank */
        if (rank == 2) {
            support_sleep_ms(50);
            CHECK(cddp_send(group, data, 1, CDDP_F32, 1, NULL) == CDDP_OK);
        } else if (rank == 1) {
            CHECK(cddp_recv(group, data, 1, CDDP_F32, 2, NULL) == CDDP_OK);
        }
    }
    cddp_group_destroy(group);
    free(data);
    return 0;
}

static void a_rank_that_left_is_not_missed_if_its_messages_have_come(void **state)
{
    (void)state;
    run_fault(late_rank, (struct fault){.culprit = -1}, false);
}

static int hurry_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    int32_t sum = 0;
    cddp_group *group;

    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_all_reduce(group, &rank, &sum, 1, CDDP_I32, CDDP_OP_SUM, NULL) == CDDP_OK);
    if (rank % 2 == 0) {
        _exit(sum != n * (n - 1) / 2); /* without a word */
    }
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_may_go_once_its_last_collective_is_done(void **state)
{
    (void)state;
    for (int again = 0; again < 20; again++) {
        run_fault(hurry_rank, (struct fault){.culprit = -1}, false);
    }
}

/* Even ranks make a part in reverse order, which the job's rank 0, its last, leaves. */
static int part_rank(int rank, int n, void *argument)
{
    const struct fault *fault = argument;
    float data[COUNT] = {0};
    char ranks[128];
    cddp_group *group;
    cddp_group *part;
    cddp_group *again;
    int last = (n - 1) / 2;

    snprintf(ranks, sizeof ranks, " (ranks of this part: 0 is the job's %d, 1 is %d%s", 2 * last,
             2 * last - 2, last == 1 ? ")" : ", 2 is ");
    CHECK(group_from_seed(&fault->seed, rank, n, TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_group_split(group, rank % 2, -rank, &part) == CDDP_OK);
    CHECK(cddp_group_split(part, 0, 0, &again) == CDDP_OK); /* a part of a part is one, too */
    CHECK(cddp_barrier(again, NULL) == CDDP_OK);
    if (rank != 0 && rank % 2 == 0) {
        CHECK(failure_is(reduce(again, fault, data, COUNT), CDDP_ERR_PEER, ANY_RANK, 0,
                         "all_reduce"));
        CHECK(failure_is(cddp_barrier(again, NULL), CDDP_ERR_BROKEN, ANY_RANK, 0, "all_reduce"));
        CHECK(last_error_has(ranks));
    }
    cddp_group_destroy(again);
    cddp_group_destroy(part);
    cddp_group_destroy(group);
    return 0;
}

static void a_failure_of_a_part_names_the_ranks_of_the_job(void **state)
{
    (void)state;
    run_fault(part_rank, (struct fault){.culprit = -1}, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_of_a_part_names_the_ranks_of_the_job),
        cmocka_unit_test(ranks_that_disagree_are_all_told_who_called_what),
        cmocka_unit_test(a_rank_that_left_is_named),
        cmocka_unit_test(a_rank_that_was_killed_is_named),
        cmocka_unit_test(who_only_asks_whether_work_is_done_hears_of_a_rank_that_was_killed),
        cmocka_unit_test(a_rank_that_was_stopped_is_named_at_the_deadline),
        cmocka_unit_test(a_receiver_is_told_that_the_sender_means_something_else),
        cmocka_unit_test(a_rank_that_leaves_before_a_message_is_missed_at_once),
        cmocka_unit_test(the_first_rank_that_fails_is_named_along_a_chain_of_messages),
        cmocka_unit_test(a_rank_that_left_is_not_missed_if_its_messages_have_come),
        cmocka_unit_test(a_rank_may_go_once_its_last_collective_is_done),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
