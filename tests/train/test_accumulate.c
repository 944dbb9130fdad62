/* test_accumulate.c - steps in micro-batches: the same losses and parameters as with one large
 * batch, on any number of ranks, also with gradient clipping. */
#include "support/train.h"

#include <cddp/checkpoint.h>

/* The parameters of a run's checkpoint, one after the other. */
struct parameters {
    float values[4096];
    size_t count;
};

static struct parameters read_parameters(const char *run_dir, int step)
{
    struct parameters out = {.count = 0};
    cddp_safetensors *file = open_weights(run_dir, step);

    for (size_t i = 0; i < cddp_safetensors_count(file); i++) {
        const cddp_tensor *tensor = cddp_safetensors_at(file, i);
        size_t count = 1;

        for (int d = 0; d < tensor->dims; d++) {
            count *= (size_t)tensor->shape[d];
        }
        assert_true(out.count + count <= sizeof out.values / sizeof out.values[0]);
        memcpy(out.values + out.count, tensor->data, count * sizeof(float));
        out.count += count;
    }
    cddp_safetensors_close(file);
    return out;
}

/* The largest difference between two runs' parameters after @p step, over the largest parameter. */
static double parameter_distance(const char *run_a, const char *run_b, int step)
{
    struct parameters a = read_parameters(run_a, step);
    struct parameters b = read_parameters(run_b, step);
    double difference = 0;
    double largest = 0;

    assert_int_equal(a.count, b.count);
    for (size_t i = 0; i < a.count; i++) {
        double apart = fabs((double)a.values[i] - (double)b.values[i]);
        double size = fabs((double)a.values[i]);

        difference = apart > difference ? apart : difference;
        largest = size > largest ? size : largest; /* fmax() here ends gcc 12 for arm64 by a bug */
    }
    return difference / largest;
}

/* Both runs have logged every step: the same losses to @p tolerance. */
static void assert_same_losses(const char *run_a, const char *run_b, uint64_t steps,
                               double tolerance)
{
    for (uint64_t step = 1; step <= steps; step++) {
        double expected = metric(run_a, step, "loss");
        double loss = metric(run_b, step, "loss");

        if (!(fabs(loss - expected) <= tolerance * expected)) {
            fail_msg("step %llu: loss %.9g in %s, but %.9g in %s", (unsigned long long)step,
                     expected, run_a, loss, run_b);
        }
    }
}

static void micro_batches_give_what_one_large_batch_gives(void **state)
{
    static const int pieces[] = {1, 2, 3, 21};
    const char *first = "n1-k1";

    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
            const char *name = argument("n%d-k%d", ranks, pieces[i]);
            struct run_options options = {
                .ranks = ranks,
                .arguments = {run_dir_argument(name), "model.dropout=0.2", "train.epochs=1",
                              argument("train.accumulate=%d", pieces[i])}};

            run_well(&options); /* 10 steps; the last one has 24 samples instead of 64 */
            assert_same_losses(first, name, 10, 1e-6);
            assert_true(parameter_distance(first, name, 10) <= 1e-6);
            assert_float_equal(metric(name, 10, "eval_samples"), TEST_SAMPLES, 0);
        }
    }
}

static void micro_batches_without_samples_change_nothing(void **state)
{
    /* batches of 66 and one of 6: shares of 9 and 8 samples in pieces of 2; and of 1 and 0 */
    struct run_options one = {
        .ranks = 1,
        .arguments = {run_dir_argument("whole1"), "train.batch_size=66", "train.epochs=1"}};
    struct run_options many = {.ranks = 8,
                               .arguments = {run_dir_argument("pieces8"), "train.batch_size=66",
                                             "train.epochs=1", "train.accumulate=5"}};

    (void)state;
    run_well(&one);
    run_well(&many);
    assert_same_losses("whole1", "pieces8", 10, 1e-6);
    assert_true(parameter_distance("whole1", "pieces8", 10) <= 1e-6);
}

static void ranks_take_the_same_samples_in_however_many_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run_options options = {
            .ranks = 3,
            .arguments = {run_dir_argument("logged"), "train.epochs=1",
                          i == 0 ? "train.accumulate=1" : "train.accumulate=4",
                          argument("train.sample_log=%s", in_work("log%d", i))}};

        run_well(&options);
    }
    for (int rank = 0; rank < 3; rank++) {
        assert_same_file(in_work("log0.%d", rank), in_work("log1.%d", rank));
    }
}

static void a_run_in_micro_batches_goes_on_bit_by_bit(void **state)
{
    const char *extra[2] = {"train.max_steps=13", "train.resume=auto"};
    struct run_options whole = {
        .ranks = 2,
        .arguments = {run_dir_argument("k3"), "train.accumulate=3", "model.dropout=0.2"}};

    (void)state;
    run_well(&whole);
    for (int i = 0; i < 2; i++) {
        struct run_options part = {.ranks = 2,
                                   .arguments = {run_dir_argument("k3-parts"), "train.accumulate=3",
                                                 "model.dropout=0.2", extra[i]}};

        run_well(&part);
    }
    assert_same_checkpoint("k3", "k3-parts", 30);
}

static void a_run_goes_on_with_other_ranks_and_other_micro_batches(void **state)
{
    struct run_options whole = {.ranks = 1, .arguments = {run_dir_argument("plain")}};
    struct run_options first = {
        .ranks = 3,
        .arguments = {run_dir_argument("other"), "train.accumulate=7", "train.max_steps=5"}};
    struct run_options second = {.ranks = 2,
                                 .arguments = {run_dir_argument("other"), "train.accumulate=2",
                                               "train.max_steps=10", "train.resume=auto"}};

    (void)state;
    whole.arguments[1] = "train.max_steps=10";
    run_well(&whole);
    run_well(&first);
    run_well(&second);
    assert_same_losses("plain", "other", 10, 1e-6);
    assert_true(parameter_distance("plain", "other", 10) <= 1e-6);
}

static void synchronised_batch_norm_meets_in_every_micro_batch(void **state)
{
    struct run_options options = {
        .ranks = 3,
        .arguments = {
            run_dir_argument("norm"), "model.type=layers",
            "model.layers=({type=\"conv2d\";units=4;kernel=3;},{type=\"batch_norm\";sync=true;},"
            "{type=\"relu\";},{type=\"flatten\";},{type=\"linear\";units=4;})",
            "train.batch_size=65", "train.accumulate=4"}};

    (void)state;
    run_well(&options); /* shares of 22, 22 and 21 in pieces of 6: the last ones have 4 and 3 */
    assert_true(metric("norm", 30, "loss") < 0.3);
    assert_true(metric("norm", 30, "eval_accuracy") > 0.9);
}

static void more_micro_batches_than_samples_name_what_would_fit(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("much"), "train.batch_size=13", "train.accumulate=7"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_int_equal(WEXITSTATUS(run.statuses[0]), 2);
    assert_says(&run, "err", 0,
                "argument train.accumulate=7: train.accumulate: a rank's share of train.batch_size "
                "= 13 is 6 in a world size of 2, which cannot be cut into 7 micro-batches: "
                "accumulate at most 6, or let the batch have at least 14 samples");
}

static void clipping_bounds_the_step_by_the_norm_over_all_ranks_and_micro_batches(void **state)
{
    struct parameters start, plain, clipped;
    double norm;

    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        static const char *const kinds[] = {"optimizer.lr=0", "train.clip_norm=1e9",
                                            "train.clip_norm=0.01"};

        for (int kind = 0; kind < 3; kind++) {
            struct run_options options = {.ranks = ranks,
                                          .arguments = {run_dir_argument(argument("clip%d", kind)),
                                                        "optimizer.momentum=0", "train.max_steps=1",
                                                        argument("train.accumulate=%d", ranks),
                                                        kinds[kind]}};

            run_well(&options);
        }
        start = read_parameters("clip0", 1);
        plain = read_parameters("clip1", 1);
        clipped = read_parameters("clip2", 1);
        norm = metric("clip1", 1, "grad_norm");
        assert_true(norm > 0.1);
        assert_float_equal(metric("clip2", 1, "grad_norm"), norm, 1e-12); /* as it was */
        for (size_t i = 0; i < start.count; i++) {                        /* plain SGD */
            double step = (double)plain.values[i] - (double)start.values[i];

            assert_float_equal((double)clipped.values[i] - (double)start.values[i],
                               step * 0.01 / norm, 1e-7);
        }
        assert_true(parameter_distance("clip0", "clip1", 1) > 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_give_what_one_large_batch_gives),
        cmocka_unit_test(micro_batches_without_samples_change_nothing),
        cmocka_unit_test(ranks_take_the_same_samples_in_however_many_pieces),
        cmocka_unit_test(a_run_in_micro_batches_goes_on_bit_by_bit),
        cmocka_unit_test(a_run_goes_on_with_other_ranks_and_other_micro_batches),
        cmocka_unit_test(synchronised_batch_norm_meets_in_every_micro_batch),
        cmocka_unit_test(more_micro_batches_than_samples_name_what_would_fit),
        cmocka_unit_test(clipping_bounds_the_step_by_the_norm_over_all_ranks_and_micro_batches),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
