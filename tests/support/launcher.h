/* launcher.h - starts the real cddp-run, with a time limit, and reads its output. */
#ifndef CDDP_TESTS_SUPPORT_LAUNCHER_H
#define CDDP_TESTS_SUPPORT_LAUNCHER_H

#include "support/test.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

/* A running cddp-run. Its output goes to files in its own folder, which is also its working
 * folder. */
struct launched {
    pid_t pid;
    char *dir;
    bool has_ended; /* launcher_wait() knows that */
    char *out;      /* after launcher_wait() */
    char *err;
    int exit_status; /* 128 + signal if a signal ended it */
};

const char *launcher_path(const char *below_build);

/* The text of @p dir/@p name; NULL: no such file. */
char *launcher_read(const char *dir, const char *name);

/* Create an executable file @p dir/@p name with @p text. */
void launcher_write(const char *dir, const char *name, const char *text);

/* Jobs of MIN:MAX machines that are started from now on begin with fewer than MAX of them only when
 * no other has come for so long. 0: the default. */
void launcher_settle(int seconds);

/* Start @p program, which is cddp-run or starts it. */
void launcher_start_program(struct launched *job, const char *program,
                            const char *const *arguments);
void launcher_start(struct launched *job, const char *const *arguments);

/* Wait for the job's end, if it has not ended yet. At the time limit, kill it and fail the test. */
void launcher_wait(struct launched *job);
void launcher_end(struct launched *job);

/* Start cddp-run and wait for its end. */
#define LAUNCH(job, ...)                                                                           \
    do {                                                                                           \
        launcher_start((job), (const char *const[]){__VA_ARGS__, NULL});                           \
        launcher_wait((job));                                                                      \
    } while (0)

void launcher_need_text(const char *text, const char *part, const char *where);
void launcher_need_absence(const char *text, const char *part, const char *where);

#define assert_out(job, part) launcher_need_text((job)->out, part, "stdout")
#define assert_err(job, part) launcher_need_text((job)->err, part, "stderr")
#define assert_no_err(job, part) launcher_need_absence((job)->err, part, "stderr")

/* What cddp-run says as data. These functions know how it words a rank's end and a machine's name,
 * so that the words are the business of one test each. */

/* How often @p text tells of the end of a rank that failed. @p out_rank: the rank; -1: none, -2:
 * several; NULL: any. */
int launcher_failures(const char *text, int *out_rank);
/* Whether @p text names node @p node of a job as the cause of something. */
bool launcher_names_node(const char *text, int node);

/* Only that rank is told of as failed. */
#define assert_failed_rank(job, rank) launcher_need_rank((job)->err, rank)
void launcher_need_rank(const char *text, int rank);
#define assert_names_node(job, node) launcher_need_node((job)->err, node)
void launcher_need_node(const char *text, int node);

/* How often @p part occurs in @p text. */
int launcher_count(const char *text, const char *part);

/* Wait until the file @p name of the job's folder holds a whole line. Returns the number in it. */
long launcher_number(const struct launched *job, const char *name);

/* Wait until @p dir/@p name contains @p part. */
void launcher_await_text(const char *dir, const char *name, const char *part);
/* The same, behind the first @p first. */
void launcher_await_text_after(const char *dir, const char *name, const char *first,
                               const char *part);

/* The process that @p pid has started: of the cddp-run that a test starts, its supervisor. */
pid_t launcher_child(pid_t pid);

/* Wait until process @p pid is gone, or dead and not yet reaped. */
int launcher_is_gone(pid_t pid);

/* Skip the test if a process cannot become the parent of its orphaned descendants, so that cddp-run
 * cannot find what ranks leave behind. qemu 7.2 refuses this to the programs that it emulates. */
void launcher_needs_orphans(void);

#endif
