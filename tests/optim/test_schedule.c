/* test_schedule.c - learning rates over steps, and loss scaling in fp16. */
#include "optim/loss_scale.h"
#include "optim/optim.h"
#include "support/optim_vectors.h"

#include <cddp/checkpoint.h>
#include <math.h>

static void warm_up_climbs_to_the_peak(void **state)
{
    const struct cddpi_lr_schedule schedule = {CDDPI_SCHEDULE_CONSTANT, 0.4, 0.0, 4, 100, 0, 0, 0,
                                               CDDPI_DECAY_LINEAR};

    (void)state;
    assert_float_equal(cddpi_schedule_lr(&schedule, 0), 0.1, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 2), 0.3, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 3), 0.4, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 4), 0.4, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 1000), 0.4, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, -5), 0.1, 1e-15);
}

static void linear_and_cosine_end_at_the_final_rate(void **state)
{
    struct cddpi_lr_schedule schedule = {CDDPI_SCHEDULE_LINEAR, 1.0, 0.1, 10, 111, 0, 0, 0,
                                         CDDPI_DECAY_LINEAR};

    (void)state;
    assert_float_equal(cddpi_schedule_lr(&schedule, 10), 1.0, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 60), 0.55, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 110), 0.1, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 500), 0.1, 0);
    schedule.type = CDDPI_SCHEDULE_COSINE;
    for (int64_t step = 10; step < 111; step++) {
        double wanted = 0.1 + 0.9 * 0.5 *
                                  (1.0 + cos(3.14159265358979323846 * (double)(step - 10) / 100.0));

        assert_float_equal(cddpi_schedule_lr(&schedule, step), wanted, 1e-15);
    }
    assert_float_equal(cddpi_schedule_lr(&schedule, 10), 1.0, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 110), 0.1, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, INT64_MAX), 0.1, 0);
}

static void steps_multiply_the_rate(void **state)
{
    const struct cddpi_lr_schedule schedule = {CDDPI_SCHEDULE_STEP, 0.8, 0.0, 5, 100, 10, 0.5, 0,
                                               CDDPI_DECAY_LINEAR};

    (void)state;
    assert_float_equal(cddpi_schedule_lr(&schedule, 5), 0.8, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 14), 0.8, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 15), 0.4, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 45), 0.05, 0);
}

static void wsd_stays_and_then_falls_to_the_final_rate(void **state)
{
    struct cddpi_lr_schedule schedule = {.type = CDDPI_SCHEDULE_WSD,
                                         .lr = 1.0,
                                         .final_lr = 0.2,
                                         .warmup_steps = 4,
                                         .total_steps = 100,
                                         .decay_steps = 16};

    (void)state;
    assert_float_equal(cddpi_schedule_lr(&schedule, 0), 0.25, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 3), 1.0, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 4), 1.0, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 83), 1.0, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 84), 0.95, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 87), 0.8, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 91), 0.6, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 99), 0.2, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 1000), 0.2, 0);
    schedule.decay = CDDPI_DECAY_SQRT;
    assert_float_equal(cddpi_schedule_lr(&schedule, 83), 1.0, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 84), 0.8, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 87), 0.6, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 92), 0.4, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 99), 0.2, 0);
}

static void wsd_falls_in_a_tenth_of_the_steps_or_at_most_in_those_after_warm_up(void **state)
{
    struct cddpi_lr_schedule schedule = {.type = CDDPI_SCHEDULE_WSD, .lr = 1.0, .total_steps = 40};

    (void)state;
    assert_float_equal(cddpi_schedule_lr(&schedule, 35), 1.0, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 36), 0.75, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 39), 0.0, 0);
    schedule.warmup_steps = 30;
    schedule.decay_steps = 1000;
    assert_float_equal(cddpi_schedule_lr(&schedule, 29), 1.0, 0);
    assert_float_equal(cddpi_schedule_lr(&schedule, 30), 0.9, 1e-15);
    assert_float_equal(cddpi_schedule_lr(&schedule, 39), 0.0, 0);
}

static void rates_are_finite_for_any_steps(void **state)
{
    static const int64_t numbers[] = {INT64_MIN, -1, 0, 1, 2, 1000, INT64_MAX - 1, INT64_MAX};
    enum { N = sizeof numbers / sizeof numbers[0] };
    struct cddpi_lr_schedule schedule = {.lr = 0.5, .final_lr = 0.01, .gamma = 3.0};

    (void)state;
    for (int type = CDDPI_SCHEDULE_CONSTANT; type <= CDDPI_SCHEDULE_WSD; type++) {
        schedule.type = (enum cddpi_schedule_type)type;
        for (int i = 0; i < N * N * N * N; i++) {
            double lr;

            schedule.warmup_steps = numbers[i % N];
            schedule.total_steps = numbers[i / N % N];
            schedule.step_size = numbers[i / N / N % N];
            schedule.decay_steps = schedule.step_size;
            lr = cddpi_schedule_lr(&schedule, numbers[i / N / N / N]);
            assert_true(isfinite(lr) && lr >= 0.0);
        }
    }
}

static void a_loss_scale_grows_and_falls_as_pytorchs_does(void **state)
{
    json_t *root = read_vectors();
    const json_t *rows = json_object_get(root, "scalers");

    (void)state;
    assert_int_equal(json_array_size(rows), 3);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *overflows = json_string_value(json_object_get(row, "overflows"));
        const json_t *scales = json_object_get(row, "scales");
        struct cddpi_loss_scale scale = {
            .scale = (float)number_or(row, "initial", 0),
            .growth = number_or(row, "growth", 0),
            .backoff = number_or(row, "backoff", 0),
            .interval = json_integer_value(json_object_get(row, "interval")),
        };

        assert_int_equal(json_array_size(scales), strlen(overflows));
        for (size_t step = 0; overflows[step] != '\0'; step++) {
            double norm = overflows[step] == '1' ? (step % 2 != 0 ? INFINITY : NAN) : 3.0;
            double grad_scale = -1.0;
            bool allowed = cddpi_loss_scale_allows(&scale, norm, &grad_scale);

            assert_int_equal(allowed, overflows[step] == '0');
            assert_float_equal(grad_scale, allowed ? 1.0 / (double)scale.scale : -1.0, 0);
            cddpi_loss_scale_update(&scale, allowed);
            assert_float_equal(scale.scale, json_number_value(json_array_get(scales, step)), 0);
        }
    }
    json_decref(root);
}

static void a_loss_scale_begins_as_pytorchs_does(void **state)
{
    struct cddpi_loss_scale scale;

    (void)state;
    cddpi_loss_scale_init(&scale);
    assert_float_equal(scale.scale, 65536.0, 0);
    for (int step = 0; step < 1999; step++) {
        cddpi_loss_scale_update(&scale, true);
    }
    assert_float_equal(scale.scale, 65536.0, 0);
    cddpi_loss_scale_update(&scale, true);
    assert_float_equal(scale.scale, 131072.0, 0);
    cddpi_loss_scale_update(&scale, false);
    assert_float_equal(scale.scale, 65536.0, 0);
    assert_int_equal(scale.skipped, 1);
}

static void a_loss_scale_goes_through_a_file(void **state)
{
    char *folder = support_mkdtemp();
    char path[4200];
    struct cddpi_loss_scale before;
    struct cddpi_loss_scale after;
    const cddp_param *tensors;
    cddp_tensor written[3];
    size_t count = 0;

    (void)state;
    snprintf(path, sizeof path, "%s/scale.safetensors", folder);
    cddpi_loss_scale_init(&before);
    cddpi_loss_scale_init(&after);
    cddpi_loss_scale_update(&before, false);
    cddpi_loss_scale_update(&before, true);
    tensors = cddpi_loss_scale_tensors(&before, &count);
    assert_int_equal(cddp_tensors_of(tensors, count, written), CDDP_OK);
    assert_int_equal(cddp_safetensors_write(path, written, count, NULL), CDDP_OK);
    tensors = cddpi_loss_scale_tensors(&after, &count);
    assert_int_equal(cddp_safetensors_load(path, tensors, count), CDDP_OK);
    assert_float_equal(after.scale, 32768.0, 0);
    assert_int_equal(after.good_steps, 1);
    assert_int_equal(after.skipped, 1);
    support_rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_climbs_to_the_peak),
        cmocka_unit_test(linear_and_cosine_end_at_the_final_rate),
        cmocka_unit_test(steps_multiply_the_rate),
        cmocka_unit_test(wsd_stays_and_then_falls_to_the_final_rate),
        cmocka_unit_test(wsd_falls_in_a_tenth_of_the_steps_or_at_most_in_those_after_warm_up),
        cmocka_unit_test(rates_are_finite_for_any_steps),
        cmocka_unit_test(a_loss_scale_grows_and_falls_as_pytorchs_does),
        cmocka_unit_test(a_loss_scale_begins_as_pytorchs_does),
        cmocka_unit_test(a_loss_scale_goes_through_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
