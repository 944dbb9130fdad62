/* report_main.c - the program cddp-report: makes one page from one or several runs, or follows one
 * in the terminal. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/streams.h"
#include "programs/program.h"
#include "report/follow.h"
#include "report/report_page.h"

/* id, name, letter (0: none), argument (NULL: none), sentence */
#define OPTION_MAP(X)                                                                              \
    X(OUTPUT, "output", 'o', "FILE",                                                               \
      "write the page to FILE (default: report.html in the run's folder; for several runs, "       \
      "in the current folder)")                                                                    \
    X(FOLLOW, "follow", 'f', NULL,                                                                 \
      "write no page: show the run in this terminal until it ends; wait if it has not begun")      \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-report", OPTION_MAP);

static int write_page(char *const *dirs, int count, const char *output)
{
    char *path = output != NULL ? cddpi_strdup(output)
                 : count == 1   ? cddpi_format("%s/report.html", dirs[0])
                                : cddpi_strdup("report.html");
    int result = 0;

    if (path == NULL) {
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a name");
        return cddpi_program_fail(&table, CDDPI_EXIT_FAILED);
    }
    if (cddpi_report_page_write(dirs, count, path) == CDDP_OK) {
        cddpi_say(stdout, "%s\n", path);
    } else {
        result = cddpi_program_fail(&table, CDDPI_EXIT_FAILED);
    }
    cddpi_free(path);
    return result;
}

static int run(const char *const *values, char **words, int count)
{
    if (count == 0) {
        (void)cddpi_fail(CDDP_ERR_ARGUMENT, "give the folders of runs (see --help)");
        return cddpi_program_fail(&table, CDDPI_EXIT_USAGE);
    }
    if (values[OPTION_FOLLOW] != NULL) {
        if (count > 1 || values[OPTION_OUTPUT] != NULL) {
            (void)cddpi_fail(CDDP_ERR_ARGUMENT, "--follow takes the folder of one run, and writes "
                                                "no page");
            return cddpi_program_fail(&table, CDDPI_EXIT_USAGE);
        }
        return cddpi_report_follow(words[0]) == CDDP_OK
                   ? 0
                   : cddpi_program_fail(&table, CDDPI_EXIT_FAILED);
    }
    return write_page(words, count, values[OPTION_OUTPUT]);
}

int main(int argc, char **argv)
{
    static const struct cddpi_program program = {
        .options = &table,
        .column = 22,
        .usage = "usage: cddp-report [options] RUN_DIR...\n"
                 "       cddp-report --follow RUN_DIR\n\n"
                 "Makes one HTML page from one or several runs: curves, throughput, exposed\n"
                 "communication, a timeline, memory, configuration. The page works offline.\n\n",
        .run = run};

    return cddpi_program_main(&program, argc, argv);
}
