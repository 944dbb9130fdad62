/* test_cudnn_calls.c - what is passed to cuDNN: which memory for which tensor, how work is divided,
 * how plans are kept. */
#include "kernels/cudnn_support.h"
#include "support/failure.h"

/* Where tensor @p id of the fake's call @p call lies. */
static const char *place_of(int call, int64_t id)
{
    const struct cddpi_cudnn_pointers *pack = &fake.calls[call];

    assert_true(call < fake.call_count);
    for (int i = 0; i < pack->count; i++) {
        if (pack->ids[i] == id) {
            return pack->pointers[i];
        }
    }
    fail_msg("call %d has no tensor %d", call, (int)id);
    return NULL;
}

static void attention_gets_the_parts_of_packed_rows(void **state)
{
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_attention(device, &gpt2, qkv, out, stats, &done), CDDP_OK);
    assert_true(done);
    assert_int_equal(fake.call_count, 1);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_Q), qkv);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_K), qkv + 768 * 2);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_V), qkv + 2 * 768 * 2);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_OUT), out);
    assert_ptr_equal(place_of(0, CDDPI_ATTENTION_STATS), stats);
}

static void evaluation_keeps_statistics_to_itself(void **state)
{
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_attention(device, &gpt2, qkv, out, NULL, &done), CDDP_OK);
    assert_true(done);
    assert_int_equal((const char *)fake.workspaces[0] - place_of(0, CDDPI_ATTENTION_STATS),
                     64 * 12 * 1024 * 4);
}

/* All scores of 64 sequences would be 1.5 GiB. */
static void the_gradient_of_attention_is_done_a_few_sequences_at_a_time(void **state)
{
    const size_t rows = 32 * 1024; /* of one call */
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_attention_grad(device, &gpt2, qkv, out, stats, dout, dqkv, &done),
                     CDDP_OK);
    assert_true(done);
    assert_int_equal(fake.call_count, 2);
    assert_int_equal(fake.plans, 1);
    for (int i = 0; i < 2; i++) {
        size_t at = (size_t)i * rows * 768 * 2;

        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_Q), qkv + 3 * at);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_K), qkv + 3 * at + 768 * 2);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_V), qkv + 3 * at + 2 * 768 * 2);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_OUT), out + at);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_DOUT), dout + at);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_STATS),
                         (char *)stats + (size_t)i * rows * 12 * 4);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_DQ), dqkv + 3 * at);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_DK), dqkv + 3 * at + 768 * 2);
        assert_ptr_equal(place_of(i, CDDPI_ATTENTION_DV), dqkv + 3 * at + 2 * 768 * 2);
        assert_int_equal((const char *)fake.workspaces[i] - place_of(i, CDDPI_ATTENTION_DOTS),
                         rows * 12 * 4);
    }
}

/* Statistics and dot products are float32s of rows: as long as what is done at once is whole
 * vectors of them, cuDNN hears of their alignment, which some of its kernels want. */
static void numbers_of_rows_begin_at_vectors_where_parts_do(void **state)
{
    static const struct {
        int batch, heads, length;
        int64_t alignment;
    } cases[] = {
        {64, 12, 1024, 16}, {64, 12, 1000, 16}, {2, 2, 1001, 16}, {2, 1, 1001, 4}, {1, 3, 5, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cddpi_cuda_attention shape = {.type = CDDP_BF16,
                                             .batch = cases[i].batch,
                                             .heads = cases[i].heads,
                                             .length = cases[i].length,
                                             .head = 64};
        bool done = false;

        assert_int_equal(cddpi_cudnn_attention(device, &shape, qkv, out, stats, &done), CDDP_OK);
        assert_true(done);
        assert_int_equal(fake.alignment[CDDPI_ATTENTION_STATS], cases[i].alignment);
        assert_int_equal(
            cddpi_cudnn_attention_grad(device, &shape, qkv, out, stats, dout, dqkv, &done),
            CDDP_OK);
        assert_true(done);
        assert_int_equal(fake.alignment[CDDPI_ATTENTION_STATS], cases[i].alignment);
        assert_int_equal(fake.alignment[CDDPI_ATTENTION_DOTS], cases[i].alignment);
        assert_int_equal(fake.alignment[CDDPI_ATTENTION_DQ], 16);
        for (int call = 0; call < fake.call_count; call++) {
            assert_int_equal((uintptr_t)place_of(call, CDDPI_ATTENTION_STATS) %
                                 (uintptr_t)cases[i].alignment,
                             0);
        }
        fake.call_count = 0;
    }
}

static void a_gradient_in_any_order_is_done_at_once_with_sums_of_its_own(void **state)
{
    struct cddpi_cuda_attention shape = gpt2;
    bool done = false;

    (void)state;
    shape.any_order = true;
    assert_int_equal(cddpi_cudnn_attention_grad(device, &shape, qkv, out, stats, dout, dqkv, &done),
                     CDDP_OK);
    assert_int_equal(fake.call_count, 1);
    assert_int_equal(place_of(0, CDDPI_ATTENTION_DQ_SUMS) - place_of(0, CDDPI_ATTENTION_DOTS),
                     64 * 12 * 1024 * 4);
    assert_int_equal((const char *)fake.workspaces[0] - place_of(0, CDDPI_ATTENTION_DQ_SUMS),
                     64 * 12 * 1024 * 64 * 4);
}

static void a_plan_is_made_once_a_shape_and_pass(void **state)
{
    struct cddpi_cuda_conv other = conv;
    bool done = false;

    (void)state;
    other.stride = 2;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
        assert_int_equal(cddpi_cudnn_conv_input(device, &conv, dout, out, qkv, &done), CDDP_OK);
        assert_int_equal(cddpi_cudnn_conv(device, &other, qkv, out, dout, &done), CDDP_OK);
    }
    assert_int_equal(fake.plans, 3);
    assert_int_equal(fake.call_count, 9);
    assert_ptr_equal(place_of(1, CDDPI_CONV_X), qkv);
    assert_ptr_equal(place_of(1, CDDPI_CONV_W), out);
    assert_ptr_equal(place_of(1, CDDPI_CONV_Y), dout);
}

/* Our own kernels in its place would be slow for a reason that is cured in a minute. */
static void a_mix_of_libraries_is_an_error_each_time(void **state)
{
    bool done = false;

    (void)state;
    mixed = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_ERR_CONFIG);
        assert_string_equal(cddp_last_error(), "a mix in this test");
    }
    mixed = false;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_true(done);
}

static void another_compute_stream_is_cudnns_too(void **state)
{
    bool done = false;

    (void)state;
    for (int i = 0; i < 2; i++) {
        fake.compute = (cudaStream_t)(void *)(qkv + i);
        assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
        assert_ptr_equal(fake.stream, fake.compute);
    }
    assert_int_equal(fake.plans, 1);
}

static void gradients_of_filters_become_float32_behind_cudnn(void **state)
{
    struct cddpi_cuda_conv single = conv;
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_conv_weight(device, &conv, dout, qkv, true, stats, &done),
                     CDDP_OK);
    assert_int_equal(added.calls, 1);
    assert_ptr_equal(added.from, place_of(0, CDDPI_CONV_W));
    assert_ptr_equal(added.to, stats);
    assert_int_equal(added.count, 16 * 3 * 3 * 8);
    assert_true(added.add);
    single.type = CDDP_F32;
    assert_int_equal(cddpi_cudnn_conv_weight(device, &single, dout, qkv, false, stats, &done),
                     CDDP_OK);
    assert_int_equal(added.calls, 1);
    assert_ptr_equal(place_of(1, CDDPI_CONV_W), stats);
}

/* The copy of x, the gradient of whole vectors and the workspace lie one behind the other:
 * 2 x 6 x 6 and 16 x 3 x 3 rows of 16 bytes. */
static void filters_of_few_channels_have_their_gradient_of_whole_vectors(void **state)
{
    struct cddpi_cuda_conv few = conv;
    const char *gradient;
    bool done = false;

    (void)state;
    few.channels = 3;
    assert_int_equal(cddpi_cudnn_conv_weight(device, &few, dout, qkv, true, stats, &done), CDDP_OK);
    assert_true(done);
    gradient = place_of(0, CDDPI_CONV_W);
    assert_int_equal(pads, 1);
    assert_ptr_equal(padded.from, qkv);
    assert_ptr_equal(padded.to, place_of(0, CDDPI_CONV_X));
    assert_int_equal(padded.rows, 72);
    assert_int_equal(padded.channels, 3);
    assert_ptr_equal(place_of(0, CDDPI_CONV_Y), dout);
    assert_ptr_equal(dropped.from, gradient);
    assert_ptr_equal(dropped.to, stats);
    assert_int_equal(dropped.rows, 144);
    assert_int_equal(dropped.channels, 3);
    assert_true(added.add);
    assert_int_equal(added.calls, 0);
    assert_int_equal(gradient - place_of(0, CDDPI_CONV_X), 1280);
    assert_int_equal((const char *)fake.workspaces[0] - gradient, 2304);
}

static void all_else_of_few_channels_is_given_as_it_is(void **state)
{
    struct cddpi_cuda_conv few = conv;
    bool done = false;

    (void)state;
    few.channels = 3;
    assert_int_equal(cddpi_cudnn_conv(device, &few, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(cddpi_cudnn_conv_input(device, &few, dout, out, qkv, &done), CDDP_OK);
    few.type = CDDP_F32;
    assert_int_equal(
        cddpi_cudnn_conv_weight(device, &few, dout, qkv, false, (float *)(void *)out, &done),
        CDDP_OK);
    assert_int_equal(fake.call_count, 3);
    assert_int_equal(pads, 0);
    for (int call = 0; call < 3; call++) {
        assert_ptr_equal(place_of(call, CDDPI_CONV_X), qkv);
        assert_ptr_equal(place_of(call, CDDPI_CONV_W), out);
        assert_ptr_equal(place_of(call, CDDPI_CONV_Y), dout);
    }
}

/* The first plan does not run; the second is for the images as they are. */
static void few_channels_are_given_as_they_are_where_whole_vectors_do_not_run(void **state)
{
    struct cddpi_cuda_conv few = conv;
    bool done = false;

    (void)state;
    few.channels = 3;
    fake.ms[1] = -1;
    for (int call = 0; call < 2; call++) {
        assert_int_equal(cddpi_cudnn_conv_weight(device, &few, dout, qkv, false, stats, &done),
                         CDDP_OK);
        assert_true(done);
        assert_int_equal(fake.last, 2);
        assert_ptr_equal(place_of(call, CDDPI_CONV_X), qkv);
        assert_int_equal(added.calls, call + 1);
        assert_int_equal(pads, 1); /* of the call that failed */
        done = false;
    }
}

static void a_new_shape_cannot_be_recorded(void **state)
{
    struct cddpi_cuda_conv other = conv;
    bool done = false;

    (void)state;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    captured = true;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    assert_int_equal(fake.call_count, 2);
    other.count = 3;
    assert_int_equal(cddpi_cudnn_conv(device, &other, qkv, out, dout, &done), CDDP_ERR_UNAVAILABLE);
    assert_true(last_error_has("cannot be captured"));
}

static void scratch_grows_and_keeps_what_recordings_know(void **state)
{
    bool done = false;
    struct cddpi_cuda_conv other = conv;
    const void *first;

    (void)state;
    assert_int_equal(cddpi_cudnn_conv(device, &conv, qkv, out, dout, &done), CDDP_OK);
    first = fake.workspaces[0];
    fake.workspace_bytes = 5 << 20;
    other.count = 3;
    assert_int_equal(cddpi_cudnn_conv(device, &other, qkv, out, dout, &done), CDDP_OK);
    assert_ptr_not_equal(fake.workspaces[1], first);
    memset(fake.workspaces[1], 1, 5 << 20);
    memset((void *)(uintptr_t)first, 1, 1000); /* still there: a sanitizer would tell */
    captured = true;
    assert_int_equal(cddpi_cudnn_conv(device, &other, qkv, out, dout, &done), CDDP_OK);
    assert_ptr_equal(fake.workspaces[2], fake.workspaces[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(attention_gets_the_parts_of_packed_rows),
        CASE(evaluation_keeps_statistics_to_itself),
        CASE(the_gradient_of_attention_is_done_a_few_sequences_at_a_time),
        CASE(numbers_of_rows_begin_at_vectors_where_parts_do),
        CASE(a_gradient_in_any_order_is_done_at_once_with_sums_of_its_own),
        CASE(a_plan_is_made_once_a_shape_and_pass),
        CASE(a_mix_of_libraries_is_an_error_each_time),
        CASE(another_compute_stream_is_cudnns_too),
        CASE(gradients_of_filters_become_float32_behind_cudnn),
        CASE(filters_of_few_channels_have_their_gradient_of_whole_vectors),
        CASE(all_else_of_few_channels_is_given_as_it_is),
        CASE(few_channels_are_given_as_they_are_where_whole_vectors_do_not_run),
        CASE(a_new_shape_cannot_be_recorded),
        CASE(scratch_grows_and_keeps_what_recordings_know),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
