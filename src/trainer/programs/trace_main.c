/* trace_main.c - the program cddp-trace: merges the traces of a run's ranks. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/number.h"
#include "base/options.h"
#include "base/replace.h"
#include "base/streams.h"
#include "report/timeline.h"
#include "report/traces.h"

#include <string.h>
#include <sys/stat.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* id, name, letter (0: none), argument (NULL: none), sentence */
#define OPTION_MAP(X)                                                                              \
    X(OUTPUT, "output", 'o', "FILE",                                                               \
      "write the merged trace there (default: trace.json in the run's folder; for files: none)")   \
    X(SVG, "svg", 0, "FILE", "also draw one step of all ranks as a picture")                       \
    X(STEP, "step", 0, "N", "the step to draw (default: the one that took the median time)")       \
    X(QUIET, "quiet", 'q', NULL, "do not print which ranks were late")                             \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-trace", OPTION_MAP);

static int fail(int result)
{
    fprintf(stderr, "cddp-trace: %s\n", cddp_last_error());
    return result;
}

static void help(void)
{
    printf(
        "usage: cddp-trace [options] RUN_DIR\n"
        "       cddp-trace [options] FILE...\n\n"
        "Merges what the ranks of a run have traced (train.trace, CDDP_TRACE), or dumped when it\n"
        "failed, for chrome://tracing and ui.perfetto.dev, and prints which ranks were late.\n\n");
    cddpi_options_print(&table, 22, stdout);
}

static bool is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

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

static cddp_status write_picture(const struct cddpi_traces *traces, const char *path,
                                 const char *wanted_step)
{
    struct cddpi_traced_step step;
    struct picture picture = {traces, &step};

    CDDPI_TRY(choose_step(traces, wanted_step, &step));
    return cddpi_file_replace(path, put_picture, &picture);
}

/* Write and print what the options ask for. @p path: the merged trace; NULL: do not write it. */
static cddp_status write_traces(const struct cddpi_traces *traces, const char *path,
                                const char *const *values)
{
    if (path != NULL) {
        CDDPI_TRY(cddpi_traces_write_chrome(traces, path));
    }
    if (values[OPTION_SVG] != NULL) {
        CDDPI_TRY(write_picture(traces, values[OPTION_SVG], values[OPTION_STEP]));
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
    bool of_run = count == 1 && is_folder(words[0]);
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

int main(int argc, char **argv)
{
    const char *values[OPTION_COUNT] = {NULL};
    int count;
    int result = 0;

    cddpi_streams_open();
    if (cddpi_options_read(&table, argc, argv, values, &count) != CDDP_OK) {
        return fail(EXIT_USAGE);
    }
    if (values[OPTION_HELP] != NULL) {
        help();
    } else if (values[OPTION_VERSION] != NULL) {
        printf("cddp-trace %s\n", cddp_version());
    } else if (count == 0) {
        (void)cddpi_fail(CDDP_ERR_ARGUMENT, "give a run's folder, or the files of its ranks "
                                            "(see --help)");
        result = fail(EXIT_USAGE);
    } else if (merge_traces(argv + 1, count, values) != CDDP_OK) {
        result = fail(EXIT_FAILED);
    }
    return cddpi_streams_end("cddp-trace", result);
}
