/* test_cudnn_choice.c - which of cuDNN's engines are used, and when other kernels are used
 * instead. */
#include "kernels/cudnn_support.h"
#include "support/failure.h"
#include "support/folder.h"

static void what_cudnn_cannot_do_is_asked_once_and_left_to_others(void **state)
{
    bool done = false;

    (void)state;
    fake.plan_code = CUDNN_STATUS_NOT_SUPPORTED;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_false(done);
    assert_true(last_error_has("convolution: none of "));
    assert_true(last_error_has("(the fake does not want to)"));
    assert_true(fake.plans > 0);
    fake.plans = 0;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_false(done);
    assert_int_equal(fake.plans, 0);
    assert_int_equal(fake.call_count, 0);
}

static void an_engine_that_is_not_reproducible_is_better_than_none(void **state)
{
    bool done = false;

    (void)state;
    fake.changes = true;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_true(done);
}

static void tensor_cores_are_for_float32_only_if_tf32_is_allowed(void **state)
{
    struct cddpi_cuda_conv single = conv;
    bool done = false;

    (void)state;
    fake.configs = 3;
    fake.cores = 2;
    single.type = CDDP_F32;
    assert_int_equal(cddpi_cudnn_conv(device, &single, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.last_engine, 3);
    fake.asked = 0;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.last_engine, 1);
    fake.asked = 0;
    tf32 = true;
    single.count = 3;
    assert_int_equal(cddpi_cudnn_conv(device, &single, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.last_engine, 1);
}

/* Three plans are made, all run, and two go. */
static void in_any_order_the_fastest_engine_is_kept(void **state)
{
    struct cddpi_cuda_conv any = conv;
    bool done = false;
    int descriptors;

    (void)state;
    any.any_order = true;
    fake.configs = 3;
    fake.ms[1] = 3;
    fake.ms[2] = 1;
    fake.ms[3] = 2;
    assert_int_equal(cddpi_cudnn_conv(device, &any, qkv, out, dout, &done), CDDP_OK);
    assert_true(done);
    assert_int_equal(fake.plans, 3);
    assert_int_equal(fake.last, 2);
    descriptors = fake.descriptors;
    fake.call_count = 0;
    assert_int_equal(cddpi_cudnn_conv(device, &any, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.call_count, 1);
    assert_int_equal(fake.last, 2);
    assert_int_equal(fake.plans, 3);
    assert_int_equal(fake.descriptors, descriptors);
}

static void with_an_order_nothing_is_measured(void **state)
{
    bool done = false;

    (void)state;
    fake.configs = 3;
    fake.ms[1] = 3;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.call_count, 1);
    assert_int_equal(fake.last, 1);
    assert_int_equal(fake.plans, 1);
}

static void an_engine_that_does_not_run_is_not_kept(void **state)
{
    struct cddpi_cuda_conv any = conv;
    bool done = false;

    (void)state;
    any.any_order = true;
    fake.configs = 3;
    fake.ms[1] = -1;
    fake.ms[2] = 5;
    fake.ms[3] = -1;
    assert_int_equal(cddpi_cudnn_conv_weight(device, &any, qkv, out, false, (float *)stats, &done),
                     CDDP_OK);
    assert_true(done);
    assert_int_equal(fake.last, 2);
}

static void a_plan_that_does_not_run_is_given_up_at_its_first_call(void **state)
{
    bool done = false;

    (void)state;
    fake.ms[1] = -1;
    fake.ms[2] = -1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cddpi_cudnn_conv_weight(device, &conv, dout, qkv, true, stats, &done),
                         CDDP_OK);
        assert_false(done);
        assert_int_equal(added.calls, 0); /* of what was never written */
        assert_int_equal(
            cddpi_cudnn_attention_grad(device, &gpt2, qkv, out, stats, dout, dqkv, &done), CDDP_OK);
        assert_false(done);
        assert_int_equal(fake.last, 2 - i * 2); /* neither is tried again */
        fake.last = 0;
    }
    assert_int_equal(fake.plans, 2);
    assert_int_equal(fake.call_count, 0);
    assert_true(last_error_has("gradient of attention: another"));
}

static void a_plan_that_has_run_may_not_fail(void **state)
{
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_true(done);
    fake.ms[1] = -1;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_ERR_DEVICE);
    assert_false(done);
}

static void without_cudnn_everything_is_left_to_others(void **state)
{
    bool done = false;

    (void)state;
    installed = false;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(cddpi_cudnn_attention(device, &gpt2, qkv, out, stats, &done), CDDP_OK);
    assert_false(done);
}

static void a_version_that_is_too_old_is_not_used(void **state)
{
    bool done = false;

    (void)state;
    fake.version = 91001;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_false(done);
    assert_true(last_error_has("cuDNN 9.10.1 is too old: 9.10.2"));
}

/* --- choices of earlier processes --- */

/* A folder for what is measured. */
static int start_with_cache(void **state)
{
    make_folder(state);
    setenv("CDDP_CACHE", folder, 1);
    return start(state);
}

static int stop_with_cache(void **state)
{
    close_device();
    setenv("CDDP_CACHE", "off", 1);
    return remove_folder(state);
}

/* In a new process, which has the same device. Returns which engine it uses. */
static int engine_of_next_process(const struct cddpi_cuda_conv *shape)
{
    bool done = false;

    close_device();
    fake.asked = 0;
    fake.plans = 0;
    fake.heuristics = 0;
    fake.restored = 0;
    fake.call_count = 0;
    assert_int_equal(cddpi_cudnn_conv(device, shape, qkv, out, dout, &done), CDDP_OK);
    assert_true(done);
    return fake.last_engine;
}

static void measure_three(struct cddpi_cuda_conv *out_shape)
{
    *out_shape = conv;
    out_shape->any_order = true;
    fake.configs = 3;
    fake.ms[1] = 3;
    fake.ms[2] = 1;
    fake.ms[3] = 2;
    assert_int_equal(engine_of_next_process(out_shape), 2);
    assert_true(fake.heuristics > 0);
    assert_int_equal(fake.plans, 3);
}

static void what_one_process_has_measured_the_next_takes(void **state)
{
    struct cddpi_cuda_conv any;

    (void)state;
    measure_three(&any);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(engine_of_next_process(&any), 2);
        assert_int_equal(fake.heuristics, 0);
        assert_int_equal(fake.restored, 1);
        assert_int_equal(fake.call_count, 1);
    }
    any.count = 3; /* another shape */
    fake.ms[1] = 3;
    assert_int_equal(engine_of_next_process(&any), 2);
    assert_true(fake.heuristics > 0);
}

static void another_version_of_cudnn_measures_again(void **state)
{
    struct cddpi_cuda_conv any;

    (void)state;
    measure_three(&any);
    fake.version = 91901;
    assert_int_equal(engine_of_next_process(&any), 2);
    assert_true(fake.heuristics > 0);
    fake.version = 91900;
    assert_int_equal(engine_of_next_process(&any), 2);
    assert_int_equal(fake.heuristics, 0);
}

static void tf32_measures_apart(void **state)
{
    struct cddpi_cuda_conv any;

    (void)state;
    measure_three(&any);
    tf32 = true;
    assert_int_equal(engine_of_next_process(&any), 2);
    assert_true(fake.heuristics > 0);
}

/* Bits depend on it, so no file decides. */
static void with_an_order_cudnns_own_choice_is_never_kept(void **state)
{
    (void)state;
    fake.configs = 3;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(engine_of_next_process(&conv), 1);
        assert_true(fake.heuristics > 0);
        assert_int_equal(fake.restored, 0);
    }
}

static void a_choice_that_cannot_be_built_is_measured_again(void **state)
{
    struct cddpi_cuda_conv any;

    (void)state;
    measure_three(&any);
    fake.knob = 20; /* of the engine that was the fastest */
    fake.ms[1] = 3;
    fake.ms[2] = 5;
    fake.ms[3] = 4;
    assert_int_equal(engine_of_next_process(&any), 1);
    assert_true(fake.heuristics > 0);
    fake.knob = 0;
    assert_int_equal(engine_of_next_process(&any), 1);
    assert_int_equal(fake.heuristics, 0);
}

static void a_choice_that_does_not_run_is_measured_by_the_next_process(void **state)
{
    struct cddpi_cuda_conv any;
    bool done = false;

    (void)state;
    measure_three(&any);
    close_device();
    fake.plans = 0;
    fake.asked = 0;
    fake.heuristics = 0;
    fake.ms[1] = -1;
    assert_int_equal(cddpi_cudnn_conv(device, &any, qkv, out, dout, &done), CDDP_OK);
    assert_false(done);
    assert_int_equal(fake.heuristics, 0);
    fake.ms[1] = 3;
    assert_int_equal(engine_of_next_process(&any), 2);
    assert_true(fake.heuristics > 0);
}

/* Takes the next of some times, ended by one below 0: from there on it cannot run. */
static bool take_time(void *argument)
{
    const float **next = argument;

    if (**next < 0) {
        return false;
    }
    fake.clock += *(*next)++;
    return true;
}

static void the_shortest_of_three_runs_counts(void **state)
{
    static const float times[][4] = {{5, 2, 9, 1}, {2, 5, 9, 1}, {9, 5, 2, 1}};
    static const float broken[][2] = {{-1}, {3, -1}};
    struct cddpi_cuda_timer timer;
    float best = 0;

    (void)state;
    assert_int_equal(cddpi_cuda_timer_open(device, &timer), cudaSuccess);
    for (int i = 0; i < 3; i++) {
        const float *next = times[i];

        assert_int_equal(cddpi_cuda_timer_best(&timer, take_time, &next, &best), cudaSuccess);
        assert_float_equal(best, 2, 0);
        assert_ptr_equal(next, &times[i][3]);
    }
    for (int i = 0; i < 2; i++) {
        const float *next = broken[i];

        assert_int_equal(cddpi_cuda_timer_best(&timer, take_time, &next, &best), cudaSuccess);
        assert_true(best > 1e30F); /* no error, but slower than anything */
    }
    cddpi_cuda_timer_close(&timer);
}

#define WITH_CACHE(test) cmocka_unit_test_setup_teardown(test, start_with_cache, stop_with_cache)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_cudnn_cannot_do_is_asked_once_and_left_to_others),
        CASE(an_engine_that_is_not_reproducible_is_better_than_none),
        CASE(tensor_cores_are_for_float32_only_if_tf32_is_allowed),
        CASE(in_any_order_the_fastest_engine_is_kept),
        CASE(with_an_order_nothing_is_measured),
        CASE(an_engine_that_does_not_run_is_not_kept),
        CASE(a_plan_that_does_not_run_is_given_up_at_its_first_call),
        CASE(a_plan_that_has_run_may_not_fail),
        CASE(without_cudnn_everything_is_left_to_others),
        CASE(a_version_that_is_too_old_is_not_used),
        CASE(the_shortest_of_three_runs_counts),
        WITH_CACHE(what_one_process_has_measured_the_next_takes),
        WITH_CACHE(another_version_of_cudnn_measures_again),
        WITH_CACHE(tf32_measures_apart),
        WITH_CACHE(with_an_order_cudnns_own_choice_is_never_kept),
        WITH_CACHE(a_choice_that_cannot_be_built_is_measured_again),
        WITH_CACHE(a_choice_that_does_not_run_is_measured_by_the_next_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
