/* test.h - what every test program needs: cmocka, and ranks as real processes. */
#ifndef CDDP_TESTS_SUPPORT_TEST_H
#define CDDP_TESTS_SUPPORT_TEST_H

/* cmocka wants these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Limits that only a hang reaches, however slow the machine: of processes that are waited for, and
 * of what these wait for, which is shorter so that they can say what hangs. */
enum { SUPPORT_LIMIT_S = 400, SUPPORT_TIMEOUT_MS = 300000 };

/* A token that a port beyond loopback takes: no short one. */
#define SUPPORT_TOKEN "a secret of these tests, and long"

/* A rank's body: returns 0, or prints why to stderr and returns something else. It runs in a forked
 * process, so it must not use cmocka's asserts (they unwind by longjmp): CHECK() is for it. */
typedef int (*rank_fn)(int rank, int world_size, void *argument);

/* In a rank: print what does not hold, with the library's last error, and fail. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,            \
                    #condition, cddp_last_error());                                                \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

void support_sleep_ms(long ms);

/* Fork @p world_size ranks and wait; all are killed at the limit. statuses (may be NULL) gets each
 * wait status. Returns how many did not return 0. */
int run_ranks_status(int world_size, rank_fn body, void *argument, int *statuses);
int run_ranks(int world_size, rank_fn body, void *argument);

/* A port of loopback that is free. Not one that the kernel would choose: it could give that to
 * another program before ours listens. Programs that run at once begin at different ports. */
uint16_t support_free_port(void);

/* How many descriptors this process has, and one more for looking. */
int support_descriptors(void);
void support_setenv_number(const char *name, int value);

/* A new empty folder, removed by support_rmdir() or at the end of this process. It is in the build
 * folder, where one that a killed test leaves is in nobody's way, or else below $TMPDIR or /tmp. */
char *support_mkdtemp(void);
void support_rmdir(char *path);

/* A file of exactly these bytes. Not for ranks: it asserts. */
void support_write_file(const char *path, const void *data, size_t bytes);

/* Change a byte of the file, counted from its end if @p at is negative. */
void support_change_byte(const char *path, long at);

#endif
