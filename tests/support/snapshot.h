/* snapshot.h - a small trainer, for the tests of snapshots, whose values show whether a snapshot
 * mixes several steps. */
#ifndef CDDP_TESTS_SUPPORT_SNAPSHOT_H
#define CDDP_TESTS_SUPPORT_SNAPSHOT_H

#include "base/alloc.h"
#include "support/folder.h"

#include <cddp/checkpoint.h>
#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

enum { WEIGHTS = 300 };

/* The state of a trainer at @p step. Every value depends on the step, so a mixture would show. */
struct trainer {
    float weights[WEIGHTS];
    float momentum[WEIGHTS];
    int64_t step;
    cddp_param params[3]; /* the model's, then the optimizer's */
    cddp_tensor tensors[3];
    char state[64];
    cddp_snapshot snapshot;
};

void set_trainer(struct trainer *trainer, uint64_t step, float mark);
cddp_status load_trainer(const char *path, struct trainer *trainer);

cddp_status write_step(uint64_t step, float mark, unsigned keep);

/* The mark of the newest complete snapshot, after checking that it mixes no steps; 0: no
 * snapshot. */
int found_mark(uint64_t *out_step, char **out_skipped);

/* Assert that the newest complete snapshot is that of @p step with @p mark, and that no newer one
 * was skipped. */
void assert_found(uint64_t step, int mark);

/* Whether DIR/@p name exists. */
bool exists(const char *name);
int count_hidden(void);
void assert_latest_is(const char *name);

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

#endif
