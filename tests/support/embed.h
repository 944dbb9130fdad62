/* embed.h - runs the examples that embed cddp in a trainer, on 1 to 11 processes, and reads what
 * each process prints. */
#ifndef CDDP_TESTS_SUPPORT_EMBED_H
#define CDDP_TESTS_SUPPORT_EMBED_H

#include "support/test.h"

#include <fcntl.h>
#include <math.h>
#include <stdbool.h>

enum { MOST_RANKS = 11, MOST_LOSSES = 64 };

struct run {
    int count;
    int steps[MOST_LOSSES];
    double losses[MOST_LOSSES];
    unsigned long long weights[MOST_RANKS];
};

struct place {
    char folder[4096];
    const char *program;
};

int run_rank(int rank, int world_size, void *argument);
void read_output(const char *path, struct run *run);
void run_trainer(struct place *place, int world_size, struct run *run);
void assert_same_losses(const struct run *a, const struct run *b, double tolerance);

/* @p built is the program's path below the build folder. */
int set_up_place(void **state, const char *built);
int tear_down(void **state);

/* In a case: skip it if the programs were not built, because a compiler or a tool is missing. */
void need_programs(const char *alone, const char *patched);

/* Assert that the patch of examples/@p folder adds at most @p most lines. */
void assert_short_patch(const char *folder, int most);

#endif
