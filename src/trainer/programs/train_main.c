/* train_main.c - the program cddp-train: one rank of a training run. */
#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mapped_file.h"
#include "base/memory_left.h"
#include "base/number.h"
#include "base/options.h"
#include "base/streams.h"
#include "programs/predict_output.h"
#include "programs/train_infer.h"
#include "programs/train_keys.h"
#include "train/batch_sizes.h"
#include "train/config/schema.h"
#include "train/dry_run.h"
#include "train/engines/engine.h"
#include "train/save_request.h"
#include "train/train_setup.h"
#include "train/weights_sizes.h"

#include <cddp/process.h>
#include <cddp/recovery.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_FAILED = 1, EXIT_CONFIG = 2, EXIT_STOPPED = 3 };

/* id, name, letter (0: none), argument (NULL: none), sentence. Each option but --output chooses a
 * mode. */
#define OPTION_MAP(X)                                                                              \
    X(DRY_RUN, "dry-run", 0, NULL,                                                                 \
      "train nothing: print the resolved configuration, the model, memory, data files and "        \
      "number of steps")                                                                           \
    X(VALIDATE, "validate", 0, NULL, "check the configuration and exit")                           \
    X(GENERATE, "generate", 0, "PROMPT",                                                           \
      "print PROMPT, and the text that the run's newest checkpoint adds to it")                    \
    X(PREDICT, "predict", 0, "PATH",                                                               \
      "print the class or the targets of each sample in PATH, by the same model. PATH is an "      \
      "IDX file, an image, a folder of images, or rows in a .csv or .npy file")                    \
    X(OUTPUT, "output", 0, "FILE",                                                                 \
      "with --predict: write all outputs of each sample to FILE (.npy or .csv), and print only "   \
      "the number of samples")                                                                     \
    X(PRINT_NPROC, "print-nproc", 0, NULL,                                                         \
      "print how many ranks make sense on this machine, and exit")                                 \
    X(KEYS, "keys", 0, "[=NAME]",                                                                  \
      "print what each key of train.conf does, or only the keys that NAME names: a key "           \
      "(optimizer.lr), the beginning of keys (optimizer) or a last word (lr)")                     \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-train", OPTION_MAP);

/* This process's rank; -1: not known yet. */
static int own_rank(const struct cddpi_trainer *trainer)
{
    const char *text = cddpi_env(CDDPI_ENV_RANK);
    int64_t rank;

    if (trainer != NULL && trainer->group != NULL) {
        return trainer->rank;
    }
    return text != NULL && cddpi_parse_integer(text, 0, INT32_MAX, &rank) ? (int)rank : -1;
}

/* Print "cddp-train: rank 1: ..." with the rank only once, because many error texts name it
 * themselves. Before that, report the line to the launcher, and where in it the part begins
 * that other ranks may also print. */
static void print_failure(const struct cddpi_trainer *trainer)
{
    const struct cddpi_failure *failure = cddpi_last_failure();
    int rank = own_rank(trainer);
    char *line = rank < 0 || rank == failure->rank
                     ? cddpi_format("cddp-train: %s\n", failure->text)
                     : cddpi_format("cddp-train: rank %d: %s\n", rank, failure->text);

    if (line != NULL && rank >= 0) {
        size_t named = strlen(line) - 1 - strlen(failure->text) + failure->unnamed;

        cddpi_launcher_report_failure(rank, line, named);
    }
    cddpi_print(line != NULL ? line : "cddp-train: no memory\n");
    cddpi_free(line);
}

static int fail(cddp_status status, struct cddpi_trainer *trainer)
{
    int culprit = cddpi_error_culprit();

    if (trainer != NULL && trainer->group != NULL && culprit >= 0 && culprit != trainer->rank) {
        cddpi_launcher_report_culprit(trainer->rank, culprit);
    }
    if (trainer != NULL) {
        cddpi_progress_end(&trainer->records.progress);
    }
    print_failure(trainer);
    if (trainer != NULL && trainer->group != NULL) {
        cddp_group_abort(trainer->group, cddp_last_error());
    }
    return status == CDDP_ERR_CONFIG ? EXIT_CONFIG : EXIT_FAILED;
}

/* A key that ends a run, and its new value; 0: it stays. */
struct run_limit {
    const char *key;
    int64_t value;
};

enum { LIMITS = 2 };

/* Whether a word of this command line must not be in the one that resumes the run: the new
 * one names the checkpoint itself, its ranks meet as cddp-run arranges it, and it may set @p
 * longer. */
static bool is_dropped(const char *word, const struct run_limit *longer)
{
    static const char *const keys[] = {
        "train.resume=", "train.init_method=", "train.rank=", "train.world_size="};
    bool dropped = false;

    for (int i = 0; longer != NULL && i < LIMITS; i++) {
        size_t bytes = strlen(longer[i].key);

        dropped = dropped || (longer[i].value > 0 && strncmp(word, longer[i].key, bytes) == 0 &&
                              word[bytes] == '=');
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        dropped = dropped || strncmp(word, keys[i], strlen(keys[i])) == 0;
    }
    return dropped;
}

/* Print a command line for copying, which resumes the run. Its first part comes from
 * cddp-run. @p longer: what makes a complete run longer; NULL: the run is not complete. */
static void print_command(FILE *to, const struct cddpi_trainer *trainer, char *const *words,
                          int count, const struct run_limit *longer)
{
    const char *launch = cddpi_env(CDDPI_ENV_LAUNCH);
    const char *run_dir = cddpi_env(CDDPI_ENV_RUN_DIR);

    if (launch != NULL) {
        cddpi_say(to, "%s", launch);
    } else {
        fprintf(to, "cddp-run --nproc %d", trainer->world_size);
        if (run_dir != NULL) {
            fputs(" --run-dir ", to);
            cddpi_shell_print(to, run_dir);
        }
    }
    for (int i = 0; i < count; i++) {
        if (!is_dropped(words[i], longer)) {
            fputc(' ', to);
            cddpi_shell_print(to, words[i]);
        }
    }
    for (int i = 0; longer != NULL && i < LIMITS; i++) {
        if (longer[i].value > 0) {
            fprintf(to, " %s=%lld", longer[i].key, (long long)longer[i].value);
        }
    }
    fputs(" train.resume=", to);
    cddpi_shell_print(to, trainer->folder.moved_to != NULL ? trainer->folder.moved_to : "auto");
    fputc('\n', to);
}

/* For a run that is complete: the same with twice as many epochs, or steps, or both: what
 * ended it.
 */
static void print_how_to_train_on(const struct cddpi_trainer *trainer, char *const *words,
                                  int count)
{
    const struct cddpi_config *config = trainer->config;
    bool by_epochs = trainer->cursor.epoch >= (uint64_t)config->train.epochs;
    bool by_steps = config->train.max_steps > 0 &&
                    trainer->cursor.step >= (uint64_t)config->train.max_steps;
    int64_t epochs = by_epochs ? config->train.epochs : 0;
    int64_t steps = by_steps ? config->train.max_steps : 0;
    const struct run_limit longer[LIMITS] = {{"train.epochs", 2 * epochs},
                                             {"train.max_steps", 2 * steps}};
    char *text = NULL;
    size_t bytes = 0;
    FILE *to;

    if (trainer->records.progress.mode == CDDPI_PROGRESS_OFF ||
        trainer->folder.saved_step != trainer->cursor.step ||
        (to = open_memstream(&text, &bytes)) == NULL) {
        return;
    }
    fputs("to train longer: ", to);
    print_command(to, trainer, words, count, longer);
    if (fclose(to) == 0) {
        cddpi_print(text);
    }
    free(text);
}

/* Until there is something to save, a signal just kills. Slurm sends SIGUSR1 before the time
 * limit; it also requests dumps of the ranks' most recent operations. */
static cddp_status stop_on_signals(void)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1};

    return cddp_stop_on_signals(signals, sizeof signals / sizeof signals[0]);
}

/* Whether this process may go on in the job's next generation when @p trainer ends with @p status.
 * One that has used a GPU may not: nobody knows in which state the failure has left that. Nor may
 * one whose disk does not answer, which is no operation of the group. */
static bool may_stay(const struct cddpi_trainer *trainer, cddp_status status)
{
    if (status == CDDP_ERR_TIMEOUT && cddpi_last_failure()->operation[0] == '\0') {
        return false;
    }
    return trainer != NULL && trainer->group != NULL && !trainer->engine->owns_devices &&
           !cddpi_device_is_async(trainer->device);
}

/* The command that resumes a run that was stopped; NULL: nobody is to be told. */
static char *write_stopped(const struct cddpi_trainer *trainer, char *const *words, int count)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = trainer->rank == 0 ? open_memstream(&text, &bytes) : NULL;

    if (to == NULL) {
        return NULL;
    }
    fprintf(to, "stopped after step %llu; to continue: ", (unsigned long long)trainer->cursor.step);
    print_command(to, trainer, words, count, NULL);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Train once. @p out_stays: this process goes on in the job's next generation. */
static int train_once(struct cddpi_config *config, char *const *words, int count, bool *out_stays)
{
    struct cddpi_trainer *trainer = NULL;
    char *stopped = NULL;
    cddp_status status;
    int result = 0;
    bool stays;

    cddpi_save_request_expect(); /* before the launcher is told that there is a run */
    status = cddpi_trainer_create(config, &trainer);
    if (status == CDDP_OK) {
        status = stop_on_signals();
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_run(trainer);
    }
    if (status != CDDP_OK) {
        result = fail(status, trainer);
    } else if (trainer->step.stopped) {
        result = EXIT_STOPPED;
        stopped = write_stopped(trainer, words, count);
    } else if (trainer->rank == 0) {
        print_how_to_train_on(trainer, words, count);
        trainer->engine->print_result(trainer, stdout);
    }
    stays = result != 0 && may_stay(trainer, status);
    stays = cddpi_trainer_destroy(trainer) && stays;
    fflush(stdout);
    *out_stays = stays && cddp_recovery_rejoin(status) == CDDP_OK;
    if (stopped != NULL && !*out_stays) {
        cddpi_say(stdout, "%s", stopped);
    }
    free(stopped);
    return result;
}

/* Print the number of ranks to start: one per core, but not more replicas than micro-batches, or
 * else samples, in a batch. cddp-run has counted the cores: hardware threads of one core count
 * once, and quotas apply.
 */
static int print_nproc(const struct cddpi_config *config)
{
    int64_t count = cddpi_env_integer(CDDPI_ENV_AVAILABLE_CORES, 1, INT32_MAX, 0);
    int64_t most = config->train.micro_batch > 0
                       ? cddpi_trainer_all_micro_batches(config, config->train.batch_size)
                       : config->train.batch_size;
    int64_t stages = config->parallel.pipeline;
    struct cddpi_processors processors;

    if (count == 0) {
        cddpi_processors(&processors);
        count = processors.count;
    }
    if (stages > 1) {
        count = count > stages ? count / stages * stages : stages;
        most *= stages;
    }
    printf("%lld\n", (long long)(count < most ? count : most));
    return 0;
}

/* @p mode: the option that chose what to do; -1: train. @p values: of all options. @p words:
 * train.conf and key=value texts. @p out_stays: see train_once(). */
static int with_config(int mode, const char *const *values, char *const *words, int count,
                       bool *out_stays)
{
    const char *value = mode >= 0 ? values[mode] : NULL;
    struct cddpi_config config;
    cddp_status status = cddpi_config_load(words[0], words + 1, count - 1, &config);
    int result = 0;

    if (status != CDDP_OK) {
        return fail(status, NULL);
    }
    status = cddpi_config_take_sizes(&config, config.model.weights);
    if (status != CDDP_OK) {
        result = fail(status, NULL);
        cddpi_config_fini(&config);
        return result;
    }
    if (mode == OPTION_PRINT_NPROC) {
        result = print_nproc(&config);
    } else if (mode == OPTION_GENERATE) {
        status = cddpi_train_generate(&config, value, stdout);
    } else if (mode == OPTION_PREDICT) {
        status = cddpi_train_predict(&config, value, values[OPTION_OUTPUT], stdout);
    } else if (mode < 0) {
        result = train_once(&config, words, count, out_stays);
    } else {
        status = cddpi_trainer_validate(&config, cddpi_dry_run_ranks(&config));
        if (status == CDDP_OK && mode == OPTION_DRY_RUN) {
            status = cddpi_trainer_dry_run(&config, stdout);
        }
    }
    if (status != CDDP_OK) {
        result = fail(status, NULL);
        /* Another failure may come after the signal: it is told as without one. */
        result = mode == OPTION_PREDICT && status == CDDP_ERR_CLOSED ? EXIT_STOPPED : result;
    }
    cddpi_config_fini(&config);
    return result;
}

/* @p value: a name behind --keys=, or "". @p words: further names. */
static int print_keys(const char *value, char *const *words, int count)
{
    cddp_status status = cddpi_train_keys(value, words, count, stdout);

    if (status != CDDP_OK) {
        print_failure(NULL);
    }
    return status == CDDP_OK ? 0 : EXIT_CONFIG;
}

static void print_help(void)
{
    fputs("usage: cddp-train [--dry-run | --validate | --print-nproc] train.conf [key=value "
          "...]\n"
          "       cddp-train --generate PROMPT train.conf [key=value ...]\n"
          "       cddp-train --predict PATH [--output FILE] train.conf [key=value ...]\n"
          "       cddp-train --keys [NAME ...] | --help | --version\n"
          "\nTrains the model that train.conf describes. Each process is one rank of a job "
          "that\n"
          "cddp-run, mpirun or srun starts; without a launcher, it is the only rank.\n\n",
          stdout);
    cddpi_options_print(&table, 22, stdout);
}

/* Find which of the options that exclude each other was given; -1: none. */
static cddp_status read_mode(const char *const *values, int word_count, int *out)
{
    static const int modes[] = {OPTION_DRY_RUN, OPTION_VALIDATE,    OPTION_GENERATE,
                                OPTION_PREDICT, OPTION_PRINT_NPROC, OPTION_KEYS};

    CDDPI_TRY(cddpi_option_choice(&table, values, modes, 6, out));
    if (values[OPTION_OUTPUT] != NULL && *out != OPTION_PREDICT) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--output has a meaning only with --predict");
    }
    if (values[OPTION_OUTPUT] != NULL) {
        CDDPI_TRY(cddpi_predict_output_check(values[OPTION_OUTPUT]));
    }
    return word_count > 0 || *out == OPTION_KEYS
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT,
                            "no configuration is named: name a train.conf, see cddp-train --help");
}

int main(int argc, char **argv)
{
    const char *values[OPTION_COUNT] = {NULL};
    int word_count = 0;
    int mode = -1;
    int result = 0;
    bool runs;

    cddpi_streams_open();
    if (cddpi_stack_ensure() != CDDP_OK) {
        fprintf(stderr, "cddp-train: %s\n", cddp_last_error());
        return EXIT_FAILED;
    }
    cddpi_launcher_report_open();
    cddpi_mapped_files_catch();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* hitting ulimit -f is an error like a full disk */
    if (cddpi_options_read(&table, argc, argv, values, &word_count) != CDDP_OK) {
        print_failure(NULL);
        return EXIT_CONFIG;
    }
    runs = values[OPTION_HELP] == NULL && values[OPTION_VERSION] == NULL;
    if (runs && read_mode(values, word_count, &mode) != CDDP_OK) {
        print_failure(NULL);
        return EXIT_CONFIG;
    }
    if (values[OPTION_HELP] != NULL) {
        print_help();
    } else if (values[OPTION_VERSION] != NULL) {
        printf("cddp-train %s\n", cddp_version());
    } else if (mode == OPTION_KEYS) {
        result = print_keys(values[OPTION_KEYS], argv + 1, word_count);
    } else {
        bool stays;

        do {
            stays = false;
            result = with_config(mode, values, argv + 1, word_count, &stays);
        } while (stays);
    }
    return cddpi_streams_end("cddp-train", result);
}
