/* snapshot.h - a small trainer whose snapshots tell at once whether they are of one piece;
 * for the tests of snapshots. */
#ifndef CDDP_TESTS_SUPPORT_SNAPSHOT_H
#define CDDP_TESTS_SUPPORT_SNAPSHOT_H

#include "base/alloc.h"
#include "support/folder.h"

#include <cddp/checkpoint.h>
#include <dirent.h>
#include <sys/stat.h>

enum { WEIGHTS = 300 };

/* What a trainer at @p step has: every value tells which step, so a mixture would show. */
struct trainer {
    float weights[WEIGHTS];
    float momentum[WEIGHTS];
    int64_t step;
    cddp_tensor model[1];
    cddp_tensor optimizer[2];
    char state[64];
    cddp_snapshot snapshot;
};

void set_trainer(struct trainer *trainer, uint64_t step, float mark);
cddp_status write_step(uint64_t step, float mark, unsigned keep);

/* The mark of the newest whole snapshot, checked to be all of one piece; 0: there is none. */
int found_mark(uint64_t *out_step, char **out_skipped);

/* Fails unless the newest whole snapshot is that of @p step with @p mark, and none was skipped. */
void assert_found(uint64_t step, int mark);

/* Whether DIR/@p name exists. */
bool exists(const char *name);
int count_hidden(void);
void assert_latest_is(const char *name);

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

#endif
