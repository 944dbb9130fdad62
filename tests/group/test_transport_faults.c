/* test_transport_faults.c - failures in the middle of an operation of the CUDA module's transports:
 * the operation ends on all ranks, and streams become empty. */

#include "support/failure.h"
#include "support/transport_fault.h"

/* A rank is killed with operations of all in the streams; a watchdog finds out, and all others end
 * with an error that names it. */
static int killed_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;
    cddp_status status;

    (void)n;
    CHECK(begin(job, rank, &me, &op) == 0);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_barrier(&me)); /* all have it */
    if (rank == job->culprit) {
        CHECK(transport_start(&me, &op) == CDDP_OK);
        (void)raise(SIGKILL);
    }
    for (int i = 0; i < 5; i++) { /* another rank may find out before this one is through */
        status = transport_start(&me, &op);
        CHECK(status == CDDP_OK || status == CDDP_ERR_PEER);
    }
    status = transport_watch(&me, SUPPORT_TIMEOUT_MS);
    CHECK(status == CDDP_ERR_PEER);
    CHECK(last_error_has(job->text));
    CHECK(transport_start(&me, &op) != CDDP_OK);
    transport_rank_end(&me);
    return 0;
}

static void a_rank_that_is_killed_ends_the_others_with_its_name(void **state)
{
    static const int sizes[] = {2, 3, 7};

    (void)state;
    use_devices("1");
    for (int i = 0; i < 12; i++) {
        struct job job = {.transport = i % 4 < 2 ? "ipc" : "staged",
                          .culprit = 1,
                          .registered = i % 2 == 1,
                          .text = "rank 1 has died"};

        assert_int_equal(run_job(sizes[i / 4], killed_rank, job, true), 0);
    }
}

/* NCCL tells of it later, or never: here it is the test that gives up, as the group's watchdog does
 * when the backend misses a rank. */
static int stuck_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_NCCL_STUCK", "3", 1);
    }
    CHECK(begin(job, rank, &me, &op) == 0);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_start(&me, &op) == CDDP_OK);
    CHECK(transport_watch(&me, 500) == CDDP_ERR_TIMEOUT);
    CHECK(me.ops->poll(me.transport) == CDDP_ERR_BROKEN);
    CHECK(last_error_has("the collective did not end"));
    CHECK(transport_start(&me, &op) == CDDP_ERR_BROKEN);
    transport_rank_end(&me);
    return 0;
}

static void a_collective_that_never_ends_is_aborted_on_every_rank(void **state)
{
    (void)state;
    use_devices("8");
    for (int culprit = 0; culprit < 2; culprit++) {
        assert_int_equal(
            run_job(2, stuck_rank, (struct job){.transport = "nccl", .culprit = culprit}, false),
            0);
    }
}

/* As a rank does after an abort. cudaFree() and cudaFreeHost() would wait for the work. */
static int endless_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;
    void *pinned;
    void *blocks[3];

    (void)n;
    setenv("CDDP_FAKE_NCCL_STUCK", "2", 1);
    setenv("CDDP_FAKE_NCCL_ENDLESS", "1", 1);
    CHECK(begin(job, rank, &me, &op) == 0);
    CHECK(me.device->ops->pin(me.device, 100, &pinned) == CDDP_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(me.ops->alloc(me.transport, 100, &blocks[i]) == CDDP_OK);
    }
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_start(&me, &op) == CDDP_OK);
    me.ops->abort(me.transport, "had enough");
    me.device->ops->unpin(me.device, pinned);
    me.ops->free_memory(me.transport, blocks[0]);
    transport_rank_end(&me);
    return 0;
}

static void work_that_no_abort_ends_holds_no_rank_up(void **state)
{
    (void)state;
    use_devices("8");
    assert_int_equal(run_job(2, endless_rank,
                             (struct job){.transport = "nccl", .culprit = -1, .registered = true},
                             false),
                     0);
}

static int async_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;
    cddp_status status;

    (void)n;
    setenv("CDDP_FAKE_NCCL_ASYNC_ERROR", "2", 1);
    CHECK(begin(job, rank, &me, &op) == 0);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    status = transport_run(&me, &op);
    CHECK(status == CDDP_ERR_PEER);
    CHECK(last_error_has("NCCL 2.28.9: "));
    CHECK(last_error_has("(a connection was closed by a remote peer)"));
    transport_rank_end(&me);
    return 0;
}

static void what_nccl_finds_wrong_is_told_in_its_words(void **state)
{
    (void)state;
    use_devices("8");
    assert_int_equal(
        run_job(3, async_rank, (struct job){.transport = "nccl", .culprit = -1}, false), 0);
}

static int aborting_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;
    cddp_status status;

    (void)n;
    CHECK(begin(job, rank, &me, &op) == 0);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_barrier(&me)); /* all have it */
    if (rank == job->culprit) {
        me.ops->abort(me.transport, "had enough");
        CHECK(transport_start(&me, &op) == CDDP_ERR_BROKEN);
        CHECK(last_error_has("had enough"));
    } else {
        status = transport_start(&me, &op);
        if (status == CDDP_OK) {
            status = transport_watch(&me, SUPPORT_TIMEOUT_MS);
        }
        CHECK(status == CDDP_ERR_PEER);
        CHECK(last_error_has("rank 1: had enough"));
    }
    CHECK(me.device->ops->finish(me.device, TRANSPORT_DRY_MS) == CDDP_OK);
    transport_rank_end(&me);
    return 0;
}

static void an_abort_is_told_to_the_others(void **state)
{
    (void)state;
    use_devices("1");
    for (int i = 0; i < 3; i++) {
        struct job job = {
            .transport = i < 2 ? "ipc" : "staged", .culprit = 1, .registered = i == 1};

        assert_int_equal(run_job(3, aborting_rank, job, false), 0);
    }
}

/* A kernel of rank 1 fails, and with it its device. */
static int failing_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    bool nccl = strcmp(job->transport, "nccl") == 0;
    struct transport_rank me;
    struct cddpi_group_op op;
    cddp_status status = CDDP_OK;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_CUDA_FAIL_LAUNCH", "3", 1);
    }
    CHECK(transport_begin(job->world, rank, job->transport, nccl, job->registered, COUNT, &me,
                          &op) == 0);
    for (int i = 0; i < 5 && status == CDDP_OK; i++) {
        status = transport_start(&me, &op);
    }
    status = transport_watch(&me,
                             nccl ? 2000 : SUPPORT_TIMEOUT_MS); /* NCCL leaves it to the group */
    CHECK(status != CDDP_OK);
    if (rank != job->culprit && !nccl) {
        CHECK(status == CDDP_ERR_PEER);
        CHECK(last_error_has("rank 1: "));
        CHECK(last_error_has("an illegal memory access was encountered"));
    }
    transport_rank_end(&me);
    return 0;
}

static void a_device_that_fails_ends_the_others_with_its_reason(void **state)
{
    static const char *const transports[] = {"ipc", "staged", "nccl"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct job job = {.transport = transports[i / 2], .culprit = 1, .registered = i % 2 == 1};

        use_devices(i < 4 ? "1" : "8");
        assert_int_equal(run_job(3, failing_rank, job, false), 0);
    }
}

/* Rank 1 leaves while the others still need it. */
static int leaving_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;

    (void)n;
    CHECK(begin(job, rank, &me, &op) == 0);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_barrier(&me)); /* all have it */
    if (rank != job->culprit) {
        CHECK(transport_run(&me, &op) == CDDP_ERR_PEER);
        CHECK(last_error_has("rank 1 "));
    }
    transport_rank_end(&me);
    return 0;
}

static void a_rank_that_leaves_early_is_named(void **state)
{
    (void)state;
    use_devices("1");
    for (int i = 0; i < 3; i++) {
        struct job job = {
            .transport = i < 2 ? "ipc" : "staged", .culprit = 1, .registered = i == 1};

        assert_int_equal(run_job(3, leaving_rank, job, false), 0);
    }
}

/* Rank 1 leaves with work in its stream that nobody will do with it. */
static int abandoning_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;

    (void)n;
    CHECK(begin(job, rank, &me, &op) == 0);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_barrier(&me)); /* all have it */
    if (rank == job->culprit) {
        CHECK(transport_start(&me, &op) == CDDP_OK);
    } else if (strcmp(job->transport, "nccl") != 0) { /* NCCL leaves it to the group */
        int64_t deadline = cddpi_deadline_ns(TRANSPORT_DRY_MS);
        cddp_status status = CDDP_OK;

        while (status == CDDP_OK && cddpi_now_ns() < deadline) {
            support_sleep_ms(5);
            status = me.ops->poll(me.transport);
        }
        CHECK(status == CDDP_ERR_PEER);
        CHECK(last_error_has("rank 1: left the group while work was under way"));
    }
    transport_rank_end(&me);
    return 0;
}

static void closing_with_work_under_way_does_not_hang(void **state)
{
    (void)state;
    use_devices("1");
    assert_int_equal(
        run_job(3, abandoning_rank, (struct job){.transport = "ipc", .culprit = 1}, false), 0);
    assert_int_equal(
        run_job(3, abandoning_rank, (struct job){.transport = "staged", .culprit = 1}, false), 0);
    use_devices("8");
    assert_int_equal(
        run_job(3, abandoning_rank, (struct job){.transport = "nccl", .culprit = 1}, false), 0);
}

static int misplaced_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;
    float *data;
    cddp_status status;

    (void)n;
    CHECK(transport_rank_start(job->world, rank, "ipc", false, &me) == CDDP_OK);
    data = transport_zeros(&me, true, 2 * COUNT);
    CHECK(data != NULL);
    op = transport_sum(rank == job->culprit ? data + COUNT : data, COUNT);
    status = transport_run(&me, &op);
    CHECK(status == CDDP_ERR_MISMATCH || status == CDDP_ERR_PEER);
    CHECK(last_error_has("pass different places of memory from cddp_group_alloc()"));
    transport_rank_end(&me);
    return 0;
}

static void ranks_that_pass_different_places_are_told(void **state)
{
    (void)state;
    use_devices("1");
    assert_int_equal(run_job(3, misplaced_rank, (struct job){.culprit = 2}, false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_killed_ends_the_others_with_its_name),
        cmocka_unit_test(a_collective_that_never_ends_is_aborted_on_every_rank),
        cmocka_unit_test(work_that_no_abort_ends_holds_no_rank_up),
        cmocka_unit_test(what_nccl_finds_wrong_is_told_in_its_words),
        cmocka_unit_test(an_abort_is_told_to_the_others),
        cmocka_unit_test(a_device_that_fails_ends_the_others_with_its_reason),
        cmocka_unit_test(a_rank_that_leaves_early_is_named),
        cmocka_unit_test(closing_with_work_under_way_does_not_hang),
        cmocka_unit_test(ranks_that_pass_different_places_are_told),
    };

    return !gpu_is_real() && transport_module() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
