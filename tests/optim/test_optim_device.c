/* test_optim_device.c - updates on a device equal the CPU's parameters and state to the bit, in
 * every order of the streams. */
#include "support/optim_device.h"

static void close_side(struct side *side)
{
    cddpi_optim_destroy(side->optim);
    for (size_t i = 0; i < PARAMS; i++) {
        if (side->device != NULL) {
            side->device->ops->release(side->device, side->params[i].data);
            side->device->ops->release(side->device, side->grads[i]);
        } else {
            free(side->params[i].data);
            free(side->grads[i]);
        }
    }
}

/* The gradients of a step, some of which are missing in some steps. */
static int make_grads(struct side *side, unsigned step, void **out_grads)
{
    for (size_t i = 0; i < PARAMS; i++) {
        CHECK(put_noise(side, side->grads[i], 2, step, i) == 0);
        out_grads[i] = i == 1 && step % 3 == 1 ? NULL : side->grads[i];
    }
    return 0;
}

static int step_side(struct side *side, unsigned step, double host_scale, const float *scale,
                     const int32_t *skip)
{
    void *grads[PARAMS];

    CHECK(make_grads(side, step, grads) == 0);
    if (side->device == NULL) {
        cddpi_optim_step(side->optim, grads, rate_of(step), host_scale, NULL);
        return 0;
    }
    CHECK(cddpi_optim_device_rate(side->optim, grads, rate_of(step)) == CDDP_OK);
    CHECK(cddpi_optim_device_update(side->optim, scale, skip) == CDDP_OK);
    return 0;
}

/* Parameters, state and counters of both are the same bits. */
static int same_sides(struct side *host, struct side *there)
{
    float *numbers = malloc(bytes_of_param(0));
    size_t count = 0;
    size_t count_there = 0;
    const cddp_param *tensors;
    const cddp_param *tensors_there;

    for (size_t i = 0; i < PARAMS; i++) {
        CHECK(get_side(there, numbers, there->params[i].data, bytes_of_param(i)) == 0);
        CHECK(memcmp(numbers, host->params[i].data, bytes_of_param(i)) == 0);
    }
    free(numbers);
    CHECK(cddpi_optim_fetch(there->optim) == CDDP_OK);
    tensors = cddpi_optim_tensors(host->optim, &count);
    tensors_there = cddpi_optim_tensors(there->optim, &count_there);
    CHECK(count == count_there);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = cddp_type_bytes(tensors[i].type);

        for (int d = 0; d < tensors[i].dims; d++) {
            bytes *= (size_t)tensors[i].shape[d];
        }
        if (memcmp(tensors[i].data, tensors_there[i].data, bytes) != 0) {
            fprintf(stderr, "state %s differs\n", tensors[i].name);
            return 1;
        }
    }
    return 0;
}

/* Calls @p play for each kind of optimizer on a device of its own. */
static int for_each_spec(int (*play)(struct side *host, struct side *there))
{
    struct cddpi_device *device = open_cuda();

    CHECK(device != NULL);
    for (int i = 0; i < SPECS; i++) {
        struct side host;
        struct side there;

        CHECK(open_side(&host, NULL, &specs[i]) == 0);
        CHECK(open_side(&there, device, &specs[i]) == 0);
        if (play(&host, &there) != 0 || same_sides(&host, &there) != 0) {
            fprintf(stderr, "with optimizer %d\n", i);
            return 1;
        }
        close_side(&host);
        close_side(&there);
    }
    cddpi_device_close(device);
    return 0;
}

#define IN_ALL_ORDERS(play)                                                                        \
    static int play##_rank(int rank, int world_size, void *argument)                               \
    {                                                                                              \
        (void)rank, (void)world_size, (void)argument;                                              \
        return for_each_spec(play);                                                                \
    }

static int many_steps(struct side *host, struct side *there)
{
    for (unsigned step = 0; step < 7; step++) {
        CHECK(step_side(host, step, 1, NULL, NULL) == 0);
        CHECK(step_side(there, step, 1, NULL, NULL) == 0);
    }
    return 0;
}
IN_ALL_ORDERS(many_steps)

static void updates_are_those_of_the_processor_to_the_bit(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(many_steps_rank, ORDERS), 0);
}

/* Nothing but rates goes there, so that nobody waits for any other reason. */
static int many_rates(struct side *host, struct side *there)
{
    void *grads[PARAMS];
    void *grads_there[PARAMS];

    CHECK(make_grads(host, 0, grads) == 0);
    CHECK(make_grads(there, 0, grads_there) == 0);
    CHECK(there->device->ops->finish(there->device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    for (unsigned step = 0; step < 11; step++) { /* more than can be on their way */
        cddpi_optim_step(host->optim, grads, rate_of(step), 1, NULL);
        CHECK(cddpi_optim_device_rate(there->optim, grads_there, rate_of(step)) == CDDP_OK);
        CHECK(cddpi_optim_device_update(there->optim, NULL, NULL) == CDDP_OK);
    }
    return 0;
}
IN_ALL_ORDERS(many_rates)

static void each_update_has_its_own_learning_rate(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(many_rates_rank, ORDERS), 0);
}

/* The factor of clipping, and which updates are skipped, are the device's. */
static int some_skipped(struct side *host, struct side *there)
{
    float *scale = memory_for(there, sizeof *scale);
    int32_t *skip = memory_for(there, sizeof *skip);

    for (unsigned step = 0; step < 9; step++) {
        const float factor = step % 2 == 0 ? 0.25f : 0.3f;
        const int32_t skipped = step == 3 || step == 4 || step == 7;

        CHECK(put_side(there, scale, &factor, sizeof factor) == 0);
        CHECK(put_side(there, skip, &skipped, sizeof skipped) == 0);
        CHECK(step_side(there, step, 1, scale, skip) == 0);
        if (!skipped) {
            CHECK(step_side(host, step, (double)factor, NULL, NULL) == 0);
        }
        if (step == 5) { /* it turns out later: two rates ago, and one */
            cddpi_optim_skipped(there->optim, 2);
            cddpi_optim_skipped(there->optim, 1);
        } else if (step == 7) {
            cddpi_optim_skipped(there->optim, 0);
        }
    }
    CHECK(same_sides(host, there) == 0);
    there->device->ops->release(there->device, scale);
    there->device->ops->release(there->device, skip);
    return 0;
}
IN_ALL_ORDERS(some_skipped)

static void skipped_updates_change_neither_parameters_nor_counts(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(some_skipped_rank, ORDERS), 0);
}

/* Copies of the parameters, one of them at an odd place, and what a cast makes of the parameters.
 */
static int check_copies(const struct side *there, cddp_type type, void *const *copies)
{
    size_t bytes = (size_t)counts[0] * sizeof(uint16_t);
    void *cast = memory_for(there, bytes);
    char *expected = malloc(bytes);
    char *got = malloc(bytes);

    for (size_t i = 0; i < PARAMS; i++) {
        size_t own = (size_t)counts[i] * sizeof(uint16_t);

        if (copies[i] == NULL) {
            continue;
        }
        CHECK(there->device->kernels->cast(there->device, CDDP_F32, there->params[i].data, type,
                                           cast, (size_t)counts[i]) == CDDP_OK);
        CHECK(get_side(there, expected, cast, own) == 0);
        CHECK(get_side(there, got, copies[i], own) == 0);
        CHECK(memcmp(got, expected, own) == 0);
    }
    there->device->ops->release(there->device, cast);
    free(expected);
    free(got);
    return 0;
}

static int copies_of(struct side *host, struct side *there, cddp_type type)
{
    void *block = memory_for(there, bytes_of_param(0));
    int32_t *skip = memory_for(there, sizeof *skip);
    void *copies[PARAMS] = {(uint16_t *)block + 1, (uint16_t *)block + 20100};

    cddpi_optim_device_copies(there->optim, type, copies);
    for (unsigned step = 0; step < 6; step++) {
        const int32_t skipped = step == 3;

        CHECK(put_side(there, skip, &skipped, sizeof skipped) == 0);
        CHECK(step_side(there, step, 1, NULL, skip) == 0);
        if (skipped) {
            cddpi_optim_skipped(there->optim, 0);
        } else {
            CHECK(step_side(host, step, 1, NULL, NULL) == 0);
        }
        if (step == 4) { /* to another place, between two steps */
            copies[1] = (uint16_t *)block + 20032;
            cddpi_optim_device_copies(there->optim, type, copies);
        } else {
            CHECK(check_copies(there, type, copies) == 0);
        }
    }
    there->device->ops->release(there->device, block);
    there->device->ops->release(there->device, skip);
    return 0;
}

static int copies_of_both_types(struct side *host, struct side *there)
{
    CHECK(copies_of(host, there, CDDP_BF16) == 0);
    CHECK(copies_of(host, there, CDDP_F16) == 0);
    return 0;
}
IN_ALL_ORDERS(copies_of_both_types)

static void updates_write_what_a_cast_would(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(copies_of_both_types_rank, ORDERS), 0);
}

/* As buckets that are built again move gradients; the old place gets other contents. */
static int gradients_that_move(struct side *host, struct side *there)
{
    for (unsigned step = 0; step < 6; step++) {
        void *old = there->grads[0];

        if (step % 2 == 1) {
            there->grads[0] = memory_for(there, bytes_of_param(0));
            CHECK(there->grads[0] != NULL);
        }
        CHECK(step_side(host, step, 1, NULL, NULL) == 0);
        CHECK(step_side(there, step, 1, NULL, NULL) == 0);
        if (old != there->grads[0]) {
            there->device->ops->release(there->device, old);
        }
    }
    return 0;
}
IN_ALL_ORDERS(gradients_that_move)

static void gradients_may_move_between_steps(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(gradients_that_move_rank, ORDERS), 0);
}

static void copy_state(struct side *from, struct side *to)
{
    size_t count = 0;
    const cddp_param *source = cddpi_optim_tensors(from->optim, &count);
    const cddp_param *target = cddpi_optim_tensors(to->optim, &count);

    for (size_t i = 0; i < count; i++) {
        size_t bytes = cddp_type_bytes(source[i].type);

        for (int d = 0; d < source[i].dims; d++) {
            bytes *= (size_t)source[i].shape[d];
        }
        memcpy(target[i].data, source[i].data, bytes);
    }
}

/* From the device to the processor, on there, and back. */
static int state_that_travels(struct side *host, struct side *there)
{
    struct side straight;

    CHECK(open_side(&straight, NULL, &host->optim->spec) == 0);
    for (unsigned step = 0; step < 12; step++) {
        CHECK(step_side(&straight, step, 1, NULL, NULL) == 0);
    }
    for (unsigned step = 0; step < 4; step++) {
        CHECK(step_side(there, step, 1, NULL, NULL) == 0);
    }
    CHECK(cddpi_optim_fetch(there->optim) == CDDP_OK);
    copy_state(there, host);
    for (size_t i = 0; i < PARAMS; i++) {
        CHECK(get_side(there, host->params[i].data, there->params[i].data, bytes_of_param(i)) == 0);
    }
    for (unsigned step = 4; step < 8; step++) {
        CHECK(step_side(host, step, 1, NULL, NULL) == 0);
    }
    copy_state(host, there);
    CHECK(cddpi_optim_send(there->optim) == CDDP_OK);
    for (size_t i = 0; i < PARAMS; i++) {
        CHECK(put_side(there, there->params[i].data, host->params[i].data, bytes_of_param(i)) == 0);
    }
    for (unsigned step = 8; step < 12; step++) {
        CHECK(step_side(host, step, 1, NULL, NULL) == 0);
        CHECK(step_side(there, step, 1, NULL, NULL) == 0);
    }
    for (size_t i = 0; i < PARAMS; i++) {
        CHECK(memcmp(host->params[i].data, straight.params[i].data, bytes_of_param(i)) == 0);
    }
    close_side(&straight);
    return 0;
}
IN_ALL_ORDERS(state_that_travels)

static void state_goes_to_the_processor_and_back(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(state_that_travels_rank, ORDERS), 0);
}

static int sums_of_squares(struct side *host, struct side *there)
{
    struct cddpi_exact_sum *sum = memory_for(there, sizeof *sum);

    for (unsigned step = 0; step < 3; step++) {
        struct cddpi_exact_sum exact = {{0}};
        struct cddpi_exact_sum got;
        void *grads[PARAMS];

        CHECK(step_side(host, step, 1, NULL, NULL) == 0);
        CHECK(step_side(there, step, 1, NULL, NULL) == 0);
        CHECK(make_grads(host, step, grads) == 0);
        cddpi_optim_add_squares(host->optim, grads, &exact);
        cddpi_exact_carry(&exact);
        CHECK(cddpi_optim_device_squares(there->optim, sum) == CDDP_OK);
        CHECK(get_side(there, &got, sum, sizeof got) == 0);
        CHECK(cddpi_exact_value(&got) > 0 && memcmp(&got, &exact, sizeof got) == 0);
    }
    there->device->ops->release(there->device, sum);
    return 0;
}
IN_ALL_ORDERS(sums_of_squares)

static void squares_are_those_of_the_gradients_that_are_there(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(sums_of_squares_rank, ORDERS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_are_those_of_the_processor_to_the_bit),
        cmocka_unit_test(each_update_has_its_own_learning_rate),
        cmocka_unit_test(skipped_updates_change_neither_parameters_nor_counts),
        cmocka_unit_test(updates_write_what_a_cast_would),
        cmocka_unit_test(gradients_may_move_between_steps),
        cmocka_unit_test(state_goes_to_the_processor_and_back),
        cmocka_unit_test(squares_are_those_of_the_gradients_that_are_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
