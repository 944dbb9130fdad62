/* report_main.c - the program cddp-report: one or several runs as a page. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "base/streams.h"
#include "report/report_page.h"

#include <string.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* id, name, letter (0: none), argument (NULL: none), sentence */
#define OPTION_MAP(X)                                                                              \
    X(OUTPUT, "output", 'o', "FILE",                                                               \
      "where the page goes (default: report.html in the run's folder; of several runs in the "     \
      "current one)")                                                                              \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-report", OPTION_MAP);

static int fail(int result)
{
    fprintf(stderr, "cddp-report: %s\n", cddp_last_error());
    return result;
}

static void help(void)
{
    printf(
        "usage: cddp-report [options] RUN_DIR...\n\n"
        "Makes a page of runs, several over each other: curves, throughput, exposed\n"
        "communication, a timeline, memory, configuration. It needs nothing besides itself.\n\n");
    cddpi_options_print(&table, 22, stdout);
}

static int write_page(char *const *dirs, int count, const char *output)
{
    char *path = output != NULL ? cddpi_strdup(output)
                 : count == 1   ? cddpi_format("%s/report.html", dirs[0])
                                : cddpi_strdup("report.html");
    cddp_status status = path != NULL ? cddpi_report_page_write(dirs, count, path)
                                      : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a name");

    if (status == CDDP_OK) {
        cddpi_say(stdout, "%s\n", path);
    }
    cddpi_free(path);
    return status == CDDP_OK ? 0 : fail(EXIT_FAILED);
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
        printf("cddp-report %s\n", cddp_version());
    } else if (count == 0) {
        (void)cddpi_fail(CDDP_ERR_ARGUMENT, "give the folders of runs (see --help)");
        result = fail(EXIT_USAGE);
    } else {
        result = write_page(argv + 1, count, values[OPTION_OUTPUT]);
    }
    return cddpi_streams_end("cddp-report", result);
}
