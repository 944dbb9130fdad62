/* test_config_include.c - what a train.conf replaces of files that it includes. */
#include "base/alloc.h"
#include "support/failure.h"
#include "support/folder.h"
#include "train/config/config.h"
#include "train/config/schema.h"

static void write_text(const char *name, const char *text)
{
    support_write_file(in_folder(name), text, strlen(text));
}

/* What is in the included file of most cases. */
static const char base[] = "model = { type = \"layers\"; layers = ( { type = \"relu\"; } ); };\n"
                           "data = { type = \"synthetic\"; samples = 64; };\n"
                           "train = { epochs = 3; batch_size = 8; };\n"
                           "optimizer = { lr = 0.5; schedule = { type = \"cosine\"; }; };\n";

static void load(const char *text, struct cddpi_config *out)
{
    write_text("base.conf", base);
    write_text("train.conf", text);
    if (cddpi_config_load(in_folder("train.conf"), NULL, 0, out) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

/* The message of loading @p text, without the folder's name in front. */
static const char *message(const char *text)
{
    struct cddpi_config config;

    write_text("base.conf", base);
    write_text("train.conf", text);
    assert_true(failure_is(cddpi_config_load(in_folder("train.conf"), NULL, 0, &config),
                           CDDP_ERR_CONFIG, -1, -1, ""));
    assert_memory_equal(cddp_last_error(), folder, strlen(folder));
    return cddp_last_error() + strlen(folder) + 1;
}

static void begins_with(const char *said, const char *text)
{
    if (strncmp(said, text, strlen(text)) != 0) {
        fail_msg("%s\ninstead of\n%s", said, text);
    }
}

static void a_file_replaces_single_keys_of_what_it_includes(void **state)
{
    struct cddpi_config config;

    (void)state;
    load("# mine\n@include \"base.conf\"\ntrain = { epochs = 7; };\n"
         "optimizer = { schedule = { warmup_steps = 9; }; };\n",
         &config);
    assert_int_equal(config.train.epochs, 7);
    assert_int_equal(config.train.batch_size, 8); /* of the same group, and not replaced */
    assert_int_equal(config.optimizer.schedule.warmup_steps, 9);
    assert_string_equal(cddpi_config_word(&config, "optimizer.schedule.type"), "cosine");
    assert_true(config.optimizer.lr == 0.5);
    cddpi_config_fini(&config);
}

static void a_place_is_named_in_the_file_that_gave_the_value(void **state)
{
    const char *said;

    (void)state;
    said = message("@include \"base.conf\"\n\ntrain = {\n epochs = 0; };\n");
    begins_with(said, "train.conf:4: train.epochs");
    said = message("@include \"base.conf\"\n model = { type = \"gpt2\"; };\n"
                   "data = { type = \"idx\"; };\n");
    begins_with(said, "train.conf: the key data.train_images ");
    said = message("@include \"base.conf\"\noptimizer = { type = \"sgd\"; beta1 = 0.5; };\n");
    begins_with(said, "train.conf:2: optimizer.beta1");
}

static void a_later_included_file_replaces_an_earlier_one(void **state)
{
    struct cddpi_config config;

    (void)state;
    write_text("large.conf", "train = { batch_size = 512; };\n@include \"larger.conf\"\n");
    write_text("larger.conf", "optimizer = { lr = 2.0; };\n");
    load("@include \"base.conf\"\n@include \"large.conf\"\ntrain = { epochs = 7; };\n", &config);
    assert_int_equal(config.train.batch_size, 512);
    assert_int_equal(config.train.epochs, 7);
    assert_true(config.optimizer.lr == 2.0);
    cddpi_config_fini(&config);
}

static void another_type_leaves_the_included_ones_keys_out(void **state)
{
    struct cddpi_config config;

    (void)state;
    load("@include \"base.conf\"\nmodel = { type = \"mlp\"; hidden = [5]; };\n", &config);
    assert_string_equal(cddpi_config_word(&config, "model.type"), "mlp");
    assert_int_equal(config.model.hidden.count, 1);
    cddpi_config_fini(&config);
    load(
        "@include \"base.conf\"\nmodel = { layers = ( { type = \"gelu\"; }, { type = \"relu\"; }); "
        "};\n",
        &config);
    assert_int_equal(config.model.layers.count, 2);
    cddpi_config_fini(&config);
}

static void a_file_that_a_group_includes_is_part_of_the_group(void **state)
{
    struct cddpi_config config;

    (void)state;
    write_text("schedule.conf", "type = \"wsd\"; /* } */ decay_steps = 5;");
    write_text("optimizer.conf", "lr = 0.25;\nschedule = {\n@include \"schedule.conf\"\n };\n");
    load("@include \"base.conf\"\n"
         "optimizer : { # a comment with { and (\n"
         "  \t@include \"optimizer.conf\"\n"
         "  momentum = 0.5; schedule = { decay_steps = 6; };\n"
         "};\n",
         &config);
    assert_true(config.optimizer.lr == 0.25);
    assert_true(config.optimizer.momentum == 0.5);
    assert_int_equal(config.optimizer.schedule.decay_steps, 6);
    assert_string_equal(cddpi_config_word(&config, "optimizer.schedule.type"), "wsd");
    cddpi_config_fini(&config);
}

static void a_list_may_include_some_of_its_elements(void **state)
{
    struct cddpi_config config;

    (void)state;
    write_text("some.conf", "{ type = \"relu\"; }, { type = \"gelu\"; },\n");
    load("@include \"base.conf\"\nmodel = { layers = (\n@include \"some.conf\"\n"
         "{ type = \"relu\"; } ); };\n",
         &config);
    assert_int_equal(config.model.layers.count, 3);
    cddpi_config_fini(&config);
}

static void a_key_above_the_include_that_has_it_too_is_an_error(void **state)
{
    const char *said;

    (void)state;
    said = message("train = {\n epochs = 7; };\n@include \"base.conf\"\n");
    begins_with(said, "train.conf:2: train.epochs is set here, and again by the file that line 3 "
                      "includes (");
    assert_non_null(strstr(said, "base.conf:3): move the @include above it"));
    (void)message("@include \"base.conf\"\noptimizer = { schedule = { step_size = 3;\n type = "
                  "\"step\";\n@include \"s.conf\"\n}; };\n");
    assert_true(failure_errno_is(ENOENT) && last_error_has("/s.conf: "));
    write_text("s.conf", "type = \"wsd\";");
    said = message("@include \"base.conf\"\noptimizer = { schedule = { step_size = 3;\n type = "
                   "\"step\";\n@include \"s.conf\"\n}; };\n");
    begins_with(said, "train.conf:3: optimizer.schedule.type ");
}

static void a_key_that_one_file_has_twice_stays_an_error(void **state)
{
    (void)state;
    begins_with(message("@include \"base.conf\"\ntrain = { epochs = 7;\n epochs = 8; };\n"),
                "train.conf:3: epochs ");
    write_text("twice.conf", "train = { seed = 1; };\ntrain = { };\n");
    begins_with(message("@include \"twice.conf\"\n"), "twice.conf:2: train ");
}

static void every_allocation_may_fail(void **state)
{
    struct cddpi_config config;
    cddp_status status = CDDP_ERR_NO_MEMORY;

    (void)state;
    write_text("base.conf", base);
    write_text("train.conf", "@include \"base.conf\"\ntrain = { epochs = 7; };\n");
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddpi_config_load(in_folder("train.conf"), NULL, 0, &config);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        assert_true(nth < 1000);
    }
    cddpi_alloc_fail_nth(0);
    cddpi_config_fini(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_file_replaces_single_keys_of_what_it_includes),
        IN_FOLDER(a_place_is_named_in_the_file_that_gave_the_value),
        IN_FOLDER(a_later_included_file_replaces_an_earlier_one),
        IN_FOLDER(another_type_leaves_the_included_ones_keys_out),
        IN_FOLDER(a_file_that_a_group_includes_is_part_of_the_group),
        IN_FOLDER(a_list_may_include_some_of_its_elements),
        IN_FOLDER(a_key_above_the_include_that_has_it_too_is_an_error),
        IN_FOLDER(a_key_that_one_file_has_twice_stays_an_error),
        IN_FOLDER(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
