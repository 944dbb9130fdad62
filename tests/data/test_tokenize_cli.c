/* test_tokenize_cli.c - the real program cddp-tokenize: the files that it writes, and the texts
 * that it decodes. */
#include "data/dataset.h"
#include "data/formats/token_shards.h"
#include "support/tokenize.h"

#include <jansson.h>

static void bytes_make_a_shard_of_train_and_of_val(void **state)
{
    struct launched job;
    int32_t tokens[32];

    (void)state;
    tokenize_folder(&job);
    tokenize_put_text(&job, "text", "ab\ncd\nef\ngh\n");
    RUN_WELL(&job, "-o", "t", "--val-fraction", "0.3", "text");
    assert_out(&job, "t_train.bin: 10 tokens\nt_val.bin: 4 tokens\n1 document, 12 bytes, ");
    assert_out(&job, "model.vocab = 257\n");
    assert_int_equal(get_tokens(&job, "t_train.bin", 2, tokens, 32), 10);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(tokens[i], "ab\ncd\nef\n"[i]);
    }
    assert_int_equal(tokens[9], 256);
    assert_int_equal(get_tokens(&job, "t_val.bin", 2, tokens, 32), 4);
    assert_int_equal(tokens[0], 'g');
    assert_int_equal(tokens[3], 256);
    RUN_WELL(&job, "--decode", "t_train.bin", "t_val.bin");
    assert_string_equal(job.out, "ab\ncd\nef\ngh\n");
    launcher_end(&job);
}

static void each_file_is_a_document_and_empty_ones_are_none(void **state)
{
    struct launched job;
    int32_t tokens[32];

    (void)state;
    tokenize_folder(&job);
    tokenize_put_text(&job, "a", "x");
    tokenize_put_text(&job, "b", "");
    tokenize_put_text(&job, "c", "yz");
    RUN_WELL(&job, "-o", "t", "--val-fraction", "0", "a", "b", "c");
    assert_out(&job, "2 documents, 3 bytes");
    assert_int_equal(get_tokens(&job, "t_train.bin", 2, tokens, 32), 5);
    assert_int_equal(tokens[0], 'x');
    assert_int_equal(tokens[1], 256);
    assert_int_equal(tokens[2], 'y');
    assert_int_equal(tokens[4], 256);
    assert_false(tokenize_has(&job, "t_val.bin"));
    launcher_end(&job);
}

static void a_byte_order_mark_is_no_part_of_a_document(void **state)
{
    struct launched job;
    int32_t tokens[32];

    (void)state;
    tokenize_folder(&job);
    tokenize_put_text(&job, "a",
                      "\xEF\xBB\xBF"
                      "xy");
    tokenize_put_text(&job, "b", "\xEF\xBB\xBF");
    tokenize_put_text(&job, "c",
                      "\xEF\xBB\xBF"
                      "z\xEF\xBB\xBF");
    RUN_WELL(&job, "-o", "t", "--val-fraction", "0", "a", "b", "c");
    assert_out(&job, "2 documents");
    assert_int_equal(get_tokens(&job, "t_train.bin", 2, tokens, 32), 8);
    assert_int_equal(tokens[0], 'x');
    assert_int_equal(tokens[2], 256);
    assert_int_equal(tokens[3], 'z');
    assert_int_equal(tokens[4], 0xEF); /* inside a text it is a character */
    launcher_end(&job);
}

static void words_are_learnt_encoded_and_written_again(void **state)
{
    static const int32_t expected[] = {2, 3, 1, 2, 0, 1, 4};
    struct launched job;
    int32_t tokens[32];

    (void)state;
    tokenize_folder(&job);
    tokenize_put_text(&job, "text", "the end\nthe beginning\n");
    tokenize_put_text(&job, "less", "the end\nthe end\nthe\n");
    RUN_WELL(&job, "--train", "300", "--words", "-o", "v.json", "less");
    assert_out(&job, "v.json: 5 tokens from 2 different words of 20 bytes, in ");
    assert_err(&job, "the text gives no more than 5 tokens: in it are no further words\n");
    RUN_WELL(&job, "--vocabulary", "v.json", "--val-fraction", "0", "-o", "t", "text");
    assert_out(&job, "model.vocab = 5\n");
    assert_int_equal(get_tokens(&job, "t_train.bin", 2, tokens, 32), 7);
    assert_memory_equal(tokens, expected, sizeof expected);
    RUN_WELL(&job, "--vocabulary", "v.json", "--decode", "t_train.bin");
    assert_string_equal(job.out, " the end\n the <unk>\n");
    RUN(&job, "--vocabulary", "v.json", "--check", "text");
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "--check has no meaning with a vocabulary of words: white space and unknown "
                     "words do not come back");
    launcher_end(&job);
}

static void separators_are_whole_lines(void **state)
{
    static const char text[] = "one\n<end>\n<end>\ntwo\r\n<end>\r\n<end>x\n x<end>\n<end>";
    struct launched job;
    int32_t tokens[64];
    size_t ends = 0;
    size_t count;

    (void)state;
    tokenize_folder(&job);
    tokenize_put_text(&job, "text", text);
    RUN_WELL(&job, "-o", "t", "--val-fraction", "0", "--document-separator", "<end>", "text");
    assert_out(&job, "3 documents");
    count = get_tokens(&job, "t_train.bin", 2, tokens, 64);
    for (size_t i = 0; i < count; i++) {
        ends += tokens[i] == 256;
    }
    assert_int_equal(ends, 3);
    RUN_WELL(&job, "--decode", "--document-separator", "<end>", "t_train.bin");
    assert_string_equal(job.out, "one\n<end>\ntwo\r\n<end>\n<end>x\n x<end>\n<end>\n");
    launcher_end(&job);
}

/* Lines, words and separators that lie across the pieces in which files are read. */
static void long_files_come_back_as_they_were(void **state)
{
    struct launched job;
    size_t bytes;
    char *text = long_text(&bytes);

    (void)state;
    tokenize_folder(&job);
    tokenize_put(&job, "text", text, bytes);
    RUN_WELL(&job, "--vocabulary", small_vocabulary(), "-o", "t", "text");
    RUN_WELL(&job, "--vocabulary", small_vocabulary(), "--decode", "t_train.bin", "t_val.bin");
    file_is(&job, "out", text, bytes);
    RUN_WELL(&job, "--vocabulary", small_vocabulary(), "--check", "text", "text");
    snprintf(text, bytes, "all %zu bytes are the same when decoded", 2 * bytes);
    assert_out(&job, text);
    free(text);
    launcher_end(&job);
}

/* What a separator of its own line leaves: decoding with it gives the text, but for empty
 * documents. */
static void separators_of_long_files_are_all_found(void **state)
{
    struct launched job;
    size_t bytes;
    char *text = long_text(&bytes);
    char *wanted = malloc(2 * bytes);
    size_t used = 0;
    size_t document = 0;

    (void)state;
    tokenize_folder(&job);
    tokenize_put(&job, "text", text, bytes);
    for (char *line = text; line < text + bytes;) {
        char *newline = memchr(line, '\n', (size_t)(text + bytes - line));
        char *next = newline != NULL ? newline + 1 : text + bytes;
        size_t length = (size_t)(next - line);

        if ((length == 6 && memcmp(line, "<end>\n", 6) == 0) ||
            (length == 7 && memcmp(line, "<end>\r\n", 7) == 0) ||
            (next == text + bytes && length == 5 && memcmp(line, "<end>", 5) == 0)) {
            if (used > document) {
                memcpy(wanted + used, "<end>\n", 6);
                used += 6;
            }
            document = used;
        } else {
            memcpy(wanted + used, line, length);
            used += length;
        }
        line = next;
    }
    if (used > document) {
        memcpy(wanted + used, "<end>\n", 6);
        used += 6;
    }
    RUN_WELL(&job, "-o", "t", "--val-fraction", "0", "--document-separator", "<end>", "text");
    RUN_WELL(&job, "--decode", "--document-separator", "<end>", "t_train.bin");
    file_is(&job, "out", wanted, used);
    free(text);
    free(wanted);
    launcher_end(&job);
}

static void shards_have_as_many_tokens_as_asked(void **state)
{
    struct launched job;
    int32_t tokens[32];

    (void)state;
    tokenize_folder(&job);
    tokenize_put_text(&job, "text", "0123456789abcdefghi\njk\n");
    tokenize_put_text(&job, "t_train_000004.bin", "old");
    tokenize_put_text(&job, "t_val.bin", "old");
    RUN_WELL(&job, "-o", "t", "--val-fraction", "0.15", "--shard-tokens", "6", "text");
    assert_out(&job, "t_train_000000.bin to t_train_000003.bin: 21 tokens\n"
                     "t_val_000000.bin: 4 tokens\n");
    assert_err(&job, "t_train_000004.bin was left by an earlier run");
    assert_err(&job, "t_val.bin was left by an earlier run");
    assert_int_equal(get_tokens(&job, "t_train_000000.bin", 2, tokens, 32), 6);
    assert_int_equal(get_tokens(&job, "t_train_000003.bin", 2, tokens, 32), 3);
    RUN_WELL(&job, "--decode", "t_train_000000.bin", "t_train_000001.bin", "t_train_000002.bin",
             "t_train_000003.bin", "t_val_000000.bin");
    assert_string_equal(job.out, "0123456789abcdefghi\njk\n");
    launcher_end(&job);
}

static void training_reads_the_shards(void **state)
{
    struct launched job;
    struct cddpi_dataset dataset;
    uint16_t token;

    (void)state;
    tokenize_folder(&job);
    tokenize_put_text(&job, "text", "0123456789abcdefghi\n");
    RUN_WELL(&job, "-o", "t", "--val-fraction", "0", "--shard-tokens", "11", "text");
    assert_int_equal(
        cddpi_dataset_open_tokens((char *const[]){tokenize_path(&job, "t_train_*.bin")}, 1, 2, 257,
                                  NULL, &dataset),
        CDDP_OK);
    assert_int_equal(dataset.kind, CDDPI_DATASET_TOKENS);
    assert_int_equal(dataset.token_count, 21);
    assert_int_equal(dataset.shard_count, 2);
    assert_int_equal(dataset.token_bytes, 2);
    memcpy(&token, dataset.shards[1].tokens, 2);
    assert_int_equal(token, 'b');
    cddpi_dataset_close(&dataset);
    launcher_end(&job);
}

/* As with more than 2147483647 tokens, but with room for 5. */
static void files_are_numbered_when_one_is_not_enough(void **state)
{
    static const int32_t some[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct launched job;
    struct cddpi_token_shards shards;
    int32_t tokens[32];

    (void)state;
    tokenize_folder(&job);
    for (size_t count = 4; count <= 12; count += 4) {
        assert_int_equal(cddpi_shards_init(&shards, tokenize_path(&job, "t"), 0, 257), CDDP_OK);
        assert_int_equal(shards.shard_tokens, INT32_MAX);
        shards.shard_tokens = 5;
        assert_int_equal(cddpi_shards_put(&shards, some, count), CDDP_OK);
        assert_int_equal(cddpi_shards_finish(&shards), CDDP_OK);
        assert_int_equal(shards.files, (int)(count + 4) / 5);
        if (count == 4) {
            assert_int_equal(get_tokens(&job, "t.bin", 2, tokens, 32), 4);
            assert_null(cddpi_shards_leftover(&shards));
            assert_int_equal(unlink(tokenize_path(&job, "t.bin")), 0);
        }
        cddpi_shards_fini(&shards);
    }
    assert_false(tokenize_has(&job, "t.bin"));
    assert_int_equal(get_tokens(&job, "t_000000.bin", 2, tokens, 32), 5);
    assert_int_equal(get_tokens(&job, "t_000001.bin", 2, tokens + 5, 27), 5);
    assert_int_equal(get_tokens(&job, "t_000002.bin", 2, tokens + 10, 22), 2);
    assert_memory_equal(tokens, some, sizeof some);
    nothing_is_half(&job);
    launcher_end(&job);
}

/* One token more than 16 bits can number. */
static void large_vocabularies_make_wide_shards(void **state)
{
    struct launched job;
    json_t *root = json_load_file(small_vocabulary(), 0, NULL);
    json_t *model = json_object_get(root, "model");
    json_t *vocab = json_object_get(model, "vocab");
    int32_t tokens[32];
    int last = 0;

    (void)state;
    tokenize_folder(&job);
    while (json_object_size(vocab) < 65536) {
        char name[32];

        snprintf(name, sizeof name, "token%d", (int)json_object_size(vocab));
        json_object_set_new(vocab, name, json_integer((int)json_object_size(vocab)));
    }
    assert_int_equal(json_dump_file(root, tokenize_path(&job, "narrow.json"), 0), 0);
    json_object_set_new(vocab, "xyz", json_integer(65536));
    json_object_set_new(vocab, "yz", json_incref(json_object_get(vocab, "token65535")));
    json_object_del(vocab, "token65535");
    json_array_append_new(json_object_get(model, "merges"), json_pack("[s,s]", "y", "z"));
    json_array_append_new(json_object_get(model, "merges"), json_pack("[s,s]", "x", "yz"));
    assert_int_equal(json_dump_file(root, tokenize_path(&job, "wide.json"), 0), 0);
    json_decref(root);
    tokenize_put_text(&job, "text", "xyz");
    RUN_WELL(&job, "--vocabulary", "narrow.json", "-o", "n", "--val-fraction", "0", "text");
    assert_true(get_tokens(&job, "n_train.bin", 2, tokens, 32) > 2);
    RUN_WELL(&job, "--vocabulary", "wide.json", "-o", "w", "--val-fraction", "0", "text");
    assert_out(&job, "model.vocab = 65537");
    assert_int_equal(get_tokens(&job, "w_train.bin", 4, tokens, 32), 2);
    assert_int_equal(tokens[0], 65536);
    last = tokens[1];
    assert_int_equal(last, 0); /* <|endoftext|> of the small vocabulary */
    RUN_WELL(&job, "--vocabulary", "wide.json", "--decode", "w_train.bin");
    assert_string_equal(job.out, "xyz");
    launcher_end(&job);
}

static void a_learnt_vocabulary_encodes_the_text(void **state)
{
    struct launched job;
    size_t bytes;
    char *text = long_text(&bytes);
    int32_t *tokens = malloc(bytes * sizeof *tokens);

    (void)state;
    tokenize_folder(&job);
    tokenize_put(&job, "text", text, bytes);
    RUN_WELL(&job, "--train", "300", "-o", "v.json", "text");
    assert_out(&job, "v.json: 300 tokens from ");
    assert_no_err(&job, "the text gives no more"); /* how far it is says what takes long */
    RUN_WELL(&job, "--vocabulary", "v.json", "-o", "t", "--val-fraction", "0", "text");
    assert_true(get_tokens(&job, "t_train.bin", 2, tokens, bytes) < bytes * 2 / 3);
    RUN_WELL(&job, "--vocabulary", "v.json", "--decode", "t_train.bin");
    file_is(&job, "out", text, bytes);
    tokenize_put_text(&job, "short", "abab abab");
    RUN_WELL(&job, "--train", "300", "-o", "w.json", "short");
    assert_out(&job, "w.json: 259 tokens from 2 different words of 9 bytes");
    assert_err(&job, "the text gives no more than 259 tokens");
    nothing_is_half(&job);
    free(tokens);
    free(text);
    launcher_end(&job);
}

static void a_reader_that_has_seen_enough_ends_decoding_quietly(void **state)
{
    static const char script[] =
        "seq 300000 >text && \"$0\" -o t --val-fraction 0 text && \"$0\" --decode t_train.bin | "
        "head -n 1 >first; cat first";
    struct launched job;

    (void)state;
    tokenize_folder(&job);
    launcher_start_program(&job, "sh", (const char *const[]){"-c", script, program(), NULL});
    launcher_wait(&job);
    assert_out(&job, "\n1\n");
    assert_string_equal(job.err, "");
    launcher_end(&job);
}

static void standard_input_is_text_too(void **state)
{
    struct launched job;

    (void)state;
    tokenize_folder(&job);
    setenv("CDDP_TOKENIZE_PROGRAM", program(), 1);
    launcher_start_program(
        &job, "sh",
        (const char *const[]){"-c",
                              "printf 'a\\nb\\n' | \"$CDDP_TOKENIZE_PROGRAM\" -o t --val-fraction "
                              "0 - && \"$CDDP_TOKENIZE_PROGRAM\" --decode t_train.bin",
                              NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "t_train.bin: 5 tokens\n");
    assert_out(&job, "\na\nb\n");
    RUN(&job, "-o", "t", "-");
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "standard input: its length is not known before its end");
    assert_err(&job, "give --val-fraction 0");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_make_a_shard_of_train_and_of_val),
        cmocka_unit_test(each_file_is_a_document_and_empty_ones_are_none),
        cmocka_unit_test(a_byte_order_mark_is_no_part_of_a_document),
        cmocka_unit_test(words_are_learnt_encoded_and_written_again),
        cmocka_unit_test(separators_are_whole_lines),
        cmocka_unit_test(long_files_come_back_as_they_were),
        cmocka_unit_test(separators_of_long_files_are_all_found),
        cmocka_unit_test(shards_have_as_many_tokens_as_asked),
        cmocka_unit_test(training_reads_the_shards),
        cmocka_unit_test(files_are_numbered_when_one_is_not_enough),
        cmocka_unit_test(large_vocabularies_make_wide_shards),
        cmocka_unit_test(a_learnt_vocabulary_encodes_the_text),
        cmocka_unit_test(standard_input_is_text_too),
        cmocka_unit_test(a_reader_that_has_seen_enough_ends_decoding_quietly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
