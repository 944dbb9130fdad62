/* test_auto_micro_batch.c - train.micro_batch = "auto": what is chosen in how much memory, and that
 * a run keeps it. */
#include "nn/model.h"
#include "support/test.h"
#include "support/train.h"
#include "train/auto_micro_batch.h"

/* --- the choice --- */

static struct cddpi_model *make_model(cddp_group **out_group)
{
    static int hidden[] = {64};
    struct cddpi_model_spec spec = {.preset = "mlp",
                                    .channels = 1,
                                    .height = 8,
                                    .width = 8,
                                    .classes = 4,
                                    .hidden = hidden,
                                    .hidden_count = 1};
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    struct cddpi_model *model = NULL;

    options.backend = "solo";
    options.world_size = 1;
    assert_int_equal(cddp_group_create(&options, out_group), CDDP_OK);
    assert_int_equal(cddpi_model_create(&spec, 1, *out_group, &model), CDDP_OK);
    return model;
}

static struct cddpi_auto_micro_batch find(struct cddpi_model *model, int64_t batch, int replicas,
                                          uint64_t budget)
{
    struct cddpi_config config = {.train.batch_size = batch, .train.micro_batch = CDDPI_AUTO};
    struct cddpi_auto_micro_batch found = {.samples = 0};

    assert_int_equal(cddpi_auto_micro_batch_find(&config, model, replicas, budget, &found),
                     CDDP_OK);
    return found;
}

static void each_rank_has_a_micro_batch(void **state)
{
    cddp_group *group = NULL;
    struct cddpi_model *model = make_model(&group);

    (void)state;
    for (int64_t batch = 1; batch <= 100; batch++) {
        for (int replicas = 1; replicas <= batch; replicas++) {
            int64_t samples = find(model, batch, replicas, UINT64_MAX).samples;

            assert_true(samples >= 1 && (samples & (samples - 1)) == 0);
            assert_true((batch + samples - 1) / samples >= replicas);
            assert_true(2 * samples > batch / replicas);
        }
    }
    cddpi_model_destroy(model);
    cddp_group_destroy(group);
}

static void the_largest_that_fits_is_chosen(void **state)
{
    cddp_group *group = NULL;
    struct cddpi_model *model = make_model(&group);
    int64_t last = 1024;

    (void)state;
    for (int64_t samples = 1024; samples > 1; samples = last) {
        struct cddpi_auto_micro_batch found = find(model, 1024, 1, UINT64_MAX);

        while (found.samples > samples) { /* down to what takes less than the last one */
            found = find(model, 1024, 1, found.bytes - 1);
        }
        assert_int_equal(found.samples, samples);
        assert_int_equal(find(model, 1024, 1, found.bytes).samples, samples);
        last = find(model, 1024, 1, found.bytes - 1).samples;
        assert_true(last < samples);
        if (last == 1) {
            break;
        }
    }
    assert_int_equal(find(model, 1024, 1, 0).samples, 1);
    cddpi_model_destroy(model);
    cddp_group_destroy(group);
}

/* --- runs --- */

static struct run_options options_of(int ranks, const char *name, const char *micro_batch,
                                     const char *steps)
{
    return (struct run_options){
        .ranks = ranks,
        .arguments = {run_dir_argument(name), argument("train.micro_batch=%s", micro_batch),
                      argument("train.max_steps=%s", steps), "optimizer.schedule.total_steps=20",
                      "train.resume=auto"}};
}

static void assert_conf_says(const char *run_dir, const char *words)
{
    char *text = get_file(in_work("%s/train.conf", run_dir), NULL);

    assert_non_null(text);
    assert_non_null(strstr(text, words));
    free(text);
}

/* Of 64 samples, 3 ranks get at least 21 each. */
static void a_run_keeps_what_was_chosen_at_another_number_of_ranks(void **state)
{
    struct run_options options = options_of(3, "chosen", "auto", "4");
    struct run run = run_well(&options);

    (void)state;
    assert_says(&run, "err", 0, "train.micro_batch = \"auto\" is 16: ");
    assert_conf_says("chosen", "  micro_batch = 16;\n");
    options = options_of(1, "chosen", "auto", "9");
    run = run_well(&options);
    assert_says(&run, "err", 0, "train.micro_batch = \"auto\" stays 16, as the run began");
    assert_conf_says("chosen", "  micro_batch = 16;\n");
    options = options_of(2, "given", "16", "9");
    run = run_well(&options);
    assert_same_checkpoint("given", "chosen", 9);
    options = options_of(5, "chosen", "auto", "12");
    run = run_badly(&options);
    assert_says(&run, "err", 0, "has 4 micro-batches of 16 samples, too few for");
    options = options_of(1, "chosen", "auto", "12"); /* a batch has no larger micro-batch */
    options.arguments[5] = "train.batch_size=8";
    run = run_well(&options);
    assert_conf_says("chosen", "  micro_batch = 8;\n");
    assert_says(&run, "err", 0, "warning: train.micro_batch is 8, but ");
}

static void a_new_run_goes_on_from_another_with_its_number(void **state)
{
    struct run_options options = options_of(4, "other", "auto", "3");
    struct run run = run_well(&options);
    static const char *const named[] = {"other", "other/checkpoints",
                                        "other/checkpoints/step-00000003"};

    (void)state;
    assert_conf_says("other", "  micro_batch = 16;\n");
    for (int i = 0; i < 3; i++) {
        options = options_of(1, argument("goes-on%d", i), "auto", "5");
        options.arguments[4] = argument("train.resume=%s", in_work("%s", named[i]));
        run = run_well(&options);
        assert_says(&run, "err", 0, "train.micro_batch = \"auto\" stays 16, as the run began");
    }
}

static void other_words_and_models_in_parts_are_refused(void **state)
{
    struct run_options options = options_of(1, "refused", "most", "1");
    struct run run = run_badly(&options);

    (void)state;
    assert_says(&run, "err", 0,
                "train.micro_batch expects a whole number, or \"auto\", not \"most\"");
    options = options_of(1, "refused", "-1", "1");
    run = run_badly(&options);
    assert_says(&run, "err", 0, "train.micro_batch: -1 is outside 0 to 16777216");
    options = options_of(2, "refused", "auto", "1");
    options.arguments[3] = "parallel.pipeline=2";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "train.micro_batch: \"auto\" is for one model on one device");
}

static void a_dry_run_says_what_would_be_chosen(void **state)
{
    int status = system(
        argument("cd %s && CDDP_RANK= CDDP_WORLD_SIZE=3 %s/src/cddp-train --dry-run "
                 "small.conf train.micro_batch=auto > dry 2>&1",
                 work, getenv("CDDP_TEST_BUILD")));
    char *text = get_file(in_work("dry"), NULL);

    (void)state;
    assert_int_equal(status, 0);
    assert_non_null(strstr(text, "\n  micro_batch = \"auto\";\n"));
    assert_non_null(strstr(text, "train.micro_batch = \"auto\" would be 16 on the processors"));
    assert_non_null(strstr(text, "micro-batches: 4 of 16 samples in a step"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_has_a_micro_batch),
        cmocka_unit_test(the_largest_that_fits_is_chosen),
        cmocka_unit_test(a_run_keeps_what_was_chosen_at_another_number_of_ranks),
        cmocka_unit_test(a_new_run_goes_on_from_another_with_its_number),
        cmocka_unit_test(a_dry_run_says_what_would_be_chosen),
        cmocka_unit_test(other_words_and_models_in_parts_are_refused),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
