/* test_config.c - train.conf: defaults, every kind of error with its position, overrides, and the
 * resolved text. */
#include "base/alloc.h"
#include "nn/model.h"
#include "support/failure.h"
#include "support/test.h"
#include "train/config/config.h"
#include "train/config/schema.h"

#include <cddp/status.h>

#define FILES                                                                                      \
    "data = { train_images = \"a\"; train_labels = \"b\"; test_images = \"c\";"                    \
    " test_labels = \"d\"; };\n"

static char *folder;
static char path[4200];

static int make_folder(void **state)
{
    (void)state;
    folder = support_mkdtemp();
    snprintf(path, sizeof path, "%s/small.conf", folder);
    return folder == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    support_rmdir(folder);
    return 0;
}

static void write_conf(const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void load(const char *text, char *const *overrides, int count, struct cddpi_config *out)
{
    write_conf(text);
    if (cddpi_config_load(path, overrides, count, out) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

/* The message of loading @p text, without the folder's name in front. */
static const char *message(const char *text, char *override)
{
    struct cddpi_config config;

    write_conf(text);
    assert_true(failure_is(
        cddpi_config_load(path, override != NULL ? &override : NULL, override != NULL, &config),
        CDDP_ERR_CONFIG, -1, -1, ""));
    return strncmp(cddp_last_error(), folder, strlen(folder)) == 0
               ? cddp_last_error() + strlen(folder) + 1
               : cddp_last_error();
}

/* Loading @p text fails because of what is at @p place. What is wrong there, other cases compare.
 */
static void is_refused_at(const char *text, char *override, const char *place)
{
    const char *said = message(text, override);

    if (strncmp(said, place, strlen(place)) != 0) {
        fail_msg("\"%s\" should begin with \"%s\"", said, place);
    }
}

static void defaults_fill_what_the_file_leaves_out(void **state)
{
    struct cddpi_config config;

    (void)state;
    unsetenv("CDDP_RUN_DIR");
    load(FILES, NULL, 0, &config);
    assert_int_equal(config.model.type, CDDPI_MODEL_MLP);
    assert_int_equal(config.model.hidden.count, 2);
    assert_int_equal(config.model.hidden.values[1], 512);
    assert_string_equal(config.train.run_dir, "runs/small");
    assert_string_equal(config.train.resume, "none");
    assert_int_equal(config.train.batch_size, 256);
    assert_float_equal(config.optimizer.epsilon, 1e-8, 0);
    assert_int_equal(config.data.std.count, 1);
    assert_float_equal(config.data.std.values[0], 1, 0);
    cddpi_config_fini(&config);
}

static void values_of_every_type_are_read(void **state)
{
    struct cddpi_config config;

    (void)state;
    load(FILES "model = { type = \"layers\"; layers = ("
               " { type = \"conv2d\"; units = 32; kernel = 3; padding = 1; bias = false; },"
               " { type = \"add\"; name = \"sum\"; input2 = \"input\"; },"
               " { type = \"dropout\"; probability = 0.25; } ); };\n"
               "/* 1 */ train = { seed = 9000000000; # 99999999999 \"\n"
               " checkpoint_seconds = 5; tensorboard = false; };\n"
               "optimizer = { type = \"adamw\"; schedule = { type = \"cosine\"; }; };\n",
         NULL, 0, &config);
    assert_int_equal(config.model.layers.count, 3);
    assert_int_equal(config.model.layers.values[0].type, CDDPI_LAYER_CONV2D);
    assert_int_equal(config.model.layers.values[0].units, 32);
    assert_true(config.model.layers.values[0].no_bias);
    assert_string_equal(config.model.layers.values[1].name, "sum");
    assert_null(config.model.layers.values[1].input);
    assert_float_equal(config.model.layers.values[2].probability, 0.25, 0);
    assert_int_equal(config.train.seed, 9000000000);
    assert_float_equal(config.train.checkpoint_seconds, 5, 0);
    assert_false(config.train.tensorboard);
    assert_int_equal(config.optimizer.schedule.type, 2);
    cddpi_config_fini(&config);
}

static void an_unknown_key_names_file_line_and_the_nearest(void **state)
{
    (void)state;
    assert_string_equal(
        message(FILES "model = {\n  hiden = [3];\n};\n", NULL),
        "small.conf:3: unknown key model.hiden; the nearest known key is model.hidden");
    assert_string_equal(
        message(FILES "\n\ntrain = { lr = 0.1; };\n", NULL),
        "small.conf:4: unknown key train.lr; the nearest known key is optimizer.lr");
    assert_string_equal(message(FILES "trian = { epochs = 1; };\n", NULL),
                        "small.conf:2: unknown key trian; the nearest known key is train");
    assert_string_equal(
        message(FILES "optimizer = { schedule = {\n typ = \"step\"; }; };\n", NULL),
        "small.conf:3: unknown key optimizer.schedule.typ; the nearest known key is "
        "optimizer.schedule.type");
    assert_string_equal(
        message(FILES "model = { type = \"layers\"; layers = (\n{ type = \"relu\"; },\n"
                      "{ type = \"conv2d\"; kernl = 3; } ); };\n",
                NULL),
        "small.conf:4: unknown key kernl of a layer; the nearest known key is kernel");
}

static void a_wrong_type_names_file_line_and_what_is_expected(void **state)
{
    (void)state;
    assert_string_equal(message(FILES "train = { epochs = 1.5; };\n", NULL),
                        "small.conf:2: train.epochs expects a whole number, not a number with a "
                        "fraction");
    assert_string_equal(message(FILES "train = { seed = \"x\"; };\n", NULL),
                        "small.conf:2: train.seed expects a whole number, not a string");
    assert_string_equal(message(FILES "train = 3;\n", NULL),
                        "small.conf:2: train is a group of keys, as in train = { ... }, not a "
                        "whole number");
    assert_string_equal(message(FILES "train = { tensorboard = 1; };\n", NULL),
                        "small.conf:2: train.tensorboard expects true or false, not a whole "
                        "number");
    assert_string_equal(message(FILES "model = { hidden = 5; };\n", NULL),
                        "small.conf:2: model.hidden expects a list of whole numbers, not a whole "
                        "number");
    assert_string_equal(message(FILES "optimizer = { lr = { a = 1; }; };\n", NULL),
                        "small.conf:2: optimizer.lr expects a number, not a group");
    assert_string_equal(message(FILES "model = { layers = ( 3 ); };\n", NULL),
                        "small.conf:2: model.layers: each layer is a group in { }, not a whole "
                        "number");
}

static void a_value_outside_its_range_names_the_range(void **state)
{
    (void)state;
    assert_string_equal(message(FILES "train = { batch_size = 0; };\n", NULL),
                        "small.conf:2: train.batch_size: 0 is outside 1 to 16777216");
    assert_string_equal(message(FILES "optimizer = {\n momentum = 1.5; };\n", NULL),
                        "small.conf:3: optimizer.momentum: 1.5 is outside 0 to 0.999999");
    assert_string_equal(message(FILES "model = { hidden = [10, 0]; };\n", NULL),
                        "small.conf:2: model.hidden: 0 is outside 1 to 1048576");
    assert_string_equal(message(FILES "model = { type = \"resnet\"; };\n", NULL),
                        "small.conf:2: model.type: \"resnet\" is not one of: mlp, cnn, resnet20, "
                        "resnet50, gpt2, layers, alexnet, vgg11, lstm_lm, dcgan, resnet18, "
                        "resnet34; the nearest is \"resnet20\"");
}

static void other_systems_marks_and_line_ends_are_read_over(void **state)
{
    struct cddpi_config config;

    (void)state;
    load("\xef\xbb\xbftrain = { epochs = 7; };\r\n" FILES "\r\n", NULL, 0, &config);
    assert_int_equal(config.train.epochs, 7);
    cddpi_config_fini(&config);
}

static void write_included(const char *text)
{
    char name[4300];

    snprintf(name, sizeof name, "%s/part.conf", folder);
    support_write_file(name, text, strlen(text));
}

static void an_included_file_is_read_whole_or_named(void **state)
{
    static const char outer[] = FILES "/* @include \"no.conf\" */\n  @include \"part.conf\"\n";
    struct cddpi_config config;

    (void)state;
    write_included("train = { epochs = 7; seed = 4294967303L; };\n");
    load(outer, NULL, 0, &config);
    assert_int_equal(config.train.epochs, 7);
    assert_int_equal(config.train.seed, 4294967303);
    cddpi_config_fini(&config);
    write_included("\ntrain = { seed = 4294967303; };\n");
    (void)message(outer, NULL);
    assert_true(last_error_has("part.conf:2: in an included file a whole number"));
    write_included("train = { epoch = 7; };\n");
    is_refused_at(outer, NULL, "part.conf:1: ");
    write_included("@include \"gone.conf\"\n");
    is_refused_at(outer, NULL, "part.conf:1: ");
    assert_true(failure_errno_is(ENOENT) && last_error_has("/gone.conf: "));
    is_refused_at("@include \"/dev/null/no.conf\"\n" FILES, NULL, "small.conf:1: ");
    assert_true(last_error_has("no.conf: give an included file relative to "));
    write_included("@include \"part.conf\"\n");
    (void)message(outer, NULL);
    assert_true(last_error_has("too deep"));
}

/* libconfig reads what is included itself, and would wait for a pipe. */
static void an_included_file_has_to_be_a_regular_one(void **state)
{
    char name[4300];

    (void)state;
    snprintf(name, sizeof name, "%s/pipe.conf", folder);
    assert_int_equal(mkfifo(name, 0600), 0);
    is_refused_at(FILES "\n@include \"pipe.conf\"\n", NULL, "small.conf:3: ");
    assert_true(
        last_error_has("pipe.conf: it is a named pipe (FIFO), where a regular file is needed"));
    assert_int_equal(unlink(name), 0);
    assert_int_equal(mkdir(name, 0700), 0);
    is_refused_at(FILES "@include \"pipe.conf\"\n", NULL, "small.conf:2: ");
    assert_true(last_error_has("pipe.conf: it is a folder"));
    assert_int_equal(rmdir(name), 0);
}

/* 20 in each of 9 files that follow each other would be 25 billion. */
static void included_files_are_not_too_many(void **state)
{
    struct cddpi_config config;
    char name[4300];
    char text[4096];

    (void)state;
    for (int level = 1; level <= 9; level++) {
        text[0] = '\0';
        for (int i = 0; i < 20 && level < 9; i++) {
            size_t used = strlen(text);

            snprintf(text + used, sizeof text - used, "@include \"level%d.conf\"\n", level + 1);
        }
        snprintf(name, sizeof name, "%s/level%d.conf", folder, level);
        support_write_file(name, text, strlen(text));
    }
    assert_non_null(
        strstr(message("@include \"level1.conf\"\n" FILES, NULL), "with this one 101 files of "));
    load("@include \"level8.conf\"\n@include \"level8.conf\"\n" FILES, NULL, 0, &config);
    cddpi_config_fini(&config);
}

static void included_files_are_not_too_large(void **state)
{
    enum { BYTES = 1000000 };
    char *spaces = malloc(BYTES);
    char name[4300];

    (void)state;
    memset(spaces, ' ', BYTES);
    snprintf(name, sizeof name, "%s/large.conf", folder);
    support_write_file(name, spaces, BYTES);
    free(spaces);
    assert_non_null(strstr(message("@include \"large.conf\"\n@include \"large.conf\"\n"
                                   "@include \"large.conf\"\n@include \"large.conf\"\n"
                                   "@include \"large.conf\"\n" FILES,
                                   NULL),
                           "small.conf:5: with this one 5 files of 5000000 bytes are included"));
    assert_int_equal(unlink(name), 0);
}

static void a_comment_or_string_without_an_end_is_an_error(void **state)
{
    (void)state;
    assert_string_equal(message(FILES "train = { epochs = 1; };\n/* train.epochs = 3\n", NULL),
                        "small.conf:3: the comment that begins here has no end");
    write_included("\n\n/*/");
    is_refused_at("@include \"part.conf\"\n" FILES, NULL, "small.conf:1: ");
    assert_true(last_error_has("part.conf:3: "));
    assert_string_equal(message(FILES "train = {\n resume = \"none; };\n", NULL),
                        "small.conf:3: the string that begins here has no end");
    assert_string_equal(message(FILES "\"\\\"", NULL),
                        "small.conf:2: the string that begins here has no end");
}

static void a_hexadecimal_number_keeps_its_bits(void **state)
{
    char *override = "train.seed=0x100000007";
    struct cddpi_config config;

    (void)state;
    load(FILES "train = { max_steps = 0x100000009; };\n", &override, 1, &config);
    assert_int_equal(config.train.seed, 0x100000007);
    assert_int_equal(config.train.max_steps, 0x100000009);
    cddpi_config_fini(&config);
}

static void a_broken_or_missing_file_is_named(void **state)
{
    struct cddpi_config config;
    char absent[4300];

    (void)state;
    is_refused_at("model = {\n type = ;\n};\n", NULL, "small.conf:2: ");
    is_refused_at("train = { seed = 1; seed = 2; };\n" FILES, NULL, "small.conf:1: ");
    snprintf(absent, sizeof absent, "%s/absent.conf", folder);
    assert_true(
        failure_is(cddpi_config_load(absent, NULL, 0, &config), CDDP_ERR_CONFIG, -1, -1, "") &&
        failure_errno_is(ENOENT) && last_error_has("/absent.conf: "));
    assert_true(
        failure_is(cddpi_config_load(folder, NULL, 0, &config), CDDP_ERR_CONFIG, -1, -1, "") &&
        failure_errno_is(EISDIR) && last_error_has(folder));
    is_refused_at("train = { epochs = 1; };\n", NULL, "small.conf: the key data.train_images ");
}

static void keys_that_do_not_go_together_are_named(void **state)
{
    (void)state;
    assert_string_equal(message(FILES "model = { type = \"layers\"; };\n", NULL),
                        "small.conf:2: model.type: \"layers\" needs model.layers");
    assert_string_equal(message(FILES "model = { type = \"gpt2\"; };\n", NULL),
                        "small.conf:2: model.type: \"gpt2\" takes tokens, but data.type = \"idx\" "
                        "are images");
    assert_string_equal(message(FILES "optimizer = { nesterov = true; momentum = 0.0; };\n", NULL),
                        "small.conf:2: optimizer.nesterov: needs optimizer.momentum");
    assert_string_equal(message(FILES "model = { type = \"resnet20\"; recompute = true; "
                                      "sync_batch_norm = true; };\n",
                                NULL),
                        "small.conf:2: model.recompute: ranks exchange statistics of batch_norm "
                        "(model.sync_batch_norm) once a batch, and could not again: leave one of "
                        "the two out");
    is_refused_at(FILES, "model.layers=({ type = \"relu\"; })",
                  "argument model.layers=({ type = \"relu\"; }): model.layers: ");
}

static void heads_that_do_not_divide_the_features_are_named_with_their_line(void **state)
{
    static const char words[] = "data = { type = \"tokens\"; train = \"a\"; test = \"b\"; };\n"
                                "model = { type = \"gpt2\"; blocks = 2;\n";
    char text[512];

    (void)state;
    snprintf(text, sizeof text, "%s heads = 5; embed = 64; };\n", words);
    assert_string_equal(message(text, NULL), "small.conf:3: model.heads: an embed of 64 cannot be "
                                             "divided among 5 heads");
    snprintf(text, sizeof text, "%s size = \"124M\";\n embed = 64; };\n", words);
    assert_string_equal(message(text, NULL), "small.conf:4: model.embed: an embed of 64 cannot be "
                                             "divided among 12 heads");
    assert_string_equal(
        message(text, "model.heads=7"),
        "argument model.heads=7: model.heads: an embed of 64 cannot be divided among "
        "7 heads");
    snprintf(text, sizeof text, "%s size = \"125M\"; };\n", words);
    is_refused_at(text, NULL, "small.conf:3: model.size: gpt2: ");
}

static void an_argument_overrides_the_file(void **state)
{
    char *overrides[] = {"optimizer.lr=0.05",        "train.epochs=7",
                         "model.hidden=[32, 16]",    "optimizer.type=adamw",
                         "data.train_images=/x/y=z", "train.resume=\"auto\"",
                         "data.flip=true",           "data.mean=0.5"};
    struct cddpi_config config;

    (void)state;
    load(FILES "optimizer = { lr = 3.0; };\n", overrides, 8, &config);
    assert_float_equal(config.optimizer.lr, 0.05, 0);
    assert_int_equal(config.train.epochs, 7);
    assert_int_equal(config.model.hidden.count, 2);
    assert_int_equal(config.model.hidden.values[0], 32);
    assert_int_equal(config.optimizer.type, 1);
    assert_string_equal(config.data.train_images, "/x/y=z");
    assert_string_equal(config.train.resume, "auto");
    assert_true(config.data.flip);
    assert_float_equal(config.data.mean.values[0], 0.5, 0);
    assert_true(
        failure_is(cddpi_config_fail(&config, "train.epochs", "x"), CDDP_ERR_CONFIG, -1, -1, ""));
    assert_string_equal(cddp_last_error(), "argument train.epochs=7: train.epochs: x");
    cddpi_config_fini(&config);
}

/* As when ranks differ in many keys with long values. */
static void the_end_of_a_long_failure_is_kept(void **state)
{
    char *overrides[] = {"train.epochs=7"};
    struct cddpi_config config;

    (void)state;
    load(FILES, overrides, 1, &config);
    assert_true(failure_is(cddpi_config_fail(&config, "train.epochs", "%3000s and 2 more keys", ""),
                           CDDP_ERR_CONFIG, -1, -1, ""));
    assert_true(last_error_has("argument train.epochs=7: train.epochs: "));
    assert_true(last_error_has(" and 2 more keys"));
    cddpi_config_fini(&config);
}

static void an_error_in_an_argument_names_it(void **state)
{
    (void)state;
    is_refused_at(FILES, "train.epoch=1", "argument train.epoch=1: unknown key");
    assert_string_equal(message(FILES, "train.epochs=many"),
                        "argument train.epochs=many: train.epochs expects a whole number");
    assert_string_equal(message(FILES, "train.epochs=1; train.seed=2"),
                        "argument train.epochs=1; train.seed=2: train.epochs expects a whole "
                        "number");
    is_refused_at(FILES, "train.epochs=0", "argument train.epochs=0: train.epochs: ");
    assert_string_equal(message(FILES, "--verbose"), "argument --verbose: expected key=value");
    is_refused_at(FILES, "train=1", "argument train=1: train ");
    is_refused_at(FILES, "model.loss=mae", "argument model.loss=mae: model.loss: \"mae\" ");
}

static void the_resolved_text_reads_back_to_itself(void **state)
{
    char *overrides[] = {"train.seed=123456789012", "optimizer.lr=0.1234567890123",
                         "data.train_images=a \"quoted\" \\ name\twith tab"};
    struct cddpi_config config;
    struct cddpi_config again;
    char *first;
    char *second;

    (void)state;
    load(FILES "model = { type = \"layers\"; layers = ("
               " { type = \"conv2d\"; units = 32; kernel = 3; bias = false; },"
               " { type = \"batch_norm\"; epsilon = 1e-3; sync = true; } ); };\n",
         overrides, 3, &config);
    first = cddpi_config_text(&config, false);
    assert_non_null(first);
    load(first, NULL, 0, &again);
    second = cddpi_config_text(&again, false);
    assert_string_equal(first, second);
    assert_int_equal(again.train.seed, 123456789012);
    assert_float_equal(again.optimizer.lr, 0.1234567890123, 0);
    assert_string_equal(again.data.train_images, "a \"quoted\" \\ name\twith tab");
    assert_int_equal(again.model.layers.count, 2);
    assert_true(again.model.layers.values[1].sync);
    assert_true(again.model.layers.values[0].no_bias);
    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        const struct cddpi_key *key = &cddpi_config_keys[i];

        if (cddpi_key_without(key, &again) == NULL) {
            assert_non_null(strstr(first, strrchr(key->path, '.') + 1));
        }
    }
    free(first);
    free(second);
    cddpi_config_fini(&config);
    cddpi_config_fini(&again);
}

static void files_of_tokens_and_text_are_lists_of_names(void **state)
{
    char *one[] = {"data.train=x/*.bin", "data.test=[\"a\", \"b c\"]"};
    struct cddpi_config config;

    (void)state;
    load("data = { type = \"tokens\"; train = (\"1\", \"2\"); test = \"3\"; };\n", NULL, 0,
         &config);
    assert_int_equal(config.data.type, CDDPI_DATA_TOKENS);
    assert_int_equal(config.data.train.count, 2);
    assert_string_equal(config.data.train.values[1], "2");
    assert_int_equal(config.data.test.count, 1);
    assert_int_equal(config.model.context, 1024);
    cddpi_config_fini(&config);
    load("data = { type = \"text\"; train = \"t\"; test = \"\"; };\n", one, 2, &config);
    assert_int_equal(config.data.train.count, 1);
    assert_string_equal(config.data.train.values[0], "x/*.bin");
    assert_int_equal(config.data.test.count, 2);
    assert_string_equal(config.data.test.values[1], "b c");
    cddpi_config_fini(&config);
    load("data = { type = \"text\"; train = \"t\"; test = \"\"; };\n", NULL, 0, &config);
    assert_int_equal(config.data.test.count, 0);
    cddpi_config_fini(&config);
}

static void lists_of_names_read_back_to_themselves(void **state)
{
    struct cddpi_config config;
    struct cddpi_config again;
    char *first;
    char *second;

    (void)state;
    load("data = { type = \"text\"; train = [\"a b\", \"[c]\\\"*\"]; test_fraction = 0.25; };\n",
         NULL, 0, &config);
    first = cddpi_config_text(&config, false);
    load(first, NULL, 0, &again);
    second = cddpi_config_text(&again, false);
    assert_string_equal(first, second);
    assert_int_equal(again.data.train.count, 2);
    assert_string_equal(again.data.train.values[1], "[c]\"*");
    assert_float_equal(again.data.test_fraction, 0.25, 0);
    assert_null(strstr(first, "train_images")); /* it could not be read back */
    assert_null(strstr(first, "flip"));
    free(first);
    free(second);
    cddpi_config_fini(&config);
    cddpi_config_fini(&again);
}

static void keys_of_another_type_of_data_are_refused(void **state)
{
    (void)state;
    assert_string_equal(message("data = { type = \"tokens\"; train = \"a\"; };\n", NULL),
                        "small.conf: the key data.test is missing, which data.type = \"tokens\" "
                        "needs");
    is_refused_at("data = { type = \"text\"; };\n", NULL, "small.conf: the key data.train ");
    is_refused_at(FILES, "data.vocabulary=x", "argument data.vocabulary=x: data.vocabulary: ");
    is_refused_at("data = { type = \"tokens\";\n train = \"a\"; test = \"b\";\n mean = 0.5; };\n",
                  NULL, "small.conf:3: data.mean: ");
    is_refused_at("data = { type = \"text\"; train = 5; };\n", NULL, "small.conf:1: data.train ");
    is_refused_at("data = { type = \"text\"; train = (\"a\", 5); };\n", NULL,
                  "small.conf:1: data.train ");
}

static void keys_of_another_model_or_optimizer_are_refused(void **state)
{
    (void)state;
    assert_string_equal(
        message(FILES "optimizer = { type = \"adamw\";\n momentum = 0.9; };\n", NULL),
        "small.conf:3: optimizer.momentum: is used only with optimizer.type = \"sgd\"");
    assert_string_equal(message(FILES, "optimizer.beta1=0.5"),
                        "argument optimizer.beta1=0.5: optimizer.beta1: is used only with "
                        "optimizer.type = \"adamw\"");
    assert_string_equal(
        message(FILES "optimizer = { schedule = { final_lr = 0.1; }; };\n", NULL),
        "small.conf:2: optimizer.schedule.final_lr: is used only with optimizer.schedule.type = "
        "\"linear\", \"cosine\" or \"wsd\"");
    assert_string_equal(
        message(FILES "model = { type = \"resnet20\"; dropout = 0.1; };\n", NULL),
        "small.conf:2: model.dropout: is used only with model.type = \"mlp\", \"cnn\", \"gpt2\", "
        "\"alexnet\", \"vgg11\" or \"lstm_lm\"");
}

static void a_type_on_the_command_line_leaves_out_what_the_file_says_of_others(void **state)
{
    char *overrides[] = {"optimizer.type=adamw", "optimizer.beta1=0.8", "optimizer.momentum=0.7"};
    static const char *const text = FILES "optimizer = { momentum = 0.5; nesterov = true; };\n";
    struct cddpi_config config;
    char *resolved;

    (void)state;
    load(text, overrides, 2, &config);
    resolved = cddpi_config_text(&config, false);
    assert_non_null(strstr(resolved, "beta1 = 0.8"));
    assert_null(strstr(resolved, "momentum"));
    assert_null(strstr(resolved, "nesterov"));
    free(resolved);
    cddpi_config_fini(&config);
    overrides[0] = "data.type=synthetic";
    load(FILES, overrides, 1, &config);
    cddpi_config_fini(&config);
    overrides[0] = "optimizer.type=adamw";
    write_conf(text);
    assert_true(
        failure_is(cddpi_config_load(path, overrides, 3, &config), CDDP_ERR_CONFIG, -1, -1, ""));
    assert_true(last_error_has("optimizer.momentum=0.7: optimizer.momentum: "));
}

static void what_ranks_need_not_share_is_left_out_for_comparing(void **state)
{
    struct cddpi_config config;
    char *text;

    (void)state;
    load(FILES, NULL, 0, &config);
    text = cddpi_config_text(&config, true);
    assert_null(strstr(text, "run_dir"));
    assert_non_null(strstr(text, "batch_size"));
    free(text);
    cddpi_config_fini(&config);
}

static void the_manual_pages_table_has_each_key_once(void **state)
{
    char *table = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&table, &bytes);

    (void)state;
    cddpi_config_print_keys(file);
    fclose(file);
    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        char row[2 * CDDPI_KEY_BYTES] = "\n*";
        size_t used = strlen(row);
        const char *found;

        for (const char *c = cddpi_config_keys[i].path; *c != '\0'; c++) {
            used += (size_t)snprintf(row + used, sizeof row - used, *c == '_' ? "\\_" : "%c", *c);
        }
        snprintf(row + used, sizeof row - used, "* (");
        found = strstr(table, row);
        if (found == NULL || strstr(found + 1, row) != NULL) {
            fail_msg("the manual page has %s not once", cddpi_config_keys[i].path);
        }
    }
    free(table);
}

static void every_allocation_may_fail(void **state)
{
    struct cddpi_config config;
    cddp_status status = CDDP_ERR_NO_MEMORY;

    (void)state;
    write_conf(FILES "model = { type = \"layers\"; layers = ( { type = \"relu\"; } ); };\n");
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddpi_config_load(path, NULL, 0, &config);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        assert_true(nth < 1000);
    }
    cddpi_alloc_fail_nth(0);
    cddpi_config_fini(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_fill_what_the_file_leaves_out),
        cmocka_unit_test(values_of_every_type_are_read),
        cmocka_unit_test(an_unknown_key_names_file_line_and_the_nearest),
        cmocka_unit_test(a_wrong_type_names_file_line_and_what_is_expected),
        cmocka_unit_test(a_value_outside_its_range_names_the_range),
        cmocka_unit_test(other_systems_marks_and_line_ends_are_read_over),
        cmocka_unit_test(an_included_file_is_read_whole_or_named),
        cmocka_unit_test(an_included_file_has_to_be_a_regular_one),
        cmocka_unit_test(included_files_are_not_too_many),
        cmocka_unit_test(included_files_are_not_too_large),
        cmocka_unit_test(a_comment_or_string_without_an_end_is_an_error),
        cmocka_unit_test(a_hexadecimal_number_keeps_its_bits),
        cmocka_unit_test(a_broken_or_missing_file_is_named),
        cmocka_unit_test(keys_that_do_not_go_together_are_named),
        cmocka_unit_test(heads_that_do_not_divide_the_features_are_named_with_their_line),
        cmocka_unit_test(an_argument_overrides_the_file),
        cmocka_unit_test(the_end_of_a_long_failure_is_kept),
        cmocka_unit_test(an_error_in_an_argument_names_it),
        cmocka_unit_test(the_resolved_text_reads_back_to_itself),
        cmocka_unit_test(files_of_tokens_and_text_are_lists_of_names),
        cmocka_unit_test(lists_of_names_read_back_to_themselves),
        cmocka_unit_test(keys_of_another_type_of_data_are_refused),
        cmocka_unit_test(keys_of_another_model_or_optimizer_are_refused),
        cmocka_unit_test(a_type_on_the_command_line_leaves_out_what_the_file_says_of_others),
        cmocka_unit_test(what_ranks_need_not_share_is_left_out_for_comparing),
        cmocka_unit_test(the_manual_pages_table_has_each_key_once),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
