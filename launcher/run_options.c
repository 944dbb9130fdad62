/* run_options.c - parses cddp-run's command line, and prints --help. */
#include "launcher/run_options_own.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/number.h"
#include "base/options.h"

#include <string.h>

enum { HELP_COLUMN = 26 };

static cddp_status read_seconds(const char *const values[OPTION_COUNT], enum option_id id,
                                double low, double high, int64_t *out_ms)
{
    double seconds;

    if (values[id] == NULL) {
        return CDDP_OK;
    }
    if (!cddpi_parse_real(values[id], &seconds) || seconds < low || seconds > high) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s %s: not a number of seconds from %g to %g",
                          rows[id].name, values[id], low, high);
    }
    *out_ms = (int64_t)(seconds * 1000 + 0.5);
    return CDDP_OK;
}

static cddp_status read_bind(const char *const values[OPTION_COUNT], enum cddpi_bind *out)
{
    static const char *const words[] = {CDDPI_BIND_MAP(CDDPI_CHOICE_WORD)};
    int word = (int)*out;
    cddp_status status = cddpi_option_word(&table, values, OPTION_BIND, words,
                                           CDDPI_CHOICE_COUNT(CDDPI_BIND_MAP), &word);

    *out = (enum cddpi_bind)word;
    return status;
}

static cddp_status read_tag(const char *const values[OPTION_COUNT], enum cddpi_tag *out)
{
    static const int ids[] = {OPTION_TAG_OUTPUT, OPTION_NO_TAG};
    int chosen = -1;
    cddp_status status = cddpi_option_choice(&table, values, ids, 2, &chosen);

    *out = chosen == OPTION_TAG_OUTPUT ? CDDPI_TAG_ALL
           : chosen == OPTION_NO_TAG   ? CDDPI_TAG_NONE
                                       : CDDPI_TAG_AUTO;
    return status;
}

/* Read a folder. An empty name is an error: a shell produces it from an unset variable. */
static cddp_status read_folder(const char *const values[OPTION_COUNT], enum option_id id,
                               const char **out)
{
    *out = values[id];
    return values[id] == NULL || values[id][0] != '\0'
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "--%s: the folder's name is empty", rows[id].name);
}

static cddp_status read_nproc(const char *const values[OPTION_COUNT],
                              struct cddpi_launch_options *options)
{
    const char *nproc = values[OPTION_NPROC];

    options->per_gpu = nproc != NULL && strcmp(nproc, "gpu") == 0;
    return nproc == NULL || options->per_gpu || strcmp(nproc, "auto") == 0
               ? CDDP_OK
               : read_int(values, OPTION_NPROC, 1, CDDPI_MAX_RANKS, &options->nproc);
}

static cddp_status read_timeout(const char *const values[OPTION_COUNT],
                                struct cddpi_launch_options *options)
{
    int64_t timeout_ms = 0;

    CDDPI_TRY(read_seconds(values, OPTION_TIMEOUT, 0.001, 2000000, &timeout_ms));
    if (values[OPTION_TIMEOUT] != NULL) {
        snprintf(options->timeout_ms, sizeof options->timeout_ms, "%lld", (long long)timeout_ms);
    }
    return CDDP_OK;
}

static cddp_status interpret(const char *const values[OPTION_COUNT],
                             struct cddpi_launch_options *options)
{
    CDDPI_TRY(read_nproc(values, options));
    CDDPI_TRY(read_int(values, OPTION_MAX_RESTARTS, 0, 1000000, &options->max_restarts));
    CDDPI_TRY(read_seconds(values, OPTION_GRACE, 0, 86400, &options->grace_ms));
    CDDPI_TRY(read_timeout(values, options));
    CDDPI_TRY(read_bind(values, &options->bind));
    CDDPI_TRY(read_folder(values, OPTION_RUN_DIR, &options->run_dir));
    CDDPI_TRY(read_folder(values, OPTION_LOG_DIR, &options->log_dir));
    CDDPI_TRY(read_tag(values, &options->tag));
    CDDPI_TRY(cddpi_options_read_nodes(values, options));
    options->keys = values[OPTION_KEYS];
    options->action = values[OPTION_HELP] != NULL      ? CDDPI_ACTION_HELP
                      : values[OPTION_VERSION] != NULL ? CDDPI_ACTION_VERSION
                      : values[OPTION_CHECK] != NULL   ? CDDPI_ACTION_CHECK
                      : values[OPTION_ENV] != NULL     ? CDDPI_ACTION_ENV
                      : values[OPTION_KEYS] != NULL    ? CDDPI_ACTION_KEYS
                      : values[OPTION_STORE] != NULL   ? CDDPI_ACTION_STORE
                      : values[OPTION_DRY_RUN] != NULL ? CDDPI_ACTION_DRY_RUN
                                                       : CDDPI_ACTION_RUN;
    return CDDP_OK;
}

/* Find what to start: the program after "--", or a train.conf and its key=value arguments. */
static cddp_status take_command(struct cddpi_launch_options *options, bool after_dashes)
{
    if (options->action == CDDPI_ACTION_STORE && (options->argument_count > 0 || after_dashes)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--store runs nothing: name the train.conf or program on the machines");
    }
    if (options->action != CDDPI_ACTION_RUN && options->action != CDDPI_ACTION_DRY_RUN) {
        return CDDP_OK;
    }
    if (options->argument_count == 0) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            after_dashes ? "there is no program after --"
                         : "nothing to run: name a train.conf, or -- PROGRAM: see cddp-run --help");
    }
    if (after_dashes) {
        return CDDP_OK;
    }
    options->config = *options->arguments++;
    options->argument_count--;
    for (int i = 0; i < options->argument_count; i++) {
        if (strchr(options->arguments[i], '=') == NULL) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "%s is not key=value; to start a program write cddp-run ... -- %s %s",
                              options->arguments[i], options->config, options->arguments[i]);
        }
    }
    return CDDP_OK;
}

/* Sort the arguments into options, whose @p values are set, and what is to run. */
static cddp_status sort_words(int argc, char **argv, const char *values[OPTION_COUNT],
                              bool *out_after_dashes, struct cddpi_launch_options *options)
{
    int word_count = 0;

    options->words[word_count++] = argv[0];
    for (int i = 1; i < argc; i++) {
        if (!*out_after_dashes && strcmp(argv[i], "--") == 0) {
            *out_after_dashes = true;
            if (options->argument_count > 0) {
                return cddpi_fail(CDDP_ERR_ARGUMENT,
                                  "%s stands before --: give either a train.conf or -- and a "
                                  "program",
                                  options->arguments[0]);
            }
        } else if (!*out_after_dashes && argv[i][0] == '-' && argv[i][1] != '\0') {
            int first = i;

            CDDPI_TRY(cddpi_option_read(&table, argv, &i, values));
            while (first <= i) {
                options->words[word_count++] = argv[first++];
            }
        } else {
            options->arguments[options->argument_count++] = argv[i];
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_launch_options_parse(int argc, char **argv, struct cddpi_launch_options *out)
{
    struct cddpi_launch_options options = {
        .grace_ms = 10000,
        .nnodes = 1,
        .node_rank = -1,
        .straggler_factor = 2, /* ranks that share cores with others are often late, but not so */
        .straggler_ms = 60000};
    const char *values[OPTION_COUNT] = {NULL};
    bool after_dashes = false;
    cddp_status status;

    options.positional = cddpi_zalloc_array((size_t)argc + 1, sizeof *options.positional);
    options.words = cddpi_zalloc_array((size_t)argc + 1, sizeof *options.words);
    if (options.positional == NULL || options.words == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d arguments", argc);
        goto fail;
    }
    options.arguments = options.positional;
    CDDPI_TRY_GOTO(fail, status, sort_words(argc, argv, values, &after_dashes, &options));
    CDDPI_TRY_GOTO(fail, status, interpret(values, &options));
    CDDPI_TRY_GOTO(fail, status, take_command(&options, after_dashes));
    *out = options;
    return CDDP_OK;

fail:
    cddpi_launch_options_fini(&options);
    return status;
}

void cddpi_launch_options_fini(struct cddpi_launch_options *options)
{
    cddpi_free(options->launcher);
    cddpi_free(options->positional);
    cddpi_free(options->words);
    options->launcher = NULL;
    options->positional = NULL;
    options->words = NULL;
}

void cddpi_launch_options_help(FILE *to)
{
    fputs(
        "usage: cddp-run [OPTIONS] train.conf [key=value ...]   train what train.conf says\n"
        "       cddp-run [OPTIONS] -- PROGRAM [ARGUMENTS]       start any program once per rank\n"
        "\nStarts the ranks of a job, and ends them: if one fails, cddp-run stops the others, and "
        "if\n"
        "cddp-run dies, all ranks die. For several machines, either start cddp-run on each, with\n"
        "--nnodes and --rdzv, or on one of them, with --hosts.\n\n",
        to);
    cddpi_options_print(&table, HELP_COLUMN, to);
    fputs(
        "\nThe exit status is 0 if every rank ended with 0, else that of the rank that failed "
        "first\n"
        "(128 plus the signal's number if a signal ended it), 2 if the command line is wrong, 3 "
        "if\n"
        "a signal stopped the job after a checkpoint, 4 if too few machines are left, 127 if the\n"
        "program does not exist. More: man cddp-run.\n",
        to);
}
