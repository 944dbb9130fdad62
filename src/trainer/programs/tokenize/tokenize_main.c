/* tokenize_main.c - the program cddp-tokenize. */
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/memory_left.h"
#include "base/streams.h"
#include "programs/tokenize/run.h"

#include <signal.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

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

static int run_all(const struct cddpi_tokenize_options *options)
{
    struct cddpi_tokenize run = {.options = options, .is_stopped = is_stopped};
    cddp_status status;

    cddpi_tokenize_progress_init(&run.progress);
    catch_signals(options->mode == CDDPI_TOKENIZE_DECODE);
    status = run_mode(&run);
    cddpi_tokenize_progress_end(&run.progress);
    if (status != CDDP_OK) {
        fprintf(stderr, "cddp-tokenize: %s\n",
                stopped_by != 0 ? "stopped by a signal; no half files are left"
                                : cddp_last_error());
    }
    if (stopped_by != 0 && status != CDDP_OK) {
        (void)signal(stopped_by, SIG_DFL);
        (void)raise(stopped_by);
    }
    return status == CDDP_OK ? 0 : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    struct cddpi_tokenize_options options;
    int result = 0;

    cddpi_streams_open();
    cddpi_mapped_files_catch();
    if (cddpi_stack_ensure() != CDDP_OK) {
        fprintf(stderr, "cddp-tokenize: %s\n", cddp_last_error());
        return 1;
    }
    if (cddpi_tokenize_options_parse(argc, argv, &options) != CDDP_OK) {
        fprintf(stderr, "cddp-tokenize: %s\n", cddp_last_error());
        return EXIT_USAGE;
    }
    if (options.mode == CDDPI_TOKENIZE_HELP) {
        cddpi_tokenize_options_help(stdout);
    } else if (options.mode == CDDPI_TOKENIZE_VERSION) {
        printf("cddp-tokenize %s\n", cddp_version());
    } else {
        result = run_all(&options);
    }
    return result != 0 ? result : cddpi_streams_end("cddp-tokenize", 0);
}
