/* test_statistics.c - running statistics of batch normalisation in steps that are cut by position:
 * one update a step, and the same bytes of checkpoints on any number of ranks. */
#include "support/train.h"

static const char small_net[] =
    "model.layers=({type=\"conv2d\";units=4;kernel=3;},{type=\"batch_norm\";name=\"n\";},"
    "{type=\"relu\";},{type=\"conv2d\";units=6;kernel=3;},{type=\"batch_norm\";name=\"o\";momentum="
    "0.25;},{type=\"flatten\";},{type=\"linear\";units=4;})";

/* Steps of 64 samples in 7 micro-batches, but the last of an epoch of 24 in 3: of 5 ranks, two have
 * none of them. */
static void run_net(const char *name, int ranks, const char *net, const char *a, const char *b)
{
    struct run_options options = {
        .ranks = ranks,
        .arguments = {run_dir_argument(name), "train.micro_batch=10", "train.epochs=1",
                      net[strlen("model.")] == 'l' ? "model.type=layers" : net, net, a, b}};

    run_well(&options);
}

static void compare_ranks(const char *of, const char *net, const char *extra)
{
    static const int sizes[] = {2, 3, 5};
    const char *first = argument("%s-1", of);

    run_net(first, 1, net, extra, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *name = argument("%s-%d", of, sizes[i]);

        run_net(name, sizes[i], net, extra, NULL);
        assert_same_checkpoint(first, name, 10);
        assert_float_equal(metric(first, 10, "eval_loss"), metric(name, 10, "eval_loss"), 0);
    }
}

static void they_are_the_same_bytes_on_any_number_of_ranks(void **state)
{
    (void)state;
    compare_ranks("small", small_net, "train.epochs=1");
}

static void so_are_those_of_a_resnet_whose_blocks_are_recomputed(void **state)
{
    (void)state;
    compare_ranks("resnet", "model.type=resnet20", "model.recompute=true");
    run_net("kept-3", 3, "model.type=resnet20", "model.recompute=false", NULL);
    assert_same_file(in_work("resnet-1/checkpoints/step-%08d/model.safetensors", 10),
                     in_work("kept-3/checkpoints/step-%08d/model.safetensors", 10));
}

static void so_they_are_after_going_on_with_other_ranks(void **state)
{
    static const int ranks[] = {2, 5, 3};
    static const char *const ends[] = {"train.max_steps=3", "train.max_steps=7", "train.epochs=1"};

    (void)state;
    run_net("whole", 1, small_net, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        run_net("parts", ranks[i], small_net, ends[i], "train.resume=auto");
    }
    assert_same_checkpoint("whole", "parts", 10);
}

/* "cpu" and "cpu:0" are there on any machine. */
static void run_devices(const char *name, int ranks, const char *type, const char *stages)
{
    struct run_options options = {.ranks = ranks,
                                  .arguments = {run_dir_argument(name), "train.micro_batch=10",
                                                "train.epochs=1", "model.type=layers", small_net,
                                                "train.devices=[\"cpu:0\",\"cpu\"]", type, stages}};

    run_well(&options);
}

/* Layers on two devices; copies, of which the first device's statistics count. */
static void so_they_are_where_ranks_have_several_devices(void **state)
{
    (void)state;
    run_net("alone", 1, small_net, NULL, NULL);
    run_devices("placed", 2, "parallel.type=model_parallel", "parallel.stages=[\"o\"]");
    assert_same_checkpoint("alone", "placed", 10);
    run_devices("copies-1", 1, "parallel.type=data_parallel", NULL);
    run_devices("copies-3", 3, "parallel.type=data_parallel", NULL);
    assert_same_checkpoint("copies-1", "copies-3", 10);
}

/* A tensor of the checkpoint after the first step. */
static void read_first(const char *run_dir, const char *tensor, float *out, size_t count)
{
    cddp_safetensors *file = open_weights(run_dir, 1);
    const cddp_tensor *found = cddp_safetensors_find(file, tensor);

    assert_non_null(found);
    assert_int_equal(found->shape[0], count);
    memcpy(out, found->data, count * sizeof *out);
    cddp_safetensors_close(file);
}

/* The mean over a step's samples is the mean over its micro-batches, by their samples. */
static void the_first_mean_is_that_of_the_whole_batch(void **state)
{
    static const char *const sizes[] = {"train.micro_batch=0", "train.micro_batch=64",
                                        "train.micro_batch=10"};
    float seen[3][4];

    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *name = argument("mean%d", i);

        run_net(name, i == 2 ? 3 : 1, small_net, "train.max_steps=1", sizes[i]);
        read_first(name, "n.running_mean", seen[i], 4);
    }
    for (int c = 0; c < 4; c++) {
        assert_true(fabsf(seen[0][c]) > 1e-3f);
        assert_true(fabsf(seen[1][c] - seen[0][c]) <= 1e-6f * fabsf(seen[0][c]));
        assert_true(fabsf(seen[2][c] - seen[0][c]) <= 1e-6f * fabsf(seen[0][c]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_the_same_bytes_on_any_number_of_ranks),
        cmocka_unit_test(so_are_those_of_a_resnet_whose_blocks_are_recomputed),
        cmocka_unit_test(so_they_are_after_going_on_with_other_ranks),
        cmocka_unit_test(so_they_are_where_ranks_have_several_devices),
        cmocka_unit_test(the_first_mean_is_that_of_the_whole_batch),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
