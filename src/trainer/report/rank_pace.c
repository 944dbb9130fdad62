/* rank_pace.c - compares the ranks' own times. */
#include "report/rank_pace.h"

#include <stdlib.h>

static const double least_factor = 1.1;
static const double least_part = 0.1; /* of a step, for which the others wait for a slow rank */

void cddpi_rank_pace_add(struct cddpi_rank_pace *pace, const struct cddpi_interval *interval)
{
    double samples = pace->added_samples;
    double scale; /* from the steps whose parts were timed to all steps */

    pace->added_samples = 0;
    if (interval->steps == 0 || 2 * interval->whole > interval->steps) {
        return; /* few steps, such as the last of an epoch, do not stand for all */
    }
    scale = (double)interval->steps / (double)(interval->steps - interval->whole);
    pace->samples += samples;
    pace->steps += (double)interval->steps;
    pace->step_ns += (double)interval->step_ns;
    pace->own_ns += (double)interval->step_ns - (double)interval->exposed_ns * scale -
                    (double)interval->norm_ns;
    pace->update_ns += (double)interval->optimizer_ns * scale - (double)interval->norm_ns;
    pace->data_ns += (double)interval->data_ns;
}

/* Whether the rank's time can be compared: it has measured it, and has computed something. */
static bool is_known(const struct cddpi_rank_pace *pace)
{
    return pace->steps > 0 && pace->samples > 0 && pace->own_ns > 0;
}

/* The mean number of samples of the ranks that compute the same part of the model. */
static double mean_samples(const struct cddpi_rank_pace *paces, int count, double part)
{
    double samples = 0;
    int ranks = 0;

    for (int i = 0; i < count; i++) {
        if (paces[i].part == part && is_known(&paces[i])) {
            samples += paces[i].samples;
            ranks++;
        }
    }
    return ranks > 0 ? samples / ranks : 0;
}

/* A rank's own time for a step of @p samples samples, in nanoseconds. */
static double time_of(const struct cddpi_rank_pace *pace, double samples)
{
    double update_ns = pace->update_ns > 0 && pace->update_ns < pace->own_ns ? pace->update_ns : 0;

    return ((pace->own_ns - update_ns) * samples / pace->samples + update_ns) / pace->steps;
}

static double data_of(const struct cddpi_rank_pace *pace, double samples)
{
    return pace->data_ns * samples / pace->samples / pace->steps;
}

static int order(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

/* The median of what @p get says of the ranks that compute @p part. */
static double median(const struct cddpi_rank_pace *paces, int count, double part, double samples,
                     double (*get)(const struct cddpi_rank_pace *pace, double samples),
                     double *room)
{
    int used = 0;

    for (int i = 0; i < count; i++) {
        if (paces[i].part == part && is_known(&paces[i])) {
            room[used++] = get(&paces[i], samples);
        }
    }
    qsort(room, (size_t)used, sizeof *room, order);
    return used > 0 ? room[(used - 1) / 2] : 0;
}

/* Keep the slowest ones, in any order. */
static void keep(struct cddpi_pace_result *out, const struct cddpi_slow_rank *found)
{
    int least = 0;

    if (out->count < CDDPI_REPORT_SLOW_RANKS) {
        out->slow[out->count++] = *found;
        return;
    }
    for (int i = 1; i < out->count; i++) {
        least = out->slow[i].factor < out->slow[least].factor ? i : least;
    }
    if (found->factor > out->slow[least].factor) {
        out->slow[least] = *found;
    }
}

/* Compare the ranks that compute @p part. */
static void compare_part(const struct cddpi_rank_pace *paces, int count, double part, double *room,
                         double *most, struct cddpi_pace_result *out)
{
    double samples = mean_samples(paces, count, part);
    double usual = median(paces, count, part, samples, time_of, room);
    double usual_data = median(paces, count, part, samples, data_of, room);

    for (int i = 0; i < count; i++) {
        struct cddpi_slow_rank found = {.rank = i};
        double time;

        if (paces[i].part != part || !is_known(&paces[i]) || usual <= 0) {
            continue;
        }
        time = time_of(&paces[i], samples);
        found.factor = time / usual;
        found.waits_for_data = data_of(&paces[i], samples) - usual_data > (time - usual) / 2;
        if (found.factor > *most) {
            *most = found.factor;
            out->slowest = i;
            out->slowest_ms = time * 1e-6;
            out->median_ms = usual * 1e-6;
        }
        if (found.factor >= least_factor &&
            time - usual >= least_part * paces[i].step_ns / paces[i].steps) {
            keep(out, &found);
        }
    }
}

void cddpi_rank_paces_compare(const struct cddpi_rank_pace *paces, int count, double *room,
                              struct cddpi_pace_result *out)
{
    double most = 0;

    out->count = 0;
    out->slowest = -1;
    for (int i = 0; i < count; i++) {
        int first = 0;

        while (paces[first].part != paces[i].part) {
            first++;
        }
        if (first == i) {
            compare_part(paces, count, paces[i].part, room, &most, out);
        }
    }
}
