/* test_setup_data.c - from a configuration to batches of tokens: which files, how they must fit the
 * model, and the messages if they do not. */
#include "data/tokenizer/tokenizer.h"
#include "support/failure.h"
#include "support/tokens.h"
#include "train/batch_sizes.h"
#include "train/dry_run.h"
#include "train/engines/engine.h"
#include "train/model_spec.h"
#include "train/setup_data.h"
#include "train/setup_model.h"
#include "train/train_setup.h"

enum { TEXT_BYTES = 2000 };

static char *folder;
static char conf[4200];

/* Shards "train0", "train1" and "val" of GPT-2, "llama" of Llama 3, and a text. */
static int make_folder(void **state)
{
    char path[4200];
    char text[TEXT_BYTES];

    (void)state;
    folder = support_mkdtemp();
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"train0", "train1", "val", "llama"};

        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        support_write_shard(path, (uint32_t)i, 200 + 100 * (uint32_t)i, i < 3 ? 2 : 4);
    }
    for (int i = 0; i < TEXT_BYTES; i++) {
        text[i] = (char)('a' + i % 26);
    }
    snprintf(path, sizeof path, "%s/text", folder);
    support_write_file(path, text, sizeof text);
    snprintf(conf, sizeof conf, "%s/lm.conf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    support_rmdir(folder);
    return 0;
}

/* The configuration @p data and @p model, in which each % stands for the folder. */
static void load(const char *data, const char *model, struct cddpi_config *out)
{
    FILE *file = fopen(conf, "we");

    assert_non_null(file);
    fputs("train = { batch_size = 4; eval_batch_size = 3; };\ndata = { ", file);
    for (; *data != '\0'; data++) {
        if (*data == '%') {
            fputs(folder, file);
        } else {
            fputc(*data, file);
        }
    }
    fprintf(file, " };\nmodel = { %s };\n", model);
    assert_int_equal(fclose(file), 0);
    if (cddpi_config_load(conf, NULL, 0, out) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

static const char tokens[] = "type = \"tokens\"; train = \"%/train*\"; test = [\"%/val\"];";

/* Data open, with what the trainer makes of them. */
struct opened {
    struct cddpi_config config;
    struct cddpi_trainer trainer;
};

static struct opened *open_data(const char *data, const char *model)
{
    struct opened *opened = calloc(1, sizeof *opened);

    load(data, model, &opened->config);
    opened->trainer.config = &opened->config;
    opened->trainer.engine = &cddpi_engine_single;
    opened->trainer.world_size = 1;
    opened->trainer.replicas.count = 1;
    if (cddpi_trainer_validate(&opened->config, 1) != CDDP_OK ||
        cddpi_trainer_open_data(&opened->config, NULL, &opened->trainer.data.train.data,
                                &opened->trainer.data.test.data) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    return opened;
}

static void close_data(struct opened *opened)
{
    cddpi_prefetcher_destroy(opened->trainer.data.train.prefetcher);
    cddpi_prefetcher_destroy(opened->trainer.data.test.prefetcher);
    cddpi_data_loader_destroy(opened->trainer.data.train.loader);
    cddpi_data_loader_destroy(opened->trainer.data.test.loader);
    cddp_sampler_destroy(opened->trainer.data.train.sampler);
    cddp_sampler_destroy(opened->trainer.data.test.sampler);
    cddpi_dataset_close(&opened->trainer.data.train.data);
    cddpi_dataset_close(&opened->trainer.data.test.data);
    cddpi_config_fini(&opened->config);
    free(opened);
}

/* Whether a call failed with @p status, and its text begins with the line of the configuration that
 * names @p key. */
static bool blames(cddp_status got, cddp_status status, int line, const char *key)
{
    char begin[4300];

    snprintf(begin, sizeof begin, "%s:%d: %s: ", conf, line, key);
    if (strncmp(cddp_last_error(), begin, strlen(begin)) != 0) {
        fprintf(stderr, "\"%s\" should begin with \"%s\"\n", cddp_last_error(), begin);
        return false;
    }
    return failure_is(got, status, -1, -1, "");
}

enum { DATA_LINE = 2, MODEL_LINE };

static void is_refused(const char *data, const char *model, cddp_status status, int line,
                       const char *key)
{
    struct cddpi_config config;
    struct cddpi_dataset train = {0};
    struct cddpi_dataset test = {0};

    load(data, model, &config);
    assert_true(blames(cddpi_trainer_open_data(&config, NULL, &train, &test), status, line, key));
    cddpi_dataset_close(&train);
    cddpi_dataset_close(&test);
    cddpi_config_fini(&config);
}

static void tokens_come_from_all_files_of_a_pattern(void **state)
{
    struct opened *opened = open_data(tokens, "context = 10;");
    struct cddpi_cursor start = {0, 0, 0};

    (void)state;
    assert_int_equal(opened->trainer.data.train.data.token_count, 500);
    assert_int_equal(opened->trainer.data.train.data.count, 19 + 29);
    assert_int_equal(opened->trainer.data.test.data.count, 39);
    assert_int_equal(opened->trainer.data.train.data.classes, 50257);
    assert_int_equal(opened->trainer.data.test.data.classes, 50257);
    assert_int_equal(cddpi_trainer_steps_left(&opened->config, 48, &start), 12);
    close_data(opened);
}

static void loaders_give_what_the_configuration_asks_for(void **state)
{
    struct opened *opened = open_data(tokens, "context = 10;");
    struct cddpi_trainer *trainer = &opened->trainer;
    struct cddpi_micro_batch loaded;

    (void)state;
    assert_int_equal(cddpi_trainer_build_data(trainer), CDDP_OK);
    assert_int_equal(cddpi_data_loader_start(trainer->data.train.loader,
                                             trainer->data.train.sampler, 0, 0, 48, 4, 0, 1, true),
                     CDDP_OK);
    assert_int_equal(cddpi_data_loader_next(trainer->data.train.loader, &loaded), CDDP_OK);
    assert_int_equal(loaded.count, 4);
    for (int i = 0; i < 4; i++) {
        uint64_t id = cddp_sampler_at(trainer->data.train.sampler, (uint64_t)i);
        uint32_t seed = id < 19 ? 0 : 1;
        uint64_t at = (id < 19 ? id : id - 19) * 10;

        assert_int_equal(loaded.sample_ids[i], id);
        assert_int_equal(loaded.tokens[i * 10], support_token(seed, at));
        assert_int_equal(loaded.label[i * 10 + 9], support_token(seed, at + 10));
    }
    assert_int_equal(cddpi_data_loader_start(trainer->data.test.loader, trainer->data.test.sampler,
                                             0, 0, 39, 3, 0, 1, false),
                     CDDP_OK);
    assert_int_equal(cddpi_data_loader_next(trainer->data.test.loader, &loaded), CDDP_OK);
    assert_int_equal(loaded.count, 3);
    assert_int_equal(loaded.tokens[25], support_token(2, 25));
    close_data(opened);
}

/* Or the default of eval_batch_size, which is for images, would take more memory than there is. */
static void windows_are_evaluated_in_pieces_as_large_as_those_trained_on(void **state)
{
    struct opened *opened = open_data(tokens, "context = 10;");
    struct cddpi_trainer *trainer = &opened->trainer;
    struct cddpi_micro_batch loaded;

    (void)state;
    opened->config.train.eval_batch_size = 1000;
    opened->config.train.accumulate = 2;
    assert_int_equal(cddpi_trainer_build_data(trainer), CDDP_OK);
    assert_int_equal(cddpi_data_loader_start(trainer->data.test.loader, trainer->data.test.sampler,
                                             0, 0, 39, 1000, 0, 1, false),
                     CDDP_OK);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(cddpi_data_loader_next(trainer->data.test.loader, &loaded), CDDP_OK);
        assert_int_equal(loaded.count, i < 19 ? 2 : 1);
        assert_int_equal(loaded.sample_ids[0], 2 * i);
    }
    close_data(opened);
}

static void a_smaller_vocabulary_of_the_model_finds_tokens_outside(void **state)
{
    struct opened *opened = open_data(tokens, "context = 10; vocab = 100;");
    struct cddpi_trainer *trainer = &opened->trainer;
    struct cddpi_micro_batch loaded;

    (void)state;
    assert_int_equal(trainer->data.train.data.classes, 100);
    assert_int_equal(cddpi_trainer_build_data(trainer), CDDP_OK);
    assert_int_equal(cddpi_data_loader_start(trainer->data.train.loader,
                                             trainer->data.train.sampler, 0, 0, 48, 4, 0, 1, true),
                     CDDP_OK);
    assert_true(failure_is(cddpi_data_loader_next(trainer->data.train.loader, &loaded),
                           CDDP_ERR_FORMAT, -1, -1, ""));
    close_data(opened);
    opened = open_data(tokens, "context = 10; vocab = 50304;");
    assert_int_equal(opened->trainer.data.train.data.classes, 50304);
    close_data(opened);
}

/* What the tests' small vocabulary has. */
static int small_vocabulary(void)
{
    struct cddpi_tokenizer *tokenizer = NULL;
    char path[4300];
    int count;

    snprintf(path, sizeof path, "%s/tests/vectors/tokenizer_small.json",
             getenv("CDDP_TEST_SOURCE"));
    assert_int_equal(cddpi_tokenizer_open(path, &tokenizer), CDDP_OK);
    count = cddpi_tokenizer_vocabulary(tokenizer);
    cddpi_tokenizer_close(tokenizer);
    return count;
}

static void a_vocabulary_file_says_how_many_tokens_there_are(void **state)
{
    int count = small_vocabulary();
    char data[5000], model[100];
    struct opened *opened;

    (void)state;
    snprintf(data, sizeof data, "%s vocabulary = \"%s/tests/vectors/tokenizer_small.json\";",
             tokens, getenv("CDDP_TEST_SOURCE"));
    opened = open_data(data, "context = 10;");
    assert_int_equal(opened->trainer.data.train.data.classes, count);
    assert_int_equal(opened->trainer.data.test.data.classes, count);
    close_data(opened);
    snprintf(model, sizeof model, "context = 10; vocab = %d;", count + 7);
    opened = open_data(data, model);
    assert_int_equal(opened->trainer.data.train.data.classes, count + 7);
    close_data(opened);
    snprintf(model, sizeof model, "context = 10; vocab = %d;", count - 1);
    is_refused(data, model, CDDP_ERR_CONFIG, MODEL_LINE, "model.vocab");
}

static void the_model_takes_the_windows_of_the_data(void **state)
{
    struct opened *opened = open_data(tokens, "context = 10; vocab = 50304;");
    struct cddpi_model_spec spec = cddpi_trainer_model_spec(&opened->config,
                                                            &opened->trainer.data.train.data);

    (void)state;
    assert_int_equal(spec.context, 10);
    assert_int_equal(spec.vocab, 50304);
    assert_int_equal(spec.classes, 50304);
    close_data(opened);
}

static void text_is_tokens_with_its_end_held_back(void **state)
{
    struct opened *opened = open_data("type = \"text\"; train = \"%/text\"; test_fraction = 0.25;",
                                      "context = 10;");

    (void)state;
    assert_int_equal(opened->trainer.data.train.data.token_count, 1500);
    assert_int_equal(opened->trainer.data.test.data.token_count, 500);
    assert_int_equal(opened->trainer.data.train.data.classes, 257);
    close_data(opened);
    opened = open_data("type = \"text\"; train = \"%/text\";", "context = 10; vocab = 320;");
    assert_int_equal(opened->trainer.data.train.data.token_count,
                     1800); /* a tenth, if nothing is said */
    assert_int_equal(opened->trainer.data.train.data.classes, 320);
    assert_int_equal(opened->trainer.data.test.data.classes, 320);
    close_data(opened);
}

static void text_may_have_files_of_its_own_for_tests(void **state)
{
    struct opened *opened = open_data("type = \"text\"; train = \"%/text\"; test = \"%/lm.conf\";",
                                      "context = 10;");

    (void)state;
    assert_int_equal(opened->trainer.data.train.data.token_count, TEXT_BYTES);
    assert_true(opened->trainer.data.test.data.token_count > 100);
    close_data(opened);
}

static void what_does_not_fit_names_its_key(void **state)
{
    (void)state;
    is_refused("type = \"tokens\"; train = \"%/train*\"; test = \"%/val?\";", "context = 10;",
               CDDP_ERR_NOT_FOUND, DATA_LINE, "data.test");
    is_refused("type = \"tokens\"; train = \"%/text\"; test = \"%/val\";", "context = 10;",
               CDDP_ERR_FORMAT, DATA_LINE, "data.train");
    is_refused("type = \"tokens\"; train = \"%/train*\"; test = \"%/llama\";", "context = 10;",
               CDDP_ERR_CONFIG, DATA_LINE, "data.test");
    assert_true(last_error_has("/llama has tokens of 4 bytes, but those to train on have 2"));
    is_refused(tokens, "context = 200;", CDDP_ERR_FORMAT, DATA_LINE, "data.train");
    is_refused("type = \"tokens\"; train = \"%/val\"; test = [];", "context = 10;",
               CDDP_ERR_ARGUMENT, DATA_LINE, "data.test");
    is_refused("type = \"text\"; train = \"%/text\";", "context = 10; vocab = 100;",
               CDDP_ERR_CONFIG, MODEL_LINE, "model.vocab");
    assert_true(last_error_has("100, but the vocabulary of the text has 257 tokens"));
    is_refused("type = \"text\"; train = \"%/text\"; test = \"%/absent\";", "context = 10;",
               CDDP_ERR_NOT_FOUND, DATA_LINE, "data.test");
    is_refused("type = \"text\"; train = \"%/text\";", "context = 200;", CDDP_ERR_FORMAT, DATA_LINE,
               "data.train");
    is_refused("type = \"text\"; train = \"%/text\"; vocabulary = \"%/absent\";", "context = 10;",
               CDDP_ERR_NOT_FOUND, DATA_LINE, "data.vocabulary");
    assert_true(failure_errno_is(ENOENT)); /* the key does not hide the cause */
}

static void files_are_missed_before_ranks_are_started(void **state)
{
    static const struct {
        const char *data, *key;
        cddp_status status;
        int error_number;
    } cases[] = {
        {"type = \"tokens\"; train = \"%/t??\"; test = \"%/val\";", "data.train",
         CDDP_ERR_NOT_FOUND, 0},
        {"type = \"tokens\"; train = \"%/train*\"; test = (\"%/val\", \"%/v*\");", "data.test",
         CDDP_ERR_ARGUMENT, 0},
        {"type = \"text\"; train = \"%/text\"; test = \"%/absent\";", "data.test",
         CDDP_ERR_NOT_FOUND, 0},
        {"type = \"text\"; train = \"%/text\"; vocabulary = \"%/absent\";", "data.vocabulary",
         CDDP_ERR_CONFIG, ENOENT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cddpi_config config;

        load(cases[i].data, "", &config);
        assert_true(
            blames(cddpi_trainer_validate(&config, 1), cases[i].status, DATA_LINE, cases[i].key));
        assert_true(failure_errno_is(cases[i].error_number));
        cddpi_config_fini(&config);
    }
}

static void the_dry_run_says_what_the_files_hold(void **state)
{
    struct opened *opened = open_data(tokens, "context = 10;");
    char expected[9000];
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    (void)state;
    cddpi_trainer_print_data(&opened->trainer.data.train.data, &opened->trainer.data.test.data,
                             file);
    fclose(file);
    snprintf(
        expected, sizeof expected,
        "data to train on: 500 tokens in 48 sequences of 10, 18 left over; vocabulary 50257\n"
        "  %s/train0: 200 tokens, 19 sequences\n"
        "  %s/train1: 300 tokens, 29 sequences\n"
        "data to evaluate on: 400 tokens in 39 sequences of 10, 9 left over; vocabulary 50257\n"
        "  %s/val: 400 tokens, 39 sequences\n",
        folder, folder, folder);
    assert_string_equal(text, expected);
    free(text);
    close_data(opened);
}

static void the_dry_run_says_what_recomputing_takes(void **state)
{
    struct cddpi_config config;
    double kept, again;
    char unit[2][4];
    int work;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    const char *line;

    (void)state;
    load("type = \"text\"; train = \"%/text\";",
         "type = \"gpt2\"; blocks = 4; heads = 2; embed = 16; context = 10;", &config);
    if (cddpi_trainer_dry_run(&config, file) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    fclose(file);
    line = strstr(text, "  model.recompute = false: ");
    assert_non_null(line);
    assert_int_equal(
        sscanf(line,
               "  model.recompute = false: %lf %3s\n  model.recompute = true: %lf %3s, "
               "with %d %% of a forward more work",
               &kept, unit[0], &again, unit[1], &work),
        5);
    assert_string_equal(unit[0], "KiB"); /* of this small model, in units that people read */
    assert_string_equal(unit[1], "KiB");
    assert_true(again < kept);
    assert_in_range(work, 20, 70);
    assert_non_null(strstr(text, "gpt2: "));
    free(text);
    cddpi_config_fini(&config);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        CASE(tokens_come_from_all_files_of_a_pattern),
        CASE(loaders_give_what_the_configuration_asks_for),
        CASE(windows_are_evaluated_in_pieces_as_large_as_those_trained_on),
        CASE(a_smaller_vocabulary_of_the_model_finds_tokens_outside),
        CASE(a_vocabulary_file_says_how_many_tokens_there_are),
        CASE(the_model_takes_the_windows_of_the_data),
        CASE(text_is_tokens_with_its_end_held_back),
        CASE(text_may_have_files_of_its_own_for_tests),
        CASE(what_does_not_fit_names_its_key),
        CASE(files_are_missed_before_ranks_are_started),
        CASE(the_dry_run_says_what_the_files_hold),
        CASE(the_dry_run_says_what_recomputing_takes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
