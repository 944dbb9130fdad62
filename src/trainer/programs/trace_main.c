/* trace_main.c - the program cddp-trace: merges the traces of a run's ranks. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/number.h"
#include "base/replace.h"
#include "base/streams.h"
#include "programs/program.h"
#include "report/timeline.h"
#include "report/traces.h"

#include <sys/stat.h>

/* id, name, letter (0: none), argument (NULL: none), sentence */
#define OPTION_MAP(X)                                                                              \
    X(OUTPUT, "output", 'o', "FILE",                                                               \
      "write the merged trace to FILE (default: trace.json in the run's folder; if FILEs "         \
      "are given: none)")                                                                          \
    X(SVG, "svg", 0, "FILE", "also draw one step of all ranks as a picture")                       \
    X(STEP, "step", 0, "N", "the step to draw (default: the one with the median time)")            \
    X(QUIET, "quiet", 'q', NULL, "do not print which ranks were late")                             \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-trace", OPTION_MAP);

static cddp_status choose_step(const struct cddpi_traces *traces, const char *wanted,
                               struct cddpi_traced_step *out)
{
    int64_t number;

    if (wanted == NULL) {
        if (cddpi_timeline_choose(traces, out)) {
            return CDDP_OK;
        }
        return cddpi_fail(CDDP_ERR_NOT_FOUND, "there is no step in these traces");
    }
    if (!cddpi_parse_integer(wanted, 0, INT64_MAX, &number)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--step %s: not the number of a step", wanted);
    }
    for (size_t i = 0; cddpi_traces_step(traces, i, out); i++) {
        if (out->step == (uint64_t)number) {
            return CDDP_OK;
        }
    }
    return cddpi_fail(CDDP_ERR_NOT_FOUND, "step %s is not in these traces", wanted);
}

struct picture {
    const struct cddpi_traces *traces;
    const struct cddpi_traced_step *step;
};

static cddp_status put_picture(void *context, struct cddpi_writer *writer)
{
    const struct picture *picture = context;

    return cddpi_timeline_put(picture->traces, picture->step, true, writer);
}

/* Write and print what the options ask for. @p path: the merged trace; NULL: do not write it. */
static cddp_status write_traces(const struct cddpi_traces *traces, const char *path,
                                const char *const *values)
{
    struct cddpi_traced_step step;
    struct picture picture = {traces, &step};

    if (path != NULL) {
        CDDPI_TRY(cddpi_traces_write_chrome(traces, path));
    }
    if (values[OPTION_SVG] != NULL) {
        CDDPI_TRY(choose_step(traces, values[OPTION_STEP], &step));
        CDDPI_TRY(cddpi_file_replace(values[OPTION_SVG], put_picture, &picture));
    }
    if (values[OPTION_QUIET] == NULL) {
        cddpi_traces_print(traces, stdout);
        if (path != NULL) {
            cddpi_say(stdout, "%s: for chrome://tracing or https://ui.perfetto.dev\n", path);
        }
    }
    return CDDP_OK;
}

static cddp_status merge_traces(char *const *words, int count, const char *const *values)
{
    struct stat info;
    bool of_run = count == 1 && stat(words[0], &info) == 0 && S_ISDIR(info.st_mode);
    const char *output = values[OPTION_OUTPUT];
    char *default_path = of_run ? cddpi_format("%s/trace.json", words[0]) : NULL;
    struct cddpi_traces traces;
    cddp_status status = of_run ? cddpi_traces_read_folder(words[0], &traces)
                                : cddpi_traces_read(words, count, &traces);

    if (status == CDDP_OK) {
        status = write_traces(&traces, output != NULL ? output : default_path, values);
        cddpi_traces_fini(&traces);
    }
    cddpi_free(default_path);
    return status;
}

static int run(const char *const *values, char **words, int count)
{
    if (count == 0) {
        (void)cddpi_fail(CDDP_ERR_ARGUMENT, "give a run's folder, or the files of its ranks "
                                            "(see --help)");
        return cddpi_program_fail(&table, CDDPI_EXIT_USAGE);
    }
    return merge_traces(words, count, values) == CDDP_OK
               ? 0
               : cddpi_program_fail(&table, CDDPI_EXIT_FAILED);
}

int main(int argc, char **argv)
{
    static const struct cddpi_program program = {
        .options = &table,
        .column = 22,
        .usage =
            "usage: cddp-trace [options] RUN_DIR\n"
            "       cddp-trace [options] FILE...\n\n"
            "Merges the traces of a run's ranks (train.trace, CDDP_TRACE), or what they wrote "
            "when the\n"
            "run failed, into one trace for chrome://tracing and ui.perfetto.dev. Prints which "
            "ranks\n"
            "were late.\n\n",
        .run = run};

    return cddpi_program_main(&program, argc, argv);
}
