/* test_plane_faults.c - planes of the CUDA module when something is wrong: what cannot work says
 * why on every rank, and whatever happens in the middle ends everywhere, with streams that run dry.
 */
#include "plane_support.h"

enum { COUNT = 20000 };

/* What ranks are started with. */
struct job {
    struct plane_world *world;
    const char *plane;
    const char *text; /* of the error */
    int culprit;
    bool registered;
};

/* Run @body; the culprit may end as it likes if it @dies. Returns how many others fail. */
static int run_job(int size, rank_fn body, struct job job, bool dies)
{
    int statuses[PLANE_RANKS] = {0};
    int failed = 0;

    job.world = plane_world_create(size);
    run_ranks_status(size, body, &job, statuses);
    for (int r = 0; r < size; r++) {
        failed += statuses[r] != 0 && (r != job.culprit || !dies);
    }
    plane_world_destroy(job.world);
    return failed;
}

static void use_devices(const char *count)
{
    setenv("CDDP_FAKE_CUDA_DEVICES", count, 1);
}

/* An environment variable of one test. */
static void with(const char *name, const char *value)
{
    setenv(name, value, 1);
}

static void without(const char *name)
{
    unsetenv(name);
}

/* --- what cannot be opened --- */

static int refused_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_NCCL_VERSION", "22602", 1);
        setenv("CDDP_FAKE_CUDA_IPC", "0", 1);
    }
    CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_ERR_UNAVAILABLE);
    if (strstr(cddp_last_error(), job->text) == NULL) {
        fprintf(stderr, "rank %d: %s\n", rank, cddp_last_error());
        return 1;
    }
    me.plane = NULL;
    plane_rank_end(&me);
    return 0;
}

static void nccl_on_a_shared_device_names_the_ranks_and_the_way_out(void **state)
{
    (void)state;
    use_devices("2");
    assert_int_equal(run_job(3, refused_rank,
                             (struct job){.plane = "nccl",
                                          .culprit = -1,
                                          .text = "ranks 0 and 2 share the device GPU-"},
                             false),
                     0);
    assert_int_equal(
        run_job(3, refused_rank,
                (struct job){.plane = "nccl",
                             .culprit = -1,
                             .text = ": NCCL 2.28.9 cannot do that, use the ipc plane"},
                false),
        0);
}

static void nccl_on_parts_of_one_card_names_the_ranks_likewise(void **state)
{
    (void)state;
    use_devices("3");
    with("CDDP_FAKE_CUDA_PARTS", "1");
    assert_int_equal(
        run_job(3, refused_rank,
                (struct job){.plane = "nccl",
                             .culprit = -1,
                             .text = "ranks 0 and 1 share the device GPU-cacacaca-caca-caca-caca-"
                                     "cacacacaca00 (PCI 0000:01:00.0): NCCL 2.28.9 cannot"},
                false),
        0);
    without("CDDP_FAKE_CUDA_PARTS");
}

static void versions_of_nccl_that_differ_are_told_on_every_rank(void **state)
{
    (void)state;
    use_devices("8");
    assert_int_equal(
        run_job(3, refused_rank,
                (struct job){.plane = "nccl",
                             .culprit = 1,
                             .text = "NCCL 2.28.9 on rank 0 but 2.26.2 on rank 1: all ranks need "
                                     "the same"},
                false),
        0);
}

static void a_missing_or_old_library_is_told_on_every_rank(void **state)
{
    (void)state;
    use_devices("8");
    with("CDDP_FAKE_CUDA_WITHOUT", "nccl");
    assert_int_equal(run_job(2, refused_rank,
                             (struct job){.plane = "nccl",
                                          .culprit = -1,
                                          .text = "rank 0: libnccl.so cannot be opened"},
                             false),
                     0);
    without("CDDP_FAKE_CUDA_WITHOUT");
    with("CDDP_FAKE_NCCL_VERSION", "21403");
    assert_int_equal(
        run_job(2, refused_rank,
                (struct job){.plane = "nccl",
                             .culprit = -1,
                             .text = "rank 0: NCCL 2.14.3 is too old: 2.18 or later is needed"},
                false),
        0);
    without("CDDP_FAKE_NCCL_VERSION");
}

static void memory_that_cannot_be_shared_is_told_on_every_rank(void **state)
{
    (void)state;
    use_devices("1");
    assert_int_equal(
        run_job(3, refused_rank,
                (struct job){.plane = "ipc",
                             .culprit = 2,
                             .text = "cannot be shared between processes: operation not supported"},
                false),
        0);
}

static void devices_that_do_not_reach_each_other_are_named(void **state)
{
    (void)state;
    use_devices("2");
    with("CDDP_FAKE_CUDA_PEERS", "0");
    assert_int_equal(run_job(2, refused_rank,
                             (struct job){.plane = "ipc",
                                          .culprit = -1,
                                          .text = "cannot reach the memory of rank 1 on device "
                                                  "GPU-"},
                             false),
                     0);
    without("CDDP_FAKE_CUDA_PEERS");
}

static void streams_that_cannot_wait_for_memory_are_told(void **state)
{
    (void)state;
    use_devices("1");
    with("CDDP_FAKE_CUDA_WAIT_VALUE", "0");
    for (int staged = 0; staged < 2; staged++) {
        assert_int_equal(run_job(2, refused_rank,
                                 (struct job){.plane = staged ? "staged" : "ipc",
                                              .culprit = -1,
                                              .text = "cannot wait for values in memory"},
                                 false),
                         0);
    }
    without("CDDP_FAKE_CUDA_WAIT_VALUE");
}

static int machines_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;

    (void)n;
    CHECK(plane_rank_open(job->world, rank, job->plane, false, &me) == CDDP_OK);
    me.seat.local_rank = 0;
    me.seat.local_world_size = 1;
    CHECK(me.ops->open(&me.seat, &me.plane) == CDDP_ERR_UNAVAILABLE);
    CHECK(strstr(cddp_last_error(), "the ranks are on several machines") != NULL);
    me.plane = NULL;
    plane_rank_end(&me);
    return 0;
}

static void ranks_on_several_machines_are_told(void **state)
{
    (void)state;
    use_devices("1");
    assert_int_equal(run_job(2, machines_rank, (struct job){.plane = "ipc", .culprit = -1}, false),
                     0);
    assert_int_equal(
        run_job(2, machines_rank, (struct job){.plane = "staged", .culprit = -1}, false), 0);
}

static int failed_init_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_NCCL_INIT", job->text, 1);
    }
    CHECK(plane_rank_open(job->world, rank, job->plane, false, &me) == CDDP_OK);
    me.seat.timeout_ms = 3000; /* of NCCL; exchanges may take as long as they like */
    CHECK(me.ops->open(&me.seat, &me.plane) != CDDP_OK);
    CHECK(strstr(cddp_last_error(), "making a communicator: ") != NULL);
    CHECK(strncmp(cddp_last_error(), "rank ", 5) == 0);
    me.plane = NULL;
    plane_rank_end(&me);
    return 0;
}

static void a_communicator_that_fails_or_never_comes_ends_on_every_rank(void **state)
{
    (void)state;
    use_devices("8");
    assert_int_equal(run_job(3, failed_init_rank,
                             (struct job){.plane = "nccl", .culprit = 1, .text = "fail"}, false),
                     0);
    assert_int_equal(run_job(3, failed_init_rank,
                             (struct job){.plane = "nccl", .culprit = 1, .text = "hang"}, false),
                     0);
}

/* --- what happens in the middle --- */

/* A rank is killed with operations of all in the streams; a watchdog finds out, and all others end
 * with an error that names it. */
static int killed_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    struct cddpi_group_op op;
    float *data;
    cddp_status status;

    (void)n;
    CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_OK);
    data = plane_zeros(&me, job->registered, COUNT);
    CHECK(data != NULL);
    op = plane_sum(data, COUNT);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    CHECK(plane_barrier(&me)); /* all have it */
    if (rank == job->culprit) {
        CHECK(plane_start(&me, &op) == CDDP_OK);
        (void)raise(SIGKILL);
    }
    for (int i = 0; i < 5; i++) { /* another rank may find out before this one is through */
        status = plane_start(&me, &op);
        CHECK(status == CDDP_OK || status == CDDP_ERR_PEER);
    }
    status = plane_watch(&me, SUPPORT_TIMEOUT_MS);
    CHECK(status == CDDP_ERR_PEER);
    CHECK(strstr(cddp_last_error(), job->text) != NULL);
    CHECK(plane_start(&me, &op) != CDDP_OK);
    plane_rank_end(&me);
    return 0;
}

static void a_rank_that_is_killed_ends_the_others_with_its_name(void **state)
{
    static const int sizes[] = {2, 3, 7};

    (void)state;
    use_devices("1");
    for (int i = 0; i < 12; i++) {
        struct job job = {.plane = i % 4 < 2 ? "ipc" : "staged",
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
    struct plane_rank me;
    struct cddpi_group_op op;
    float *data;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_NCCL_STUCK", "3", 1);
    }
    CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_OK);
    data = plane_zeros(&me, false, COUNT);
    CHECK(data != NULL);
    op = plane_sum(data, COUNT);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    CHECK(plane_start(&me, &op) == CDDP_OK);
    CHECK(plane_watch(&me, 500) == CDDP_ERR_TIMEOUT);
    CHECK(me.ops->poll(me.plane) == CDDP_ERR_CLOSED);
    CHECK(strstr(cddp_last_error(), "the collective did not end") != NULL);
    CHECK(plane_start(&me, &op) == CDDP_ERR_CLOSED);
    plane_rank_end(&me);
    return 0;
}

static void a_collective_that_never_ends_is_aborted_on_every_rank(void **state)
{
    (void)state;
    use_devices("8");
    for (int culprit = 0; culprit < 2; culprit++) {
        assert_int_equal(
            run_job(2, stuck_rank, (struct job){.plane = "nccl", .culprit = culprit}, false), 0);
    }
}

static int async_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    struct cddpi_group_op op;
    float *data;
    cddp_status status;

    (void)n;
    setenv("CDDP_FAKE_NCCL_ASYNC_ERROR", "2", 1);
    CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_OK);
    data = plane_zeros(&me, false, COUNT);
    CHECK(data != NULL);
    op = plane_sum(data, COUNT);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    status = plane_run(&me, &op);
    CHECK(status == CDDP_ERR_PEER);
    CHECK(strstr(cddp_last_error(), "NCCL 2.28.9: ") != NULL);
    CHECK(strstr(cddp_last_error(), "(a connection was closed by a remote peer)") != NULL);
    plane_rank_end(&me);
    return 0;
}

static void what_nccl_finds_wrong_is_told_in_its_words(void **state)
{
    (void)state;
    use_devices("8");
    assert_int_equal(run_job(3, async_rank, (struct job){.plane = "nccl", .culprit = -1}, false),
                     0);
}

static int aborting_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    struct cddpi_group_op op;
    float *data;
    cddp_status status;

    (void)n;
    CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_OK);
    data = plane_zeros(&me, job->registered, COUNT);
    CHECK(data != NULL);
    op = plane_sum(data, COUNT);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    CHECK(plane_barrier(&me)); /* all have it */
    if (rank == job->culprit) {
        me.ops->abort(me.plane, "had enough");
        CHECK(plane_start(&me, &op) == CDDP_ERR_CLOSED);
        CHECK(strstr(cddp_last_error(), "had enough") != NULL);
    } else {
        status = plane_start(&me, &op);
        if (status == CDDP_OK) {
            status = plane_watch(&me, SUPPORT_TIMEOUT_MS);
        }
        CHECK(status == CDDP_ERR_PEER);
        CHECK(strstr(cddp_last_error(), "rank 1: had enough") != NULL);
    }
    CHECK(me.device->ops->finish(me.device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    plane_rank_end(&me);
    return 0;
}

static void an_abort_is_told_to_the_others(void **state)
{
    (void)state;
    use_devices("1");
    for (int i = 0; i < 3; i++) {
        struct job job = {.plane = i < 2 ? "ipc" : "staged", .culprit = 1, .registered = i == 1};

        assert_int_equal(run_job(3, aborting_rank, job, false), 0);
    }
}

/* A kernel of rank 1 fails, and with it its device. */
static int failing_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    bool nccl = strcmp(job->plane, "nccl") == 0;
    struct plane_rank me;
    struct cddpi_group_op op;
    float *data;
    cddp_status status = CDDP_OK;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_CUDA_FAIL_LAUNCH", "3", 1);
    }
    CHECK(plane_rank_start(job->world, rank, job->plane, nccl, &me) == CDDP_OK);
    data = plane_zeros(&me, job->registered, COUNT);
    CHECK(data != NULL);
    op = plane_sum(data, COUNT);
    for (int i = 0; i < 5 && status == CDDP_OK; i++) {
        status = plane_start(&me, &op);
    }
    status = plane_watch(&me, nccl ? 2000 : SUPPORT_TIMEOUT_MS); /* NCCL leaves it to the group */
    CHECK(status != CDDP_OK);
    if (rank != job->culprit && !nccl) {
        CHECK(status == CDDP_ERR_PEER);
        CHECK(strstr(cddp_last_error(), "rank 1: ") != NULL);
        CHECK(strstr(cddp_last_error(), "an illegal memory access was encountered") != NULL);
    }
    plane_rank_end(&me);
    return 0;
}

static void a_device_that_fails_ends_the_others_with_its_reason(void **state)
{
    static const char *const planes[] = {"ipc", "staged", "nccl"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct job job = {.plane = planes[i / 2], .culprit = 1, .registered = i % 2 == 1};

        use_devices(i < 4 ? "1" : "8");
        assert_int_equal(run_job(3, failing_rank, job, false), 0);
    }
}

/* Rank 1 leaves while the others still need it. */
static int leaving_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    struct cddpi_group_op op;
    float *data;

    (void)n;
    CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_OK);
    data = plane_zeros(&me, job->registered, COUNT);
    CHECK(data != NULL);
    op = plane_sum(data, COUNT);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    CHECK(plane_barrier(&me)); /* all have it */
    if (rank != job->culprit) {
        CHECK(plane_run(&me, &op) == CDDP_ERR_PEER);
        CHECK(strstr(cddp_last_error(), "rank 1 has left the group") != NULL);
    }
    plane_rank_end(&me);
    return 0;
}

static void a_rank_that_leaves_early_is_named(void **state)
{
    (void)state;
    use_devices("1");
    for (int i = 0; i < 3; i++) {
        struct job job = {.plane = i < 2 ? "ipc" : "staged", .culprit = 1, .registered = i == 1};

        assert_int_equal(run_job(3, leaving_rank, job, false), 0);
    }
}

/* Rank 1 leaves with work in its stream that nobody will do with it. */
static int abandoning_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    struct cddpi_group_op op;
    float *data;

    (void)n;
    CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_OK);
    data = plane_zeros(&me, false, COUNT);
    CHECK(data != NULL);
    op = plane_sum(data, COUNT);
    CHECK(plane_run(&me, &op) == CDDP_OK);
    CHECK(plane_barrier(&me)); /* all have it */
    if (rank == job->culprit) {
        CHECK(plane_start(&me, &op) == CDDP_OK);
    } else if (strcmp(job->plane, "nccl") != 0) { /* NCCL leaves it to the group */
        cddp_status status = CDDP_OK;

        while (status == CDDP_OK) {
            support_sleep_ms(5);
            status = me.ops->poll(me.plane);
        }
        CHECK(status == CDDP_ERR_PEER);
        CHECK(strstr(cddp_last_error(), "rank 1: left the group while work was under way") != NULL);
    }
    plane_rank_end(&me);
    return 0;
}

static void closing_with_work_under_way_does_not_hang(void **state)
{
    (void)state;
    use_devices("1");
    assert_int_equal(run_job(3, abandoning_rank, (struct job){.plane = "ipc", .culprit = 1}, false),
                     0);
    assert_int_equal(
        run_job(3, abandoning_rank, (struct job){.plane = "staged", .culprit = 1}, false), 0);
    use_devices("8");
    assert_int_equal(
        run_job(3, abandoning_rank, (struct job){.plane = "nccl", .culprit = 1}, false), 0);
}

static int misplaced_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    struct cddpi_group_op op;
    float *data;
    cddp_status status;

    (void)n;
    CHECK(plane_rank_start(job->world, rank, "ipc", false, &me) == CDDP_OK);
    data = plane_zeros(&me, true, 2 * COUNT);
    CHECK(data != NULL);
    op = plane_sum(rank == job->culprit ? data + COUNT : data, COUNT);
    status = plane_run(&me, &op);
    CHECK(status == CDDP_ERR_MISMATCH || status == CDDP_ERR_PEER);
    CHECK(strstr(cddp_last_error(), "pass different places of memory from cddp_group_alloc()") !=
          NULL);
    plane_rank_end(&me);
    return 0;
}

static void ranks_that_pass_different_places_are_told(void **state)
{
    (void)state;
    use_devices("1");
    assert_int_equal(run_job(3, misplaced_rank, (struct job){.culprit = 2}, false), 0);
}

/* --- memory and ends --- */

static int memory_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    void *blocks[3];

    (void)n;
    for (int again = 0; again < 2; again++) { /* a plane may be opened again */
        me = (struct plane_rank){.world = NULL};
        CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_OK);
        me.given = (size_t)again << 24;
        for (int i = 0; i < 3; i++) {
            float first = 1;

            CHECK(me.ops->alloc(me.plane, (size_t)i * 100000, &blocks[i]) == CDDP_OK);
            if (i > 0) { /* it is zeroed */
                CHECK(plane_download(&me, &first, blocks[i], sizeof first) == CDDP_OK);
                CHECK(first == 0);
            }
        }
        me.ops->free_memory(me.plane, blocks[1]);
        CHECK(me.ops->alloc(me.plane, 5000, &blocks[1]) == CDDP_OK);
        me.ops->free_memory(me.plane, blocks[2]);
        me.ops->free_memory(me.plane, blocks[0]);
        plane_rank_end(&me); /* the rest goes with the plane */
    }
    return 0;
}

static void memory_of_a_plane_is_zeroed_and_may_be_freed_in_any_order(void **state)
{
    static const char *const planes[] = {"ipc", "staged", "nccl", "nccl"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        use_devices(strcmp(planes[i], "nccl") == 0 ? "8" : "1");
        with("CDDP_FAKE_NCCL_MEMORY", i == 3 ? "0" : "1");
        assert_int_equal(
            run_job(3, memory_rank, (struct job){.plane = planes[i], .culprit = -1}, false), 0);
    }
    without("CDDP_FAKE_NCCL_MEMORY");
}

static int no_memory_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct plane_rank me;
    void *memory;
    cddp_status status;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_CUDA_MEMORY", "100000000", 1);
    }
    CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_OK);
    status = me.ops->alloc(me.plane, 100000000, &memory);
    CHECK(status == CDDP_ERR_NO_MEMORY);
    CHECK(strstr(cddp_last_error(), "rank 1: ") != NULL);
    CHECK(me.ops->alloc(me.plane, 1000, &memory) == CDDP_OK);
    plane_rank_end(&me);
    return 0;
}

static void memory_that_one_rank_has_not_got_is_refused_on_all(void **state)
{
    static const char *const planes[] = {"ipc", "staged", "nccl"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        use_devices("8");
        assert_int_equal(
            run_job(3, no_memory_rank, (struct job){.plane = planes[i], .culprit = 1}, false), 0);
    }
}

static int refusing_rank(int rank, int n, void *argument)
{
    static const enum cddpi_kind kinds[] = {CDDPI_SEND, CDDPI_RECV, CDDPI_BARRIER};
    const struct job *job = argument;
    struct plane_rank me;
    struct cddpi_group_op op;
    float *data;

    (void)n;
    CHECK(plane_rank_start(job->world, rank, job->plane, false, &me) == CDDP_OK);
    data = plane_zeros(&me, false, COUNT);
    op = plane_sum(data, COUNT);
    for (int i = 0; i < 3; i++) {
        op.kind = kinds[i];
        CHECK(plane_start(&me, &op) == CDDP_ERR_UNAVAILABLE);
        CHECK(strstr(cddp_last_error(), "of device memory") != NULL);
    }
    op.kind = CDDPI_ALL_REDUCE; /* it still works */
    CHECK(plane_run(&me, &op) == CDDP_OK);
    plane_rank_end(&me);
    return 0;
}

static void kinds_that_planes_have_not_got_are_refused_without_harm(void **state)
{
    static const char *const planes[] = {"ipc", "staged", "nccl"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        use_devices("8");
        assert_int_equal(
            run_job(2, refusing_rank, (struct job){.plane = planes[i], .culprit = -1}, false), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nccl_on_a_shared_device_names_the_ranks_and_the_way_out),
        cmocka_unit_test(nccl_on_parts_of_one_card_names_the_ranks_likewise),
        cmocka_unit_test(versions_of_nccl_that_differ_are_told_on_every_rank),
        cmocka_unit_test(a_missing_or_old_library_is_told_on_every_rank),
        cmocka_unit_test(memory_that_cannot_be_shared_is_told_on_every_rank),
        cmocka_unit_test(devices_that_do_not_reach_each_other_are_named),
        cmocka_unit_test(streams_that_cannot_wait_for_memory_are_told),
        cmocka_unit_test(ranks_on_several_machines_are_told),
        cmocka_unit_test(a_communicator_that_fails_or_never_comes_ends_on_every_rank),
        cmocka_unit_test(a_rank_that_is_killed_ends_the_others_with_its_name),
        cmocka_unit_test(a_collective_that_never_ends_is_aborted_on_every_rank),
        cmocka_unit_test(what_nccl_finds_wrong_is_told_in_its_words),
        cmocka_unit_test(an_abort_is_told_to_the_others),
        cmocka_unit_test(a_device_that_fails_ends_the_others_with_its_reason),
        cmocka_unit_test(a_rank_that_leaves_early_is_named),
        cmocka_unit_test(closing_with_work_under_way_does_not_hang),
        cmocka_unit_test(ranks_that_pass_different_places_are_told),
        cmocka_unit_test(memory_of_a_plane_is_zeroed_and_may_be_freed_in_any_order),
        cmocka_unit_test(memory_that_one_rank_has_not_got_is_refused_on_all),
        cmocka_unit_test(kinds_that_planes_have_not_got_are_refused_without_harm),
    };

    return !gpu_is_real() && plane_module() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
