/* test_statistics_cuda.c - running statistics on devices in steps that are cut by position: the
 * same bytes on any number of ranks, and the processor's numbers. */
#include "support/train_cuda.h"

static void compare_ranks(const char *of, const char *const *arguments, double tolerance)
{
    char *here = argument("%s-cpu", of);
    char *first = argument("%s-cuda1", of);

    run_named("small.conf", 1, here, CPU, arguments);
    for (int ranks = 1; ranks <= ranks_up_to(3); ranks++) {
        char *there = argument("%s-cuda%d", of, ranks);

        run_named("small.conf", ranks, there, CUDA, arguments);
        assert_same_checkpoint(first, there, 10);
    }
    assert_close(here, first, 10, "eval_loss", tolerance);
}

/* The last step has 24 samples in 2 micro-batches, so that one of three ranks has none. */
static void they_are_the_same_bytes_on_any_number_of_ranks(void **state)
{
    const char *const layers[] = {
        "model.type=layers",
        "model.layers=({type=\"conv2d\";units=4;kernel=3;stride=2;},{type=\"batch_norm\";},"
        "{type=\"relu\";},{type=\"max_pool\";},{type=\"flatten\";},{type=\"linear\";units=4;})",
        "train.micro_batch=14", "train.epochs=1", NULL};

    (void)state;
    NEEDS_DEVICE();
    compare_ranks("layers", layers, 1e-3);
}

static void so_are_those_of_a_resnet_in_16_bits_whose_blocks_are_recomputed(void **state)
{
    const char *const half[] = {"model.type=resnet20",
                                "model.recompute=true",
                                "train.precision=bf16",
                                "train.micro_batch=14",
                                "train.epochs=1",
                                "optimizer.lr=0.01",
                                NULL};

    (void)state;
    NEEDS_DEVICE();
#ifdef __SANITIZE_ADDRESS__
    print_message("minutes for 20 layers; the sanitizer has seen three of them above\n");
    skip();
#endif
    compare_ranks("half", half, 0.2);
}

/* They would be copies in the memory of the device. */
static void a_norm_on_a_gpu_beside_other_devices_is_refused(void **state)
{
    struct run_options options = {
        .ranks = 1,
        .arguments = {run_dir_argument("beside"), "model.type=resnet20", "train.micro_batch=14",
                      "train.devices=[\"cpu\",\"cuda:0\"]", "parallel.type=model_parallel",
                      "parallel.stages=[\"layer2\"]"}};
    struct run run;

    (void)state;
    NEEDS_DEVICE();
    run = run_badly(&options);
    assert_says(&run, "err", 0,
                "train.micro_batch: layer2.0.bn1.running_mean would be updated on a GPU beside "
                "other devices of the rank, which is not possible: start a rank for each GPU");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_norm_on_a_gpu_beside_other_devices_is_refused),
        cmocka_unit_test(they_are_the_same_bytes_on_any_number_of_ranks),
        cmocka_unit_test(so_are_those_of_a_resnet_in_16_bits_whose_blocks_are_recomputed),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
