/* test.h - shared by all test programs: cmocka, and ranks as real processes. */
#ifndef CDDP_TESTS_SUPPORT_TEST_H
#define CDDP_TESTS_SUPPORT_TEST_H

/* cmocka needs these before it */
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

/* Limits that only a hang reaches, even on a slow machine: SUPPORT_LIMIT_S for processes, and
 * SUPPORT_TIMEOUT_MS for waits inside them. The latter is shorter, so that processes can report
 * what hangs. */
enum { SUPPORT_LIMIT_S = 400, SUPPORT_TIMEOUT_MS = 300000 };

/* A token that is long enough for a port beyond loopback. */
#define SUPPORT_TOKEN "a secret of these tests, and long"

/* A rank's body. Returns 0, or prints why to stderr and returns another value. It runs in a forked
 * process, so it must use CHECK() and not cmocka's asserts, which unwind by longjmp. */
typedef int (*rank_fn)(int rank, int world_size, void *argument);

/* In a rank: if @p condition is false, print it with the library's last error, and fail. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,            \
                    #condition, cddp_last_error());                                                \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Computes with its arguments and variables of its own, which no other thread knows: the thread
 * sanitizer would find nothing there, and make it ten times slower. */
#define PURE __attribute__((no_sanitize("thread")))

void support_sleep_ms(long ms);

/* Fork @p world_size ranks and wait for them; at the limit all are killed. statuses (may be NULL)
 * receives each wait status. Returns how many did not return 0. */
int run_ranks_status(int world_size, rank_fn body, void *argument, int *statuses);
int run_ranks(int world_size, rank_fn body, void *argument);

/* A free port of loopback. It is not one that the kernel would choose, since the kernel could give
 * that to another program before ours listens. Programs that run at the same time start searching
 * at different ports. */
uint16_t support_free_port(void);

/* The number of open descriptors of this process, plus one that counting needs. */
int support_descriptors(void);
void support_setenv_number(const char *name, int value);

/* Create an empty folder. It is removed by support_rmdir() or when this process ends. It is in the
 * build folder, where a leftover of a killed test does no harm, or else below $TMPDIR or /tmp. */
char *support_mkdtemp(void);
void support_rmdir(char *path);

/* Write a file of exactly these bytes. Not for ranks: it asserts. */
void support_write_file(const char *path, const void *data, size_t bytes);

/* Change the byte at @p at of the file, counted from its end if negative. */
void support_change_byte(const char *path, long at);

#endif
