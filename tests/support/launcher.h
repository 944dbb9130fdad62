/* launcher.h - start the real cddp-run, with a deadline, and look at all that it gives. */
#ifndef CDDP_TESTS_SUPPORT_LAUNCHER_H
#define CDDP_TESTS_SUPPORT_LAUNCHER_H

#include "support/test.h"

#include <fcntl.h>
#include <sys/stat.h>

/* A running cddp-run; its output goes to files in a folder of its own, which is also its working
 * folder. */
struct launched {
    pid_t pid;
    char *dir;
    char *out; /* after launcher_wait() */
    char *err;
    int exit_status; /* 128 + signal if a signal ended it */
};

const char *launcher_path(const char *below_build);

/* The text of @p dir/@p name, or NULL. */
char *launcher_read(const char *dir, const char *name);

/* A new file @p dir/@p name with @p text, executable. */
void launcher_write(const char *dir, const char *name, const char *text);

/* Start @p program, which is cddp-run or something that starts it. */
void launcher_start_program(struct launched *job, const char *program,
                            const char *const *arguments);
void launcher_start(struct launched *job, const char *const *arguments);

/* Wait for its end; at the limit it is killed, and the test fails. */
void launcher_wait(struct launched *job);
void launcher_end(struct launched *job);

/* Start, and wait. */
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

/* How often @p part is in @p text. */
int launcher_count(const char *text, const char *part);

/* Wait until @p dir/@p name holds a whole line, and give its number. */
long launcher_number(const struct launched *job, const char *name);

/* Wait until @p dir/@p name has @p part. */
void launcher_await_text(const char *dir, const char *name, const char *part);

/* Wait until process @p pid is gone (or dead and only not reaped yet). */
int launcher_is_gone(pid_t pid);

/* Skip the test where no process can become the parent of its grandchildren, so that cddp-run does
 * not know what ranks leave behind: qemu 7.2 refuses it to programs that it emulates. */
void launcher_needs_orphans(void);

#endif
