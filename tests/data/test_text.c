/* test_text.c - text files as data: the tokens made from them, the part held back for tests, and
 * the messages for bad files. */
#include "base/alloc.h"
#include "data/dataset.h"
#include "data/formats/text.h"
#include "support/failure.h"
#include "support/folder.h"
#include "support/gzip.h"
#include "support/memory.h"

enum { CONTEXT = 10 };

/* @p bytes letters and spaces, as if they were words. */
static char *make_text(size_t bytes, unsigned seed)
{
    char *text = malloc(bytes + 1);

    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        text[i] = (char)(seed >> 29 == 0 ? ' ' : 'a' + (seed >> 24) % 26);
    }
    text[bytes] = '\0';
    return text;
}

static void write_text(const char *name, const char *text)
{
    support_write_file(in_folder(name), text, strlen(text));
}

static cddp_status open_text(const char *pattern, double test_fraction, struct cddpi_dataset *out,
                             struct cddpi_dataset *out_test)
{
    char *patterns[] = {in_folder(pattern)};
    struct cddpi_text_options options = {.patterns = patterns,
                                         .pattern_count = 1,
                                         .context = CONTEXT,
                                         .test_fraction = test_fraction};

    return cddpi_dataset_open_text(&options, NULL, out, out_test);
}

static void is_refused(const char *pattern, double test_fraction, cddp_status status,
                       const char *what)
{
    struct cddpi_dataset train = {.count = 77};
    struct cddpi_dataset test = {.count = 77};
    int descriptors = support_descriptors();

    assert_int_equal(open_text(pattern, test_fraction, &train, test_fraction > 0 ? &test : NULL),
                     status);
    if (!last_error_has(what)) {
        fail_msg("'%s' should contain '%s'", cddp_last_error(), what);
    }
    assert_int_equal(train.count, 77);
    assert_int_equal(test.count, 77);
    assert_int_equal(support_descriptors(), descriptors);
}

/* The dataset's sequences must be the bytes at @p text, from first to last. */
static void sequences_are(const struct cddpi_dataset *dataset, const char *text)
{
    int32_t input[CONTEXT], label[CONTEXT];
    struct cddpi_token_fault fault = {NULL, 0, 0};

    assert_int_equal(dataset->context, CONTEXT);
    for (uint64_t i = 0; i < dataset->count; i++) {
        assert_true(cddpi_dataset_token_sequence(dataset, i, input, label, &fault));
        for (int k = 0; k < CONTEXT; k++) {
            if (input[k] != (unsigned char)text[i * CONTEXT + (uint64_t)k] ||
                label[k] != (unsigned char)text[i * CONTEXT + (uint64_t)k + 1]) {
                fail_msg("sequence %d, token %d: %d before %d", (int)i, k, input[k], label[k]);
            }
        }
    }
}

/* Text that somebody wrote with an editor of Windows. */
static void a_byte_order_mark_is_no_part_of_a_text(void **state)
{
    char *text = make_text(1005, 9);
    char *marked = malloc(1009);
    struct cddpi_dataset plain = {0};
    struct cddpi_dataset dataset = {0};

    (void)state;
    snprintf(marked, 1009, "\xEF\xBB\xBF%s", text);
    write_text("plain", text);
    write_text("marked", marked);
    assert_int_equal(open_text("plain", 0, &plain, NULL), CDDP_OK);
    assert_int_equal(open_text("marked", 0, &dataset, NULL), CDDP_OK);
    assert_int_equal(dataset.token_count, plain.token_count);
    sequences_are(&dataset, text);
    cddpi_dataset_close(&plain);
    cddpi_dataset_close(&dataset);
    write_text("mark", "\xEF\xBB\xBF");
    is_refused("mark", 0, CDDP_ERR_FORMAT, "tokens, but one sequence of a context of");
    free(marked);
    free(text);
}

static void the_bytes_of_a_file_are_its_tokens(void **state)
{
    char *text = make_text(1005, 1);
    struct cddpi_dataset dataset = {0};
    int descriptors = support_descriptors();

    (void)state;
    text[3] = '\xff';
    write_text("a.txt", text);
    assert_int_equal(open_text("a.txt", 0, &dataset, NULL), CDDP_OK);
    assert_int_equal(support_descriptors(), descriptors);
    assert_int_equal(dataset.kind, CDDPI_DATASET_TOKENS);
    assert_int_equal(dataset.token_count, 1005);
    assert_int_equal(dataset.count, 100);
    assert_int_equal(dataset.unused_count, 4);
    assert_int_equal(dataset.classes, 257);
    assert_int_equal(dataset.token_bytes, 2);
    sequences_are(&dataset, text);
    cddpi_dataset_close(&dataset);
    free(text);
}

static void gzipped_text_gives_the_same(void **state)
{
    char *text = make_text(1000, 2);
    unsigned char packed[4096];
    struct cddpi_dataset dataset = {0};

    (void)state;
    support_write_file(in_folder("a.txt.gz"), packed,
                       support_gzip(text, 1000, packed, sizeof packed));
    assert_int_equal(open_text("a.txt.gz", 0, &dataset, NULL), CDDP_OK);
    assert_int_equal(dataset.token_count, 1000);
    sequences_are(&dataset, text);
    cddpi_dataset_close(&dataset);
    free(text);
}

static void between_two_files_a_text_ends(void **state)
{
    struct cddpi_dataset dataset = {0};
    int32_t input[CONTEXT], label[CONTEXT];
    struct cddpi_token_fault fault = {NULL, 0, 0};

    (void)state;
    write_text("2.txt", "ghi");
    write_text("1.txt", "abcdef");
    write_text("3.txt", "j");
    assert_int_equal(open_text("*.txt", 0, &dataset, NULL), CDDP_OK);
    assert_int_equal(dataset.token_count, 6 + 1 + 3 + 1 + 1);
    assert_int_equal(dataset.count, 1);
    assert_true(cddpi_dataset_token_sequence(&dataset, 0, input, label, &fault));
    for (int i = 0; i < CONTEXT; i++) {
        assert_int_equal(input[i], i < 6 ? 'a' + i : i == 6 ? 256 : 'a' + i - 1);
        assert_int_equal(label[i], i < 5 ? 'b' + i : i == 5 || i == 9 ? 256 : 'a' + i);
    }
    cddpi_dataset_close(&dataset);
}

static void the_end_is_held_back_for_tests(void **state)
{
    char *text = make_text(1000, 3);

    (void)state;
    write_text("a.txt", text);
    for (int first = 0; first < 2; first++) { /* closed in either order */
        struct cddpi_dataset parts[2] = {{0}, {0}};

        assert_int_equal(open_text("a.txt", 0.125, &parts[0], &parts[1]), CDDP_OK);
        assert_int_equal(parts[0].token_count, 875);
        assert_int_equal(parts[0].count, 87);
        assert_int_equal(parts[1].token_count, 125);
        assert_int_equal(parts[1].count, 12);
        assert_int_equal(parts[1].classes, 257);
        cddpi_dataset_close(&parts[first]);
        sequences_are(&parts[1 - first], first == 1 ? text : text + 875);
        cddpi_dataset_close(&parts[1 - first]);
    }
    free(text);
}

/* Several pieces, of words and of none. */
static void a_long_text_is_read_whole(void **state)
{
    const size_t bytes = 3500001;

    (void)state;
    for (int words = 0; words < 2; words++) {
        char *text = make_text(bytes, 4);
        struct cddpi_dataset dataset = {0};

        for (size_t i = 0; words == 0 && i < bytes; i++) {
            text[i] = (char)(128 + (text[i] & 63));
        }
        write_text("a.txt", text);
        assert_int_equal(open_text("a.txt", 0, &dataset, NULL), CDDP_OK);
        assert_int_equal(dataset.token_count, bytes);
        assert_int_equal(dataset.unused_count, 0);
        sequences_are(&dataset, text);
        cddpi_dataset_close(&dataset);
        free(text);
    }
}

static void reading_pauses_when_its_time_is_up(void **state)
{
    char *text = make_text(3500000, 5);
    char *names[] = {in_folder("a.txt")};
    const struct cddpi_paths paths = {names, 1};
    struct cddpi_tokenizer *tokenizer = NULL;
    struct cddpi_data_file source;
    struct cddpi_text reading;
    int rounds = 0;

    (void)state;
    write_text("a.txt", text);
    assert_int_equal(cddpi_tokenizer_open("", &tokenizer), CDDP_OK);
    cddpi_text_init(&paths, tokenizer, false, &reading);
    while (!reading.done) {
        assert_int_equal(cddpi_text_read(&reading, 1), CDDP_OK); /* one piece, or opening */
        rounds++;
    }
    assert_true(rounds >= 4);
    assert_int_equal(cddpi_text_finish(&reading, &source), CDDP_OK);
    assert_int_equal(source.bytes, 2 * 3500000);
    cddpi_data_file_close(&source);
    cddpi_text_fini(&reading);
    cddpi_tokenizer_close(tokenizer);
    free(text);
}

/* A file of the source tree. */
static char *data_path(const char *name)
{
    static char path[4200];

    snprintf(path, sizeof path, "%s/tests/vectors/%s", getenv("CDDP_TEST_SOURCE"), name);
    return path;
}

/* Words that a piece's end must not cut: those of several languages, again and again, with places
 * between them where the pieces may end. */
static char *make_words(size_t bytes)
{
    char *text = malloc(bytes + 1);
    char part[4096];
    FILE *file = fopen(data_path("tokenizer_text.txt"), "re");
    size_t length, at = 0;

    assert_non_null(file);
    length = fread(part, 1, sizeof part, file);
    fclose(file);
    assert_true(length > 1000);
    while (at < bytes) {
        size_t some = at % 977 < length ? length - at % 977 : length; /* each time another part */

        some = some < bytes - at ? some : bytes - at;
        memcpy(text + at, part + length - some, some);
        at += some;
    }
    text[bytes] = '\0';
    return text;
}

static void pieces_become_the_tokens_of_the_whole(void **state)
{
    const size_t bytes = 3300000;
    char *text = make_words(bytes);
    char *patterns[] = {in_folder("a.txt")};
    struct cddpi_text_options options = {.patterns = patterns,
                                         .pattern_count = 1,
                                         .vocabulary = data_path("tokenizer_small.json"),
                                         .context = CONTEXT};
    struct cddpi_dataset dataset = {0};
    struct cddpi_tokenizer *tokenizer = NULL;
    int32_t *tokens = NULL;
    size_t count = 0;

    (void)state;
    write_text("a.txt", text);
    assert_int_equal(cddpi_dataset_open_text(&options, NULL, &dataset, NULL), CDDP_OK);
    assert_int_equal(cddpi_tokenizer_open(options.vocabulary, &tokenizer), CDDP_OK);
    assert_int_equal(dataset.classes, cddpi_tokenizer_vocabulary(tokenizer));
    assert_int_equal(cddpi_tokenizer_encode(tokenizer, text, bytes, &tokens, &count), CDDP_OK);
    assert_true(count < bytes * 3 / 4);
    assert_int_equal(dataset.token_count, count);
    for (size_t i = 0; i < count; i++) {
        if (((const uint16_t *)dataset.shards[0].tokens)[i] != tokens[i]) {
            fail_msg("token %zu is not that of the whole text", i);
        }
    }
    cddpi_free(tokens);
    cddpi_tokenizer_close(tokenizer);
    cddpi_dataset_close(&dataset);
    free(text);
}

static void bad_texts_are_named(void **state)
{
    (void)state;
    is_refused("a.txt", 0, CDDP_ERR_NOT_FOUND, "/a.txt: ");
    write_text("a.txt", "");
    is_refused("a.txt", 0, CDDP_ERR_FORMAT, "/a.txt: ");
    write_text("a.txt", "0123456789");
    is_refused("a.txt", 0, CDDP_ERR_FORMAT,
               "/a.txt: there are only 10 tokens, but one sequence of a context of 10 takes 11");
    write_text("a.txt", "a text of thirty-odd characters");
    is_refused("a.txt", 0.1, CDDP_ERR_FORMAT,
               "/a.txt: the end held back for tests: there are only 3 tokens, but");
    is_refused("a.txt", 0.9, CDDP_ERR_FORMAT,
               "/a.txt without the end held back for tests: there are only 4 tokens, but");
    is_refused("a.txt", 1.0, CDDP_ERR_ARGUMENT, "the test fraction 1, which must be");
    write_text("b.txt", "xyz");
    is_refused("?.txt", 0.2, CDDP_ERR_FORMAT, "/a.txt and the files after it: the end held back");
    write_text("b.txt", "\x1f\x8b nothing that gzip made");
    is_refused("?.txt", 0, CDDP_ERR_FORMAT, "/b.txt: ");
}

static void a_vocabulary_that_cannot_be_opened_is_named(void **state)
{
    char *patterns[] = {in_folder("a.txt")};
    struct cddpi_text_options options = {.patterns = patterns,
                                         .pattern_count = 1,
                                         .vocabulary = in_folder("absent.json"),
                                         .context = CONTEXT};
    struct cddpi_dataset dataset = {.count = 77};

    (void)state;
    write_text("a.txt", "some text for tokens");
    assert_true(cddpi_dataset_open_text(&options, NULL, &dataset, NULL) != CDDP_OK);
    assert_true(last_error_has("/absent.json"));
    assert_int_equal(dataset.count, 77);
}

static void opening_survives_each_failed_allocation(void **state)
{
    struct cddpi_dataset train = {0};
    struct cddpi_dataset test = {0};
    cddp_status status = CDDP_ERR_NO_MEMORY;
    unsigned nth = 0;

    (void)state;
    write_text("a.txt", "some text for tokens");
    write_text("b.txt", "some more text");
    while (status == CDDP_ERR_NO_MEMORY) {
        cddpi_alloc_fail_nth(++nth);
        status = open_text("*.txt", 0.5, &train, &test);
        cddpi_alloc_fail_nth(0);
    }
    assert_int_equal(status, CDDP_OK);
    assert_true(nth > 9);
    cddpi_dataset_close(&train);
    cddpi_dataset_close(&test);
}

static void tokens_that_cannot_fit_are_refused_before_they_are_made(void **state)
{
    char *text = make_text(3 << 20, 1);
    struct cddpi_dataset dataset = {0};

    (void)state;
    write_text("a", text);
    support_set_memory(folder, 1024);
    is_refused("a", 0, CDDP_ERR_NO_MEMORY, "of memory are needed, but only 1.0 MiB can be had");
    support_set_memory(folder, 3 << 10); /* each piece of the text finds so much */
    assert_int_equal(open_text("a", 0, &dataset, NULL), CDDP_OK);
    cddpi_dataset_close(&dataset);
    support_end_memory();
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(tokens_that_cannot_fit_are_refused_before_they_are_made),
        IN_FOLDER(the_bytes_of_a_file_are_its_tokens),
        IN_FOLDER(a_byte_order_mark_is_no_part_of_a_text),
        IN_FOLDER(gzipped_text_gives_the_same),
        IN_FOLDER(between_two_files_a_text_ends),
        IN_FOLDER(the_end_is_held_back_for_tests),
        IN_FOLDER(a_long_text_is_read_whole),
        IN_FOLDER(reading_pauses_when_its_time_is_up),
        IN_FOLDER(pieces_become_the_tokens_of_the_whole),
        IN_FOLDER(bad_texts_are_named),
        IN_FOLDER(a_vocabulary_that_cannot_be_opened_is_named),
        IN_FOLDER(opening_survives_each_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
