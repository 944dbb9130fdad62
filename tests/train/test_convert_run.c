/* test_convert_run.c - what cddp-convert --to hf makes of a run: with the tokenizer, for Hugging
 * Face's libraries. */
#include "base/alloc.h"
#include "data/tokenizer/tokenizer.h"
#include "support/train.h"

static const char sentence[] = "abcd efgh it's\n mnop";

static void run(const char *words)
{
    int status = system(
        argument("cd %s && %s/src/%s > said 2>&1", in_work("."), getenv("CDDP_TEST_BUILD"), words));

    if (status != 0) {
        fail_msg("%s: %s", words, get_file(in_work("said"), NULL));
    }
}

static void assert_file_has(const char *name, const char *words)
{
    char *text = get_file(in_work("%s", name), NULL);

    assert_non_null(text);
    if (strstr(text, words) == NULL) {
        fail_msg("%s lacks '%s': %s", name, words, text);
    }
    free(text);
}

/* Both vocabularies give the same tokens; "" is that of bytes. */
static void assert_same_tokens(const char *left, const char *right)
{
    const char *paths[2] = {left, right};
    struct cddpi_tokenizer *tokenizers[2];
    int32_t *tokens[2];
    size_t counts[2];

    for (int i = 0; i < 2; i++) {
        if (cddpi_tokenizer_open(paths[i], &tokenizers[i]) != CDDP_OK) {
            fail_msg("%s: %s", paths[i], cddp_last_error());
        }
        assert_int_equal(cddpi_tokenizer_encode(tokenizers[i], sentence, sizeof sentence - 1,
                                                &tokens[i], &counts[i]),
                         CDDP_OK);
    }
    assert_int_equal(cddpi_tokenizer_vocabulary(tokenizers[0]),
                     cddpi_tokenizer_vocabulary(tokenizers[1]));
    assert_int_equal(cddpi_tokenizer_end(tokenizers[0]), cddpi_tokenizer_end(tokenizers[1]));
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(tokens[0], tokens[1], counts[0] * sizeof *tokens[0]);
    for (int i = 0; i < 2; i++) {
        cddpi_free(tokens[i]);
        cddpi_tokenizer_close(tokenizers[i]);
    }
}

static int end_of(const char *path)
{
    struct cddpi_tokenizer *tokenizer;
    int end;

    assert_int_equal(cddpi_tokenizer_open(path, &tokenizer), CDDP_OK);
    end = cddpi_tokenizer_end(tokenizer);
    cddpi_tokenizer_close(tokenizer);
    return end;
}

static void a_run_is_converted_with_the_tokenizer_that_it_used(void **state)
{
    struct run_options options = {
        .ranks = 1, .conf = "text.conf", .arguments = {run_dir_argument("bytes")}};

    (void)state;
    run_well(&options);
    run("cddp-convert --to hf bytes hf");
    assert_same_tokens("", in_work("hf"));
    assert_file_has("hf/tokenizer_config.json", "\"tokenizer_class\": \"PreTrainedTokenizerFast\"");
    assert_file_has("hf/tokenizer_config.json", "\"eos_token\": \"<|endoftext|>\"");
    assert_file_has("hf/tokenizer_config.json", "\"model_max_length\": 15");
    assert_file_has("hf/config.json", "\"eos_token_id\": 256");
    assert_file_has("hf/config.json", "\"bos_token_id\": 256");
    run("cddp-convert --to hf hf again");
    assert_same_tokens("", in_work("again"));
}

static void a_learned_vocabulary_comes_back_as_it_was(void **state)
{
    struct run_options options = {
        .ranks = 1,
        .conf = "text.conf",
        .arguments = {run_dir_argument("bpe"),
                      argument("data.vocabulary=%s", in_work("bpe.json"))}};

    (void)state;
    run("cddp-tokenize --train 262 -o bpe.json words.txt");
    run_well(&options);
    run("cddp-convert --to hf bpe bpe-hf");
    assert_same_tokens(in_work("bpe.json"), in_work("bpe-hf"));
    assert_file_has("bpe-hf/config.json",
                    argument("\"eos_token_id\": %d", end_of(in_work("bpe-hf"))));
    assert_int_equal(unlink(in_work("bpe.json")), 0);
    run("cddp-convert --to hf bpe without");
    assert_file_has("said", "without gets no files of a tokenizer: ");
    assert_file_has("without/config.json", "\"eos_token_id\": null");
    assert_int_equal(access(in_work("without/tokenizer.json"), F_OK), -1);
    run("cddp-convert --to hf bpe bpe-hf");
    assert_file_has("said", "bpe-hf keeps the tokenizer.json that it had: ");
}

static void special_tokens_of_a_vocabulary_stay_special(void **state)
{
    static const char user[] = "{\"id\": 262, \"content\": \"<|user|>\", \"special\": true},";
    struct run_options options = {
        .ranks = 1,
        .conf = "text.conf",
        .arguments = {run_dir_argument("user"),
                      argument("data.vocabulary=%s", in_work("user.json"))}};
    char *text;
    char *list;
    char *with;

    (void)state;
    run("cddp-tokenize --train 262 -o bpe.json words.txt");
    text = get_file(in_work("bpe.json"), NULL);
    list = strchr(strstr(text, "\"added_tokens\""), '[') + 1;
    with = cddpi_format("%.*s%s%s", (int)(list - text), text, user, list);
    assert_non_null(with);
    support_write_file(in_work("user.json"), with, strlen(with));
    cddpi_free(with);
    free(text);
    run_well(&options);
    run("cddp-convert --to hf user user-hf");
    assert_file_has("user-hf/tokenizer.json", "\"content\": \"<|user|>\"");
    assert_same_tokens(in_work("user.json"), in_work("user-hf"));
}

/* $CDDP_TEST_PYTHON, else python3, may have transformers. */
static void auto_tokenizer_reads_a_converted_run(void **state)
{
    static const char script[] = "import sys\n"
                                 "from transformers import AutoTokenizer\n"
                                 "t = AutoTokenizer.from_pretrained(sys.argv[1])\n"
                                 "text = 'abcd efgh it is'\n"
                                 "ids = t(text)['input_ids']\n"
                                 "assert ids == list(text.encode()), ids\n"
                                 "assert t.decode(ids) == text, t.decode(ids)\n"
                                 "assert t.eos_token_id == 256, t.eos_token_id\n"
                                 "t = AutoTokenizer.from_pretrained(sys.argv[2])\n"
                                 "ids = t('<|user|>')['input_ids']\n"
                                 "assert ids == [262], ids\n"
                                 "assert t.decode([262], skip_special_tokens=True) == ''\n";
    const char *python = getenv("CDDP_TEST_PYTHON");

    (void)state;
    python = python != NULL ? python : "python3";
    if (system(argument("%s -c 'import transformers' > %s 2>&1", python, in_work("said"))) != 0) {
        print_message("skipped: %s has no transformers\n", python);
        skip();
    }
    support_write_file(in_work("read.py"), script, sizeof script - 1);
    if (system(argument("%s %s %s %s > %s 2>&1", python, in_work("read.py"), in_work("hf"),
                        in_work("user-hf"), in_work("said"))) != 0) {
        fail_msg("%s", get_file(in_work("said"), NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_converted_with_the_tokenizer_that_it_used),
        cmocka_unit_test(a_learned_vocabulary_comes_back_as_it_was),
        cmocka_unit_test(special_tokens_of_a_vocabulary_stay_special),
        cmocka_unit_test(auto_tokenizer_reads_a_converted_run),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
