/* test_train_cli.c - the command line of cddp-train: what it accepts, and the messages for the
 * rest. */
#include "support/launcher.h"

static const char small[] = "model = { type = \"mlp\"; hidden = [4]; };\n"
                            "data = { type = \"synthetic\"; };\n"
                            "train = { max_steps = 3; batch_size = 8; };\n";

/* Run cddp-train with @p arguments in a folder with small.conf, and look for @p text. */
static void run(struct launched *job, const char *const *arguments)
{
    *job = (struct launched){.dir = support_mkdtemp()};
    launcher_write(job->dir, "small.conf", small);
    launcher_start_program(job, launcher_path("src/cddp-train"), arguments);
    launcher_wait(job);
}

#define RUN(job, ...) run((job), (const char *const[]){__VA_ARGS__, NULL})

static void a_wrong_command_line_gives_two_and_says_why(void **state)
{
    static const struct {
        const char *arguments[6];
        const char *text;
    } cases[] = {
        {{NULL},
         "cddp-train: no configuration is named: name a train.conf, see cddp-train --help\n"},
        {{"--dry-run"}, "no configuration is named"},
        {{"--generate", "x"}, "no configuration is named"},
        {{"--generate"}, "cddp-train: --generate "},
        {{"--dryrun", "small.conf"}, " --dryrun: "},
        {{"--frobnicate", "small.conf"}, " --frobnicate: see cddp-train --help\n"},
        {{"small.conf", "-x"}, " -x: see cddp-train --help\n"},
        {{"--validate=yes", "small.conf"}, "cddp-train: --validate "},
        {{"small.conf", "--validate", "--dry-run"}, "--dry-run and --validate "},
        {{"--keys", "--generate", "x", "small.conf"}, "--generate and --keys "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launched job;

        run(&job, cases[i].arguments);
        assert_err(&job, cases[i].text);
        assert_int_equal(job.exit_status, 2);
        assert_string_equal(job.out, "");
        launcher_end(&job);
    }
}

static void options_may_stand_before_and_behind_the_configuration(void **state)
{
    static const char *const orders[][6] = {
        {"--dry-run", "small.conf", "train.max_steps=5", "train.seed=4"},
        {"small.conf", "--dry-run", "train.max_steps=5", "train.seed=4"},
        {"small.conf", "train.max_steps=5", "train.seed=4", "--dry-run"},
        {"--dry-run", "--", "small.conf", "train.max_steps=5", "train.seed=4"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        struct launched job;

        run(&job, orders[i]);
        assert_err(&job, "");
        assert_int_equal(job.exit_status, 0);
        assert_out(&job, "max_steps = 5;");
        assert_out(&job, "seed = 4;");
        launcher_end(&job);
    }
}

static void the_informing_options_say_what_they_must(void **state)
{
    static const struct {
        const char *arguments[4];
        const char *texts[4];
    } cases[] = {
        {{"--help"},
         {"usage: cddp-train [--dry-run", "\n  --generate PROMPT", "\n  --validate ", "--keys"}},
        {{"-h", "--keys"}, {"usage: cddp-train"}},
        {{"small.conf", "--version"}, {"cddp-train 0."}},
        {{"--keys"},
         {"optimizer.lr\n    real from 0 to 1000000; default 0.1\n    Learning rate: ",
          "model.type\n    word: mlp, ", "\nunits\n    int from 1 to 1048576\n",
          "data.train_images\n    string; must be given with data.type = idx\n"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launched job;

        run(&job, cases[i].arguments);
        assert_int_equal(job.exit_status, 0);
        assert_string_equal(job.err, "");
        for (int t = 0; t < 4 && cases[i].texts[t] != NULL; t++) {
            assert_out(&job, cases[i].texts[t]);
        }
        launcher_end(&job);
    }
}

static void keys_that_are_named_are_printed_alone_and_without_markup(void **state)
{
    static const struct {
        const char *arguments[4];
        const char *has, *lacks;
    } cases[] = {
        {{"--keys=optimizer.schedule"}, "optimizer.schedule.decay\n", "optimizer.lr\n"},
        {{"--keys", "optimizer.lr", "model.dropout"}, "model.dropout\n", "optimizer.type\n"},
        {{"--keys=lr"}, "optimizer.lr\n", "optimizer.type\n"},
        {{"--keys=units"}, "units\n", "model.type\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launched job;

        run(&job, cases[i].arguments);
        assert_int_equal(job.exit_status, 0);
        assert_out(&job, cases[i].has);
        assert_null(strstr(job.out, cases[i].lacks));
        assert_null(strpbrk(job.out, "*\\"));
        launcher_end(&job);
    }
}

static void a_key_is_printed_in_lines_that_fit_a_terminal(void **state)
{
    struct launched job;

    (void)state;
    RUN(&job, "--keys");
    for (const char *line = job.out; *line != '\0';) {
        size_t length = strcspn(line, "\n");

        if (length > 80) {
            fail_msg("%.*s", (int)length, line);
        }
        line += length + (line[length] != '\0');
    }
    launcher_end(&job);
}

static void an_unknown_key_is_an_error_that_names_the_nearest(void **state)
{
    static const char *const cases[][2] = {
        {"--keys=optimiser", "--keys: no key is named optimiser; the nearest is optimizer\n"},
        {"--keys=pading",
         "--keys: no key is named pading; the nearest is padding\n"}, /* a layer's */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct launched job;

        RUN(&job, cases[i][0]);
        assert_err(&job, cases[i][1]);
        assert_int_equal(job.exit_status, 2);
        launcher_end(&job);
    }
}

static void a_valid_configuration_is_passed_in_silence(void **state)
{
    struct launched job;

    (void)state;
    RUN(&job, "--validate", "small.conf");
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.out, "");
    assert_string_equal(job.err, "");
    launcher_end(&job);
    RUN(&job, "--validate", "small.conf", "train.batch_size=0");
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "train.batch_size");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_command_line_gives_two_and_says_why),
        cmocka_unit_test(options_may_stand_before_and_behind_the_configuration),
        cmocka_unit_test(the_informing_options_say_what_they_must),
        cmocka_unit_test(keys_that_are_named_are_printed_alone_and_without_markup),
        cmocka_unit_test(a_key_is_printed_in_lines_that_fit_a_terminal),
        cmocka_unit_test(an_unknown_key_is_an_error_that_names_the_nearest),
        cmocka_unit_test(a_valid_configuration_is_passed_in_silence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
