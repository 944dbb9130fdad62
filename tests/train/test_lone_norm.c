/* test_lone_norm.c - batch normalisation of a single value, which always gives 0: a warning names
 * the layer if, and only if, a step has such a micro-batch. */
#include "support/train.h"
#include "train/batch_sizes.h"

#define MODEL                                                                                      \
    "model.layers=({type=\"flatten\";},{type=\"linear\";units=4;},{type=\"batch_norm\";name="      \
    "\"n\";},"                                                                                     \
    "{type=\"relu\";},{type=\"linear\";units=4;})"
#define PICTURES                                                                                   \
    "model.layers=({type=\"conv2d\";units=4;kernel=3;},{type=\"batch_norm\";name=\"n\";},"         \
    "{type=\"flatten\";},{type=\"linear\";units=4;})"
#define TOGETHER                                                                                   \
    "model.layers=({type=\"flatten\";},{type=\"linear\";units=4;},"                                \
    "{type=\"batch_norm\";name=\"n\";sync=true;},{type=\"linear\";units=4;})"

/* What rank 0 of @p ranks says of its batch_norm, until the next call; NULL: nothing. */
static const char *warning(int ranks, const char *model, const char *batch, const char *more)
{
    struct run run = run_well(
        &(struct run_options){.ranks = ranks,
                              .arguments = {"model.type=layers", model, batch, "train.max_steps=1",
                                            run_dir_argument("run"), more}});
    static char said[1024];
    char *text = output(&run, "err", 0);
    const char *found = strstr(text, "batch_norm \"n\" has one value per channel in a sample");

    snprintf(said, sizeof said, "%.*s", found != NULL ? (int)strcspn(found, "\n") : 0,
             found != NULL ? found : "");
    free(text);
    return said[0] != '\0' ? said : NULL;
}

static void a_micro_batch_of_one_sample_is_warned_of(void **state)
{
    const char *said = warning(1, MODEL, "train.batch_size=1", NULL);

    (void)state;
    assert_non_null(said);
    assert_non_null(strstr(said, "each step has micro-batches of one sample"));
    assert_non_null(
        strstr(said, "so the layers before learn nothing from them (PyTorch refuses them)"));
    assert_non_null(warning(2, MODEL, "train.batch_size=3", NULL));
    assert_non_null(warning(1, MODEL, "train.batch_size=3", "train.accumulate=2"));
    said = warning(1, MODEL, "train.batch_size=599", NULL); /* 600 samples */
    assert_non_null(said);
    assert_non_null(strstr(said, "the last step of an epoch has micro-batches of one sample"));
}

static void by_position_only_other_micro_batches_help(void **state)
{
    const char *said = warning(2, MODEL, "train.batch_size=9", "train.micro_batch=4");

    (void)state;
    assert_non_null(said);
    assert_non_null(strstr(said, "each step has micro-batches of one sample"));
    assert_non_null(strstr(said, "Choose a train.micro_batch that leaves none of one sample"));
    assert_null(strstr(said, "sync"));
    assert_null(warning(3, MODEL, "train.batch_size=8", "train.micro_batch=2"));
}

static void what_has_several_values_is_not(void **state)
{
    (void)state;
    assert_null(warning(1, MODEL, "train.batch_size=2", NULL));
    assert_null(warning(1, PICTURES, "train.batch_size=1", NULL));
    assert_null(warning(2, TOGETHER, "train.batch_size=2", NULL));
    assert_non_null(warning(1, TOGETHER, "train.batch_size=1", NULL)); /* there are no others */
}

static void the_smallest_micro_batch_is_that_of_all_ranks(void **state)
{
    static const struct {
        int64_t batch, accumulate, of;
        int replicas, least;
    } cases[] = {{8, 1, 8, 1, 8}, {8, 1, 8, 3, 2}, {8, 3, 8, 1, 2}, {7, 2, 7, 1, 3},
                 {8, 1, 1, 4, 1}, {8, 1, 9, 4, 1}, {3, 2, 3, 1, 1}, {64, 4, 40, 2, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cddpi_config config = {0};

        config.train.batch_size = cases[i].batch;
        config.train.accumulate = cases[i].accumulate;
        assert_int_equal(
            cddpi_trainer_smallest_micro_batch(&config, cases[i].replicas, cases[i].of),
            cases[i].least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_micro_batch_of_one_sample_is_warned_of),
        cmocka_unit_test(by_position_only_other_micro_batches_help),
        cmocka_unit_test(what_has_several_values_is_not),
        cmocka_unit_test(the_smallest_micro_batch_is_that_of_all_ranks),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
