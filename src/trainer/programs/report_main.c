/* report_main.c - the program cddp-report: makes one page from one or several runs. */
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
      "write the page there (default: report.html in the run's folder; for several runs in the "   \
      "current folder)")                                                                           \
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
    printf("usage: cddp-report [options] RUN_DIR...\n\n"
           "Makes one HTML page from one or several runs: curves, throughput, exposed\n"
           "communication, a timeline, memory, configuration. The page works offline.\n\n");
    cddpi_options_print(&table, 22, stdout);
}

static int write_page(char *const *dirs, int count, const char *output)
{
    char *path = output != NULL ? cddpi_strdup(output)
                 : count == 1   ? cddpi_format("%s/report.html", dirs[0])
                                : cddpi_strdup("report.html");
    int result = 0;

    if (path == NULL) {
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a name");
        return fail(EXIT_FAILED);
    }
    if (cddpi_report_page_write(dirs, count, path) == CDDP_OK) {
        cddpi_say(stdout, "%s\n", path);
    } else {
        result = fail(EXIT_FAILED);
    }
    cddpi_free(path);
    return result;
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
