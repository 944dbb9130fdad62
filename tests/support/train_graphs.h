/* train_graphs.h - runs with and without CUDA graphs (captured and replayed steps), and their
 * comparison. */
#ifndef CDDP_TESTS_SUPPORT_TRAIN_GRAPHS_H
#define CDDP_TESTS_SUPPORT_TRAIN_GRAPHS_H

#include "support/train_cuda.h"

#define NEVER "train.cuda_graph=never"
#define ALWAYS "train.cuda_graph=always"
#define AUTO "train.cuda_graph=auto"

enum { PLAIN_STEPS = 2 }; /* before the first step that is replayed */

struct run run_graphs(const char *conf, int ranks, const char *name, const char *wish,
                      const char *const *arguments);

/* The number of replayed steps according to the metrics of a run of @p steps; -1: not reported. */
int replayed(const char *run_dir, int steps);

/* Assert that the losses of all reported steps, the norms and the last checkpoint are equal, bit
 * for bit. */
void assert_same_run(const char *plain, const char *other, int steps);

/* Compare runs of @p steps steps, of which @p uneven have smaller batches. Ranks that share a GPU
 * cannot capture. */
void compare(const char *conf, const char *kind, int most_ranks, const char *const *arguments,
             int steps, int uneven);

#endif
