/* test_transport_memory.c - memory of the CUDA module's transports, and unsupported operations:
 * what one rank lacks is refused on all ranks, without harm. */

#include "support/failure.h"
#include "support/transport_fault.h"

static int memory_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    void *blocks[3];

    (void)n;
    for (int again = 0; again < 2; again++) { /* a transport may be opened again */
        me = (struct transport_rank){.world = NULL};
        CHECK(transport_rank_start(job->world, rank, job->transport, false, &me) == CDDP_OK);
        me.given = (size_t)again << 24;
        for (int i = 0; i < 3; i++) {
            float first = 1;

            CHECK(me.ops->alloc(me.transport, (size_t)i * 100000, &blocks[i]) == CDDP_OK);
            if (i > 0) { /* it is zeroed */
                CHECK(transport_download(&me, &first, blocks[i], sizeof first) == CDDP_OK);
                CHECK(first == 0);
            }
        }
        me.ops->free_memory(me.transport, blocks[1]);
        CHECK(me.ops->alloc(me.transport, 5000, &blocks[1]) == CDDP_OK);
        me.ops->free_memory(me.transport, blocks[2]);
        me.ops->free_memory(me.transport, blocks[0]);
        transport_rank_end(&me); /* the rest goes with the transport */
    }
    return 0;
}

static void memory_of_a_transport_is_zeroed_and_may_be_freed_in_any_order(void **state)
{
    static const char *const transports[] = {"ipc", "staged", "nccl", "nccl"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        use_devices(strcmp(transports[i], "nccl") == 0 ? "8" : "1");
        with("CDDP_FAKE_NCCL_MEMORY", i == 3 ? "0" : "1");
        assert_int_equal(
            run_job(3, memory_rank, (struct job){.transport = transports[i], .culprit = -1}, false),
            0);
    }
    without("CDDP_FAKE_NCCL_MEMORY");
}

/* @p argument: culprit is 1 if a rank takes all memory before the first collective. */
static int late_memory_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct cddpi_group_op op;
    struct transport_rank me;
    void *large;

    setenv("CDDP_FAKE_CUDA_MEMORY", "134217728", 1);
    setenv("CDDP_FAKE_NCCL_BUFFERS", job->culprit == 1 ? "1" : "8", 1);
    CHECK(transport_begin(job->world, rank, job->transport, false, false, 1000, &me, &op) == 0);
    /* of 128 MiB, the transport has taken less than one */
    CHECK(me.device->ops->alloc(me.device, (size_t)125 << 20, "activations", &large) == CDDP_OK);
    me.device->ops->release(me.device, large);
    if (job->culprit == 1) {
        CHECK(me.device->ops->alloc(me.device, (size_t)127 << 20, "activations", &large) ==
              CDDP_ERR_NO_MEMORY);
        CHECK(last_error_has("2.0 MiB are kept for NCCL"));
        CHECK(me.device->ops->alloc(me.device, (size_t)125 << 20, "activations", &large) ==
              CDDP_OK);
    }
    CHECK(me.device->ops->finish(me.device, 60000) == CDDP_OK);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    transport_rank_end(&me);
    (void)n;
    return 0;
}

/* What the pool holds, and what is left beside large memory. */
static void nccl_finds_memory_at_its_first_collective(void **state)
{
    (void)state;
    use_devices("8");
    for (int takes = 0; takes < 2; takes++) {
        assert_int_equal(run_job(2, late_memory_rank,
                                 (struct job){.transport = "nccl", .culprit = takes}, false),
                         0);
    }
}

/* A group that ends, or has had its first operations, leaves to another what is kept for that. */
static int keeping_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct cddpi_group_op op;
    struct transport_rank me;
    struct transport_rank other;
    void *large;

    (void)n;
    setenv("CDDP_FAKE_CUDA_MEMORY", "134217728", 1);
    CHECK(transport_begin(job->world, rank, job->transport, false, false, 1000, &me, &op) == 0);
    other = me;
    other.given = (size_t)1 << 24;
    CHECK(transport_open(&other) == CDDP_OK);
    other.ops->close(other.transport);
    CHECK(me.device->ops->alloc(me.device, (size_t)127 << 20, "activations", &large) ==
          CDDP_ERR_NO_MEMORY);
    CHECK(last_error_has("2.0 MiB are kept for NCCL"));
    CHECK(transport_run(&me, &op) == CDDP_OK);
    transport_rank_end(&me);
    return 0;
}

static void what_is_kept_for_a_group_outlives_another(void **state)
{
    (void)state;
    use_devices("8");
    assert_int_equal(run_job(2, keeping_rank, (struct job){.transport = "nccl"}, false), 0);
}

static int no_memory_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;
    void *memory;
    cddp_status status;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_CUDA_MEMORY", "100000000", 1);
    }
    CHECK(transport_rank_start(job->world, rank, job->transport, false, &me) == CDDP_OK);
    status = me.ops->alloc(me.transport, 100000000, &memory);
    CHECK(status == CDDP_ERR_NO_MEMORY);
    CHECK(last_error_has("rank 1: "));
    CHECK(me.ops->alloc(me.transport, 1000, &memory) == CDDP_OK);
    transport_rank_end(&me);
    return 0;
}

static void memory_that_one_rank_has_not_got_is_refused_on_all(void **state)
{
    static const char *const transports[] = {"ipc", "staged", "nccl"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        use_devices("8");
        assert_int_equal(run_job(3, no_memory_rank,
                                 (struct job){.transport = transports[i], .culprit = 1}, false),
                         0);
    }
}

static int refusing_rank(int rank, int n, void *argument)
{
    static const enum cddpi_kind kinds[] = {CDDPI_SEND, CDDPI_RECV, CDDPI_BARRIER};
    const struct job *job = argument;
    struct transport_rank me;
    struct cddpi_group_op op;

    (void)n;
    CHECK(begin(job, rank, &me, &op) == 0);
    for (int i = 0; i < 3; i++) {
        op.kind = kinds[i];
        CHECK(transport_start(&me, &op) == CDDP_ERR_UNAVAILABLE);
        CHECK(last_error_has("of device memory"));
    }
    op.kind = CDDPI_ALL_REDUCE; /* it still works */
    CHECK(transport_run(&me, &op) == CDDP_OK);
    transport_rank_end(&me);
    return 0;
}

static void kinds_that_transports_have_not_got_are_refused_without_harm(void **state)
{
    static const char *const transports[] = {"ipc", "staged", "nccl"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        use_devices("8");
        assert_int_equal(run_job(2, refusing_rank,
                                 (struct job){.transport = transports[i], .culprit = -1}, false),
                         0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_a_transport_is_zeroed_and_may_be_freed_in_any_order),
        cmocka_unit_test(nccl_finds_memory_at_its_first_collective),
        cmocka_unit_test(what_is_kept_for_a_group_outlives_another),
        cmocka_unit_test(memory_that_one_rank_has_not_got_is_refused_on_all),
        cmocka_unit_test(kinds_that_transports_have_not_got_are_refused_without_harm),
    };

    return !gpu_is_real() && transport_module() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
