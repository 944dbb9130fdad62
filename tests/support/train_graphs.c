/* train_graphs.c - runs with and without CUDA graphs (captured and replayed steps), and their
 * comparison. */
#include "support/train_graphs.h"

struct run run_graphs(const char *conf, int ranks, const char *name, const char *wish,
                      const char *const *arguments)
{
    const char *all[MOST_ARGUMENTS + 1] = {wish};

    for (int i = 0; arguments[i] != NULL; i++) {
        all[i + 1] = arguments[i];
    }
    return run_named(conf, ranks, name, CUDA, all);
}

int replayed(const char *run_dir, int steps)
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

void assert_same_run(const char *plain, const char *other, int steps)
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

void compare(const char *conf, const char *kind, int most_ranks, const char *const *arguments,
             int steps, int uneven)
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
