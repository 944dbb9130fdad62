/* train.h - runs of the real program cddp-train for tests: small learnable data, ranks as
 * processes that meet in a file store, and reading what they wrote. */
#ifndef CDDP_TESTS_SUPPORT_TRAIN_H
#define CDDP_TESTS_SUPPORT_TRAIN_H

#include "support/test.h"

#include <cddp/checkpoint.h>

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { TRAIN_SAMPLES = 600, TEST_SAMPLES = 150, SIDE = 8, CLASSES = 4, MOST_RANKS = 8 };

/* Whether run_options.file_bytes ends programs before they write files of their own. */
#if defined(__SANITIZE_THREAD__)
enum { LIMIT_KILLS = 1 }; /* the sanitizer's own file, tsan.rodata.PID, meets the limit first */
#else
enum { LIMIT_KILLS = 0 };
#endif

extern char *work; /* the test's folder */

/* A set of ranks. */
struct run {
    int ranks;
    pid_t pids[MOST_RANKS];
    int statuses[MOST_RANKS]; /* wait statuses once they ended */
    int number;
};

struct run_options {
    int ranks;
    const char *arguments[16]; /* key=value, ended by NULL */
    const char *odd_argument;  /* given to the last rank only */
    const char *odd_setting;   /* NAME=VALUE, for the environment of the last rank only */
    rlim_t file_bytes;         /* no file may grow beyond; 0: any */
    int timeout_ms;            /* 0: only a hang reaches it */
    const char *conf;          /* name below the folder; NULL: small.conf */
};

/* A path below the folder, in one of a few static buffers. */
char *in_work(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Arguments live until the test program ends. */
char *argument(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *run_dir_argument(const char *name);

/* All of a file with a NUL byte behind; NULL if there is none. */
char *get_file(const char *path, size_t *out_bytes);
int make_work(void **state);
/* Also a configuration of a small GPT-2, which run_options can name, and a text in which each
 * letter says which one follows, but for the first ones of words; 23 steps of 32 samples, but for
 * the last, which has 15. */
int make_text_work(void **state);
int remove_work(void **state);
struct run start(const struct run_options *options);

/* Wait for all ranks, to the limit, then kill. Returns how many did not exit with 0. */
int finish(struct run *run);
char *output(const struct run *run, const char *stream, int rank);
void show(const struct run *run);

/* Run to the end; every rank must succeed. */
struct run run_well(const struct run_options *options);

/* Wait for all ranks, each of which must have stopped early and saved: status 3. */
void finish_stopped(struct run *run);

/* Run to the end; every rank must fail by itself. */
struct run run_badly(const struct run_options *options);
void assert_says(const struct run *run, const char *stream, int rank, const char *words);

/* The number @p name of @p step's line (the first that has it) of a run's metrics; NAN: none. */
double metric(const char *run_dir, uint64_t step, const char *name);

/* Wait until the run's metrics have a line of a step. */
void wait_for_steps(const char *run_dir);
void assert_same_file(const char *a, const char *b);
void assert_same_checkpoint(const char *run_a, const char *run_b, int step);
/* The model of a run's checkpoint; released with cddp_safetensors_close(). */
cddp_safetensors *open_weights(const char *run_dir, int step);

/* The text that the model wrote after @p step, released with free(); NULL: none. */
char *written(const char *run_dir, int64_t step);

/* How often each sample was taken in each epoch, from the logs of @p ranks ranks; returns lines. */
int count_samples(const char *log, int ranks, int epochs, int *counts);

#endif
