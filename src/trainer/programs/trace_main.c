/* trace_main.c - the program cddp-trace: the traces of all ranks of a run become one. */
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
      "where the merged trace goes (default: trace.json in the run's folder; of files: none)")     \
    X(SVG, "svg", 0, "FILE", "draw one step of all ranks as a picture, too")                       \
    X(STEP, "step", 0, "N", "which one (default: the one that took the median time)")              \
    X(QUIET, "quiet", 'q', NULL, "do not print who was late for whom")                             \
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
        "Merges what the ranks of a run have traced (train.trace, CDDP_TRACE) or dumped when it\n"
        "failed, for chrome://tracing and ui.perfetto.dev, and says who was late for whom.\n\n");
    cddpi_options_print(&table, 22, stdout);
}

static cddp_status read_traces(char *const *words, int count, struct cddpi_traces *out)
{
    struct stat info;

    if (count == 1 && stat(words[0], &info) == 0 && S_ISDIR(info.st_mode)) {
        return cddpi_traces_read_folder(words[0], out);
    }
    return cddpi_traces_read(words, count, out);
}

static cddp_status choose_step(const struct cddpi_traces *traces, const char *wanted,
                               struct cddpi_traced_step *out)
{
    int64_t number;

    if (wanted == NULL) {
        return cddpi_timeline_choose(traces, out)
                   ? CDDP_OK
                   : cddpi_fail(CDDP_ERR_NOT_FOUND, "there is no step in these traces");
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

static cddp_status draw(const struct cddpi_traces *traces, const char *const *values)
{
    struct cddpi_traced_step step;
    struct picture picture = {traces, &step};

    CDDPI_TRY(choose_step(traces, values[OPTION_STEP], &step));
    return cddpi_file_replace(values[OPTION_SVG], put_picture, &picture);
}

static cddp_status merge(char *const *words, int count, const char *const *values)
{
    struct cddpi_traces traces;
    struct stat info;
    char *path = NULL;
    cddp_status status = read_traces(words, count, &traces);

    if (status != CDDP_OK) {
        return status;
    }
    if (values[OPTION_OUTPUT] != NULL) {
        path = cddpi_strdup(values[OPTION_OUTPUT]);
    } else if (count == 1 && stat(words[0], &info) == 0 && S_ISDIR(info.st_mode)) {
        path = cddpi_format("%s/trace.json", words[0]);
    }
    if (path != NULL) {
        status = cddpi_traces_write_chrome(&traces, path);
    }
    if (status == CDDP_OK && values[OPTION_SVG] != NULL) {
        status = draw(&traces, values);
    }
    if (status == CDDP_OK && values[OPTION_QUIET] == NULL) {
        cddpi_traces_print(&traces, stdout);
        if (path != NULL) {
            cddpi_say(stdout, "%s: for chrome://tracing or https://ui.perfetto.dev\n", path);
        }
    }
    cddpi_free(path);
    cddpi_traces_fini(&traces);
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
    } else if (merge(argv + 1, count, values) != CDDP_OK) {
        result = fail(EXIT_FAILED);
    }
    return cddpi_streams_end("cddp-trace", result);
}
