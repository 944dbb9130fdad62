/* graph_choice.c - owns the order in which the two ways to run steps are tried, and their times. */
#include "train/device/graph_choice.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

enum {
    PLAIN_STEPS = 3,   /* not replayed and not timed, because kernels are chosen in them */
    BEFORE_ALWAYS = 2, /* the same if nothing is timed: buckets are rebuilt in the first */
    FIRST_REPLAYS = 2, /* not timed: they capture, one per slot of the prefetcher */
    FIRST_TIMED = PLAIN_STEPS + FIRST_REPLAYS,
    END_TIMED = FIRST_TIMED + 2 * CDDPI_GRAPH_TIMED_STEPS
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(struct cddpi_step_times *times)
{
    int middle = times->count / 2;

    if (times->count == 0) {
        return INFINITY;
    }
    qsort(times->ms, (size_t)times->count, sizeof times->ms[0], compare);
    return times->count % 2 != 0 ? times->ms[middle]
                                 : (times->ms[middle - 1] + times->ms[middle]) / 2;
}

bool cddpi_graph_choice_is_due(const struct cddpi_graph_choice *choice, bool whole)
{
    return !choice->off && !choice->always && whole && choice->steps == END_TIMED;
}

cddp_status cddpi_graph_choice_make(struct cddpi_graph_choice *choice, cddp_group *group,
                                    double out_ms[2])
{
    double ms[] = {median(&choice->plain), median(&choice->replayed)};

    CDDPI_TRY(cddp_all_reduce(group, ms, ms, 2, CDDP_F64, CDDP_OP_MAX, NULL));
    choice->off = !isfinite(ms[0]) || !isfinite(ms[1]) || ms[1] >= ms[0];
    out_ms[0] = ms[0];
    out_ms[1] = ms[1];
    return CDDP_OK;
}

struct cddpi_step_mode cddpi_graph_choice_next(struct cddpi_graph_choice *choice, bool whole)
{
    struct cddpi_step_mode mode = {false, false};
    uint64_t step;

    if (choice->off || !whole) {
        return mode;
    }
    step = choice->steps++;
    if (choice->always) {
        mode.replays = step >= BEFORE_ALWAYS;
    } else {
        mode.timed = step >= FIRST_TIMED && step < END_TIMED;
        mode.replays = step >= PLAIN_STEPS && (!mode.timed || (step - FIRST_TIMED) % 2 != 0);
    }
    return mode;
}

void cddpi_graph_choice_time(struct cddpi_graph_choice *choice, bool replayed, int64_t step_ns)
{
    struct cddpi_step_times *times = replayed ? &choice->replayed : &choice->plain;

    if (times->count < CDDPI_GRAPH_TIMED_STEPS) {
        times->ms[times->count++] = (double)step_ns * 1e-6;
    }
}
