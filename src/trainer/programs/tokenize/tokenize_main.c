/* tokenize_main.c - the program cddp-tokenize. */
#include "base/clock.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/memory_left.h"
#include "base/number.h"
#include "base/streams.h"
#include "data/formats/token_shards.h"
#include "data/tokenizer/tokenizer_train.h"
#include "programs/program.h"
#include "programs/tokenize/run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* id, name, letter (0: none), argument (NULL: none), sentence */
#define OPTION_MAP(X)                                                                              \
    X(TRAIN, "train", 0, "N",                                                                      \
      "learn a vocabulary of N tokens from TEXT, including the 256 bytes and the end token, and "  \
      "write "                                                                                     \
      "it to the file that -o names, as Hugging Face's tokenizer.json")                            \
    X(WORDS, "words", 0, NULL,                                                                     \
      "with --train: tokens are words. The N most frequent words between white space are "         \
      "kept, <eos> stands for the end of a line, and <unk> for all other words")                   \
    X(VOCABULARY, "vocabulary", 0, "PATH",                                                         \
      "encode with this vocabulary: a file that --train wrote, a tokenizer.json like "             \
      "GPT-2's, GPT-2's encoder.json beside vocab.bpe, or their folder. Without it, each "         \
      "byte is a token")                                                                           \
    X(OUTPUT, "output", 'o', "NAME",                                                               \
      "write NAME_train.bin and NAME_val.bin; with --train, the vocabulary file NAME")             \
    X(SEPARATOR, "document-separator", 0, "LINE",                                                  \
      "a line, such as '<|endoftext|>', that separates documents; without it, each file is "       \
      "one document")                                                                              \
    X(VAL_FRACTION, "val-fraction", 0, "F",                                                        \
      "keep this part of all bytes, at the end, for validation; it begins at a new line "          \
      "(default 0.1; 0: none)")                                                                    \
    X(SHARD_TOKENS, "shard-tokens", 0, "N",                                                        \
      "write NAME_train_000000.bin and so on, with at most N tokens each")                         \
    X(DECODE, "decode", 0, NULL,                                                                   \
      "decode .bin files: write their text to standard output, with LINE after each "              \
      "document if --document-separator gives one")                                                \
    X(CHECK, "check", 0, NULL,                                                                     \
      "write nothing: encode and decode TEXT, and compare the result with TEXT")                   \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-tokenize", OPTION_MAP);

static volatile sig_atomic_t stopped_by; /* the signal; a handler can safely write only this */

static void note_signal(int number)
{
    stopped_by = number;
}

static bool is_stopped(void)
{
    return stopped_by != 0;
}

/* On a signal, remove incomplete files before the process ends; a second signal kills at once. */
static void catch_signals(bool prints)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND};

    for (int i = 0; i < 3; i++) {
        struct sigaction old;

        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
            sigaction(numbers[i], &action, NULL);
        }
    }
    if (!prints) {                      /* with --decode x.bin | head, SIGPIPE should end us */
        (void)signal(SIGPIPE, SIG_IGN); /* elsewhere it must not lose files */
    }
    (void)signal(SIGXFSZ, SIG_IGN);
}

static cddp_status run_mode(struct cddpi_tokenize *run)
{
    switch (run->options->mode) {
    case CDDPI_TOKENIZE_TRAIN:
        return cddpi_tokenize_train(run);
    case CDDPI_TOKENIZE_DECODE:
        return cddpi_tokenize_decode(run);
    case CDDPI_TOKENIZE_CHECK:
        return cddpi_tokenize_check(run);
    default:
        return cddpi_tokenize_encode(run);
    }
}

static cddp_status read_fraction(const char *text, double *out)
{
    double fraction;

    if (text == NULL) {
        return CDDP_OK;
    }
    if (!cddpi_parse_real(text, &fraction) || fraction < 0 || fraction >= 1) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--val-fraction %s: not a number from 0 to below 1",
                          text);
    }
    *out = fraction;
    return CDDP_OK;
}

static cddp_status read_mode(const char *const values[OPTION_COUNT], enum cddpi_tokenize_mode *out)
{
    static const int ids[] = {OPTION_TRAIN, OPTION_DECODE, OPTION_CHECK};
    static const enum cddpi_tokenize_mode modes[OPTION_COUNT] = {
        [OPTION_TRAIN] = CDDPI_TOKENIZE_TRAIN,
        [OPTION_DECODE] = CDDPI_TOKENIZE_DECODE,
        [OPTION_CHECK] = CDDPI_TOKENIZE_CHECK};
    int chosen = -1;
    cddp_status status = cddpi_option_choice(&table, values, ids, 3, &chosen);

    *out = chosen >= 0 ? modes[chosen] : CDDPI_TOKENIZE_ENCODE;
    return status;
}

/* Refuse an option that would be ignored: it is a mistake. */
static cddp_status refuse_useless(const char *const values[OPTION_COUNT],
                                  enum cddpi_tokenize_mode mode)
{
    static const struct {
        enum option_id id;
        unsigned modes; /* one bit per mode that uses the option */
    } uses[] = {{OPTION_WORDS, 1 << CDDPI_TOKENIZE_TRAIN},
                {OPTION_VOCABULARY, 1 << CDDPI_TOKENIZE_ENCODE | 1 << CDDPI_TOKENIZE_DECODE |
                                        1 << CDDPI_TOKENIZE_CHECK},
                {OPTION_OUTPUT, 1 << CDDPI_TOKENIZE_ENCODE | 1 << CDDPI_TOKENIZE_TRAIN},
                {OPTION_VAL_FRACTION, 1 << CDDPI_TOKENIZE_ENCODE},
                {OPTION_SHARD_TOKENS, 1 << CDDPI_TOKENIZE_ENCODE}};
    static const char *const names[] = {[CDDPI_TOKENIZE_ENCODE] = "",
                                        [CDDPI_TOKENIZE_TRAIN] = " with --train",
                                        [CDDPI_TOKENIZE_DECODE] = " with --decode",
                                        [CDDPI_TOKENIZE_CHECK] = " with --check"};

    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        if (values[uses[i].id] != NULL && (uses[i].modes & 1u << mode) == 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s has no meaning%s", rows[uses[i].id].name,
                              names[mode]);
        }
    }
    if (values[OPTION_OUTPUT] == NULL && mode <= CDDPI_TOKENIZE_TRAIN) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "the output is missing: give -o %s",
                          mode == CDDPI_TOKENIZE_TRAIN ? "FILE.json" : "NAME");
    }
    return CDDP_OK;
}

static cddp_status read_values(const char *const values[OPTION_COUNT],
                               struct cddpi_tokenize_options *options)
{
    int64_t vocabulary = 0;

    CDDPI_TRY(read_mode(values, &options->mode));
    CDDPI_TRY(refuse_useless(values, options->mode));
    CDDPI_TRY(cddpi_option_whole(&table, values, OPTION_TRAIN, CDDPI_TRAIN_VOCABULARY_MIN,
                                 CDDPI_TRAIN_VOCABULARY_MAX, &vocabulary));
    CDDPI_TRY(cddpi_option_whole(&table, values, OPTION_SHARD_TOKENS, 1, CDDPI_SHARD_TOKENS_MAX,
                                 &options->shard_tokens));
    CDDPI_TRY(read_fraction(values[OPTION_VAL_FRACTION], &options->val_fraction));
    if (options->path_count == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "no file is named: name the files to read%s",
                          options->mode == CDDPI_TOKENIZE_DECODE ? ""
                                                                 : ", or - for standard input");
    }
    if (values[OPTION_SEPARATOR] != NULL && (strchr(values[OPTION_SEPARATOR], '\n') != NULL ||
                                             strlen(values[OPTION_SEPARATOR]) > 1000)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--document-separator must be one line of at most 1000 bytes");
    }
    options->train_vocabulary = (int)vocabulary;
    options->words = values[OPTION_WORDS] != NULL;
    options->vocabulary = values[OPTION_VOCABULARY] != NULL ? values[OPTION_VOCABULARY] : "";
    options->output = values[OPTION_OUTPUT];
    if (options->output != NULL) {
        CDDPI_TRY(cddpi_option_path(&table, OPTION_OUTPUT, &options->output));
    }
    options->separator = values[OPTION_SEPARATOR];
    return CDDP_OK;
}

static int run_all(const struct cddpi_tokenize_options *options)
{
    struct cddpi_tokenize run = {
        .options = options, .is_stopped = is_stopped, .begin_ns = cddpi_now_ns()};
    cddp_status status;

    cddpi_progress_init(&run.progress, false);
    if (run.progress.mode == CDDPI_PROGRESS_PLAIN) {
        run.progress.shown_ns = run.begin_ns; /* only a terminal shows a line at once */
    }
    catch_signals(options->mode == CDDPI_TOKENIZE_DECODE);
    status = run_mode(&run);
    cddpi_progress_erase(&run.progress);
    if (status == CDDP_OK) {
        return 0;
    }
    fprintf(stderr, "cddp-tokenize: %s\n",
            stopped_by != 0 ? "stopped by a signal; no half files are left" : cddp_last_error());
    if (stopped_by != 0) {
        (void)signal(stopped_by, SIG_DFL);
        (void)raise(stopped_by);
    }
    exit(CDDPI_EXIT_FAILED); /* without another line about standard output */
}

static int run(const char *const *values, char **words, int count)
{
    struct cddpi_tokenize_options options = {
        .val_fraction = 0.1, .paths = words, .path_count = count};

    cddpi_mapped_files_catch();
    return read_values(values, &options) == CDDP_OK ? run_all(&options)
                                                    : cddpi_program_fail(&table, CDDPI_EXIT_USAGE);
}

int main(int argc, char **argv)
{
    static const struct cddpi_program program = {
        .options = &table,
        .column = 24,
        .usage =
            "usage: cddp-tokenize --train N [--words] -o FILE.json TEXT...\n"
            "       cddp-tokenize [--vocabulary PATH] -o NAME TEXT...\n"
            "       cddp-tokenize [--vocabulary PATH] --check TEXT...\n"
            "       cddp-tokenize [--vocabulary PATH] --decode FILE.bin...\n"
            "\nTurns texts into tokens, in llm.c's .bin files, which cddp-train reads. Tokens are "
            "bytes,\n"
            "byte-level BPE like GPT-2's, or words; it also learns such vocabularies. TEXT is a "
            "file;\n"
            "- is standard input. Each document ends with the end token.\n\n",
        .run = run};

    return cddpi_program_main(&program, argc, argv);
}
