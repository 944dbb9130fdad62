/* train_graphs.h - runs whose steps are captured and replayed, or not, and comparing them.
 */
#ifndef CDDP_TESTS_SUPPORT_TRAIN_GRAPHS_H
#define CDDP_TESTS_SUPPORT_TRAIN_GRAPHS_H

#include "support/train_cuda.h"

#define NEVER "train.cuda_graph=never"
#define ALWAYS "train.cuda_graph=always"
#define AUTO "train.cuda_graph=auto"

enum { PLAIN_STEPS = 2 }; /* before the first that is replayed */

struct run run_graphs(const char *conf, int ranks, const char *name, const char *wish,
                      const char *const *arguments);

/* Steps that the metrics of a run of @p steps tell to have been replayed; -1: they tell nothing. */
int replayed(const char *run_dir, int steps);

/* Losses of each step that was reported, norms, and the last checkpoint, bit for bit. */
void assert_same_run(const char *plain, const char *other, int steps);

/* Of @p steps, @p uneven ones have smaller batches. Ranks that share a GPU cannot record. */
void compare(const char *conf, const char *kind, int most_ranks, const char *const *arguments,
             int steps, int uneven);

#endif
