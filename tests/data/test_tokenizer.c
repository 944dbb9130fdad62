/* test_tokenizer.c - tokens of texts equal those of other programs, round trips are exact, and
 * wrong vocabulary files get a message. */
#include "base/alloc.h"
#include "data/tokenizer/tokenizer.h"
#include "support/test.h"

enum { TEXT_BYTES = 4096 };

static const char *data_path(const char *name)
{
    static char path[4200];
    const char *source = getenv("CDDP_TEST_SOURCE");

    snprintf(path, sizeof path, "%s/tests/vectors/%s", source != NULL ? source : ".", name);
    return path;
}

static struct cddpi_tokenizer *open_small(void)
{
    struct cddpi_tokenizer *tokenizer;

    assert_int_equal(cddpi_tokenizer_open(data_path("tokenizer_small.json"), &tokenizer), CDDP_OK);
    return tokenizer;
}

/* The tokens' texts, one after the other, are @p text. */
static void tokens_are_text(const struct cddpi_tokenizer *tokenizer, const int32_t *tokens,
                            size_t count, const char *text, size_t bytes)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        size_t length;
        const char *part = cddpi_tokenizer_token(tokenizer, tokens[i], &length);

        assert_non_null(part);
        assert_true(length > 0 && length <= bytes - at);
        assert_int_equal(memcmp(part, text + at, length), 0);
        at += length;
    }
    assert_int_equal(at, bytes);
}

/* Encode, look that the round trip is exact, and give the number of tokens. */
static size_t round_trip(const struct cddpi_tokenizer *tokenizer, const char *text, size_t bytes)
{
    int32_t *tokens;
    size_t count;

    assert_int_equal(cddpi_tokenizer_encode(tokenizer, text, bytes, &tokens, &count), CDDP_OK);
    tokens_are_text(tokenizer, tokens, count, text, bytes);
    for (size_t i = 0; i < count; i++) {
        assert_int_not_equal(tokens[i], cddpi_tokenizer_end(tokenizer));
    }
    cddpi_free(tokens);
    return count;
}

static void without_a_file_each_byte_is_a_token(void **state)
{
    struct cddpi_tokenizer *tokenizer;
    char text[256];
    int32_t *tokens;
    size_t count;

    (void)state;
    for (int i = 0; i < 256; i++) {
        text[i] = (char)(255 - i);
    }
    assert_int_equal(cddpi_tokenizer_open("", &tokenizer), CDDP_OK);
    assert_int_equal(cddpi_tokenizer_vocabulary(tokenizer), 257);
    assert_int_equal(cddpi_tokenizer_end(tokenizer), 256);
    assert_int_equal(cddpi_tokenizer_encode(tokenizer, text, 256, &tokens, &count), CDDP_OK);
    assert_int_equal(count, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(tokens[i], 255 - i);
    }
    cddpi_free(tokens);
    assert_int_equal(round_trip(tokenizer, text, 256), 256);
    assert_int_equal(round_trip(tokenizer, "", 0), 0);
    cddpi_tokenizer_close(tokenizer);
    cddpi_tokenizer_close(NULL);
}

static void tokens_outside_the_vocabulary_have_no_text(void **state)
{
    struct cddpi_tokenizer *tokenizer = open_small();
    size_t bytes = 77;
    const char *end = cddpi_tokenizer_token(tokenizer, cddpi_tokenizer_end(tokenizer), &bytes);

    (void)state;
    assert_int_equal(bytes, 13);
    assert_memory_equal(end, "<|endoftext|>", 13);
    assert_null(cddpi_tokenizer_token(tokenizer, -1, &bytes));
    assert_null(cddpi_tokenizer_token(tokenizer, cddpi_tokenizer_vocabulary(tokenizer), &bytes));
    assert_null(cddpi_tokenizer_token(tokenizer, INT32_MAX, &bytes));
    cddpi_tokenizer_close(tokenizer);
}

/* One line of tokenizer_vectors.txt, cut into @p text and its tokens. */
static size_t read_vector(char *line, char *text, int32_t *tokens, size_t *out_bytes)
{
    char *at = line;
    size_t count = 0;

    for (*out_bytes = 0; *at != ':'; at += 2) {
        unsigned byte;

        assert_int_equal(sscanf(at, "%2x", &byte), 1);
        text[(*out_bytes)++] = (char)byte;
    }
    for (char *word = strtok(at + 1, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        tokens[count++] = atoi(word);
    }
    return count;
}

/* Put @p text into @p encoder in pieces of @p step bytes, as files are read. */
static void put_in_pieces(struct cddpi_encoder *encoder, const char *text, size_t bytes,
                          size_t step)
{
    size_t start = 0;
    size_t end = 0;

    do {
        size_t used;

        end = bytes - end < step ? bytes : end + step;
        assert_int_equal(cddpi_encoder_put(encoder, text + start, end - start, end == bytes, &used),
                         CDDP_OK);
        start += used;
    } while (end < bytes);
    assert_int_equal(start, bytes);
}

/* The vectors are of Hugging Face's tokenizers, and of a plain Python BPE where it takes none. */
static void texts_become_the_tokens_that_other_programs_find(void **state)
{
    struct cddpi_tokenizer *tokenizer = open_small();
    FILE *file = fopen(data_path("tokenizer_vectors.txt"), "re");
    struct cddpi_encoder *encoder;
    char line[16384];
    char text[TEXT_BYTES];
    int32_t wanted[TEXT_BYTES];
    int vectors = 0;

    (void)state;
    assert_non_null(file);
    assert_int_equal(cddpi_encoder_create(tokenizer, &encoder), CDDP_OK);
    while (fgets(line, sizeof line, file) != NULL) {
        int32_t *tokens;
        size_t bytes;
        size_t count;
        size_t wanted_count;

        if (line[0] == '#') {
            continue;
        }
        wanted_count = read_vector(line, text, wanted, &bytes);
        assert_int_equal(cddpi_tokenizer_encode(tokenizer, text, bytes, &tokens, &count), CDDP_OK);
        tokens_are_text(tokenizer, tokens, count, text, bytes);
        assert_int_equal(count, wanted_count);
        assert_memory_equal(tokens, wanted, count * sizeof *tokens);
        cddpi_free(tokens);
        for (size_t step = 1; step < 12; step++) {
            const int32_t *pieces;

            cddpi_encoder_clear(encoder);
            put_in_pieces(encoder, text, bytes, step);
            pieces = cddpi_encoder_tokens(encoder, &count);
            assert_int_equal(count, wanted_count);
            assert_memory_equal(pieces, wanted, count * sizeof *pieces);
        }
        vectors++;
    }
    assert_true(vectors > 150);
    fclose(file);
    cddpi_encoder_destroy(encoder);
    cddpi_tokenizer_close(tokenizer);
}

static void any_bytes_come_back(void **state)
{
    static const char alphabet[] = " \n'sta\xc3\xa9\xe4\xba\xff\xf0\x9f\x98\x80\0\x7f"
                                   "09=the";
    struct cddpi_tokenizer *tokenizer = open_small();
    uint32_t random = 1;
    char text[TEXT_BYTES];

    (void)state;
    for (int round = 0; round < 400; round++) {
        size_t bytes = (size_t)round * 10;

        for (size_t i = 0; i < bytes; i++) {
            random = random * 1664525 + 1013904223;
            text[i] = round % 2 == 0 ? (char)(random >> 24)
                                     : alphabet[(random >> 16) % (sizeof alphabet - 1)];
        }
        round_trip(tokenizer, text, bytes);
    }
    cddpi_tokenizer_close(tokenizer);
}

/* Quadratic time would be hours. */
static void a_word_of_megabytes_takes_no_quadratic_time(void **state)
{
    struct cddpi_tokenizer *tokenizer = open_small();
    size_t bytes = 2 << 20;
    char *text = malloc(bytes);

    (void)state;
    memset(text, 'a', bytes);
    alarm(SUPPORT_LIMIT_S);
    assert_true(round_trip(tokenizer, text, bytes) <= bytes / 2);
    memset(text, ' ', bytes);
    round_trip(tokenizer, text, bytes);
    memset(text, 0xff, bytes);
    assert_int_equal(round_trip(tokenizer, text, bytes), bytes);
    alarm(0);
    free(text);
    cddpi_tokenizer_close(tokenizer);
}

static void short_memory_is_reported(void **state)
{
    struct cddpi_tokenizer *tokenizer = NULL;
    cddp_status status = CDDP_ERR_NO_MEMORY;
    char text[300];
    int failures = 0;

    (void)state;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddpi_tokenizer_open(data_path("tokenizer_small.json"), &tokenizer);
        cddpi_alloc_fail_nth(0);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        failures += status != CDDP_OK;
    }
    assert_true(failures >= 6);
    memset(text, 'a', sizeof text); /* long enough for the heap */
    status = CDDP_ERR_NO_MEMORY;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        int32_t *tokens;
        size_t count;

        cddpi_alloc_fail_nth(nth);
        status = cddpi_tokenizer_encode(tokenizer, text, sizeof text, &tokens, &count);
        cddpi_alloc_fail_nth(0);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        failures += status != CDDP_OK;
        if (status == CDDP_OK) {
            tokens_are_text(tokenizer, tokens, count, text, sizeof text);
            cddpi_free(tokens);
        }
    }
    assert_true(failures >= 11);
    cddpi_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_file_each_byte_is_a_token),
        cmocka_unit_test(tokens_outside_the_vocabulary_have_no_text),
        cmocka_unit_test(texts_become_the_tokens_that_other_programs_find),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(a_word_of_megabytes_takes_no_quadratic_time),
        cmocka_unit_test(short_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
