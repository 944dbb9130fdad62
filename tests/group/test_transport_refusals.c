/* test_transport_refusals.c - transports of the CUDA module that cannot be used: they say why, on
 * every rank. */
#include "fake_cuda/fake_numbers.h"
#include "support/failure.h"
#include "support/transport_fault.h"

#include <math.h>

static int refused_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_NCCL_VERSION", "22602", 1);
        setenv("CDDP_FAKE_CUDA_IPC", "0", 1);
    }
    CHECK(transport_rank_start(job->world, rank, job->transport, false, &me) ==
          CDDP_ERR_UNAVAILABLE);
    if (!last_error_has(job->text)) {
        fprintf(stderr, "rank %d: %s\n", rank, cddp_last_error());
        return 1;
    }
    me.transport = NULL;
    transport_rank_end(&me);
    return 0;
}

static void nccl_on_a_shared_device_names_the_ranks_and_the_way_out(void **state)
{
    (void)state;
    use_devices("2");
    assert_int_equal(run_job(3, refused_rank,
                             (struct job){.transport = "nccl",
                                          .culprit = -1,
                                          .text = "ranks 0 and 2 share the device GPU-"},
                             false),
                     0);
    assert_int_equal(
        run_job(3, refused_rank,
                (struct job){.transport = "nccl",
                             .culprit = -1,
                             .text = ": NCCL 2.28.9 cannot do that: set CDDP_BACKEND=ipc"},
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
                (struct job){.transport = "nccl",
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
                (struct job){.transport = "nccl",
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
                             (struct job){.transport = "nccl",
                                          .culprit = -1,
                                          .text = "rank 0: libnccl.so cannot be opened"},
                             false),
                     0);
    without("CDDP_FAKE_CUDA_WITHOUT");
    with("CDDP_FAKE_NCCL_VERSION", "21403");
    assert_int_equal(
        run_job(2, refused_rank,
                (struct job){.transport = "nccl",
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
                (struct job){.transport = "ipc",
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
                             (struct job){.transport = "ipc",
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
                                 (struct job){.transport = staged ? "staged" : "ipc",
                                              .culprit = -1,
                                              .text = "cannot wait for values in memory"},
                                 false),
                         0);
    }
    without("CDDP_FAKE_CUDA_WAIT_VALUE");
}

/* Sums and weighted means, in one order and in any. */
/* Means that deterministic.c makes of fewer ranks: of 16 bits, in place and not; and of integers,
 * which are refused. */
static int many_means(struct transport_rank *me, int rank, int n, double mean)
{
    uint16_t own[2 * TRANSPORT_RANKS];
    uint16_t got;
    void *in;
    void *out;
    struct cddpi_group_op op;

    for (int i = 0; i < n; i++) {
        own[i] = fake_float_to_bf16((float)rank);
    }
    in = transport_upload(me, NULL, own, sizeof own);
    out = transport_upload(me, NULL, own, sizeof own);
    for (int i = 0; i < 3; i++) { /* in place; from elsewhere; scattered */
        op = transport_sum(out, 1);
        op.kind = i == 2 ? CDDPI_REDUCE_SCATTER : CDDPI_ALL_REDUCE;
        op.in = i == 0 ? out : in;
        op.type = CDDP_BF16;
        op.op = CDDP_OP_MEAN;
        op.weighted = true;
        op.weight = rank;
        CHECK(transport_run(me, &op) == CDDP_OK);
        CHECK(transport_download(me, &got, out, sizeof got) == CDDP_OK);
        CHECK(fabs(fake_bf16_to_float(got) - mean) < 0.02 * mean);
        CHECK(transport_download(me, &got, in, sizeof got) == CDDP_OK);
        CHECK(got == own[0]); /* the input stays */
    }
    op = transport_sum(out, 1);
    op.type = CDDP_I32;
    op.op = CDDP_OP_MEAN;
    CHECK(transport_start(me, &op) == CDDP_ERR_UNAVAILABLE);
    CHECK(last_error_has("mean of i32 over 68 ranks"));
    return 0;
}

static int many_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    float value = (float)rank;
    double sum = (double)n * (n - 1) / 2;
    struct cddpi_group_op op;
    struct transport_rank me;
    double squares = 0;
    float got;
    void *data;

    for (int r = 0; r < n; r++) {
        squares += (double)r * r;
    }
    CHECK(transport_rank_start(job->world, rank, job->transport, job->culprit > 0, &me) == CDDP_OK);
    data = transport_upload(&me, NULL, &value, sizeof value);
    op = transport_sum(data, 1);
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_download(&me, &got, data, sizeof got) == CDDP_OK);
    CHECK(got == (float)sum);
    CHECK(transport_upload(&me, data, &value, sizeof value) == data);
    op = transport_sum(data, 1);
    op.op = CDDP_OP_MEAN;
    op.weighted = true;
    op.weight = rank;
    CHECK(transport_run(&me, &op) == CDDP_OK);
    CHECK(transport_download(&me, &got, data, sizeof got) == CDDP_OK);
    CHECK(fabs(got - squares / sum) < 1e-3);
    CHECK(job->culprit > 0 || many_means(&me, rank, n, squares / sum) == 0);
    transport_rank_end(&me);
    return 0;
}

static void nccl_takes_more_ranks_than_a_machine_has(void **state)
{
    (void)state;
    use_devices("8");
    with("CDDP_FAKE_NCCL_VERSION", "23003");
    with("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        assert_int_equal(
            run_job(deterministic ? 66 : 68, many_rank,
                    (struct job){.transport = "nccl", .culprit = deterministic ? 1 : -1}, false),
            0);
    }
    without("NCCL_MULTI_RANK_GPU_ENABLE");
    without("CDDP_FAKE_NCCL_VERSION");
}

static int machines_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;

    (void)n;
    CHECK(transport_rank_open(job->world, rank, job->transport, false, &me) == CDDP_OK);
    me.params.local_rank = 0;
    me.params.local_world_size = 1;
    CHECK(transport_open(&me) == CDDP_ERR_UNAVAILABLE);
    CHECK(last_error_has("the ranks are on several machines"));
    me.transport = NULL;
    transport_rank_end(&me);
    return 0;
}

static void ranks_on_several_machines_are_told(void **state)
{
    (void)state;
    use_devices("1");
    assert_int_equal(
        run_job(2, machines_rank, (struct job){.transport = "ipc", .culprit = -1}, false), 0);
    assert_int_equal(
        run_job(2, machines_rank, (struct job){.transport = "staged", .culprit = -1}, false), 0);
}

static int failed_init_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct transport_rank me;

    (void)n;
    if (rank == job->culprit) {
        setenv("CDDP_FAKE_NCCL_INIT", job->text, 1);
    }
    CHECK(transport_rank_open(job->world, rank, job->transport, false, &me) == CDDP_OK);
    me.params.timeout_ms = 3000; /* of NCCL; exchanges may take as long as they like */
    CHECK(transport_open(&me) != CDDP_OK);
    CHECK(last_error_has("making a communicator: "));
    CHECK(strncmp(cddp_last_error(), "rank ", 5) == 0);
    me.transport = NULL;
    transport_rank_end(&me);
    return 0;
}

static void a_communicator_that_fails_or_never_comes_ends_on_every_rank(void **state)
{
    (void)state;
    use_devices("8");
    assert_int_equal(run_job(3, failed_init_rank,
                             (struct job){.transport = "nccl", .culprit = 1, .text = "fail"},
                             false),
                     0);
    assert_int_equal(run_job(3, failed_init_rank,
                             (struct job){.transport = "nccl", .culprit = 1, .text = "hang"},
                             false),
                     0);
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
        cmocka_unit_test(nccl_takes_more_ranks_than_a_machine_has),
        cmocka_unit_test(ranks_on_several_machines_are_told),
        cmocka_unit_test(a_communicator_that_fails_or_never_comes_ends_on_every_rank),
    };

    return !gpu_is_real() && transport_module() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
