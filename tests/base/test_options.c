/* test_options.c - behaviour that the command lines of all programs share. */
#include "base/options.h"
#include "support/test.h"

enum { NPROC, COLOUR, QUIET, LOUD, ROWS, WORDS_MAX = 12 };

static const struct cddpi_option rows[ROWS] = {
    {"nproc", 'n', "N", "how many ranks of the job to start"},
    {"colour", 0, "red|green|blue", "the colour"},
    {"quiet", 'q', NULL, "say nothing"},
    {"loud", 0, NULL, "say all"},
};
static const struct cddpi_options table = {"program", rows, ROWS};

/* A command line: its words, and what was read of it. */
struct line {
    char *argv[WORDS_MAX];
    const char *values[ROWS];
    int count;
};

static cddp_status read_line(struct line *line, const char *const *words)
{
    static char texts[WORDS_MAX][64];
    int argc = 1;

    memset(line, 0, sizeof *line);
    line->count = -1;
    line->argv[0] = texts[0];
    for (; words[argc - 1] != NULL; argc++) {
        assert_true(argc + 1 < WORDS_MAX);
        snprintf(texts[argc], sizeof texts[0], "%s", words[argc - 1]);
        line->argv[argc] = texts[argc];
    }
    return cddpi_options_read(&table, argc, line->argv, line->values, &line->count);
}

#define READ(line, ...) read_line(line, (const char *const[]){__VA_ARGS__, NULL})

static void options_and_words_may_stand_in_any_order(void **state)
{
    struct line line;

    (void)state;
    assert_int_equal(READ(&line, "a", "--nproc", "4", "b=1", "-q", "-", "--", "--loud", "-x"),
                     CDDP_OK);
    assert_int_equal(line.count, 5);
    assert_string_equal(line.argv[1], "a");
    assert_string_equal(line.argv[2], "b=1");
    assert_string_equal(line.argv[3], "-");
    assert_string_equal(line.argv[4], "--loud");
    assert_string_equal(line.argv[5], "-x");
    assert_string_equal(line.values[NPROC], "4");
    assert_string_equal(line.values[QUIET], "");
    assert_null(line.values[COLOUR]);
    assert_null(line.values[LOUD]);
}

static void a_value_may_be_written_in_four_ways_and_the_last_counts(void **state)
{
    static const char *const ways[][3] = {
        {"--nproc", "-7"}, {"--nproc=-7"}, {"-n", "-7"}, {"-n-7"}, {"-n5", "-n-7"}};
    struct line line;

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        assert_int_equal(read_line(&line, ways[i]), CDDP_OK);
        assert_string_equal(line.values[NPROC], "-7");
        assert_int_equal(line.count, 0);
    }
    assert_int_equal(READ(&line, "--colour="), CDDP_OK);
    assert_string_equal(line.values[COLOUR], "");
}

static void what_is_wrong_names_the_option_and_what_is_near(void **state)
{
    static const struct {
        const char *words[3];
        const char *text;
    } cases[] = {
        {{"--nprok", "2"}, "unknown option --nprok: did you mean --nproc?"},
        {{"--nproc-per-node=2"}, "unknown option --nproc-per-node=2: did you mean --nproc?"},
        {{"--frobnicate"}, "unknown option --frobnicate: see program --help"},
        {{"-x"}, "unknown option -x: see program --help"},
        {{"-qx"}, "unknown option -qx: see program --help"},
        {{"--quiet=yes"}, "--quiet takes no value"},
        {{"--nproc"}, "--nproc needs a value: N"},
        {{"-n", "--"}, "--nproc needs a value: N"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct line line;

        assert_int_equal(read_line(&line, cases[i].words), CDDP_ERR_ARGUMENT);
        assert_string_equal(cddp_last_error(), cases[i].text);
        assert_int_equal(line.count, -1);
    }
}

static void a_whole_number_has_a_range(void **state)
{
    struct line line;
    int64_t number = 5;

    (void)state;
    assert_int_equal(READ(&line, "-q"), CDDP_OK);
    assert_int_equal(cddpi_option_whole(&table, line.values, NPROC, 1, 8, &number), CDDP_OK);
    assert_int_equal(number, 5);
    assert_int_equal(READ(&line, "--nproc=8"), CDDP_OK);
    assert_int_equal(cddpi_option_whole(&table, line.values, NPROC, 1, 8, &number), CDDP_OK);
    assert_int_equal(number, 8);
    assert_int_equal(cddpi_option_whole(&table, line.values, NPROC, 1, 7, &number),
                     CDDP_ERR_ARGUMENT);
    assert_string_equal(cddp_last_error(), "--nproc 8: not a whole number from 1 to 7");
    assert_int_equal(number, 8);
}

static void a_word_is_one_of_those_that_are_known(void **state)
{
    static const char *const words[] = {"red", "green", "blue"};
    struct line line;
    int word = 1;

    (void)state;
    assert_int_equal(READ(&line, "-q"), CDDP_OK);
    assert_int_equal(cddpi_option_word(&table, line.values, COLOUR, words, 3, &word), CDDP_OK);
    assert_int_equal(word, 1);
    assert_int_equal(READ(&line, "--colour", "blue"), CDDP_OK);
    assert_int_equal(cddpi_option_word(&table, line.values, COLOUR, words, 3, &word), CDDP_OK);
    assert_int_equal(word, 2);
    assert_int_equal(READ(&line, "--colour", "pink"), CDDP_OK);
    assert_int_equal(cddpi_option_word(&table, line.values, COLOUR, words, 3, &word),
                     CDDP_ERR_ARGUMENT);
    assert_string_equal(cddp_last_error(), "--colour pink: it is red, green or blue");
    assert_int_equal(word, 2);
}

static void options_that_exclude_each_other_are_named(void **state)
{
    static const int ids[] = {QUIET, LOUD};
    struct line line;
    int choice = 7;

    (void)state;
    assert_int_equal(READ(&line, "a"), CDDP_OK);
    assert_int_equal(cddpi_option_choice(&table, line.values, ids, 2, &choice), CDDP_OK);
    assert_int_equal(choice, -1);
    assert_int_equal(READ(&line, "--loud"), CDDP_OK);
    assert_int_equal(cddpi_option_choice(&table, line.values, ids, 2, &choice), CDDP_OK);
    assert_int_equal(choice, LOUD);
    assert_int_equal(READ(&line, "--loud", "-q"), CDDP_OK);
    assert_int_equal(cddpi_option_choice(&table, line.values, ids, 2, &choice), CDDP_ERR_ARGUMENT);
    assert_string_equal(cddp_last_error(), "--quiet and --loud exclude each other");
    assert_int_equal(choice, LOUD);
}

static void the_table_prints_itself(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(to);
    cddpi_options_print(&table, 17, to);
    fclose(to);
    assert_string_equal(text, "  -n, --nproc N  how many ranks of the job to start\n"
                              "  --colour red|green|blue\n"
                              "                 the colour\n"
                              "  -q, --quiet    say nothing\n"
                              "  --loud         say all\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_words_may_stand_in_any_order),
        cmocka_unit_test(a_value_may_be_written_in_four_ways_and_the_last_counts),
        cmocka_unit_test(what_is_wrong_names_the_option_and_what_is_near),
        cmocka_unit_test(a_whole_number_has_a_range),
        cmocka_unit_test(a_word_is_one_of_those_that_are_known),
        cmocka_unit_test(options_that_exclude_each_other_are_named),
        cmocka_unit_test(the_table_prints_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
