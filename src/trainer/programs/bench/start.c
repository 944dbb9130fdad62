/* start.c - finds cddp-run and makes its command line. */
#include "programs/bench/start.h"

#include "base/env.h"
#include "base/error.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* A line of cddp-run: its four options with their values, "--", this program, its words, NULL. */
enum { LINE_WORDS = 10 + CDDPI_BENCH_WORDS + 2 };

/* Find this program's own path, and cddp-run's: beside it, where the build tree has it, or in
 * $PATH. */
static cddp_status find_programs(char self[PATH_MAX], char run[PATH_MAX + 32])
{
    static const char *const places[] = {"cddp-run", "../launcher/cddp-run"};
    ssize_t length = readlink("/proc/self/exe", self, PATH_MAX - 1);
    int folder_bytes;

    if (length <= 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "reading the path of cddp-bench");
    }
    self[length] = '\0';
    folder_bytes = (int)(strrchr(self, '/') - self);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(run, PATH_MAX + 32, "%.*s/%s", folder_bytes, self, places[i]);
        if (access(run, X_OK) == 0) {
            return CDDP_OK;
        }
    }
    snprintf(run, PATH_MAX + 32, "cddp-run");
    return CDDP_OK;
}

cddp_status cddpi_bench_start(const struct cddpi_bench_options *options)
{
    const char *line[LINE_WORDS] = {"cddp-run"};
    const char *const given[][2] = {{"--hosts", options->hosts},
                                    {"--hostfile", options->hostfile},
                                    {"--ssh", options->ssh},
                                    {"--nproc", options->nproc}};
    char self[PATH_MAX];
    char run[PATH_MAX + 32];
    int count = 1;

    if (cddpi_env(CDDPI_ENV_RANK) != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--hosts, --hostfile and --nproc start ranks, but this is rank %s "
                          "already: give them to who started it",
                          cddpi_env(CDDPI_ENV_RANK));
    }
    CDDPI_TRY(find_programs(self, run));
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (given[i][1] != NULL) {
            line[count++] = given[i][0];
            line[count++] = given[i][1];
        }
    }
    line[count++] = "--";
    line[count++] = self;
    for (int i = 0; i < options->word_count; i++) {
        line[count++] = options->words[i];
    }
    line[count] = NULL;
    execvp(run, (char *const *)line);
    if (errno == ENOENT) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND, "cddp-run is neither beside cddp-bench nor in $PATH");
    }
    return cddpi_fail_errno(CDDP_ERR_IO, errno, "starting %s", run);
}
