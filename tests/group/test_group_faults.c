/* test_group_faults.c - ranks that disagree, leave, die, stop or abort: every other rank is soon
 * told which rank and where. */
#include "base/alloc.h"
#include "base/process.h"
#include "group/join/group_agree.h"
#include "support/failure.h"
#include "support/group.h"
#include "support/test.h"

#include <cddp/process.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

/* SOON_MS is far from slow machines, and TIMEOUT_MS farther: who waits for that one fails. */
enum { TIMEOUT_MS = SUPPORT_TIMEOUT_MS, SOON_MS = TIMEOUT_MS / 2, COUNT = 100, BIG = 1 << 20 };

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

struct fault {
    struct group_seed seed;
    int which;   /* variant of the test */
    int culprit; /* the rank that does it */
    bool async;
    uint32_t timeout_ms;
    atomic_bool *done;   /* shared by the ranks: the culprit has done it */
    atomic_int *started; /* shared by the ranks: how many others have begun what will fail */
};

/* Run @p body with a rank more or less, with and without the comm thread, and with a thread where
 * there is a wire; @p culprit may be lost.
 * Returns how many other ranks fail. */
static int try_fault(rank_fn body, struct fault fault, bool culprit_dies)
{
    static const int sizes[] = {2, 3, 7};
    int failed = 0;

    for (int i = 0; i < 6; i++) {
        int statuses[8] = {0};

        setenv("CDDP_COMM_THREAD", i % 3 == 0 ? "0" : "1", 1);
        if (i % 3 == 2) {
            unsetenv("CDDP_COMM_THREAD");
        }
        fault.async = i % 2 == 1;
        assert_int_equal(group_seed_create(sizes[i / 2], &fault.seed), CDDP_OK);
        run_ranks_status(sizes[i / 2], body, &fault, statuses);
        for (int r = 0; r < sizes[i / 2]; r++) {
            failed += statuses[r] != 0 && (r != fault.culprit || !culprit_dies);
        }
        close(fault.seed.fd);
        unsetenv("CDDP_COMM_THREAD");
    }
    return failed;
}

static void run_fault(rank_fn body, struct fault fault, bool culprit_dies)
{
    assert_int_equal(try_fault(body, fault, culprit_dies), 0);
}

/* An all_reduce that is waited for in the way of this run. */
static cddp_status reduce(cddp_group *group, const struct fault *fault, float *data, size_t count)
{
    cddp_work *work;
    cddp_status status;

    if (!fault->async) {
        return cddp_all_reduce(group, data, data, count, CDDP_F32, CDDP_OP_SUM, NULL);
    }
    status = cddp_all_reduce(group, data, data, count, CDDP_F32, CDDP_OP_SUM, &work);
    if (status == CDDP_OK) {
        status = cddp_work_wait(work);
        cddp_work_destroy(work);
    }
    return status;
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
        cmocka_unit_test(a_rank_that_was_stopped_is_named_at_the_deadline),
        cmocka_unit_test(an_abort_tells_every_rank_its_reason),
        cmocka_unit_test(an_abort_is_told_to_other_hosts_even_if_all_of_its_own_leave),
        cmocka_unit_test(an_abort_says_a_rank_once),
        cmocka_unit_test(ranks_agree_on_the_first_failure_with_its_name),
        cmocka_unit_test(a_receiver_is_told_that_the_sender_means_something_else),
        cmocka_unit_test(a_rank_that_leaves_before_a_message_is_missed_at_once),
        cmocka_unit_test(an_error_that_nobody_waits_for_is_logged_once),
        cmocka_unit_test(the_first_rank_that_fails_is_named_along_a_chain_of_messages),
        cmocka_unit_test(a_rank_that_left_is_not_missed_if_its_messages_have_come),
        cmocka_unit_test(a_rank_may_go_once_its_last_collective_is_done),
        cmocka_unit_test(memory_that_one_rank_lacks_fails_on_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
