/* test_gan.c - runs of dcgan, two networks that learn from each other: they follow PyTorch's
 * example step by step on 1, 2 and 3 ranks (scripts/make_dcgan_vectors.py), resume from checkpoints
 * with the same bits, and write images. */
#include "support/gan.h"

#include <cddp/checkpoint.h>
#include <libdeflate.h>
#include <stdbool.h>

static void follow_pytorch(int ranks, const char *shards)
{
    const char *dir = argument("follow-%d-%s", ranks, shards);
    struct run_options options = {
        .ranks = ranks,
        .conf = "gan.conf",
        .arguments = {run_dir_argument(dir), argument("ddp.shard_optimizer=%s", shards), NULL}};

    run_well(&options);
    expect_pytorchs_steps(dir, ranks, GAN_TOLERANCE);
}

static void a_step_makes_the_passes_of_pytorchs_example_on_any_number_of_ranks(void **state)
{
    (void)state;
    follow_pytorch(1, "true");
    follow_pytorch(2, "true");
    follow_pytorch(2, "false");
    follow_pytorch(3, "true");
}

static long long number_behind(const char *text, const char *word)
{
    const char *at = strstr(text, word);

    assert_non_null(at);
    return strtoll(at + strlen(word), NULL, 10);
}

/* Adam keeps two numbers for each parameter, in memory that is rounded up. */
static void metrics_count_the_memory_of_both_networks(void **state)
{
    char *metrics;
    long long count;

    (void)state;
    metrics = get_file(in_work("follow-1-true/metrics.jsonl"), NULL);
    count = number_behind(metrics, "\"parameters\":");
    assert_true(count > 0);
    assert_int_equal(number_behind(metrics, "\"gradients_bytes\":"), 4 * count);
    assert_true(number_behind(metrics, "\"optimizer_bytes\":") >= 8 * count);
    free(metrics);
}

static void both_networks_go_on_from_a_checkpoint_with_the_same_bits(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        const char *dir = argument("resumed-%d", ranks);
        struct run_options whole = {.ranks = ranks,
                                    .conf = "gan.conf",
                                    .arguments = {run_dir_argument(argument("whole-%d", ranks)),
                                                  "train.max_steps=6",
                                                  "optimizer.discriminator_lr=1e-3", NULL}};
        struct run_options half = {.ranks = ranks,
                                   .conf = "gan.conf",
                                   .arguments = {run_dir_argument(dir), "train.max_steps=3",
                                                 "train.resume=auto",
                                                 "optimizer.discriminator_lr=1e-3", NULL}};

        run_well(&whole);
        run_well(&half);
        half.arguments[1] = "train.max_steps=6";
        run_well(&half);
        assert_same_checkpoint(argument("whole-%d", ranks), dir, 6);
        assert_true(metric(dir, 5, "loss_g") == metric(argument("whole-%d", ranks), 5, "loss_g"));
    }
}

/* The first weights are those of a file, and the other learning rate is the discriminator's. */
static void weights_and_learning_rates_are_those_of_both_networks(void **state)
{
    struct run_options first = {
        .ranks = 1,
        .conf = "gan.conf",
        .arguments = {run_dir_argument("first"), "train.max_steps=2", NULL}};
    struct run_options still = {
        .ranks = 2,
        .conf = "gan.conf",
        .arguments = {run_dir_argument("still"), "train.max_steps=1", "optimizer.lr=0.0",
                      "optimizer.discriminator_lr=1e-3",
                      argument("model.weights=%s",
                               in_work("first/checkpoints/step-00000002/model.safetensors")),
                      NULL}};
    cddp_safetensors *files[2];
    int moved = 0;
    int kept = 0;

    (void)state;
    run_well(&first);
    run_well(&still);
    files[0] = open_weights("first", 2);
    files[1] = open_weights("still", 1);
    assert_int_equal(cddp_safetensors_count(files[0]), 3 + 4 + 4 + 3 + 2 + 2);
    for (size_t i = 0; i < cddp_safetensors_count(files[0]); i++) {
        const cddp_tensor *a = cddp_safetensors_at(files[0], i);
        const cddp_tensor *b = cddp_safetensors_find(files[1], a->name);
        bool same;

        assert_non_null(b);
        if (strstr(a->name, "conv") == NULL) {
            continue;
        }
        same = memcmp(a->data, b->data,
                      sizeof(float) *
                          (size_t)(a->shape[0] * a->shape[1] * a->shape[2] * a->shape[3])) == 0;
        assert_true(same == (strncmp(a->name, "generator.", 10) == 0));
        kept += same;
        moved += !same;
    }
    assert_int_equal(kept, 3);
    assert_int_equal(moved, 3);
    cddp_safetensors_close(files[0]);
    cddp_safetensors_close(files[1]);
}

/* 240 samples in batches of 14: the last one has 2. */
static void a_rank_without_samples_takes_part(void **state)
{
    struct run_options options = {
        .ranks = 3,
        .conf = "gan.conf",
        .arguments = {run_dir_argument("short"), "train.batch_size=14", NULL}};

    (void)state;
    run_well(&options); /* at its end all ranks have compared both networks */
    assert_true(isfinite(metric("short", 18, "loss_d")));
    assert_true(isfinite(metric("short", 18, "loss_g")));
}

static void evaluations_leave_a_sheet_of_images_of_the_same_vectors(void **state)
{
    const int width = 8 * (GAN_SIDE + 1) + 1;
    struct run_options options = {.ranks = 2,
                                  .conf = "gan.conf",
                                  .arguments = {run_dir_argument("sheets"), "train.max_steps=4",
                                                "train.eval_steps=2", "optimizer.lr=0.0", NULL}};
    size_t bytes[2] = {0, 0};
    char *files[2];
    char header[32];
    int different = 0;

    (void)state;
    run_well(&options);
    files[0] = get_file(in_work("sheets/images/step-00000002.pgm"), &bytes[0]);
    files[1] = get_file(in_work("sheets/images/step-00000004.pgm"), &bytes[1]);
    assert_non_null(files[0]);
    assert_non_null(files[1]);
    snprintf(header, sizeof header, "P5\n%d %d\n255\n", width, width);
    assert_memory_equal(files[0], header, strlen(header));
    assert_int_equal(bytes[0], strlen(header) + (size_t)width * (size_t)width);
    assert_int_equal(bytes[1], bytes[0]);
    /* between images nothing; the first two are of different vectors */
    for (size_t x = strlen(header); x < strlen(header) + (size_t)width; x++) {
        assert_int_equal(files[0][x], 0);
    }
    for (int x = 1; x <= GAN_SIDE; x++) {
        const char *row = files[0] + strlen(header) + 5 * (size_t)width;

        different += row[x] != row[x + GAN_SIDE + 1];
    }
    assert_true(different > 0);
    assert_true(metric("sheets", 4, "eval_samples") == GAN_TESTED);
    assert_true(isfinite(metric("sheets", 4, "eval_loss")));
    free(files[0]);
    free(files[1]);
}

static uint32_t load_u32(const char *from)
{
    uint32_t value = 0;

    for (int i = 0; i < 4; i++) {
        value = value << 8 | (unsigned char)from[i];
    }
    return value;
}

/* Every chunk has its checksum, and the rows are those of the .pgm file, each behind a zero. */
static void a_sheet_is_a_png_file_of_the_same_pixels(void **state)
{
    enum { WIDTH = 8 * (GAN_SIDE + 1) + 1, CHUNKS = 3 };
    static const char *const types[CHUNKS] = {"IHDR", "IDAT", "IEND"};
    static uint8_t rows[WIDTH * (WIDTH + 1)];
    struct run_options options = {
        .ranks = 1,
        .conf = "gan.conf",
        .arguments = {run_dir_argument("png"), "train.max_steps=1", NULL}};
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    size_t bytes = 0;
    size_t pgm_bytes = 0;
    size_t at = 8;
    char *png;
    char *pgm;

    (void)state;
    run_well(&options);
    png = get_file(in_work("png/images/step-00000001.png"), &bytes);
    pgm = get_file(in_work("png/images/step-00000001.pgm"), &pgm_bytes);
    assert_non_null(png);
    assert_non_null(pgm);
    assert_memory_equal(png, "\x89PNG\r\n\x1a\n", 8);
    for (int c = 0; c < CHUNKS; c++) {
        size_t length = load_u32(png + at);

        assert_true(at + 12 + length <= bytes);
        assert_memory_equal(png + at + 4, types[c], 4);
        assert_int_equal(load_u32(png + at + 8 + length),
                         libdeflate_crc32(0, png + at + 4, 4 + length));
        if (c == 0) {
            assert_int_equal(load_u32(png + at + 8), WIDTH);
            assert_int_equal(load_u32(png + at + 12), WIDTH);
            assert_memory_equal(png + at + 16, "\x08\0\0\0\0", 5);
        } else if (c == 1) {
            assert_int_equal(
                libdeflate_zlib_decompress(inflater, png + at + 8, length, rows, sizeof rows, NULL),
                LIBDEFLATE_SUCCESS);
        }
        at += 12 + length;
    }
    assert_int_equal(at, bytes);
    for (size_t y = 0; y < WIDTH; y++) {
        assert_int_equal(rows[y * (WIDTH + 1)], 0);
        assert_memory_equal(rows + y * (WIDTH + 1) + 1, pgm + pgm_bytes - (WIDTH - y) * WIDTH,
                            WIDTH);
    }
    libdeflate_free_decompressor(inflater);
    free(png);
    free(pgm);
}

static void expect_refused(const char *name, const char *change, const char *words)
{
    bool synthetic = strncmp(change, "data.", 5) == 0 || strncmp(change, "model.context", 13) == 0;
    struct run_options options = {
        .ranks = 1,
        .conf = "gan.conf",
        .arguments = {run_dir_argument(name), change, synthetic ? "data.type=synthetic" : NULL,
                      strncmp(change, "model.c", 7) == 0 ? "model.vocab=9" : NULL, NULL}};
    struct run run = run_badly(&options);

    assert_says(&run, "err", 0, words);
}

static void keys_that_do_not_fit_two_networks_are_named(void **state)
{
    (void)state;
    expect_refused("no", "train.accumulate=2", "train.accumulate: dcgan computes a rank's share");
    expect_refused("no", "train.precision=bf16", "train.precision: dcgan is computed in f32 only");
    expect_refused("no", "train.cuda_graph=always",
                   "train.cuda_graph: steps of dcgan are not replayed");
    expect_refused("no", "model.loss=mse", "model.loss: dcgan has a loss of its own");
    expect_refused("no", "parallel.pipeline=2",
                   "parallel.pipeline: dcgan has both of its networks");
    expect_refused("no", "parallel.type=data_parallel", "parallel.type: dcgan has both");
    expect_refused("no", "model.hidden=[3]", "model.hidden: is used only with model.type");
    expect_refused("no", "data.image=[1,9,9]", "dcgan: images of 9 x 9");
    expect_refused("no", "data.image=[1,16,8]", "dcgan takes images as high as wide");
    expect_refused("no", "model.context=4", "dcgan takes images");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_makes_the_passes_of_pytorchs_example_on_any_number_of_ranks),
        cmocka_unit_test(metrics_count_the_memory_of_both_networks),
        cmocka_unit_test(both_networks_go_on_from_a_checkpoint_with_the_same_bits),
        cmocka_unit_test(weights_and_learning_rates_are_those_of_both_networks),
        cmocka_unit_test(a_rank_without_samples_takes_part),
        cmocka_unit_test(evaluations_leave_a_sheet_of_images_of_the_same_vectors),
        cmocka_unit_test(a_sheet_is_a_png_file_of_the_same_pixels),
        cmocka_unit_test(keys_that_do_not_fit_two_networks_are_named),
    };

    return cmocka_run_group_tests(tests, make_gan_work, remove_work);
}
