/* test_tokenize_errors.c - what cddp-tokenize prints, and which files it leaves, when something is
 * wrong. */
#include "support/tokenize.h"

static void progress_is_shown_as_asked(void **state)
{
    struct launched job;

    (void)state;
    tokenize_folder(&job);
    tokenize_put_text(&job, "text", "abc\n");
    setenv("CDDP_PROGRESS", "tty", 1);
    RUN_WELL(&job, "--check", "text");
    assert_err(&job, "\r\033[0K0.0 of 0.0 MB, 4 tokens, ");
    assert_err(&job, " MB/s, 0 s left\r\033[0K");
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
        {{"text"}, "the output is missing: give -o NAME"},
        {{"--train", "300", "text"}, "the output is missing: give -o FILE.json"},
        {{"-o", "t"}, "no file is named: name the files to read, or - for standard input"},
        {{"--decode"}, "no file is named: name the files to read\n"},
        {{"-o", "t", "--vocabulry", "v", "text"}, "--vocabulary"},
        {{"-x", "text"}, "cddp-tokenize --help"},
        {{"text", "-o"}, "--output "},
        {{"--train", "256", "-o", "t", "text"}, "--train 256: "},
        {{"--train", "many", "-o", "t", "text"}, "--train many: "},
        {{"--shard-tokens", "0", "-o", "t", "text"}, "--shard-tokens 0: "},
        {{"--val-fraction", "1", "-o", "t", "text"}, "--val-fraction 1: "},
        {{"--val-fraction", "x", "-o", "t", "text"}, "--val-fraction x: "},
        {{"--words", "-o", "t", "text"}, "--words has no meaning"},
        {{"--check", "--decode", "text"}, "--decode and --check"},
        {{"--train", "300", "--check", "text"}, "--train and --check"},
        {{"--check", "-o", "t", "text"}, "--output has no meaning with --check"},
        {{"--decode", "--shard-tokens", "5", "t"}, "--shard-tokens has no meaning with --decode"},
        {{"--train", "300", "--vocabulary", "v", "t"}, "--vocabulary has no meaning with --train"},
        {{"--check", "--document-separator", "a\nb", "t"}, "must be one line"},
    };
    struct launched job;

    (void)state;
    tokenize_folder(&job);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forget_output(&job);
        launcher_start_program(&job, program(), cases[i].arguments);
        launcher_wait(&job);
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
    tokenize_folder(&job);
    tokenize_put_text(&job, "text", "some text\n");
    tokenize_put_text(&job, "empty", "");
    RUN(&job, "-o", "t", "text", "none");
    assert_int_equal(job.exit_status, 1);
    assert_string_equal(job.err, "cddp-tokenize: none: No such file or directory\n");
    RUN(&job, "-o", "t", ".");
    assert_err(&job, ".: it is a folder; name the files in it");
    RUN(&job, "-o", "t", "--vocabulary", "none", "text");
    assert_err(&job, "none: No such file or directory");
    RUN(&job, "-o", "nowhere/t", "text");
    assert_err(&job, "open the folder of nowhere/t_train.bin: No such file");
    assert_err(&job, "No such file or directory");
    RUN(&job, "-o", "t", "empty");
    assert_err(&job, "there is no text in empty\n");
    assert_int_equal(job.exit_status, 1);
    RUN(&job, "--train", "300", "-o", "t", "empty", "empty");
    assert_err(&job, "there is no text in empty and the others\n");
    assert_false(tokenize_has(&job, "t"));
    RUN_WELL(&job, "-o", "t", "text");
    assert_err(&job, "t_val.bin is not written: no line begins in the part of the text");
    nothing_is_half(&job);
    launcher_end(&job);
}

static void wrong_shards_are_named(void **state)
{
    struct launched job;
    int32_t header[258] = {20240520, 1, 2};

    (void)state;
    tokenize_folder(&job);
    tokenize_put(&job, "t.bin", header, 1023);
    RUN(&job, "--decode", "t.bin");
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "t.bin: it is not a .bin file of tokens");
    tokenize_put(&job, "t.bin", header, 1030);
    RUN(&job, "--decode", "t.bin");
    assert_err(&job, "t.bin: 2 tokens need 1028 bytes, but the file has 1030");
    header[256] = 'a' | 257 << 16;
    tokenize_put(&job, "t.bin", header, 1028);
    RUN(&job, "--decode", "t.bin");
    assert_err(
        &job,
        "t.bin: the token at byte 1026 is 257, but the vocabulary has only 257 tokens (bytes: give "
        "--vocabulary)");
    header[0] = 20240801;
    tokenize_put(&job, "t.bin", header, 1032);
    RUN(&job, "--decode", "t.bin");
    assert_err(&job, "t.bin: its version is 1, not 7");
    header[1] = 7;
    header[256] = 'a';
    header[257] = -1;
    tokenize_put(&job, "t.bin", header, 1032);
    RUN(&job, "--decode", "t.bin");
    assert_err(&job, "t.bin: the token at byte 1028 is 4294967295");
    header[257] = 'b';
    tokenize_put(&job, "t.bin", header, 1032);
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
    tokenize_folder(&job);
    tokenize_put(&job, "text", text, bytes);
    tokenize_put_text(&job, "t_train.bin", "the old one");
    setenv("CDDP_TOKENIZE_PROGRAM", program(), 1);
    launcher_start_program(
        &job, "sh",
        (const char *const[]){"-c", "ulimit -f 100; exec \"$CDDP_TOKENIZE_PROGRAM\" -o t text",
                              NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "of t_train.bin: ");
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
        found = found || strstr(entry->d_name, ".tmp-") != NULL;
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
    tokenize_folder(&job);
    assert_int_equal(mkfifo(tokenize_path(&job, "pipe"), 0600), 0);
    launcher_start_program(&job, program(),
                           (const char *const[]){"-o", "t", "--val-fraction", "0", "pipe", NULL});
    fd = open(tokenize_path(&job, "pipe"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, (1 << 20) + 100), (1 << 20) + 100); /* one piece, and more */
    for (int waited_ms = 0; !is_writing(&job); waited_ms += 2) {
        assert_true(waited_ms < SUPPORT_LIMIT_S * 1000);
        support_sleep_ms(2);
    }
    assert_int_equal(kill(job.pid, SIGTERM), 0);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGTERM);
    assert_string_equal(job.err, "cddp-tokenize: stopped by a signal; no half files are left\n");
    assert_false(tokenize_has(&job, "t_train.bin"));
    nothing_is_half(&job);
    close(fd);
    free(text);
    launcher_end(&job);
}

static void help_and_version_are_printed(void **state)
{
    struct launched job;

    (void)state;
    tokenize_folder(&job);
    RUN_WELL(&job, "--help");
    assert_out(&job, "usage: cddp-tokenize --train N [--words] -o FILE.json TEXT...");
    assert_out(&job, "--document-separator LINE");
    RUN_WELL(&job, "--version");
    assert_out(&job, "cddp-tokenize ");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
