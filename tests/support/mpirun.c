/* mpirun.c - jobs that the real mpirun starts on this machine, as several hosts if required. Its
 * ssh is replaced with a script that runs the daemon here, with separate temporary files, and tells
 * cddp, too, that it is another host. */
#include "support/mpirun.h"

#include <stdbool.h>

enum { MOST_WORDS = 32 };

static const char agent[] =
    "#!/bin/sh\nexport CDDP_HOST_ID=\"$1\" TMPDIR=\"${0%/*}/$1\"\nmkdir -p \"$TMPDIR\"\n"
    "shift\nexec sh -c \"$*\"\n";

int mpirun_is_here(void)
{
    if (access(launcher_path("src/runtime/group/net/mpi/libcddp-mpi.so"), R_OK) != 0) {
        fprintf(stderr, "cddp was built without its MPI module\n");
        return 0;
    }
    if (system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") != 0) {
        fprintf(stderr, "there is no mpirun of Open MPI here\n");
        return 0;
    }
    return 1;
}

/* Leaks and lock orders of MPI's plugins say nothing about our code. They cannot be suppressed by
 * name, since the plugins are unloaded by then. */
struct sanitizers {
    char *asan, *tsan;
};

static char *add_option(const char *variable, const char *option)
{
    const char *before = getenv(variable);
    char *kept = before != NULL ? strdup(before) : NULL;
    char options[1024];

    snprintf(options, sizeof options, "%s%s%s", before != NULL ? before : "",
             before != NULL ? ":" : "", option);
    setenv(variable, options, 1);
    return kept;
}

static void restore(const char *variable, char *kept)
{
    if (kept != NULL) {
        setenv(variable, kept, 1);
    } else {
        unsetenv(variable);
    }
    free(kept);
}

/* Returns the previous settings, for restore_sanitizers(). */
static struct sanitizers ignore_plugins(void)
{
    return (struct sanitizers){
        add_option("ASAN_OPTIONS", "detect_leaks=0"),
        add_option("TSAN_OPTIONS", "detect_deadlocks=0:ignore_noninstrumented_modules=1")};
}

static void restore_sanitizers(struct sanitizers kept)
{
    restore("ASAN_OPTIONS", kept.asan);
    restore("TSAN_OPTIONS", kept.tsan);
}

static char given_agent[4200];

void mpirun_use_agent(const char *path)
{
    snprintf(given_agent, sizeof given_agent, "%s", path);
}

/* The path of the script that replaces ssh. */
static const char *make_agent(void)
{
    static char folder[4096];
    static char path[4200];

    if (given_agent[0] != '\0') {
        return given_agent;
    }
    if (folder[0] == '\0') {
        char *made = support_mkdtemp();

        snprintf(folder, sizeof folder, "%s", made);
        free(made);
        launcher_write(folder, "agent", agent);
        snprintf(path, sizeof path, "%s/agent", folder);
    }
    return path;
}

/* Have the temporary files of mpirun in a folder of this program's, not in the one that all jobs of
 * the machine share: one job removes it while another makes it. Returns what restore() takes. */
static char *use_own_folder(void)
{
    static char *folder;
    const char *before = getenv("TMPDIR");
    char *kept = before != NULL ? strdup(before) : NULL;

    if (folder == NULL) {
        folder = support_mkdtemp();
    }
    setenv("TMPDIR", folder, 1);
    return kept;
}

void mpirun_start(struct launched *job, int ranks, const char *hosts, const char *program,
                  const char *const *arguments)
{
    static char number[16];
    const char *words[MOST_WORDS] = {"--allow-run-as-root", "--oversubscribe", "--bind-to", "none"};
    struct sanitizers kept = ignore_plugins();
    char *folder = use_own_folder();
    int n = 4;

    if (hosts != NULL) {
        words[n++] = "--mca";
        words[n++] = "plm_rsh_agent";
        words[n++] = make_agent();
        words[n++] = "--mca"; /* named after the machine, so all "hosts" would share it */
        words[n++] = "btl";
        words[n++] = "self,tcp";
        words[n++] = "--host";
        words[n++] = hosts;
    }
    snprintf(number, sizeof number, "%d", ranks);
    words[n++] = "-np";
    words[n++] = number;
    words[n++] = program;
    for (int i = 0; arguments[i] != NULL && n < MOST_WORDS - 1; i++) {
        words[n++] = arguments[i];
    }
    launcher_start_program(job, "mpirun", words);
    restore("TMPDIR", folder);
    restore_sanitizers(kept);
}

void assert_mpirun_ended_well(const struct launched *job)
{
    if (job->exit_status != 0) {
        fail_msg("mpirun: exit status %d: %s", job->exit_status, job->err);
    }
}
