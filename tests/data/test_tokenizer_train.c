/* test_tokenizer_train.c - learning a vocabulary: the merges of a plain Python reference, the same
 * however the text is split into pieces, and a file that can be read again. */
#include "base/alloc.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_train.h"
#include "support/failure.h"
#include "support/test.h"

#include <jansson.h>

static char *read_data(const char *name, size_t *out_bytes)
{
    char path[4200];
    char *data = malloc(1 << 20);
    const char *source = getenv("CDDP_TEST_SOURCE");
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/vectors/%s", source != NULL ? source : ".", name);
    file = fopen(path, "re");
    assert_non_null(file);
    *out_bytes = fread(data, 1, (1 << 20) - 1, file);
    data[*out_bytes] = '\0';
    fclose(file);
    return data;
}

/* Count the words of @p text, given in pieces of @p step bytes. */
static struct cddpi_word_counts *count(const char *text, size_t bytes, size_t step)
{
    struct cddpi_word_counts *counts;
    size_t start = 0;
    size_t end = 0;

    assert_int_equal(cddpi_word_counts_create(&counts), CDDP_OK);
    do {
        size_t used;

        end = bytes - end < step ? bytes : end + step;
        assert_int_equal(
            cddpi_word_counts_put(counts, text + start, end - start, end == bytes, &used), CDDP_OK);
        start += used;
    } while (end < bytes);
    assert_int_equal(start, bytes);
    return counts;
}

static struct cddpi_tokenizer *learn(const char *text, size_t bytes, int vocabulary)
{
    struct cddpi_word_counts *counts = count(text, bytes, bytes);
    struct cddpi_tokenizer *tokenizer;

    assert_int_equal(cddpi_tokenizer_train(counts, vocabulary, NULL, NULL, &tokenizer), CDDP_OK);
    cddpi_word_counts_destroy(counts);
    return tokenizer;
}

/* The file that @p tokenizer becomes, parsed. */
static json_t *saved(const struct cddpi_tokenizer *tokenizer, const char *path)
{
    json_t *root;

    assert_int_equal(cddpi_tokenizer_save(tokenizer, path), CDDP_OK);
    root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    return root;
}

/* The bytes of token @p id, in hexadecimal. */
static void put_hex(const struct cddpi_tokenizer *tokenizer, json_int_t id, char *out)
{
    size_t bytes;
    const char *token = cddpi_tokenizer_token(tokenizer, (int32_t)id, &bytes);

    assert_non_null(token);
    for (size_t i = 0; i < bytes; i++) {
        sprintf(out + 2 * i, "%02x", (unsigned char)token[i]);
    }
}

/* Hexadecimal digits of both tokens of "left right" of a file. */
static void merge_hex(const struct cddpi_tokenizer *tokenizer, const json_t *vocab,
                      const char *merge, char *out)
{
    char left[2048];
    const char *space = strchr(merge, ' ');
    json_t *id;

    assert_non_null(space);
    snprintf(left, sizeof left, "%.*s", (int)(space - merge), merge);
    id = json_object_get(vocab, left);
    assert_non_null(id);
    put_hex(tokenizer, json_integer_value(id), out);
    strcat(out, " ");
    id = json_object_get(vocab, space + 1);
    assert_non_null(id);
    put_hex(tokenizer, json_integer_value(id), out + strlen(out));
}

static void merges_are_those_of_the_reference(void **state)
{
    char *dir = support_mkdtemp();
    char path[4200];
    size_t bytes;
    size_t reference_bytes;
    char *text = read_data("tokenizer_text.txt", &bytes);
    char *reference = read_data("tokenizer_merges.txt", &reference_bytes);
    struct cddpi_tokenizer *tokenizer = learn(text, bytes, 5000);
    json_t *root;
    json_t *vocab;
    json_t *merges;
    size_t index = 0;

    (void)state;
    snprintf(path, sizeof path, "%s/v.json", dir);
    root = saved(tokenizer, path);
    vocab = json_object_get(json_object_get(root, "model"), "vocab");
    merges = json_object_get(json_object_get(root, "model"), "merges");
    for (char *line = strtok(reference, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char hex[4096];

        if (line[0] == '#') {
            continue;
        }
        assert_in_range(index, 0, json_array_size(merges) - 1);
        merge_hex(tokenizer, vocab, json_string_value(json_array_get(merges, index)), hex);
        assert_string_equal(hex, line);
        index++;
    }
    assert_true(index > 100);
    assert_int_equal(index, json_array_size(merges));
    assert_true(cddpi_tokenizer_vocabulary(tokenizer) == 257 + (int)index);
    json_decref(root);
    cddpi_tokenizer_close(tokenizer);
    free(text);
    free(reference);
    support_rmdir(dir);
}

static void the_vocabulary_is_as_large_as_asked_and_ends_with_the_end(void **state)
{
    size_t bytes;
    char *text = read_data("tokenizer_text.txt", &bytes);

    (void)state;
    for (int vocabulary = 257; vocabulary < 300; vocabulary += 21) {
        struct cddpi_tokenizer *tokenizer = learn(text, bytes, vocabulary);
        size_t length;

        assert_int_equal(cddpi_tokenizer_vocabulary(tokenizer), vocabulary);
        assert_int_equal(cddpi_tokenizer_end(tokenizer), vocabulary - 1);
        assert_memory_equal(cddpi_tokenizer_token(tokenizer, vocabulary - 1, &length),
                            "<|endoftext|>", 13);
        assert_memory_equal(cddpi_tokenizer_token(tokenizer, 0, &length), "!", 1); /* as GPT-2 */
        assert_memory_equal(cddpi_tokenizer_token(tokenizer, 188, &length), "\0", 1);
        cddpi_tokenizer_close(tokenizer);
    }
    free(text);
}

static bool same_files(const char *a, const char *b)
{
    json_t *left = json_load_file(a, 0, NULL);
    json_t *right = json_load_file(b, 0, NULL);
    bool same = left != NULL && json_equal(left, right);

    json_decref(left);
    json_decref(right);
    return same;
}

static void pieces_of_any_length_give_the_same_vocabulary(void **state)
{
    char *dir = support_mkdtemp();
    char first[4200];
    char other[4200];
    size_t bytes;
    char *text = read_data("tokenizer_text.txt", &bytes);

    (void)state;
    snprintf(first, sizeof first, "%s/first.json", dir);
    snprintf(other, sizeof other, "%s/other.json", dir);
    for (size_t step = 1; step < bytes; step = step * 3 + 1) {
        struct cddpi_word_counts *counts = count(text, bytes, step);
        struct cddpi_tokenizer *tokenizer;

        assert_int_equal(cddpi_tokenizer_train(counts, 350, NULL, NULL, &tokenizer), CDDP_OK);
        assert_int_equal(cddpi_tokenizer_save(tokenizer, step == 1 ? first : other), CDDP_OK);
        assert_true(step == 1 || same_files(first, other));
        cddpi_tokenizer_close(tokenizer);
        cddpi_word_counts_destroy(counts);
    }
    free(text);
    support_rmdir(dir);
}

static void a_saved_vocabulary_makes_the_same_tokens(void **state)
{
    char *dir = support_mkdtemp();
    char path[4200];
    size_t bytes;
    char *text = read_data("tokenizer_text.txt", &bytes);
    struct cddpi_tokenizer *tokenizers[2];
    int32_t *tokens[2];
    size_t counts[2];

    (void)state;
    snprintf(path, sizeof path, "%s/v.json", dir);
    tokenizers[0] = learn(text, bytes, 400);
    assert_int_equal(cddpi_tokenizer_save(tokenizers[0], path), CDDP_OK);
    assert_int_equal(cddpi_tokenizer_open(path, &tokenizers[1]), CDDP_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cddpi_tokenizer_encode(tokenizers[i], text, bytes, &tokens[i], &counts[i]),
                         CDDP_OK);
    }
    assert_int_equal(counts[0], counts[1]);
    assert_true(counts[0] < bytes * 2 / 3);
    assert_memory_equal(tokens[0], tokens[1], counts[0] * sizeof *tokens[0]);
    for (int i = 0; i < 2; i++) {
        cddpi_free(tokens[i]);
        cddpi_tokenizer_close(tokenizers[i]);
    }
    free(text);
    support_rmdir(dir);
}

static void no_two_tokens_have_the_same_bytes(void **state)
{
    size_t bytes;
    char *text = read_data("tokenizer_text.txt", &bytes);
    struct cddpi_tokenizer *tokenizer = learn(text, bytes, 1000);
    int vocabulary = cddpi_tokenizer_vocabulary(tokenizer);

    free(text);
    (void)state;
    for (int a = 0; a < vocabulary; a++) {
        for (int b = 0; b < a; b++) {
            size_t a_bytes;
            size_t b_bytes;
            const char *left = cddpi_tokenizer_token(tokenizer, a, &a_bytes);
            const char *right = cddpi_tokenizer_token(tokenizer, b, &b_bytes);

            assert_false(a_bytes == b_bytes && memcmp(left, right, a_bytes) == 0);
        }
    }
    cddpi_tokenizer_close(tokenizer);
}

static void a_long_run_gives_no_token_above_256_bytes(void **state)
{
    char *text = malloc(1 << 20);
    struct cddpi_tokenizer *tokenizer;
    size_t longest = 0;

    (void)state;
    memset(text, '=', 1 << 20);
    alarm(SUPPORT_LIMIT_S);
    tokenizer = learn(text, 1 << 20, 600);
    alarm(0);
    for (int i = 0; i < cddpi_tokenizer_vocabulary(tokenizer); i++) {
        size_t bytes;

        assert_non_null(cddpi_tokenizer_token(tokenizer, i, &bytes));
        longest = bytes > longest ? bytes : longest;
    }
    assert_int_equal(longest, 256);
    cddpi_tokenizer_close(tokenizer);
    free(text);
}

static bool stop_at_once(void *argument, int tokens)
{
    *(int *)argument = tokens;
    return false;
}

static void progress_may_stop_it(void **state)
{
    size_t bytes;
    char *text = read_data("tokenizer_text.txt", &bytes);
    struct cddpi_word_counts *counts = count(text, bytes, bytes);
    struct cddpi_tokenizer *tokenizer;
    int seen = 0;

    (void)state;
    assert_int_equal(cddpi_tokenizer_train(counts, 400, stop_at_once, &seen, &tokenizer), CDDP_OK);
    assert_in_range(seen, 258, 399);
    assert_int_equal(cddpi_tokenizer_vocabulary(tokenizer), seen);
    cddpi_tokenizer_close(tokenizer);
    cddpi_word_counts_destroy(counts);
    free(text);
}

static void wrong_sizes_and_places_are_refused(void **state)
{
    struct cddpi_tokenizer *tokenizer = learn("abab abab abab", 14, 260);
    struct cddpi_word_counts *counts = count("a", 1, 1);

    (void)state;
    assert_int_equal(cddpi_tokenizer_vocabulary(tokenizer), 260);
    assert_true(
        failure_is(cddpi_tokenizer_save(tokenizer, "missing/v.json"), CDDP_ERR_IO, -1, -1, ""));
    assert_true(last_error_has("open the folder of missing/v.json: "));
    cddpi_tokenizer_close(tokenizer);
    assert_true(failure_is(cddpi_tokenizer_train(counts, 256, NULL, NULL, &tokenizer),
                           CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("a vocabulary of 256 tokens cannot be learned: it can have 257 to"));
    cddpi_word_counts_destroy(counts);
}

static void short_memory_is_reported(void **state)
{
    size_t bytes;
    char *text = read_data("tokenizer_text.txt", &bytes);
    cddp_status status = CDDP_ERR_NO_MEMORY;
    int failures = 0;

    (void)state;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        struct cddpi_word_counts *counts = NULL;
        struct cddpi_tokenizer *tokenizer = NULL;
        size_t used;

        cddpi_alloc_fail_nth(nth);
        status = cddpi_word_counts_create(&counts);
        if (status == CDDP_OK) {
            status = cddpi_word_counts_put(counts, text, bytes, true, &used);
        }
        if (status == CDDP_OK) {
            status = cddpi_tokenizer_train(counts, 300, NULL, NULL, &tokenizer);
        }
        cddpi_alloc_fail_nth(0);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        failures += status != CDDP_OK;
        cddpi_tokenizer_close(tokenizer);
        cddpi_word_counts_destroy(counts);
    }
    assert_true(failures > 100); /* a list of words for each pair, among others */
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_those_of_the_reference),
        cmocka_unit_test(the_vocabulary_is_as_large_as_asked_and_ends_with_the_end),
        cmocka_unit_test(pieces_of_any_length_give_the_same_vocabulary),
        cmocka_unit_test(a_saved_vocabulary_makes_the_same_tokens),
        cmocka_unit_test(no_two_tokens_have_the_same_bytes),
        cmocka_unit_test(a_long_run_gives_no_token_above_256_bytes),
        cmocka_unit_test(progress_may_stop_it),
        cmocka_unit_test(wrong_sizes_and_places_are_refused),
        cmocka_unit_test(short_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
