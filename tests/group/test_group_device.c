/* test_group_device.c - collectives on device memory: the same bits as on the CPU, in any order of
 * streams; no thread waits for the device. */
#include "support/failure.h"
#include "support/group_device.h"

/* One collective of kind @p which, at @p count elements; where @p in is @p out there is one buffer.
 */
static cddp_status collective(cddp_group *group, int which, const void *in, void *out, size_t count,
                              cddp_type type, cddp_work **work)
{
    int root = cddp_group_world_size(group) - 1;
    double weight = cddp_group_rank(group) == 0 ? 0 : cddp_group_rank(group) * 2.5;

    switch (which) {
    case 0:
        return cddp_all_reduce(group, in, out, count, type, CDDP_OP_MEAN, work);
    case 1:
        return cddp_all_reduce_weighted(group, in, out, count, type, weight, work);
    case 2:
        return cddp_reduce(group, in, out, count, type, CDDP_OP_SUM, root, work);
    case 3:
        return cddp_broadcast(group, out, count, type, root, work);
    case 4:
        return cddp_all_gather(group, in, out, count, type, work);
    case 5:
        return cddp_reduce_scatter(group, in, out, count, type, CDDP_OP_MAX, work);
    case 6:
        return cddp_gather(group, in, out, count, type, root, work);
    case 7:
        return cddp_scatter(group, in, out, count, type, root, work);
    default:
        return cddp_all_to_all(group, in, out, count, type, work);
    }
}

/* Elements that kind @p which reads from `in` and writes to `out`, in blocks of the count. */
static size_t in_blocks(int which, int size)
{
    return which == 5 || which == 7 || which == 8 ? (size_t)size : 1;
}

static size_t out_blocks(int which, int size)
{
    return which == 4 || which == 6 || which == 8 ? (size_t)size : 1;
}

static bool gets_result(int which, int rank, int size)
{
    return (which != 2 && which != 6) || rank == size - 1;
}

/* The operand comes late and is gone soon: the operation must see it, and only it. */
static int same_as_on_the_processor(cddp_group *group, int which, size_t count, cddp_type type,
                                    bool in_place, bool handle)
{
    int rank = cddp_group_rank(group);
    int size = cddp_group_world_size(group);
    size_t element = cddp_type_bytes(type);
    size_t in_bytes = in_blocks(which, size) * count * element;
    size_t out_bytes = out_blocks(which, size) * count * element;
    size_t most = in_bytes > out_bytes ? in_bytes : out_bytes;
    unsigned char *in = calloc(1, most + 1);
    unsigned char *expected = calloc(1, most + 1);
    unsigned char *got = calloc(1, most + 1);
    unsigned char *garbage = malloc(most + 1);
    char *there = on_device(group, most);
    char *out_there = in_place ? there : on_device(group, most);
    char *kept = on_device(group, most);
    cddp_work *work = NULL;

    for (size_t i = 0; i < in_bytes / element; i++) {
        reference_fill(in + i * element, rank, i % 8209, type);
    }
    memset(garbage, 0xb5, most);
    memcpy(expected, in, which == 3 || in_place ? most : 0);
    CHECK(collective(group, which, in_place ? expected : in, expected, count, type, NULL) ==
          CDDP_OK);
    CHECK(put_there(group, there, garbage, most) == 0);
    CHECK(put_there(group, out_there, garbage, most) == 0);
    CHECK(put_there(group, which == 3 ? out_there : there, in, in_bytes) == 0);
    CHECK(collective(group, which, there, out_there, count, type, handle ? &work : NULL) ==
          CDDP_OK);
    if (handle) {
        CHECK(cddp_work_wait(work) == CDDP_OK);
        cddp_work_destroy(work);
    }
    CHECK(put_there(group, kept, out_there, out_bytes) == 0);
    CHECK(put_there(group, there, garbage, most) == 0);
    CHECK(put_there(group, out_there, garbage, most) == 0);
    CHECK(fetch(group, got, kept, out_bytes) == 0);
    if (gets_result(which, rank, size) && memcmp(got, expected, out_bytes) != 0) {
        fprintf(stderr, "rank %d of %d, kind %d, %s x %zu%s\n", rank, size, which,
                cddp_type_name(type), count, in_place ? " in place" : "");
        return 1;
    }
    free(in);
    free(expected);
    free(got);
    free(garbage);
    return 0;
}

static int same_results_rank(int rank, int n, void *argument)
{
    static const cddp_type types[] = {CDDP_F32, CDDP_BF16, CDDP_F16, CDDP_F64, CDDP_I32};
    static const size_t counts[] = {1, 37, 4099, 400000};
    cddp_group *group;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    for (int which = 0; which < KINDS; which++) {
        bool one_buffer = which == 3 || which < 2;

        for (unsigned i = 0; i < 5; i++) {
            cddp_type type = types[(i + (unsigned)which) % 5];

            if (type == CDDP_I32 && which == 1) {
                continue;
            }
            CHECK(same_as_on_the_processor(group, which,
                                           counts[i % 4 == 3 && which > 1 ? 2 : i % 4], type,
                                           one_buffer, i % 2 == 0) == 0);
        }
        CHECK(same_as_on_the_processor(group, which, 1001, CDDP_F32, which == 3, true) == 0);
    }
    cddp_group_destroy(group);
    return 0;
}

static void results_are_those_of_the_processor_in_every_order_of_streams(void **state)
{
    (void)state;
    assert_int_equal(stage_run(same_results_rank, plain, 1, SEEDS, -1), 0);
}

static void results_on_the_module_are_those_of_the_processor(void **state)
{
    (void)state;
    need_module();
    for (int transport = 0; transport < MODULE_TRANSPORTS; transport++) {
        assert_int_equal(stage_run(same_results_rank, on_module(transport), 1, 3, -1), 0);
    }
}

/* Many at once, waited for out of order and late, while the device stands still. */
static int overlap_rank(int rank, int n, void *argument)
{
    enum { MANY = 20 };
    struct deferred *device;
    cddp_work *works[MANY];
    float *there[MANY];
    float one = 1.0f;
    float got[MANY];
    cddp_group *group;
    bool done = true;
    unsigned host_waits;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    device = deferred_of(cddpi_group_on_device(group));
    for (int i = 0; i < MANY; i++) {
        there[i] = on_device(group, sizeof(float));
    }
    host_waits = device->host_waits;
    device->held = true;
    for (int i = 0; i < MANY; i++) {
        CHECK(put_there(group, there[i], &one, sizeof one) == 0);
        CHECK(cddp_all_reduce(group, there[i], there[i], 1, CDDP_F32, CDDP_OP_SUM, &works[i]) ==
              CDDP_OK);
    }
    CHECK(cddp_work_test(works[0], &done) == CDDP_OK && !done);
    CHECK(device->host_waits == host_waits);
    CHECK(cddp_work_wait_host(works[MANY - 1], 20, &done) == CDDP_OK && !done);
    host_waits = device->host_waits; /* as often as 20 ms took */
    for (int i = MANY; i-- > 0;) {
        CHECK(cddp_work_wait(works[i]) == CDDP_OK); /* the stream waits, we do not */
        CHECK(put_there(group, &got[i], there[i], sizeof got[i]) == 0);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK); /* nor does it wait for devices */
    CHECK(device->host_waits == host_waits);
    device->held = false;
    CHECK(cddp_work_wait_host(works[0], CDDP_TIMEOUT_DEFAULT, &done) == CDDP_OK && done);
    CHECK(cddp_work_test(works[0], &done) == CDDP_OK && done);
    for (int i = 0; i < MANY; i++) {
        cddp_work_destroy(works[i]);
    }
    CHECK(device->device.ops->finish(&device->device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    for (int i = 0; i < MANY; i++) {
        CHECK(got[i] == (float)n);
    }
    cddp_group_destroy(group);
    return 0;
}

static void calls_and_waits_return_while_the_device_stands_still(void **state)
{
    (void)state;
    assert_int_equal(stage_run(overlap_rank, plain, 1, SEEDS, -1), 0);
}

static void a_rank_may_be_far_ahead(void **state)
{
    (void)state;
    assert_int_equal(stage_run(drift_rank, plain, 1, 1, -1), 0);
}

static int memory_rank(int rank, int n, void *argument)
{
    float host[4] = {1, 2, 3, 4};
    float *there;
    float *block;
    void *shm_block;
    cddp_group *group;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, sizeof host);
    CHECK(failure_is(cddp_all_reduce(group, host, there, 4, CDDP_F32, CDDP_OP_SUM, NULL),
                     CDDP_ERR_ARGUMENT, rank, -1, ""));
    CHECK(last_error_has("out is memory of device deferred 0, in is not"));
    CHECK(failure_is(cddp_all_reduce(group, there, host, 4, CDDP_F32, CDDP_OP_SUM, NULL),
                     CDDP_ERR_ARGUMENT, rank, -1, ""));
    CHECK(last_error_has("in is memory of device"));
    if (n > 1) {
        CHECK(cddp_send(group, there, 1, CDDP_F32, (rank + 1) % n, NULL) == CDDP_ERR_UNAVAILABLE);
        CHECK(cddp_all_to_all(group, there, on_device(group, 64), 1, CDDP_I64, NULL) ==
              CDDP_ERR_UNAVAILABLE); /* the transport's own word; the group lives on */
        CHECK(last_error_has("no all_to_all of i64"));
    }
    CHECK(cddp_all_reduce(group, there, there, 4, CDDP_I8, CDDP_OP_SUM, NULL) ==
          CDDP_ERR_UNAVAILABLE); /* before any rank starts it: the group lives on */
    CHECK(last_error_has("a device does not reduce i8 by sum"));
    CHECK(cddp_all_reduce(group, there, there, 4, CDDP_I32, CDDP_OP_XOR, NULL) ==
          CDDP_ERR_UNAVAILABLE);
    CHECK(cddp_all_reduce(group, host, host, 4, CDDP_I8, CDDP_OP_OR, NULL) == CDDP_OK);
    CHECK(cddp_all_reduce(group, NULL, NULL, 0, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(cddp_all_reduce(group, host, host, 4, CDDP_F32, CDDP_OP_MEAN, NULL) == CDDP_OK);
    CHECK(host[3] == 4);
    CHECK(cddp_group_alloc(group, sizeof host, 0, (void **)(void *)&block) == CDDP_OK);
    CHECK(deferred_owns(cddpi_group_on_device(group), block));
    CHECK(fetch(group, host, block, sizeof host) == 0);
    CHECK(host[0] == 0 && host[3] == 0);
    CHECK(cddp_group_alloc(group, 100, CDDP_ALLOC_HOST, &shm_block) == CDDP_OK);
    CHECK(!deferred_owns(cddpi_group_on_device(group), shm_block));
    CHECK(((char *)shm_block)[99] == 0);
    cddp_group_free(group, shm_block);
    cddp_group_free(group, block);
    CHECK(cddp_all_reduce(group, there, there, 4, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(strcmp(group_info(group).backend, n > 1 ? "deferred" : "solo") == 0);
    cddp_group_destroy(group);
    return 0;
}

static void memory_decides_who_reduces_and_may_not_be_mixed(void **state)
{
    (void)state;
    assert_int_equal(stage_run(memory_rank, plain, 1, 1, -1), 0);
}

static void parts_of_a_group_share_its_streams(void **state)
{
    (void)state;
    assert_int_equal(stage_run(split_rank, plain, 1, 3, -1), 0);
}

static int handles_rank(int rank, int n, void *argument)
{
    float *there;
    cddp_group *group;
    cddp_work *finished;
    cddp_work *pending;
    cddp_status status;
    bool done = false;

    CHECK(stage_enter(argument, rank, n, &group) == CDDP_OK);
    there = on_device(group, sizeof(float));
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, &finished) == CDDP_OK);
    CHECK(cddp_work_wait_host(finished, SUPPORT_TIMEOUT_MS, &done) == CDDP_OK && done);
    while (done == false || atomic_load(&group->device->calls[rank].ended) < 1) {
        CHECK(cddp_work_test(finished, &done) == CDDP_OK);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    deferred_of(cddpi_group_on_device(group))->held = rank == 0;
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, &pending) == CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    deferred_of(cddpi_group_on_device(group))->held = false;
    cddp_group_destroy(group);
    CHECK(cddp_work_wait(finished) == CDDP_OK);
    status = cddp_work_wait(pending); /* it may have been quick */
    CHECK(status == CDDP_OK || status == CDDP_ERR_CLOSED || status == CDDP_ERR_PEER);
    cddp_work_destroy(finished);
    cddp_work_destroy(pending);
    return 0;
}

static void handles_outlive_their_group(void **state)
{
    (void)state;
    assert_int_equal(stage_run(handles_rank, plain, 1, 2, -1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_processor_in_every_order_of_streams),
        cmocka_unit_test(results_on_the_module_are_those_of_the_processor),
        cmocka_unit_test(calls_and_waits_return_while_the_device_stands_still),
        cmocka_unit_test(a_rank_may_be_far_ahead),
        cmocka_unit_test(memory_decides_who_reduces_and_may_not_be_mixed),
        cmocka_unit_test(parts_of_a_group_share_its_streams),
        cmocka_unit_test(handles_outlive_their_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
