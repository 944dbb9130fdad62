/* main.c - the program cddp-train: one rank of a training run. */
#include "base/alloc.h"
#include "base/at_work.h"
#include "base/env.h"
#include "base/log.h"
#include "base/shell.h"
#include "base/streams.h"
#include "train/options.h"
#include "train/trainer.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_CONFIG = 2, EXIT_STOPPED = 3 };

/* "cddp-train: rank 1: ...", once: many texts name the rank themselves. */
static void print_failure(const struct cddpi_trainer *trainer)
{
    const char *text = cddp_last_error();
    char rank[32] = "";
    const char *known = cddpi_env(CDDPI_ENV_RANK);
    char *line;

    if (trainer != NULL && trainer->group != NULL) {
        snprintf(rank, sizeof rank, "rank %d: ", trainer->rank);
    } else if (known != NULL) {
        snprintf(rank, sizeof rank, "rank %.16s: ", known);
    }
    line = cddpi_format("cddp-train: %s%s\n", strncmp(text, rank, strlen(rank)) == 0 ? "" : rank,
                        text);
    cddpi_print(line != NULL ? line : "cddp-train: no memory\n");
    cddpi_free(line);
}

static int fail(cddp_status status, struct cddpi_trainer *trainer)
{
    if (trainer != NULL) {
        cddpi_progress_end(&trainer->progress);
    }
    print_failure(trainer);
    if (trainer != NULL && trainer->group != NULL) {
        char reason[2048];

        snprintf(reason, sizeof reason, "%s", cddp_last_error());
        cddp_group_abort(trainer->group, reason);
    }
    return status == CDDP_ERR_CONFIG ? EXIT_CONFIG : EXIT_FAILED;
}

/* The command line that was given, so that it can be pasted: cddp-run's own words come from it. */
static void print_how_to_go_on(const struct cddpi_trainer *trainer, char *const *words, int count)
{
    const char *launch = cddpi_env(CDDPI_ENV_LAUNCH);
    const char *run_dir = cddpi_env(CDDPI_ENV_RUN_DIR);

    printf("stopped after step %llu; to go on: ", (unsigned long long)trainer->at.step);
    if (launch != NULL) {
        printf("%s", launch);
    } else {
        printf("cddp-run --nproc %d", trainer->world_size);
        if (run_dir != NULL) {
            printf(" --run-dir ");
            cddpi_shell_print(stdout, run_dir);
        }
    }
    for (int i = 0; i < count; i++) {
        if (strncmp(words[i], "train.resume=", 13) != 0) {
            putchar(' ');
            cddpi_shell_print(stdout, words[i]);
        }
    }
    printf(" train.resume=auto\n");
}

static int train(const struct cddpi_config *config, char *const *words, int count)
{
    struct cddpi_trainer *trainer = NULL;
    cddp_status status = cddpi_trainer_create(config, &trainer);
    int result = 0;

    if (status == CDDP_OK) {
        cddpi_stop_install(); /* before, there is nothing to save: a signal simply ends it */
        status = cddpi_trainer_run(trainer);
    }
    if (status != CDDP_OK) {
        result = fail(status, trainer);
    } else if (trainer->stopped) {
        result = EXIT_STOPPED;
        if (trainer->rank == 0) {
            print_how_to_go_on(trainer, words, count);
        }
    } else if (trainer->rank == 0 && cddpi_trainer_is_text(trainer)) {
        printf("validation loss %.4f, perplexity %.4g after %llu steps; the run lies in %s\n",
               trainer->test_loss, exp(trainer->test_loss), (unsigned long long)trainer->at.step,
               config->train.run_dir);
    } else if (trainer->rank == 0) {
        printf("test accuracy %.2f %% after %llu steps; the run lies in %s\n",
               trainer->test_accuracy * 100, (unsigned long long)trainer->at.step,
               config->train.run_dir);
    }
    cddpi_trainer_destroy(trainer);
    return result;
}

/* No more ranks than cores that this process may use (cddp-run has counted them: hardware threads
 * of one core are one), nor than samples in a batch. */
static int print_nproc(const struct cddpi_config *config)
{
    int64_t count = cddpi_env_integer(CDDPI_ENV_AVAILABLE_CORES, 1, INT32_MAX, 0);
    cpu_set_t cores;

    CPU_ZERO(&cores);
    if (count == 0 && sched_getaffinity(0, sizeof cores, &cores) == 0) {
        count = CPU_COUNT(&cores);
    } else if (count == 0) {
        count = sysconf(_SC_NPROCESSORS_ONLN);
    }
    count = count > 0 ? count : 1;
    printf("%lld\n",
           (long long)(count < config->train.batch_size ? count : config->train.batch_size));
    return 0;
}

static int with_config(const struct cddpi_train_options *options)
{
    char *const *words = options->words;
    struct cddpi_config config;
    cddp_status status = cddpi_config_load(words[0], words + 1, options->word_count - 1, &config);
    int result = 0;

    if (status != CDDP_OK) {
        return fail(status, NULL);
    }
    if (options->mode == CDDPI_TRAIN_PRINT_NPROC) {
        result = print_nproc(&config);
    } else if (options->mode == CDDPI_TRAIN_GENERATE) {
        status = cddpi_trainer_generate(&config, options->prompt, stdout);
        result = status == CDDP_OK ? 0 : fail(status, NULL);
    } else if (options->mode == CDDPI_TRAIN_RUN) {
        result = train(&config, words, options->word_count);
    } else {
        status = cddpi_trainer_validate(
            &config, (int)cddpi_env_integer(CDDPI_ENV_WORLD_SIZE, 1, INT32_MAX, 1));
        if (status == CDDP_OK && options->mode == CDDPI_TRAIN_DRY_RUN) {
            status = cddpi_trainer_dry_run(&config, stdout);
        }
        result = status == CDDP_OK ? 0 : fail(status, NULL);
    }
    cddpi_config_fini(&config);
    return result;
}

int main(int argc, char **argv)
{
    struct cddpi_train_options options;
    int result = 0;

    cddpi_streams_open();
    cddpi_at_work_open();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like a full disk */
    if (cddpi_train_options_parse(argc, argv, &options) != CDDP_OK) {
        print_failure(NULL);
        return EXIT_CONFIG;
    }
    if (options.mode == CDDPI_TRAIN_HELP) {
        cddpi_train_options_help(stdout);
    } else if (options.mode == CDDPI_TRAIN_VERSION) {
        printf("cddp-train %s\n", cddp_version());
    } else if (options.mode == CDDPI_TRAIN_KEYS) {
        cddpi_config_print_keys(stdout);
    } else {
        result = with_config(&options);
    }
    return cddpi_streams_end("cddp-train", result);
}
