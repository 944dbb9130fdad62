/* test_nn_layouts.c - layouts of images for oneDNN: which of ours they correspond to, and with
 * another type. */
#include "nn/cpu/dnnl.h"
#include "support/test.h"

/* 16 channels fill one block: plain, blocked and channels last are three layouts still. */
static const struct cddpi_shape shapes[] = {{.channels = 16, .height = 5, .width = 3},
                                            {.channels = 24, .height = 2, .width = 7},
                                            {.channels = 3, .height = 4, .width = 4}};

static void an_image_keeps_its_layout_with_another_type(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int blocks[] = {1, 8, 16, shapes[i].channels};

        for (int b = 0; b < 4; b++) {
            struct cddpi_mds holder = {.last = NULL};
            cddpi_md f32 = cddpi_md_image(&holder, 6, &shapes[i], blocks[b]);
            cddpi_md bf16 = cddpi_md_typed(&holder, f32, dnnl_bf16);

            assert_non_null(bf16);
            assert_int_equal(cddpi_md_block(f32), blocks[b]);
            assert_int_equal(cddpi_md_block(bf16), blocks[b]);
            assert_int_equal(cddpi_md_type(f32), dnnl_f32);
            assert_int_equal(cddpi_md_type(bf16), dnnl_bf16);
            assert_int_equal(2 * dnnl_memory_desc_get_size(bf16), dnnl_memory_desc_get_size(f32));
            assert_false(holder.failed);
            cddpi_mds_drop(&holder);
            assert_null(holder.last);
        }
    }
}

static void what_is_none_of_our_images_is_not_taken_for_one(void **state)
{
    struct cddpi_mds holder = {.last = NULL};
    const dnnl_dim_t matrix[] = {16, 16};

    (void)state;
    assert_int_equal(cddpi_md_block(cddpi_md_any_image(&holder, 6, &shapes[0])), 0);
    assert_int_equal(cddpi_md_block(cddpi_md_plain(&holder, 2, matrix)), 0);
    assert_int_equal(cddpi_md_block(NULL), 0);
    assert_null(cddpi_md_typed(&holder, cddpi_md_plain(&holder, 2, matrix), dnnl_bf16));
    cddpi_mds_drop(&holder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_keeps_its_layout_with_another_type),
        cmocka_unit_test(what_is_none_of_our_images_is_not_taken_for_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
