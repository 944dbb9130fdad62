/* test_tokens.c - files of tokens: which sequences are samples, and the messages for bad files. */
#include "base/alloc.h"
#include "data/dataset.h"
#include "data/files/paths.h"
#include "support/failure.h"
#include "support/gzip.h"
#include "support/token_folder.h"

#include <fcntl.h>

enum { CONTEXT = 8 };

/* What @p pattern names must be refused with @p status and a text that begins with @file and has @p
 * what in it; nothing stays open. */
static void is_refused(const char *pattern, int context, cddp_status status, const char *file,
                       const char *what)
{
    struct cddpi_dataset dataset = {.count = 77};
    int descriptors = support_descriptors();

    assert_int_equal(open_tokens(pattern, context, &dataset), status);
    if (strncmp(cddp_last_error(), in_folder(file), strlen(folder) + 1 + strlen(file)) != 0 ||
        !last_error_has(what)) {
        fail_msg("'%s' should begin with '%s' and contain '%s'", cddp_last_error(), file, what);
    }
    assert_int_equal(dataset.count, 77);
    assert_int_equal(support_descriptors(), descriptors);
}

/* Window @p number must be the tokens of a file of @p seed from @p first on. */
static void window_is(const struct cddpi_dataset *dataset, uint64_t number, uint32_t seed,
                      uint64_t first)
{
    int32_t input[64], label[64];
    struct cddpi_token_fault fault = {NULL, 0, 0};

    assert_true(dataset->context <= 64);
    assert_true(cddpi_dataset_token_sequence(dataset, number, input, label, &fault));
    for (int i = 0; i < dataset->context; i++) {
        assert_int_equal(input[i], support_token(seed, first + (uint64_t)i));
        assert_int_equal(label[i], support_token(seed, first + (uint64_t)i + 1));
    }
}

static void a_file_is_cut_into_windows_that_share_their_edges(void **state)
{
    struct cddpi_dataset dataset = {0};
    int descriptors = support_descriptors();

    (void)state;
    support_write_shard(in_folder("a.bin"), 1, 3 * CONTEXT + 1 + 5, 2);
    assert_int_equal(open_tokens("a.bin", CONTEXT, &dataset), CDDP_OK);
    assert_int_equal(support_descriptors(), descriptors);
    assert_int_equal(dataset.kind, CDDPI_DATASET_TOKENS);
    assert_int_equal(dataset.count, 3);
    assert_int_equal(dataset.context, CONTEXT);
    assert_int_equal(dataset.token_count, 3 * CONTEXT + 6);
    assert_int_equal(dataset.unused_count, 5);
    assert_int_equal(dataset.classes, 50257);
    for (uint64_t i = 0; i < 3; i++) {
        window_is(&dataset, i, 1, i * CONTEXT);
    }
    cddpi_dataset_close(&dataset);
    cddpi_dataset_close(&dataset);
    /* one token more than the context is the least that makes a window; one less than two windows
     * take leaves the most unused */
    for (uint32_t count = CONTEXT + 1; count <= 2 * CONTEXT + 1; count++) {
        support_write_shard(in_folder("b.bin"), 1, count, 2);
        assert_int_equal(open_tokens("b.bin", CONTEXT, &dataset), CDDP_OK);
        assert_int_equal(dataset.count, count == 2 * CONTEXT + 1 ? 2 : 1);
        assert_int_equal(dataset.unused_count, (count - 1) % CONTEXT);
        cddpi_dataset_close(&dataset);
    }
}

static void tokens_of_llama_3_have_32_bits(void **state)
{
    struct cddpi_dataset dataset = {0};
    unsigned char *bytes;
    size_t count = 0;
    const uint32_t large = 128255;
    int32_t input[CONTEXT], label[CONTEXT];
    struct cddpi_token_fault fault = {NULL, 0, 0};

    (void)state;
    bytes = support_shard(2, 2 * CONTEXT + 1, 4, &count);
    memcpy(bytes + SHARD_HEADER_BYTES + 4 * CONTEXT, &large, 4);
    support_write_file(in_folder("a.bin"), bytes, count);
    free(bytes);
    assert_int_equal(open_tokens("a.bin", CONTEXT, &dataset), CDDP_OK);
    assert_int_equal(dataset.classes, 128256);
    assert_true(cddpi_dataset_token_sequence(&dataset, 0, input, label, &fault));
    assert_int_equal(input[3], support_token(2, 3));
    assert_int_equal(label[CONTEXT - 1], 128255);
    assert_true(cddpi_dataset_token_sequence(&dataset, 1, input, label, &fault));
    assert_int_equal(input[0], 128255);
    cddpi_dataset_close(&dataset);
}

/* Nine files of different lengths: a sample's number gives its file and its place there. */
static void shards_of_a_pattern_follow_each_other_by_name(void **state)
{
    struct cddpi_dataset dataset = {0};
    uint64_t number = 0;
    uint64_t unused = 0;
    char name[32];

    (void)state;
    for (int file = 8; file >= 0; file--) {
        snprintf(name, sizeof name, "train_%06d.bin", file);
        support_write_shard(in_folder(name), (uint32_t)file,
                            (uint32_t)((1 + file % 4) * CONTEXT + 1 + file % 3), 2);
    }
    support_write_shard(in_folder("val_000000.bin"), 99, 100, 2);
    assert_int_equal(open_tokens("train_*.bin", CONTEXT, &dataset), CDDP_OK);
    assert_int_equal(dataset.shard_count, 9);
    for (int file = 0; file < 9; file++) {
        for (int window = 0; window < 1 + file % 4; window++) {
            window_is(&dataset, number++, (uint32_t)file, (uint64_t)window * CONTEXT);
        }
        unused += (uint64_t)(file % 3);
    }
    assert_int_equal(dataset.count, number);
    assert_int_equal(dataset.unused_count, unused);
    cddpi_dataset_close(&dataset);
}

static void a_list_keeps_its_order_and_names_no_file_twice(void **state)
{
    char *patterns[] = {in_folder("b*"), in_folder("a[1]"), in_folder("a?")};
    struct cddpi_paths paths = {NULL, 0};

    (void)state;
    support_write_file(in_folder("b2"), "x", 1);
    support_write_file(in_folder("b10"), "x", 1);
    support_write_file(in_folder("B1"), "x", 1);
    support_write_file(in_folder("a1"), "x", 1);
    support_write_file(in_folder("a[1]"), "x", 1); /* meant, since it exists */
    assert_int_equal(cddpi_paths_find(patterns, 3, &paths), CDDP_OK);
    assert_int_equal(paths.count, 4);
    assert_string_equal(paths.names[0], in_folder("b10"));
    assert_string_equal(paths.names[1], in_folder("b2"));
    assert_string_equal(paths.names[2], in_folder("a[1]"));
    assert_string_equal(paths.names[3], in_folder("a1"));
    cddpi_paths_fini(&paths);
    patterns[2] = in_folder("b2");
    assert_true(failure_is(cddpi_paths_find(patterns, 3, &paths), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("/b2: the file is named twice"));
    assert_true(failure_is(cddpi_paths_find(patterns, 0, &paths), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("no file is named"));
    assert_null(paths.names);
}

static void a_pattern_without_files_is_named(void **state)
{
    (void)state;
    is_refused("train_*.bin", CONTEXT, CDDP_ERR_NOT_FOUND, "train_*.bin", "there is no such file");
    is_refused("absent", CONTEXT, CDDP_ERR_NOT_FOUND, "absent", "there is no such file");
    is_refused("absent/*.bin", CONTEXT, CDDP_ERR_NOT_FOUND, "absent/*.bin",
               "there is no such file");
    is_refused("", CONTEXT, CDDP_ERR_IO, "", "is not a regular file");
}

/* A file whose header has @p value at number @p index. */
static void header_is_refused(int index, uint32_t value, const char *what)
{
    size_t count = 0;
    unsigned char *bytes = support_shard(1, 100, 2, &count);

    memcpy(bytes + 4 * index, &value, 4);
    support_write_file(in_folder("a.bin"), bytes, count);
    free(bytes);
    is_refused("a.bin", CONTEXT, CDDP_ERR_FORMAT, "a.bin", what);
}

static void a_wrong_header_is_refused(void **state)
{
    (void)state;
    header_is_refused(0, 7,
                      "byte 0: the file begins with the number 7, but a file of tokens begins with "
                      "20240520 (GPT-2's) or 20240801 (Llama 3's)");
    header_is_refused(0, 20240326, "byte 0: the file holds a GPT-2 model of llm.c, not tokens");
    header_is_refused(1, 2, "byte 4: the file has version 2, but only version 1 can");
    header_is_refused(0, LLAMA3_MAGIC, "byte 4: the file has version 1, but only version 7 can");
    header_is_refused(2, 0, "byte 8: the header says 0 tokens");
    header_is_refused(2, 0x80000064u, "byte 8: the header says -2147483548 tokens");
    header_is_refused(
        2, 101, "truncated: the header says 101 tokens of 2 bytes from byte 1024 on, but 200");
    header_is_refused(2, 99,
                      "too long: the header says 99 tokens of 2 bytes from byte 1024 on, but 200");
    header_is_refused(2, INT32_MAX, "truncated: the header says 2147483647 tokens of 2 bytes");
}

static void a_file_of_another_kind_is_refused(void **state)
{
    size_t count = 0;
    unsigned char *bytes = support_shard(1, 100, 2, &count);
    unsigned char packed[4096];

    (void)state;
    support_write_file(in_folder("a.bin"), packed,
                       support_gzip(bytes, count, packed, sizeof packed));
    is_refused("a.bin", CONTEXT, CDDP_ERR_FORMAT, "a.bin", "the file is gzip'd");
    free(bytes);
    support_write_file(in_folder("a.bin"), "", 0);
    is_refused("a.bin", CONTEXT, CDDP_ERR_FORMAT, "a.bin", "");
}

/* Any bit of what the header says, and any end of the file before its own. */
static void no_broken_file_is_taken_for_a_whole_one(void **state)
{
    size_t count = 0;
    unsigned char *bytes = support_shard(1, CONTEXT + 1, 2, &count);
    struct cddpi_dataset dataset = {0};

    (void)state;
    for (int bit = 0; bit < 12 * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        support_write_file(in_folder("a.bin"), bytes, count);
        is_refused("a.bin", CONTEXT, CDDP_ERR_FORMAT, "a.bin", "byte");
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t end = 0; end < count; end += end < 16 || end > 1000 ? 1 : 41) {
        support_write_file(in_folder("a.bin"), bytes, end);
        is_refused("a.bin", CONTEXT, CDDP_ERR_FORMAT, "a.bin", end > 0 ? "truncated" : "empty");
    }
    memset(bytes + 12, 0xff, SHARD_HEADER_BYTES - 12); /* says nothing yet */
    support_write_file(in_folder("a.bin"), bytes, count);
    assert_int_equal(open_tokens("a.bin", CONTEXT, &dataset), CDDP_OK);
    window_is(&dataset, 0, 1, 0);
    cddpi_dataset_close(&dataset);
    free(bytes);
}

static void files_of_two_vocabularies_do_not_mix(void **state)
{
    (void)state;
    support_write_shard(in_folder("a.bin"), 1, 100, 2);
    support_write_shard(in_folder("b.bin"), 1, 100, 4);
    is_refused("*.bin", CONTEXT, CDDP_ERR_FORMAT, "b.bin", "holds tokens of Llama 3, but ");
}

static void a_context_longer_than_a_shard_is_an_error(void **state)
{
    struct cddpi_dataset dataset = {0};
    char *patterns[] = {in_folder("*.bin")};

    (void)state;
    support_write_shard(in_folder("a.bin"), 1, 100, 2);
    support_write_shard(in_folder("b.bin"), 1, 40, 2);
    support_write_shard(in_folder("c.bin"), 1, 100, 2);
    is_refused("*.bin", 40, CDDP_ERR_FORMAT, "b.bin",
               "there are only 40 tokens, but one sequence of a context of 40 takes 41");
    is_refused("b.bin", 40, CDDP_ERR_FORMAT, "b.bin", "40 tokens, but one sequence");
    is_refused("a.bin", 100, CDDP_ERR_FORMAT, "a.bin", "100 tokens, but one sequence");
    is_refused("a.bin", INT32_MAX, CDDP_ERR_FORMAT, "a.bin", "takes 2147483648");
    assert_int_equal(cddpi_dataset_open_tokens(patterns, 1, 0, 0, NULL, &dataset),
                     CDDP_ERR_ARGUMENT);
    assert_int_equal(open_tokens("*.bin", 39, &dataset), CDDP_OK);
    assert_int_equal(dataset.count, 2 + 1 + 2);
    cddpi_dataset_close(&dataset);
}

/* As programs that write files of so many tokens each leave one. */
static void the_last_of_several_shards_may_be_a_short_rest(void **state)
{
    struct cddpi_dataset dataset = {0};

    (void)state;
    support_write_shard(in_folder("a.bin"), 1, 5 * CONTEXT + 1, 2);
    support_write_shard(in_folder("b.bin"), 2, 5 * CONTEXT + 3, 2);
    support_write_shard(in_folder("c.bin"), 3, CONTEXT, 2);
    assert_int_equal(open_tokens("*.bin", CONTEXT, &dataset), CDDP_OK);
    assert_int_equal(dataset.count, 10);
    assert_int_equal(dataset.token_count, 11 * CONTEXT + 4);
    assert_int_equal(dataset.unused_count, 2 + CONTEXT);
    window_is(&dataset, 4, 1, 4 * CONTEXT);
    window_is(&dataset, 9, 2, 4 * CONTEXT);
    cddpi_dataset_close(&dataset);
}

/* The largest file that the form allows: 8 GiB, nearly all of it a hole. */
static void tokens_behind_2_gib_and_4_gib_are_reached(void **state)
{
    const uint32_t header[] = {LLAMA3_MAGIC, 7, INT32_MAX};
    const uint64_t context = 1000;
    const uint64_t windows = (INT32_MAX - 1) / context;
    const uint64_t places[] = {0, 536870912 / context, 1073741824 / context, windows - 1};
    struct cddpi_dataset dataset = {0};
    int32_t input[1000], label[1000];
    int file = open(in_folder("a.bin"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    (void)state;
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, SHARD_HEADER_BYTES + 4 * (off_t)INT32_MAX), 0);
    assert_int_equal(pwrite(file, header, sizeof header, 0), sizeof header);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t edge[] = {i + 1, i + 11}; /* the last label and the one before */
        uint64_t token = places[i] * context + context - 1;

        assert_int_equal(pwrite(file, edge, sizeof edge, (off_t)(SHARD_HEADER_BYTES + 4 * token)),
                         sizeof edge);
    }
    close(file);
    assert_int_equal(open_tokens("a.bin", (int)context, &dataset), CDDP_OK);
    assert_int_equal(dataset.count, windows);
    assert_int_equal(dataset.unused_count, (INT32_MAX - 1) % context);
    for (int i = 0; i < 4; i++) {
        struct cddpi_token_fault fault = {NULL, 0, 0};

        assert_true(cddpi_dataset_token_sequence(&dataset, places[i], input, label, &fault));
        assert_int_equal(input[998], 0);
        assert_int_equal(input[999], i + 1);
        assert_int_equal(label[998], i + 1);
        assert_int_equal(label[999], i + 11);
    }
    cddpi_dataset_close(&dataset);
}

/* Shards of arithmetic only: no memory could hold the tokens that they say they have. */
static void windows_of_more_than_2_to_the_32_tokens_are_numbered(void **state)
{
    static const uint16_t tokens[] = {5, 6, 7};
    struct cddpi_token_shard shards[] = {
        {"a", tokens, UINT64_C(1) << 40, 0, 0},
        {"b", tokens, 3, 0, (UINT64_C(1) << 39) - 1},
    };
    struct cddpi_dataset dataset = {.kind = CDDPI_DATASET_TOKENS,
                                    .count = UINT64_C(1) << 39,
                                    .classes = 10,
                                    .context = 2,
                                    .token_bytes = 2,
                                    .shards = shards,
                                    .shard_count = 2};
    int32_t input[2], label[2];
    struct cddpi_token_fault fault = {NULL, 0, 0};

    (void)state;
    assert_true(
        cddpi_dataset_token_sequence(&dataset, (UINT64_C(1) << 39) - 1, input, label, &fault));
    assert_int_equal(input[0], 5);
    assert_int_equal(label[1], 7);
}

/* The first token of a window, its last label, and one of 2^31 or more. */
static void every_token_of_a_window_is_looked_at(void **state)
{
    const uint64_t places[] = {0, 1, CONTEXT - 1, CONTEXT};
    const uint32_t values[] = {100, 50000, 0x7fffffff, 0x80000000u, 0xffffffffu};

    (void)state;
    for (size_t i = 0; i < 4 * 5; i++) {
        uint32_t tokens[CONTEXT + 1] = {0};
        struct cddpi_token_shard shard = {"x", tokens, CONTEXT + 1, 1000, 0};
        struct cddpi_dataset dataset = {.kind = CDDPI_DATASET_TOKENS,
                                        .count = 1,
                                        .classes = 100,
                                        .context = CONTEXT,
                                        .token_bytes = 4,
                                        .shards = &shard,
                                        .shard_count = 1};
        int32_t input[CONTEXT], label[CONTEXT];
        struct cddpi_token_fault fault = {NULL, 0, 0};

        assert_true(cddpi_dataset_token_sequence(&dataset, 0, input, label, &fault));
        tokens[places[i % 4]] = values[i / 4];
        assert_false(cddpi_dataset_token_sequence(&dataset, 0, input, label, &fault));
        assert_string_equal(fault.path, "x");
        assert_int_equal(fault.token, 1000 + places[i % 4]);
        assert_int_equal(fault.value, values[i / 4]);
    }
}

static void opening_survives_each_failed_allocation(void **state)
{
    struct cddpi_dataset dataset = {0};
    char *patterns[] = {in_folder("*.bin"), in_folder("c")};
    cddp_status status = CDDP_ERR_NO_MEMORY;
    unsigned nth = 0;

    (void)state;
    support_write_shard(in_folder("a.bin"), 1, 100, 2);
    support_write_shard(in_folder("b.bin"), 1, 100, 2);
    support_write_shard(in_folder("c"), 1, 100, 2);
    while (status == CDDP_ERR_NO_MEMORY) {
        cddpi_alloc_fail_nth(++nth);
        status = cddpi_dataset_open_tokens(patterns, 2, CONTEXT, 0, NULL, &dataset);
        cddpi_alloc_fail_nth(0);
    }
    assert_int_equal(status, CDDP_OK);
    assert_true(nth > 9);
    cddpi_dataset_close(&dataset);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        CASE(a_file_is_cut_into_windows_that_share_their_edges),
        CASE(tokens_of_llama_3_have_32_bits),
        CASE(shards_of_a_pattern_follow_each_other_by_name),
        CASE(a_list_keeps_its_order_and_names_no_file_twice),
        CASE(a_pattern_without_files_is_named),
        CASE(a_wrong_header_is_refused),
        CASE(a_file_of_another_kind_is_refused),
        CASE(no_broken_file_is_taken_for_a_whole_one),
        CASE(files_of_two_vocabularies_do_not_mix),
        CASE(a_context_longer_than_a_shard_is_an_error),
        CASE(the_last_of_several_shards_may_be_a_short_rest),
        CASE(tokens_behind_2_gib_and_4_gib_are_reached),
        CASE(windows_of_more_than_2_to_the_32_tokens_are_numbered),
        CASE(every_token_of_a_window_is_looked_at),
        CASE(opening_survives_each_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
