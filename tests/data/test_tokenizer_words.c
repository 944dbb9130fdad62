/* test_tokenizer_words.c - vocabularies of words: which words are learnt, what texts become, in
 * pieces of any length, and files that are read again or refused. */
#include "base/alloc.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_train.h"
#include "support/failure.h"
#include "support/test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* "the" three times, "and" and "end" twice, others once; a no-break space is white space, too. */
static const char text[] = "the cat and the dog\n\n  end\tand the\xc2\xa0"
                           "end \xc3\xa9t\xc3\xa9 \xff\xfe <unk>\r\nlast";

static struct cddpi_tokenizer *learn(const char *from, size_t bytes, size_t step, int vocabulary)
{
    struct cddpi_word_counts *counts;
    struct cddpi_tokenizer *tokenizer;
    size_t start = 0;
    size_t end = 0;

    assert_int_equal(cddpi_word_counts_create(&counts), CDDP_OK);
    cddpi_word_counts_by_space(counts);
    do {
        size_t used;

        end = bytes - end < step ? bytes : end + step;
        assert_int_equal(
            cddpi_word_counts_put(counts, from + start, end - start, end == bytes, &used), CDDP_OK);
        start += used;
    } while (end < bytes);
    assert_int_equal(cddpi_tokenizer_train_words(counts, vocabulary, &tokenizer), CDDP_OK);
    cddpi_word_counts_destroy(counts);
    return tokenizer;
}

/* The texts of all tokens behind each other, with a bar behind each; free(). */
static char *shown(const struct cddpi_tokenizer *tokenizer, const int32_t *tokens, size_t count)
{
    char *out = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&out, &size);

    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *token = cddpi_tokenizer_token(tokenizer, tokens != NULL ? tokens[i] : (int)i,
                                                  &bytes);

        assert_non_null(token);
        fprintf(file, "%.*s|", (int)bytes, token);
    }
    fclose(file);
    return out;
}

static void assert_shown(const struct cddpi_tokenizer *tokenizer, const int32_t *tokens,
                         size_t count, const char *expected)
{
    char *is = shown(tokenizer, tokens, count);

    assert_string_equal(is, expected);
    free(is);
}

static void the_most_frequent_words_are_taken_of_equals_those_that_sort_first(void **state)
{
    static const struct {
        int vocabulary;
        const char *words;
    } cases[] = {
        {3, " <unk>|\n| <|endoftext|>|"},
        {6, " <unk>|\n| the| and| end| <|endoftext|>|"},
        {8, " <unk>|\n| the| and| end| cat| dog| <|endoftext|>|"},
        {100, " <unk>|\n| the| and| end| cat| dog| last| \xc3\xa9t\xc3\xa9| <|endoftext|>|"},
    };

    (void)state;
    for (size_t step = 1; step <= sizeof text; step++) { /* however the text comes */
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            struct cddpi_tokenizer *tokenizer = learn(text, sizeof text - 1, step,
                                                      cases[i].vocabulary);

            assert_shown(tokenizer, NULL, (size_t)cddpi_tokenizer_vocabulary(tokenizer),
                         cases[i].words);
            assert_false(cddpi_tokenizer_keeps_text(tokenizer));
            cddpi_tokenizer_close(tokenizer);
        }
    }
}

static void a_text_becomes_its_words_and_ends_of_lines_in_pieces_of_any_length(void **state)
{
    static const char expected[] = " the| cat| and| the| dog|\n|\n| end| and| the| end| "
                                   "\xc3\xa9t\xc3\xa9| <unk>| <unk>|\n| last|";
    struct cddpi_tokenizer *tokenizer = learn(text, sizeof text - 1, sizeof text, 100);

    (void)state;
    for (size_t step = 1; step <= sizeof text; step++) {
        struct cddpi_encoder *encoder;
        const int32_t *tokens;
        size_t count;
        size_t start = 0;
        size_t end = 0;

        assert_int_equal(cddpi_encoder_create(tokenizer, &encoder), CDDP_OK);
        do {
            size_t used;

            end = sizeof text - 1 - end < step ? sizeof text - 1 : end + step;
            assert_int_equal(cddpi_encoder_put(encoder, text + start, end - start,
                                               end == sizeof text - 1, &used),
                             CDDP_OK);
            start += used;
        } while (end < sizeof text - 1);
        tokens = cddpi_encoder_tokens(encoder, &count);
        assert_shown(tokenizer, tokens, count, expected);
        cddpi_encoder_destroy(encoder);
    }
    cddpi_tokenizer_close(tokenizer);
}

static void no_text_becomes_the_end_of_a_text(void **state)
{
    static const char tricky[] = "<|endoftext|> the <eos>\n<unk>";
    struct cddpi_tokenizer *tokenizer = learn(text, sizeof text - 1, sizeof text, 100);
    int32_t *tokens;
    size_t count;

    (void)state;
    assert_int_equal(cddpi_tokenizer_end(tokenizer), cddpi_tokenizer_vocabulary(tokenizer) - 1);
    assert_int_equal(cddpi_tokenizer_encode(tokenizer, tricky, sizeof tricky - 1, &tokens, &count),
                     CDDP_OK);
    assert_shown(tokenizer, tokens, count, " <unk>| the|\n|\n| <unk>|");
    cddpi_free(tokens);
    cddpi_tokenizer_close(tokenizer);
}

static void a_saved_vocabulary_is_read_again(void **state)
{
    char *dir = support_mkdtemp();
    char path[4200];
    struct cddpi_tokenizer *made = learn(text, sizeof text - 1, sizeof text, 100);
    struct cddpi_tokenizer *opened;
    char *expected = shown(made, NULL, (size_t)cddpi_tokenizer_vocabulary(made));
    int32_t *tokens[2];
    size_t counts[2];

    (void)state;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(cddpi_tokenizer_save(made, path), CDDP_OK);
    assert_int_equal(cddpi_tokenizer_open(dir, &opened), CDDP_OK);
    assert_shown(opened, NULL, (size_t)cddpi_tokenizer_vocabulary(opened), expected);
    assert_int_equal(cddpi_tokenizer_end(opened), cddpi_tokenizer_end(made));
    assert_int_equal(cddpi_tokenizer_encode(made, text, sizeof text - 1, &tokens[0], &counts[0]),
                     CDDP_OK);
    assert_int_equal(cddpi_tokenizer_encode(opened, text, sizeof text - 1, &tokens[1], &counts[1]),
                     CDDP_OK);
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(tokens[0], tokens[1], counts[0] * sizeof *tokens[0]);
    cddpi_free(tokens[0]);
    cddpi_free(tokens[1]);
    cddpi_tokenizer_close(made);
    cddpi_tokenizer_close(opened);
    free(expected);
    support_rmdir(dir);
}

#define HEAD                                                                                       \
    "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"\\n\"}, "                \
    "\"content\": \" <eos> \"}, \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, "
#define MODEL(words)                                                                               \
    "\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"<unk>\", \"vocab\": {" words "}}}"
#define SPECIAL "\"<unk>\": 0, \"<eos>\": 1, \"<|endoftext|>\": 2"

static void files_that_mean_something_else_are_refused(void **state)
{
    static const struct {
        const char *file, *text; /* NULL: it can be read */
    } cases[] = {
        {HEAD MODEL(SPECIAL ", \"word\": 3"), NULL},
        {HEAD "\"added_tokens\": [{\"id\": 2, \"content\": \"<|endoftext|>\"}], " MODEL(SPECIAL),
         NULL},
        {HEAD "\"added_tokens\": [{\"id\": 3, \"content\": \"[CLS]\"}], " MODEL(SPECIAL),
         "added_tokens[0] is not <|endoftext|>, the only one that can be used"},
        {HEAD MODEL(SPECIAL ", \"word\": 4"), "token \"word\": its id is not a whole number from 0 "
                                              "to 3 that no other has"},
        {HEAD MODEL(SPECIAL ", \"word\": 1"), "that no other has"},
        {HEAD MODEL(SPECIAL ", \"word\": -1"), "that no other has"},
        {HEAD MODEL(SPECIAL ", \"word\": \"3\""), "that no other has"},
        {HEAD MODEL(SPECIAL ", \"\": 3"),
         "the token with id 3 has 0 bytes; 1 to 8192 are possible"},
        {HEAD MODEL("\"<unk>\": 0, \"<|endoftext|>\": 1"), "model.vocab has no <eos>"},
        {HEAD MODEL("\"<unk>\": 0, \"<eos>\": 1"), "model.vocab has no <|endoftext|>"},
        {HEAD MODEL(""), "model.vocab has no <unk>"},
        {HEAD "\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"<unk>\", \"vocab\": []}}",
         "model.vocab is not an object"},
        {HEAD "\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"x\", \"vocab\": {\"x\": 0}}}",
         "model.unk_token is not <unk>"},
        {"{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, " MODEL(SPECIAL),
         "its model is WordLevel, but its pre_tokenizer is not the one with which words lie "
         "between "
         "white space"},
        {"{\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, " MODEL(SPECIAL),
         "its normalizer is not the one with which each line's end becomes <eos>"},
        {"{\"model\": {\"type\": \"Unigram\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
         "\"add_prefix_space\": false}}",
         "model.type is Unigram: only BPE and WordLevel can be used"},
    };
    char *dir = support_mkdtemp();
    char path[4200];

    (void)state;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct cddpi_tokenizer *tokenizer = NULL;

        support_write_file(path, cases[i].file, strlen(cases[i].file));
        if (cases[i].text == NULL) {
            if (cddpi_tokenizer_open(path, &tokenizer) != CDDP_OK) {
                fail_msg("case %zu: %s", i, cddp_last_error());
            }
            cddpi_tokenizer_close(tokenizer);
            continue;
        }
        assert_true(
            failure_is(cddpi_tokenizer_open(path, &tokenizer), CDDP_ERR_FORMAT, -1, -1, ""));
        if (!last_error_has(cases[i].text) || strncmp(cddp_last_error(), path, strlen(path)) != 0) {
            fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), cases[i].text);
        }
    }
    support_rmdir(dir);
}

static void words_that_no_file_can_hold_are_unknown(void **state)
{
    static const char odd[] = "a\0b a\0b a\0b \xff\xff \xff\xff plain";
    char *long_word = malloc(2 * 300 + 2);
    struct cddpi_tokenizer *tokenizer = learn(odd, sizeof odd - 1, sizeof odd, 100);

    (void)state;
    assert_shown(tokenizer, NULL, (size_t)cddpi_tokenizer_vocabulary(tokenizer),
                 " <unk>|\n| plain| <|endoftext|>|");
    cddpi_tokenizer_close(tokenizer);
    memset(long_word, 'x', 601);
    long_word[300] = ' ';
    tokenizer = learn(long_word, 601, 601, 100);
    assert_int_equal(cddpi_tokenizer_vocabulary(tokenizer), 3);
    cddpi_tokenizer_close(tokenizer);
    free(long_word);
}

static void learning_and_reading_survive_want_of_memory(void **state)
{
    char *dir = support_mkdtemp();
    char path[4200];
    struct cddpi_tokenizer *tokenizer = learn(text, sizeof text - 1, sizeof text, 100);
    struct cddpi_word_counts *counts;
    size_t used;
    unsigned failed = 0;
    cddp_status status = CDDP_ERR_NO_MEMORY;

    (void)state;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(cddpi_tokenizer_save(tokenizer, path), CDDP_OK);
    cddpi_tokenizer_close(tokenizer);
    assert_int_equal(cddpi_word_counts_create(&counts), CDDP_OK);
    cddpi_word_counts_by_space(counts);
    assert_int_equal(cddpi_word_counts_put(counts, text, sizeof text - 1, true, &used), CDDP_OK);
    for (unsigned n = 1; status == CDDP_ERR_NO_MEMORY; n++) {
        cddpi_alloc_fail_nth(n);
        status = cddpi_tokenizer_train_words(counts, 100, &tokenizer);
        cddpi_alloc_fail_nth(0);
        failed += status != CDDP_OK;
    }
    assert_int_equal(status, CDDP_OK);
    assert_true(failed >= 5);
    cddpi_tokenizer_close(tokenizer);
    cddpi_word_counts_destroy(counts);
    status = CDDP_ERR_NO_MEMORY;
    for (unsigned n = 1; status == CDDP_ERR_NO_MEMORY; n++) {
        cddpi_alloc_fail_nth(n);
        status = cddpi_tokenizer_open(path, &tokenizer);
        cddpi_alloc_fail_nth(0);
        failed += status != CDDP_OK;
    }
    assert_int_equal(status, CDDP_OK);
    assert_true(failed >= 9);
    cddpi_tokenizer_close(tokenizer);
    support_rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_frequent_words_are_taken_of_equals_those_that_sort_first),
        cmocka_unit_test(a_text_becomes_its_words_and_ends_of_lines_in_pieces_of_any_length),
        cmocka_unit_test(no_text_becomes_the_end_of_a_text),
        cmocka_unit_test(a_saved_vocabulary_is_read_again),
        cmocka_unit_test(files_that_mean_something_else_are_refused),
        cmocka_unit_test(words_that_no_file_can_hold_are_unknown),
        cmocka_unit_test(learning_and_reading_survive_want_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
