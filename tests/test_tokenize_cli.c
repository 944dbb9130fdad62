/* test_tokenize_cli.c - the program cddp-tokenize, run for real: files that it writes, what comes
 * back, and what it says about mistakes. */
#include "launcher_support.h"

#include <jansson.h>
#include <stdbool.h>

static const char *program(void)
{
    return launcher_path("src/cddp-tokenize");
}

static const char *small_vocabulary(void)
{
    static char path[4200];
    const char *source = getenv("CDDP_TEST_SOURCE");

    snprintf(path, sizeof path, "%s/tests/data/tokenizer_small.json",
             source != NULL ? source : ".");
    return path;
}

static void forget_output(struct launched *job)
{
    free(job->out);
    free(job->err);
    job->out = NULL;
    job->err = NULL;
}

/* Run it in the job's folder, and let the output be looked at. */
#define RUN(job, ...)                                                                              \
    do {                                                                                           \
        forget_output(job);                                                                        \
        launcher_start_program((job), program(), (const char *const[]){__VA_ARGS__, NULL});        \
        launcher_wait((job), 60);                                                                  \
    } while (0)

#define RUN_WELL(job, ...)                                                                         \
    do {                                                                                           \
        RUN(job, __VA_ARGS__);                                                                     \
        if ((job)->exit_status != 0) {                                                             \
            fail_msg("exit status %d: %s", (job)->exit_status, (job)->err);                        \
        }                                                                                          \
    } while (0)

static char *in_folder(const struct launched *job, const char *name)
{
    static char path[4300];

    snprintf(path, sizeof path, "%s/%s", job->dir, name);
    return path;
}

static void make_folder(struct launched *job)
{
    *job = (struct launched){.dir = support_mkdtemp()};
}

static void put(const struct launched *job, const char *name, const void *data, size_t bytes)
{
    support_write_file(in_folder(job, name), data, bytes);
}

static void put_text(const struct launched *job, const char *name, const char *text)
{
    put(job, name, text, strlen(text));
}

/* All of a file of the folder. */
static char *get(const struct launched *job, const char *name, size_t *out_bytes)
{
    FILE *file = fopen(in_folder(job, name), "re");
    struct stat info;
    char *data;

    if (file == NULL || fstat(fileno(file), &info) != 0) {
        fail_msg("there is no %s", name);
    }
    data = malloc((size_t)info.st_size + 1);
    *out_bytes = fread(data, 1, (size_t)info.st_size + 1, file);
    fclose(file);
    return data;
}

static void file_is(const struct launched *job, const char *name, const void *wanted, size_t bytes)
{
    size_t got;
    char *data = get(job, name, &got);

    assert_int_equal(got, bytes);
    assert_memory_equal(data, wanted, bytes);
    free(data);
}

static bool exists(const struct launched *job, const char *name)
{
    return access(in_folder(job, name), F_OK) == 0;
}

/* Tokens of a shard of @width bytes each, of which the header is right. */
static size_t get_tokens(const struct launched *job, const char *name, int width, int32_t *tokens,
                         size_t room)
{
    size_t bytes;
    char *data = get(job, name, &bytes);
    int32_t header[256];

    assert_true(bytes >= sizeof header);
    memcpy(header, data, sizeof header);
    assert_int_equal(header[0], width == 2 ? 20240520 : 20240801);
    assert_int_equal(header[1], width == 2 ? 1 : 7);
    assert_in_range(header[2], 0, room);
    for (int i = 3; i < 256; i++) {
        assert_int_equal(header[i], 0);
    }
    assert_int_equal(bytes, 1024 + (size_t)header[2] * (size_t)width);
    for (int32_t i = 0; i < header[2]; i++) {
        uint16_t narrow;

        memcpy(&narrow, data + 1024 + i * 2, 2);
        tokens[i] = narrow;
        if (width == 4) {
            memcpy(&tokens[i], data + 1024 + i * 4, 4);
        }
    }
    free(data);
    return (size_t)header[2];
}

/* No file of the folder is a half one. */
static void nothing_is_half(const struct launched *job)
{
    DIR *folder = opendir(job->dir);

    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        assert_null(strstr(entry->d_name, ".part"));
    }
    closedir(folder);
}

/* Text of 3 MB with all kinds of lines and bytes, and "<end>" lines between documents. */
static char *long_text(size_t *out_bytes)
{
    static const char *const parts[] = {"All human beings ",
                                        "are born free\n",
                                        "\r\n",
                                        "  \t",
                                        "0123",
                                        "\xc3\xa9\xff\xf0\x9f\x98",
                                        "\xf0\x9f\x98\x80",
                                        "'s",
                                        "<end",
                                        "<end>x\n",
                                        "\n<end>\n",
                                        "\n"};
    size_t room = 3 << 20;
    char *text = malloc(room + 64);
    uint32_t random = 5;
    size_t bytes = 0;

    while (bytes < room) {
        const char *part;

        random = random * 1664525 + 1013904223;
        part = parts[(random >> 20) % 12];
        strcpy(text + bytes, part);
        bytes += strlen(part);
    }
    memset(text + (1 << 20), 'a', 1 << 19); /* half a megabyte without a word's end */
    *out_bytes = bytes;
    return text;
}

static void bytes_make_a_shard_of_train_and_of_val(void **state)
{
    struct launched job;
    int32_t tokens[32];

    (void)state;
    make_folder(&job);
    put_text(&job, "text", "ab\ncd\nef\ngh\n");
    RUN_WELL(&job, "-o", "t", "--val-fraction", "0.3", "text");
    assert_out(&job, "t_train.bin: 10 tokens\nt_val.bin: 4 tokens\n2 documents, 12 bytes, ");
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
    make_folder(&job);
    put_text(&job, "a", "x");
    put_text(&job, "b", "");
    put_text(&job, "c", "yz");
    RUN_WELL(&job, "-o", "t", "--val-fraction", "0", "a", "b", "c");
    assert_out(&job, "2 documents, 3 bytes");
    assert_int_equal(get_tokens(&job, "t_train.bin", 2, tokens, 32), 5);
    assert_int_equal(tokens[0], 'x');
    assert_int_equal(tokens[1], 256);
    assert_int_equal(tokens[2], 'y');
    assert_int_equal(tokens[4], 256);
    assert_false(exists(&job, "t_val.bin"));
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
    make_folder(&job);
    put_text(&job, "text", text);
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
    make_folder(&job);
    put(&job, "text", text, bytes);
    RUN_WELL(&job, "--vocabulary", small_vocabulary(), "-o", "t", "text");
    RUN_WELL(&job, "--vocabulary", small_vocabulary(), "--decode", "t_train.bin", "t_val.bin");
    file_is(&job, "out", text, bytes);
    RUN_WELL(&job, "--vocabulary", small_vocabulary(), "--check", "text", "text");
    snprintf(text, bytes, "all %zu bytes come back", 2 * bytes);
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
    make_folder(&job);
    put(&job, "text", text, bytes);
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
    make_folder(&job);
    put_text(&job, "text", "0123456789abcdefghi\njk\n");
    put_text(&job, "t_train_000004.bin", "old");
    put_text(&job, "t_val.bin", "old");
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
    make_folder(&job);
    while (json_object_size(vocab) < 65536) {
        char name[32];

        snprintf(name, sizeof name, "token%d", (int)json_object_size(vocab));
        json_object_set_new(vocab, name, json_integer((int)json_object_size(vocab)));
    }
    assert_int_equal(json_dump_file(root, in_folder(&job, "narrow.json"), 0), 0);
    json_object_set_new(vocab, "xyz", json_integer(65536));
    json_object_set_new(vocab, "yz", json_incref(json_object_get(vocab, "token65535")));
    json_object_del(vocab, "token65535");
    json_array_append_new(json_object_get(model, "merges"), json_pack("[s,s]", "y", "z"));
    json_array_append_new(json_object_get(model, "merges"), json_pack("[s,s]", "x", "yz"));
    assert_int_equal(json_dump_file(root, in_folder(&job, "wide.json"), 0), 0);
    json_decref(root);
    put_text(&job, "text", "xyz");
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
    make_folder(&job);
    put(&job, "text", text, bytes);
    RUN_WELL(&job, "--train", "300", "-o", "v.json", "text");
    assert_out(&job, "v.json: 300 tokens from ");
    assert_string_equal(job.err, "");
    RUN_WELL(&job, "--vocabulary", "v.json", "-o", "t", "--val-fraction", "0", "text");
    assert_true(get_tokens(&job, "t_train.bin", 2, tokens, bytes) < bytes * 2 / 3);
    RUN_WELL(&job, "--vocabulary", "v.json", "--decode", "t_train.bin");
    file_is(&job, "out", text, bytes);
    put_text(&job, "short", "abab abab");
    RUN_WELL(&job, "--train", "300", "-o", "w.json", "short");
    assert_out(&job, "w.json: 259 tokens from 2 different words of 9 bytes");
    assert_err(&job, "the text gives no more than 259 tokens");
    nothing_is_half(&job);
    free(tokens);
    free(text);
    launcher_end(&job);
}

static void standard_input_is_text_too(void **state)
{
    struct launched job;

    (void)state;
    make_folder(&job);
    setenv("CDDP_TOKENIZE_PROGRAM", program(), 1);
    launcher_start_program(
        &job, "sh",
        (const char *const[]){"-c",
                              "printf 'a\\nb\\n' | \"$CDDP_TOKENIZE_PROGRAM\" -o t --val-fraction "
                              "0 - && \"$CDDP_TOKENIZE_PROGRAM\" --decode t_train.bin",
                              NULL});
    launcher_wait(&job, 60);
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "t_train.bin: 5 tokens\n");
    assert_out(&job, "\na\nb\n");
    RUN(&job, "-o", "t", "-");
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "standard input: its length is not known before its end");
    assert_err(&job, "give --val-fraction 0");
    launcher_end(&job);
}

static void progress_is_shown_as_asked(void **state)
{
    struct launched job;

    (void)state;
    make_folder(&job);
    put_text(&job, "text", "abc\n");
    setenv("CDDP_PROGRESS", "tty", 1);
    RUN_WELL(&job, "--check", "text");
    assert_err(&job, "\r\033[K0.0 of 0.0 MB, 4 tokens, ");
    assert_err(&job, " MB/s, 0 s left\r\033[K");
    setenv("CDDP_PROGRESS", "off", 1);
    RUN_WELL(&job, "--check", "text");
    assert_string_equal(job.err, "");
    unsetenv("CDDP_PROGRESS");
    launcher_end(&job);
}

static void a_wrong_command_line_gives_two_and_says_why(void **state)
{
    static const struct {
        const char *arguments[6];
        const char *text;
    } cases[] = {
        {{"text"}, "where to? Give -o NAME"},
        {{"--train", "300", "text"}, "where to? Give -o FILE.json"},
        {{"-o", "t"}, "of what? Name files, or - for standard input"},
        {{"--decode"}, "of what? Name files\n"},
        {{"-o", "t", "--vocabulry", "v", "text"}, "--vocabulry: did you mean --vocabulary?"},
        {{"-x", "text"}, "unknown option -x: see cddp-tokenize --help"},
        {{"text", "-o"}, "-o needs a value"},
        {{"--train", "256", "-o", "t", "text"}, "--train 256: not a whole number from 257 to"},
        {{"--train", "many", "-o", "t", "text"}, "--train many: not a whole number"},
        {{"--shard-tokens", "0", "-o", "t", "text"}, "--shard-tokens 0: not a whole number from 1"},
        {{"--val-fraction", "1", "-o", "t", "text"}, "--val-fraction 1: not a number from 0 to"},
        {{"--val-fraction", "x", "-o", "t", "text"}, "--val-fraction x: not a number from 0 to"},
        {{"--check", "--decode", "text"}, "--decode and --check exclude each other"},
        {{"--train", "300", "--check", "text"}, "--train and --check exclude each other"},
        {{"--check", "-o", "t", "text"}, "--output means nothing with --check"},
        {{"--decode", "--shard-tokens", "5", "t"}, "--shard-tokens means nothing with --decode"},
        {{"--train", "300", "--vocabulary", "v", "t"}, "--vocabulary means nothing with --train"},
        {{"--check", "--document-separator", "a\nb", "t"}, "it is one line"},
    };
    struct launched job;

    (void)state;
    make_folder(&job);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forget_output(&job);
        launcher_start_program(&job, program(), cases[i].arguments);
        launcher_wait(&job, 60);
        assert_err(&job, cases[i].text);
        assert_int_equal(job.exit_status, 2);
        assert_string_equal(job.out, "");
    }
    launcher_end(&job);
}

static void what_cannot_be_read_or_written_is_named(void **state)
{
    struct launched job;

    (void)state;
    make_folder(&job);
    put_text(&job, "text", "some text\n");
    put_text(&job, "empty", "");
    RUN(&job, "-o", "t", "text", "none");
    assert_int_equal(job.exit_status, 1);
    assert_string_equal(job.err, "cddp-tokenize: none: No such file or directory\n");
    RUN(&job, "-o", "t", ".");
    assert_err(&job, ".: it is a folder; name the files in it");
    RUN(&job, "-o", "t", "--vocabulary", "none", "text");
    assert_err(&job, "none: No such file or directory");
    RUN(&job, "-o", "nowhere/t", "text");
    assert_err(&job, "create nowhere/t_train.bin.");
    assert_err(&job, "No such file or directory");
    RUN(&job, "-o", "t", "empty");
    assert_err(&job, "there is no text in empty\n");
    assert_int_equal(job.exit_status, 1);
    RUN(&job, "--train", "300", "-o", "t", "empty", "empty");
    assert_err(&job, "there is no text in empty and the others\n");
    assert_false(exists(&job, "t"));
    RUN_WELL(&job, "-o", "t", "text");
    assert_err(&job, "there is no t_val.bin: the last part has no line of its own");
    nothing_is_half(&job);
    launcher_end(&job);
}

static void wrong_shards_are_named(void **state)
{
    struct launched job;
    int32_t header[258] = {20240520, 1, 2};

    (void)state;
    make_folder(&job);
    put(&job, "t.bin", header, 1023);
    RUN(&job, "--decode", "t.bin");
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "t.bin: it is no .bin file of tokens");
    put(&job, "t.bin", header, 1030);
    RUN(&job, "--decode", "t.bin");
    assert_err(&job, "t.bin: 2 tokens need 1028 bytes, the file has 1030");
    header[256] = 'a' | 257 << 16;
    put(&job, "t.bin", header, 1028);
    RUN(&job, "--decode", "t.bin");
    assert_err(&job, "t.bin: token 257 at offset 1026: the vocabulary has only 257 (bytes: give "
                     "--vocabulary)");
    header[0] = 20240801;
    put(&job, "t.bin", header, 1032);
    RUN(&job, "--decode", "t.bin");
    assert_err(&job, "t.bin: its version is 1, not 7");
    header[1] = 7;
    header[256] = 'a';
    header[257] = -1;
    put(&job, "t.bin", header, 1032);
    RUN(&job, "--decode", "t.bin");
    assert_err(&job, "t.bin: token 4294967295 at offset 1028");
    header[257] = 'b';
    put(&job, "t.bin", header, 1032);
    RUN_WELL(&job, "--decode", "t.bin");
    assert_string_equal(job.out, "ab");
    launcher_end(&job);
}

static void a_full_disk_leaves_no_half_file(void **state)
{
    struct launched job;
    size_t bytes;
    char *text = long_text(&bytes);

    (void)state;
    make_folder(&job);
    put(&job, "text", text, bytes);
    put_text(&job, "t_train.bin", "the old one");
    setenv("CDDP_TOKENIZE_PROGRAM", program(), 1);
    launcher_start_program(
        &job, "sh",
        (const char *const[]){"-c", "ulimit -f 100; exec \"$CDDP_TOKENIZE_PROGRAM\" -o t text",
                              NULL});
    launcher_wait(&job, 60);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "of t_train.bin.");
    assert_err(&job, "File too large");
    file_is(&job, "t_train.bin", "the old one", 11);
    nothing_is_half(&job);
    free(text);
    launcher_end(&job);
}

/* Whether a file that is not complete yet lies in the folder. */
static bool is_writing(const struct launched *job)
{
    DIR *folder = opendir(job->dir);
    bool found = false;

    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        found = found || strstr(entry->d_name, ".part") != NULL;
    }
    closedir(folder);
    return found;
}

static void a_signal_leaves_no_half_file(void **state)
{
    struct launched job;
    char *text = calloc(1, 2 << 20);
    int fd;

    (void)state;
    make_folder(&job);
    assert_int_equal(mkfifo(in_folder(&job, "pipe"), 0600), 0);
    launcher_start_program(&job, program(),
                           (const char *const[]){"-o", "t", "--val-fraction", "0", "pipe", NULL});
    fd = open(in_folder(&job, "pipe"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, (1 << 20) + 100), (1 << 20) + 100); /* one piece, and more */
    for (int waited_ms = 0; !is_writing(&job); waited_ms += 2) {
        assert_true(waited_ms < 60000);
        support_sleep_ms(2);
    }
    assert_int_equal(kill(job.pid, SIGTERM), 0);
    launcher_wait(&job, 60);
    assert_int_equal(job.exit_status, 128 + SIGTERM);
    assert_string_equal(job.err, "cddp-tokenize: stopped by a signal; no half files are left\n");
    assert_false(exists(&job, "t_train.bin"));
    nothing_is_half(&job);
    close(fd);
    free(text);
    launcher_end(&job);
}

static void help_and_version_are_printed(void **state)
{
    struct launched job;

    (void)state;
    make_folder(&job);
    RUN_WELL(&job, "--help");
    assert_out(&job, "usage: cddp-tokenize --train N -o FILE.json TEXT...");
    assert_out(&job, "--document-separator LINE");
    RUN_WELL(&job, "--version");
    assert_out(&job, "cddp-tokenize ");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_make_a_shard_of_train_and_of_val),
        cmocka_unit_test(each_file_is_a_document_and_empty_ones_are_none),
        cmocka_unit_test(separators_are_whole_lines),
        cmocka_unit_test(long_files_come_back_as_they_were),
        cmocka_unit_test(separators_of_long_files_are_all_found),
        cmocka_unit_test(shards_have_as_many_tokens_as_asked),
        cmocka_unit_test(large_vocabularies_make_wide_shards),
        cmocka_unit_test(a_learnt_vocabulary_encodes_the_text),
        cmocka_unit_test(standard_input_is_text_too),
        cmocka_unit_test(progress_is_shown_as_asked),
        cmocka_unit_test(a_wrong_command_line_gives_two_and_says_why),
        cmocka_unit_test(what_cannot_be_read_or_written_is_named),
        cmocka_unit_test(wrong_shards_are_named),
        cmocka_unit_test(a_full_disk_leaves_no_half_file),
        cmocka_unit_test(a_signal_leaves_no_half_file),
        cmocka_unit_test(help_and_version_are_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
