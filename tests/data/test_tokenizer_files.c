/* test_tokenizer_files.c - vocabulary files: which are accepted, and the messages for wrong
 * ones. */
#include "base/alloc.h"
#include "base/error.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_train.h"
#include "support/failure.h"
#include "support/test.h"

#include <jansson.h>

struct folder {
    char *path;
    char file[4200]; /* tokenizer.json in it */
    json_t *root;    /* what a test changes before it is written there */
    json_t *model, *vocab, *merges, *added, *words;
};

static const char text[] = "All human beings are born free, aaaaaa \xc3\xa9\xff \xe4\xba\xba!\n  x";

static char *small_path(void)
{
    static char path[4200];
    const char *source = getenv("CDDP_TEST_SOURCE");

    snprintf(path, sizeof path, "%s/tests/vectors/tokenizer_small.json",
             source != NULL ? source : ".");
    return path;
}

static int make_folder(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);

    folder->path = support_mkdtemp();
    snprintf(folder->file, sizeof folder->file, "%s/tokenizer.json", folder->path);
    folder->root = json_load_file(small_path(), 0, NULL);
    assert_non_null(folder->root);
    folder->model = json_object_get(folder->root, "model");
    folder->vocab = json_object_get(folder->model, "vocab");
    folder->merges = json_object_get(folder->model, "merges");
    folder->added = json_object_get(folder->root, "added_tokens");
    folder->words = json_object_get(folder->root, "pre_tokenizer");
    *state = folder;
    return 0;
}

static int remove_folder(void **state)
{
    struct folder *folder = *state;

    json_decref(folder->root);
    support_rmdir(folder->path);
    free(folder);
    return 0;
}

static char *in_folder(const struct folder *folder, const char *name)
{
    static char path[4300];

    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    return path;
}

static void path_is_refused(const char *path, cddp_status wanted, const char *what)
{
    struct cddpi_tokenizer *tokenizer = (struct cddpi_tokenizer *)&wanted;
    int descriptors = support_descriptors();

    assert_true(failure_is(cddpi_tokenizer_open(path, &tokenizer), wanted, -1, -1, ""));
    if (!last_error_has(path) || !last_error_has(what)) {
        fail_msg("'%s' should contain '%s' and '%s'", cddp_last_error(), path, what);
    }
    assert_ptr_equal(tokenizer, &wanted);
    assert_int_equal(support_descriptors(), descriptors);
}

/* The document as it was changed is refused with a text that names the file and says @p what. */
static void is_refused(struct folder *folder, const char *what)
{
    assert_int_equal(json_dump_file(folder->root, folder->file, 0), 0);
    path_is_refused(folder->file, CDDP_ERR_FORMAT, what);
}

/* The same, and then @p object's @p key is as it was. */
static void is_refused_with(struct folder *folder, json_t *object, const char *key, json_t *value,
                            const char *what)
{
    json_t *old = json_incref(json_object_get(object, key));

    if (value == NULL) {
        assert_int_equal(json_object_del(object, key), 0);
    } else {
        assert_int_equal(json_object_set_new(object, key, value), 0);
    }
    is_refused(folder, what);
    if (old != NULL) {
        assert_int_equal(json_object_set_new(object, key, old), 0);
    } else {
        assert_int_equal(json_object_del(object, key), 0);
    }
}

/* The vocabulary at @p path makes the same tokens as the one of the tree. */
static void path_is_the_same(const char *path)
{
    struct cddpi_tokenizer *wanted;
    struct cddpi_tokenizer *tokenizer;
    int32_t *tokens[2];
    size_t counts[2];

    assert_int_equal(cddpi_tokenizer_open(small_path(), &wanted), CDDP_OK);
    if (cddpi_tokenizer_open(path, &tokenizer) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_int_equal(cddpi_tokenizer_vocabulary(tokenizer), cddpi_tokenizer_vocabulary(wanted));
    assert_int_equal(cddpi_tokenizer_end(tokenizer), cddpi_tokenizer_end(wanted));
    assert_int_equal(cddpi_tokenizer_encode(tokenizer, text, sizeof text, &tokens[0], &counts[0]),
                     CDDP_OK);
    assert_int_equal(cddpi_tokenizer_encode(wanted, text, sizeof text, &tokens[1], &counts[1]),
                     CDDP_OK);
    assert_int_equal(counts[0], counts[1]);
    assert_true(counts[0] < sizeof text / 2);
    assert_memory_equal(tokens[0], tokens[1], counts[0] * sizeof *tokens[0]);
    cddpi_free(tokens[0]);
    cddpi_free(tokens[1]);
    cddpi_tokenizer_close(tokenizer);
    cddpi_tokenizer_close(wanted);
}

/* The pair of files as GPT-2 came with them; @p end are the ends of lines. */
static void write_pair(const struct folder *folder, const char *tokens, const char *merges,
                       const char *end)
{
    FILE *file = fopen(in_folder(folder, merges), "we");
    size_t index;
    json_t *merge;

    assert_non_null(file);
    fprintf(file, "#version: 0.2%s", end);
    json_array_foreach(folder->merges, index, merge)
    {
        fprintf(file, "%s %s%s", json_string_value(json_array_get(merge, 0)),
                json_string_value(json_array_get(merge, 1)), end);
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(json_dump_file(folder->vocab, in_folder(folder, tokens), 0), 0);
}

static void gpt2s_pair_of_files_is_read_by_any_of_its_names(void **state)
{
    const struct folder *folder = *state;

    write_pair(folder, "encoder.json", "vocab.bpe", "\n");
    path_is_the_same(in_folder(folder, "encoder.json"));
    path_is_the_same(in_folder(folder, "vocab.bpe"));
    path_is_the_same(folder->path);
}

static void hugging_faces_pair_of_files_is_read_too(void **state)
{
    const struct folder *folder = *state;

    write_pair(folder, "small-vocab.json", "small-merges.txt", "\r\n");
    path_is_the_same(in_folder(folder, "small-vocab.json"));
    path_is_the_same(in_folder(folder, "small-merges.txt"));
    write_pair(folder, "vocab.json", "merges.txt", "\n");
    path_is_the_same(folder->path);
}

static void merges_may_be_texts_and_folders_hold_a_tokenizer_json(void **state)
{
    struct folder *folder = *state;
    size_t index;
    json_t *merge;

    json_array_foreach(folder->merges, index, merge)
    {
        json_t *text_form = json_sprintf("%s %s", json_string_value(json_array_get(merge, 0)),
                                         json_string_value(json_array_get(merge, 1)));

        assert_int_equal(json_array_set_new(folder->merges, index, text_form), 0);
    }
    assert_int_equal(json_object_del(folder->model, "type"), 0); /* as older files */
    assert_int_equal(json_dump_file(folder->root, folder->file, 0), 0);
    path_is_the_same(folder->file);
    path_is_the_same(folder->path);
}

static void a_missing_file_is_named(void **state)
{
    struct folder *folder = *state;

    path_is_refused(in_folder(folder, "none.json"), CDDP_ERR_NOT_FOUND, ": ");
    assert_true(failure_errno_is(ENOENT));
    path_is_refused(folder->path, CDDP_ERR_NOT_FOUND, "this folder has no vocabulary");
    write_pair(folder, "encoder.json", "vocab.bpe", "\n");
    assert_int_equal(unlink(in_folder(folder, "vocab.bpe")), 0);
    path_is_refused(in_folder(folder, "encoder.json"), CDDP_ERR_NOT_FOUND,
                    "their merges are missing");
    write_pair(folder, "encoder.json", "vocab.bpe", "\n");
    assert_int_equal(unlink(in_folder(folder, "encoder.json")), 0);
    path_is_refused(in_folder(folder, "vocab.bpe"), CDDP_ERR_NOT_FOUND, "their tokens are missing");
}

static void what_is_no_vocabulary_is_refused(void **state)
{
    struct folder *folder = *state;

    support_write_file(folder->file, "", 0);
    path_is_refused(folder->file, CDDP_ERR_FORMAT, ": ");
    support_write_file(folder->file, "[1]", 3);
    path_is_refused(folder->file, CDDP_ERR_FORMAT, "it is not JSON");
    support_write_file(folder->file, "{\"model\": {}", 12);
    path_is_refused(folder->file, CDDP_ERR_FORMAT, "line 1, column 12: '}' expected");
    support_write_file(folder->file, "{\"a\": 1, \"a\": 2}", 16);
    path_is_refused(folder->file, CDDP_ERR_FORMAT, "duplicate object key");
    support_write_file(folder->file, "{\"a\": 1}", 8);
    path_is_refused(folder->file, CDDP_ERR_FORMAT, "there is no \"model\"");
}

static void what_would_make_other_tokens_is_refused(void **state)
{
    struct folder *f = *state;

    is_refused_with(f, f->model, "type", json_string("WordPiece"), "WordPiece");
    is_refused_with(f, f->model, "dropout", json_real(0.1), "model.dropout is set");
    is_refused_with(f, f->model, "byte_fallback", json_true(), "model.byte_fallback is set");
    is_refused_with(f, f->model, "ignore_merges", json_true(), "model.ignore_merges is set");
    is_refused_with(f, f->model, "end_of_word_suffix", json_string("</w>"), "end_of_word_suffix");
    is_refused_with(f, f->model, "vocab", NULL, "model.vocab is not an object");
    is_refused_with(f, f->model, "merges", json_object(), "model.merges is not an array");
    is_refused_with(f, f->root, "pre_tokenizer", json_null(), "pre_tokenizer.type is nothing");
    is_refused_with(f, f->words, "type", json_string("Sequence"), "pre_tokenizer.type is Sequence");
    is_refused_with(f, f->words, "use_regex", json_false(), "use_regex is not true");
    is_refused_with(f, f->words, "add_prefix_space", json_true(), "add_prefix_space is not false");
    is_refused_with(f, f->words, "add_prefix_space", NULL, "add_prefix_space is not false");
    is_refused_with(f, f->root, "normalizer", json_pack("{s:s}", "type", "NFC"),
                    "normalizer is NFC");
    is_refused_with(f, f->root, "added_tokens", json_object(), "added_tokens is not an array");
}

/* Tokens that are not in the text, and limits of its length. */
static void what_would_add_or_cut_tokens_is_refused(void **state)
{
    static const char *const refused[][3] = {
        {"post_processor",
         "{\"type\": \"BertProcessing\", \"sep\": [\"a\", 1], \"cls\": [\"a\", 1]}",
         "post_processor is BertProcessing, which adds tokens"},
        {"post_processor", "{\"type\": \"RobertaProcessing\"}", "post_processor is Roberta"},
        {"post_processor",
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}, "
         "{\"SpecialToken\": {\"id\": \"</s>\"}}]}",
         "post_processor is TemplateProcessing"},
        {"post_processor",
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {}}]}",
         "post_processor is TemplateProcessing"},
        {"post_processor",
         "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, "
         "{\"type\": \"BertProcessing\"}]}",
         "post_processor is Sequence, which adds tokens"},
        {"post_processor", "{\"type\": \"Sequence\"}", "post_processor is Sequence"},
        {"post_processor", "{}", "post_processor is nothing"},
        {"post_processor", "true", "post_processor is nothing"},
        {"truncation", "{\"max_length\": 512, \"stride\": 0}", "truncation is set, but texts are"},
        {"padding", "{\"strategy\": \"BatchLongest\", \"pad_id\": 0}", "padding is set, but texts"},
    };
    static const char *const taken[][2] = {
        {"post_processor", "{\"type\": \"ByteLevel\", \"trim_offsets\": false}"},
        {"post_processor", "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}]}"},
        {"post_processor",
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": "
         "\"A\", \"type_id\": 0}}], \"pair\": []}"},
        {"post_processor", "null"},
        {"truncation", "null"},
        {"padding", "null"},
    };
    struct folder *f = *state;

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        is_refused_with(f, f->root, refused[i][0], json_loads(refused[i][1], JSON_DECODE_ANY, NULL),
                        refused[i][2]);
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        json_object_set_new(f->root, taken[i][0], json_loads(taken[i][1], JSON_DECODE_ANY, NULL));
        assert_int_equal(json_dump_file(f->root, f->file, 0), 0);
        path_is_the_same(f->file);
    }
}

/* Put the mark that editors of Windows put before the file. */
static void mark(const char *path)
{
    static char all[1 << 20];
    FILE *file = fopen(path, "r+e");
    size_t bytes = fread(all + 3, 1, sizeof all - 3, file);

    memcpy(all, "\xEF\xBB\xBF", 3);
    rewind(file);
    assert_int_equal(fwrite(all, 1, bytes + 3, file), bytes + 3);
    assert_int_equal(fclose(file), 0);
}

static void a_byte_order_mark_is_passed_over(void **state)
{
    struct folder *folder = *state;

    assert_int_equal(json_dump_file(folder->root, folder->file, 0), 0);
    mark(folder->file);
    path_is_the_same(folder->file);
    assert_int_equal(unlink(folder->file), 0);
    write_pair(folder, "vocab.json", "merges.txt", "\r\n");
    mark(in_folder(folder, "vocab.json"));
    mark(in_folder(folder, "merges.txt"));
    path_is_the_same(in_folder(folder, "vocab.json"));
    path_is_the_same(in_folder(folder, "merges.txt"));
}

static void wrong_tokens_are_named(void **state)
{
    struct folder *f = *state;
    int count = (int)json_object_size(f->vocab);
    char wanted[160];
    char *longest = malloc(9001);

    is_refused_with(f, f->vocab, "the", json_string("x"), "token \"the\": its id is not a whole");
    is_refused_with(f, f->vocab, "A", json_integer(-1), "token \"A\": its id is -1, but there are");
    snprintf(wanted, sizeof wanted,
             "token \"A\": its id is %d, but there are %d tokens, so that "
             "ids are 0 to %d",
             count, count, count - 1);
    is_refused_with(f, f->vocab, "A", json_integer(count), wanted);
    is_refused_with(f, f->vocab, "A", json_integer(INT64_MAX), "its id is 9223372036854775807");
    is_refused_with(f, f->vocab, "A", json_incref(json_object_get(f->vocab, "B")),
                    "tokens \"A\" and \"B\" have the same id");
    is_refused_with(f, f->vocab, "A", NULL, "so that ids are 0 to"); /* a hole */
    is_refused_with(f, f->vocab, "\xe6\x97\xa5", json_integer(count),
                    "U+65E5 does not stand for a byte");
    is_refused_with(f, f->vocab, "", json_integer(count), "is empty");
    is_refused_with(f, f->vocab, "a\x1b[31m", json_integer(count), "token \"a?[31m\"");
    memset(longest, 'a', 9000);
    longest[9000] = '\0';
    is_refused_with(f, f->vocab, longest, json_integer(count), "it has 9000 bytes, more than 8192");
    free(longest);
}

static void a_vocabulary_without_a_byte_or_an_end_is_refused(void **state)
{
    struct folder *f = *state;
    json_t *id = json_incref(json_object_get(f->vocab, "Q"));

    assert_int_equal(json_object_del(f->vocab, "Q"), 0);
    is_refused_with(f, f->vocab, "QQQQ", json_incref(id), "no token is the byte 0x51");
    assert_int_equal(json_object_set_new(f->vocab, "Q", id), 0);
    id = json_incref(json_object_get(f->vocab, "<|endoftext|>"));
    assert_int_equal(json_object_del(f->vocab, "<|endoftext|>"), 0);
    assert_int_equal(json_array_clear(f->added), 0);
    is_refused_with(f, f->vocab, "QQQQ", id, "no token stands for the end of a text");
}

static void wrong_added_tokens_are_named(void **state)
{
    struct folder *f = *state;
    json_t *added = json_array_get(f->added, 0);
    int count = (int)json_object_size(f->vocab);

    is_refused_with(f, added, "content", NULL, "added_tokens[0]: it has no id and content");
    is_refused_with(f, added, "id", json_string("0"), "added_tokens[0]: it has no id and content");
    is_refused_with(f, added, "special", json_false(), "\"<|endoftext|>\": it is not special");
    is_refused_with(f, added, "id", json_integer(5), "its id is 5, but 0 in the vocabulary");
    is_refused_with(f, added, "content", json_string("<|new|>"),
                    "tokens \"<|endoftext|>\" and \"<|new|>\" have the same id 0");
    assert_int_equal(json_array_append(f->added, added), 0);
    is_refused(f, "added_tokens[1], \"<|endoftext|>\": it is there twice");
    assert_int_equal(json_array_set_new(f->added, 1,
                                        json_pack("{s:i, s:s, s:b}", "id", count + 1, "content",
                                                  "<|new|>", "special", 1)),
                     0);
    is_refused(f, "token \"<|new|>\": its id is");
    for (int i = 0; i < 4096; i++) {
        json_array_append(f->added, added);
    }
    is_refused(f, "there are 4098 added tokens, but only 4096 can be used");
}

static void an_added_token_beyond_the_vocabulary_is_one_of_it(void **state)
{
    struct folder *f = *state;
    int count = (int)json_object_size(f->vocab);
    struct cddpi_tokenizer *tokenizer;
    size_t bytes;

    json_array_append_new(f->added, json_pack("{s:i, s:s, s:b}", "id", count, "content",
                                              "<|\xe6\x97\xa5|>", "special", 1));
    assert_int_equal(json_dump_file(f->root, f->file, 0), 0);
    assert_int_equal(cddpi_tokenizer_open(f->file, &tokenizer), CDDP_OK);
    assert_int_equal(cddpi_tokenizer_vocabulary(tokenizer), count + 1);
    assert_memory_equal(cddpi_tokenizer_token(tokenizer, count, &bytes), "<|\xe6\x97\xa5|>", 7);
    assert_int_equal(bytes, 7);
    cddpi_tokenizer_close(tokenizer);
}

/* How text around a special token is taken into it: for Hugging Face's library, not for ours. */
static void a_special_token_keeps_its_flags_when_it_is_saved(void **state)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
    struct folder *f = *state;
    int count = (int)json_object_size(f->vocab);

    for (int i = 0; i < 4; i++) {
        json_array_append_new(f->added,
                              json_pack("{s:i, s:o, s:b, s:b}", "id", count + i, "content",
                                        json_sprintf("<|%d|>", i), "special", 1, flags[i], 1));
    }
    for (int of_end = 0; of_end < 4; of_end++) {
        json_t *end = json_array_get(f->added, 0);
        struct cddpi_tokenizer *tokenizer;
        json_t *root;

        for (int i = 0; i < 4; i++) {
            json_object_set_new(end, flags[i], json_boolean(i == of_end));
        }
        assert_int_equal(json_dump_file(f->root, f->file, 0), 0);
        assert_int_equal(cddpi_tokenizer_open(f->file, &tokenizer), CDDP_OK);
        assert_int_equal(cddpi_tokenizer_save(tokenizer, f->file), CDDP_OK);
        cddpi_tokenizer_close(tokenizer);
        root = json_load_file(f->file, 0, NULL);
        for (size_t k = 0; k < 5; k++) {
            const json_t *token = json_array_get(json_object_get(root, "added_tokens"), k);
            int set = k == 0 ? of_end : (int)k - 1;

            for (int i = 0; i < 4; i++) {
                assert_true(json_is_boolean(json_object_get(token, flags[i])));
                assert_int_equal(json_is_true(json_object_get(token, flags[i])), i == set);
            }
        }
        json_decref(root);
    }
}

static void wrong_merges_are_named(void **state)
{
    static const struct {
        const char *merge, *what;
    } cases[] = {
        {"[\"zzz\", \"a\"]", "model.merges[3]: \"zzz\" is not a token of"},
        {"[\"a\", \"zzz\"]", "model.merges[3]: \"zzz\" is not a token of"},
        {"[\"Q\", \"Z\"]", "model.merges[3]: \"QZ\" is not a token of"},
        {"[\"a\"]", "model.merges[3]: a merge must be two tokens"},
        {"[\"a\", \"b\", \"c\"]", "model.merges[3]: a merge must be two tokens"},
        {"[\"a\", 1]", "model.merges[3]: a merge must be two tokens"},
        {"7", "model.merges[3]: a merge must be two tokens"},
        {"\"a b c\"", "model.merges[3]: \"a b c\" is not two tokens with a space"},
        {"\"a\"", "model.merges[3]: \"a\" is not two tokens with a space"},
        {"\" a\"", "model.merges[3]: \" a\" is not two tokens with a space"},
        {"\"a \"", "model.merges[3]: \"a \" is not two tokens with a space"},
        {"[\"\", \"a\"]", "model.merges[3]: \"\" is not a token of"},
        {"[\"<|endoftext|>\", \"a\"]", "model.merges[3]: \"<|endoftext|>\" is a special token"},
    };
    struct folder *f = *state;
    json_t *old = json_incref(json_array_get(f->merges, 2));

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *merge = json_loads(cases[i].merge, JSON_DECODE_ANY, NULL);

        assert_non_null(merge);
        assert_int_equal(json_array_set_new(f->merges, 3, merge), 0);
        is_refused(f, cases[i].what);
    }
    assert_int_equal(json_array_set_new(f->merges, 3, old), 0);
    is_refused(f, "is merged for the second time");
}

static void wrong_lines_of_merges_are_numbered(void **state)
{
    struct folder *f = *state;
    static const char no_token[] = "#version: 0.2\nt h\n\nzz h\n";
    char hidden[20000];

    write_pair(f, "encoder.json", "vocab.bpe", "\n");
    support_write_file(in_folder(f, "vocab.bpe"), no_token, sizeof no_token - 1);
    path_is_refused(in_folder(f, "vocab.bpe"), CDDP_ERR_FORMAT,
                    "vocab.bpe: line 4: \"zz\" is not a token of");
    /* a 0 ends no token, however long what follows is */
    memset(hidden, 'x', sizeof hidden);
    memcpy(hidden, "a\0", 2);
    memcpy(hidden + sizeof hidden - 2, " b", 2);
    support_write_file(in_folder(f, "vocab.bpe"), hidden, sizeof hidden);
    path_is_refused(in_folder(f, "vocab.bpe"), CDDP_ERR_FORMAT, "line 1: \"a?xxx");
    memset(hidden, 'x', sizeof hidden - 2);
    support_write_file(in_folder(f, "vocab.bpe"), hidden, sizeof hidden);
    path_is_refused(in_folder(f, "vocab.bpe"), CDDP_ERR_FORMAT, "xxx...\" is not a token of");
}

/* Whatever a file says, it is read or refused. */
static void damaged_files_do_no_harm(void **state)
{
    struct folder *f = *state;
    char *good = json_dumps(f->root, 0);
    size_t bytes = strlen(good);
    uint32_t random = 7;
    int refused = 0;

    for (int round = 0; round < 300; round++) {
        char *bad = malloc(bytes);
        struct cddpi_tokenizer *tokenizer = NULL;

        memcpy(bad, good, bytes);
        for (int i = 0; i < 1 + round % 4; i++) {
            random = random * 1664525 + 1013904223;
            bad[(random >> 4) % bytes] = "\"{}[],:01 a\0"[(random >> 24) % 12];
        }
        support_write_file(f->file, bad, round % 10 == 0 ? random % bytes : bytes);
        if (cddpi_tokenizer_open(f->file, &tokenizer) == CDDP_OK) {
            int32_t *tokens;
            size_t count;

            assert_int_equal(cddpi_tokenizer_encode(tokenizer, text, sizeof text, &tokens, &count),
                             CDDP_OK);
            cddpi_free(tokens);
        } else {
            assert_true(last_error_has(f->file));
            refused++;
        }
        cddpi_tokenizer_close(tokenizer);
        free(bad);
    }
    assert_in_range(refused, 200, 300);
    free(good);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(gpt2s_pair_of_files_is_read_by_any_of_its_names),
        CASE(hugging_faces_pair_of_files_is_read_too),
        CASE(merges_may_be_texts_and_folders_hold_a_tokenizer_json),
        CASE(a_missing_file_is_named),
        CASE(what_is_no_vocabulary_is_refused),
        CASE(what_would_make_other_tokens_is_refused),
        CASE(what_would_add_or_cut_tokens_is_refused),
        CASE(a_byte_order_mark_is_passed_over),
        CASE(wrong_tokens_are_named),
        CASE(a_vocabulary_without_a_byte_or_an_end_is_refused),
        CASE(wrong_added_tokens_are_named),
        CASE(an_added_token_beyond_the_vocabulary_is_one_of_it),
        CASE(a_special_token_keeps_its_flags_when_it_is_saved),
        CASE(wrong_merges_are_named),
        CASE(wrong_lines_of_merges_are_numbered),
        CASE(damaged_files_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
