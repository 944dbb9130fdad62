/* train_options.c - owns cddp-train's option table, from which parsing, help and suggestions are
 * made. */
#include "programs/train_options.h"

#include "base/error.h"
#include "base/options.h"

/* id, name, letter (0: none), argument (NULL: none), sentence. Each option chooses a mode. */
#define OPTION_MAP(X)                                                                              \
    X(DRY_RUN, "dry-run", 0, NULL,                                                                 \
      "print the resolved configuration, the model and sizes, and end")                            \
    X(VALIDATE, "validate", 0, NULL,                                                               \
      "say what is wrong with the configuration, if anything is, and end")                         \
    X(GENERATE, "generate", 0, "PROMPT",                                                           \
      "print PROMPT and what the model of the run's newest checkpoint adds to it")                 \
    X(PRINT_NPROC, "print-nproc", 0, NULL,                                                         \
      "print how many ranks make sense on this machine, and end")                                  \
    X(KEYS, "keys", 0, NULL, "print the table of keys of train.conf")                              \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-train", OPTION_MAP);

static cddp_status read_mode(const char *const values[OPTION_COUNT], enum cddpi_train_mode *out)
{
    static const int ids[] = {OPTION_DRY_RUN, OPTION_VALIDATE, OPTION_GENERATE, OPTION_PRINT_NPROC,
                              OPTION_KEYS};
    static const enum cddpi_train_mode modes[OPTION_COUNT] = {
        [OPTION_DRY_RUN] = CDDPI_TRAIN_DRY_RUN,
        [OPTION_VALIDATE] = CDDPI_TRAIN_VALIDATE,
        [OPTION_GENERATE] = CDDPI_TRAIN_GENERATE,
        [OPTION_PRINT_NPROC] = CDDPI_TRAIN_PRINT_NPROC,
        [OPTION_KEYS] = CDDPI_TRAIN_KEYS};
    int chosen = -1;

    CDDPI_TRY(cddpi_option_choice(&table, values, ids, 5, &chosen));
    *out = chosen >= 0 ? modes[chosen] : CDDPI_TRAIN_RUN;
    return CDDP_OK;
}

cddp_status cddpi_train_options_parse(int argc, char **argv, struct cddpi_train_options *out)
{
    struct cddpi_train_options options = {.words = argv + 1};
    const char *values[OPTION_COUNT] = {NULL};

    CDDPI_TRY(cddpi_options_read(&table, argc, argv, values, &options.word_count));
    if (values[OPTION_HELP] != NULL || values[OPTION_VERSION] != NULL) {
        options.mode = values[OPTION_HELP] != NULL ? CDDPI_TRAIN_HELP : CDDPI_TRAIN_VERSION;
    } else {
        CDDPI_TRY(read_mode(values, &options.mode));
    }
    if (options.mode < CDDPI_TRAIN_KEYS && options.word_count == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "no configuration is named: name a train.conf, see cddp-train --help");
    }
    options.prompt = values[OPTION_GENERATE];
    *out = options;
    return CDDP_OK;
}

void cddpi_train_options_help(FILE *to)
{
    fputs("usage: cddp-train [--dry-run | --validate | --print-nproc] train.conf [key=value ...]\n"
          "       cddp-train --generate PROMPT train.conf [key=value ...]\n"
          "       cddp-train --keys | --help | --version\n"
          "\nTrains as train.conf says: one rank, alone or of a job that cddp-run, mpirun or srun\n"
          "starts.\n\n",
          to);
    cddpi_options_print(&table, 22, to);
}
