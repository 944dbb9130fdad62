/* train_graphs_support.h - runs whose steps are recorded and replayed, or not, and comparing them.
 */
#ifndef CDDP_TESTS_TRAIN_GRAPHS_SUPPORT_H
#define CDDP_TESTS_TRAIN_GRAPHS_SUPPORT_H

#include "train_cuda_support.h"

#define NEVER "train.cuda_graph=never"
#define ALWAYS "train.cuda_graph=always"
#define AUTO "train.cuda_graph=auto"

enum { PLAIN_STEPS = 2 }; /* before the first that is replayed */

static inline struct run run_graphs(const char *conf, int ranks, const char *name, const char *wish,
                                    const char *const *arguments)
{
    const char *all[MOST_ARGUMENTS + 1] = {wish};

    for (int i = 0; arguments[i] != NULL; i++) {
        all[i + 1] = arguments[i];
    }
    return run_named(conf, ranks, name, CUDA, all);
}

/* Steps that the metrics of a run of @p steps tell to have been replayed; -1: they tell nothing. */
static inline int replayed(const char *run_dir, int steps)
{
    int sum = 0;
    bool told = false;

    for (int step = 1; step <= steps; step++) {
        double number = metric(run_dir, (uint64_t)step, "replayed_steps");

        told = told || isfinite(number);
        sum += isfinite(number) ? (int)number : 0;
    }
    return told ? sum : -1;
}

/* Losses of each step that was reported, norms, and the last checkpoint, bit for bit. */
static inline void assert_same_run(const char *plain, const char *other, int steps)
{
    for (int step = 1; step <= steps; step++) {
        static const char *const names[] = {"loss", "grad_norm", "accuracy", "eval_loss"};

        for (int i = 0; i < 4; i++) {
            double here = metric(plain, (uint64_t)step, names[i]);
            double there = metric(other, (uint64_t)step, names[i]);

            if (!(here == there || (isnan(here) && isnan(there)))) {
                fail_msg("step %d: %s is %.9g in %s, but %.9g in %s", step, names[i], here, plain,
                         there, other);
            }
        }
    }
    assert_same_checkpoint(plain, other, steps);
}

/* Of @p steps, @p uneven ones have smaller batches. Ranks that share a GPU cannot record. */
static inline void compare(const char *conf, const char *kind, int most_ranks,
                           const char *const *arguments, int steps, int uneven)
{
    if (gpu_is_real() && most_ranks > gpu_count()) {
        most_ranks = gpu_count();
    }
    for (int ranks = 1; ranks <= most_ranks; ranks++) {
        char *plain = argument("%s-never%d", kind, ranks);
        char *always = argument("%s-always%d", kind, ranks);

        run_graphs(conf, ranks, plain, NEVER, arguments);
        run_graphs(conf, ranks, always, ALWAYS, arguments);
        assert_int_equal(replayed(plain, steps), -1);
        assert_int_equal(replayed(always, steps), steps - uneven - PLAIN_STEPS);
        assert_same_run(plain, always, steps);
    }
}

#endif
