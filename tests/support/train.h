/* train.h - runs the real cddp-train for tests: small data that can be learned, ranks as processes
 * that meet in a file store, and reading what they wrote. */
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

/* Whether the limit run_options.file_bytes kills programs before they write their own files. */
#if defined(__SANITIZE_THREAD__)
enum { LIMIT_KILLS = 1 }; /* the sanitizer's file, tsan.rodata.PID, reaches the limit first */
#else
enum { LIMIT_KILLS = 0 };
#endif

extern char *work; /* the test's folder */

/* The ranks of a run. */
struct run {
    int ranks;
    pid_t pids[MOST_RANKS];
    int statuses[MOST_RANKS]; /* wait statuses, once they have ended */
    int number;
};

struct run_options {
    int ranks;
    const char *arguments[16]; /* key=value, ended by NULL */
    const char *odd_argument;  /* only for the last rank */
    const char *odd_setting;   /* NAME=VALUE, only for the last rank's environment */
    rlim_t file_bytes;         /* limit of each file's size; 0: no limit */
    int timeout_ms;            /* 0: a limit that only a hang reaches */
    const char *conf;          /* file name below the folder; NULL: small.conf */
    const char *hosts; /* "001": ranks 0 and 1 are on one host, rank 2 on another, which they
                          reach by TCP; NULL: one */
};

/* A path below the folder, in one of a few static buffers. */
char *in_work(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Format an argument. It lives until the test program ends. */
char *argument(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *run_dir_argument(const char *name);

/* The contents of a file, followed by a NUL byte; NULL if it does not exist. */
char *get_file(const char *path, size_t *out_bytes);
int make_work(void **state);
/* As make_work(), plus a configuration of a small GPT-2 for run_options, and a text in which each
 * letter determines the next, except for the first letters of words. 23 steps of 32 samples, but
 * the last has 15. */
int make_text_work(void **state);
int remove_work(void **state);
struct run start(const struct run_options *options);

/* Wait for all ranks; kill them at the time limit. Returns how many did not exit with 0. */
int finish(struct run *run);
char *output(const struct run *run, const char *stream, int rank);
void show(const struct run *run);

/* Run to the end; assert that every rank succeeds. */
struct run run_well(const struct run_options *options);

/* Wait for all ranks; assert that each has stopped early and saved: status 3. */
void finish_stopped(struct run *run);

/* Run to the end; assert that every rank fails by itself. */
struct run run_badly(const struct run_options *options);
void assert_says(const struct run *run, const char *stream, int rank, const char *words);

/* The value @p name in the first metrics line of @p step that has it; NAN: none. */
double metric(const char *run_dir, uint64_t step, const char *name);

/* Wait until the run's metrics have a line about a step. */
void wait_for_steps(const char *run_dir);
void assert_same_file(const char *a, const char *b);
void assert_same_checkpoint(const char *run_a, const char *run_b, int step);
/* Open the model in a run's checkpoint; release with cddp_safetensors_close(). */
cddp_safetensors *open_weights(const char *run_dir, int step);

/* The text that the model generated after @p step; release with free(). NULL: no text. */
char *written(const char *run_dir, int64_t step);

/* Count how often each sample was used in each epoch, from the logs of @p ranks ranks. Returns the
 * number of lines. */
int count_samples(const char *log, int ranks, int epochs, int *counts);

#endif
