/* bench_embed.c - what cddp's calls cost a trainer that embeds it: cddp_ddp_grad_ready(), recording
 * an operation, and the additional memory of a rank. One rank prints a line of JSON. Started alone,
 * or on several ranks by cddp-run. Used by scripts/bench. */
#include "base/clock.h"
#include "group/group.h"
#include "group/watch/recorder.h"

#include <cddp/cddp.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PARAMS = 4096,
    ELEMENTS = 16,
    STEPS = 40,
    CLOCKS = 100001,
    ROUNDS = 501,
    RECORDS = 200,
    FEW_STEPS = 20001
};

static void must(cddp_status status)
{
    if (status != CDDP_OK) {
        fprintf(stderr, "bench_embed: %s\n", cddp_last_error());
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static double median(int64_t *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return (double)values[count / 2];
}

/* Pages of this process in memory, shared ones included. */
static double resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;

    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) {
        fprintf(stderr, "bench_embed: /proc/self/statm cannot be read\n");
        exit(1);
    }
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

/* Looking at the clock twice: what each measured call has in it besides. */
static double clock_cost_ns(int64_t *values)
{
    for (size_t i = 0; i < CLOCKS; i++) {
        int64_t began = cddpi_now_ns();

        values[i] = cddpi_now_ns() - began;
    }
    return median(values, CLOCKS);
}

/* A backward of calls, all of which but the last complete no bucket: each one's time without the
 * last, and the mean of all of them by one look at the clock. */
static int64_t backward(cddp_ddp *ddp, int64_t *times)
{
    cddp_step step = CDDP_STEP_INIT;
    int64_t began = cddpi_now_ns();
    int64_t took;

    step.samples = 50;
    must(cddp_ddp_begin(ddp, &step));
    for (size_t i = 0; i + 1 < PARAMS; i++) {
        int64_t now = times != NULL ? cddpi_now_ns() : 0;

        must(cddp_ddp_grad_ready(ddp, i));
        if (times != NULL) {
            times[i] = cddpi_now_ns() - now;
        }
    }
    took = cddpi_now_ns() - began;
    must(cddp_ddp_grad_ready(ddp, PARAMS - 1));
    must(cddp_ddp_wait(ddp));
    return took;
}

/* The first @p count of the parameters, in one bucket. */
static cddp_ddp *watch(cddp_group *group, size_t count, float *values, float *grads)
{
    static char names[PARAMS][16];
    static cddp_param params[PARAMS];
    cddp_ddp_options how = CDDP_DDP_OPTIONS_INIT;
    cddp_ddp *ddp;

    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "p%zu", i);
        params[i] = (cddp_param){.name = names[i],
                                 .type = CDDP_F32,
                                 .dims = 1,
                                 .shape = {ELEMENTS},
                                 .data = values + i * ELEMENTS,
                                 .grad = grads + i * ELEMENTS};
    }
    how.bucket_bytes = how.first_bucket_bytes = (size_t)1 << 30; /* one bucket */
    must(cddp_ddp_create(group, params, count, NULL, 0, &how, &ddp));
    return ddp;
}

/* All calls of a step of examples/embed: what it has more than the trainer before its patch. */
static double step_ns(cddp_group *group, float *values, float *grads, int64_t *times)
{
    cddp_ddp *ddp = watch(group, 6, values, grads);
    cddp_step how = CDDP_STEP_INIT;
    double median_ns;

    for (int step = 0; step < FEW_STEPS; step++) {
        double loss = 1;
        int64_t began = cddpi_now_ns();

        how.number = (uint64_t)step;
        how.samples = 50;
        must(cddp_ddp_begin(ddp, &how));
        for (size_t i = 6; i-- > 0;) {
            must(cddp_ddp_grad_ready(ddp, i));
        }
        must(cddp_ddp_wait(ddp));
        must(cddp_all_reduce(group, &loss, &loss, 1, CDDP_F64, CDDP_OP_SUM, NULL));
        times[step] = cddpi_now_ns() - began;
    }
    median_ns = median(times, FEW_STEPS);
    cddp_ddp_destroy(ddp);
    return median_ns;
}

/* Everything that is noted of one operation: the median over rounds, which others disturb less. */
static double record_ns(int64_t *times)
{
    struct cddpi_recorder *recorder = calloc(1, sizeof *recorder);
    struct cddpi_group_op op;

    memset(&op, 0, sizeof op);
    if (recorder == NULL) {
        exit(1);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int64_t began = cddpi_now_ns();

        for (int i = 0; i < RECORDS; i++) {
            cddpi_recorder_begin(recorder, &op, false);
            cddpi_recorder_start(recorder, op.serial);
            cddpi_recorder_end(recorder, op.serial, CDDP_OK);
        }
        times[round] = cddpi_now_ns() - began;
    }
    free(recorder);
    return median(times, ROUNDS) / RECORDS;
}

int main(void)
{
    size_t count = (size_t)STEPS * PARAMS;
    int64_t *times = malloc((count > CLOCKS ? count : CLOCKS) * sizeof *times);
    float *values = malloc(PARAMS * ELEMENTS * sizeof *values);
    float *grads = malloc(PARAMS * ELEMENTS * sizeof *grads);
    int64_t whole[STEPS];
    cddp_group *group;
    cddp_ddp *ddp;
    double clock_ns, before, with_group, with_ddp, one_ns, whole_step_ns;

    if (times == NULL || values == NULL || grads == NULL) {
        return 1;
    }
    memset(times, 1, (count > CLOCKS ? count : CLOCKS) * sizeof *times);
    memset(values, 0, PARAMS * ELEMENTS * sizeof *values);
    memset(grads, 0, PARAMS * ELEMENTS * sizeof *grads);
    clock_ns = clock_cost_ns(times);
    before = resident_kib();
    must(cddp_group_create(NULL, &group));
    with_group = resident_kib();
    ddp = watch(group, PARAMS, values, grads);
    backward(ddp, NULL); /* buckets are rebuilt in the first one */
    with_ddp = resident_kib();
    for (int step = 0; step < STEPS; step++) {
        backward(ddp, times + (size_t)step * (PARAMS - 1));
        whole[step] = backward(ddp, NULL);
    }
    one_ns = median(times, (size_t)STEPS * (PARAMS - 1)) - clock_ns;
    whole_step_ns = step_ns(group, values, grads, times) - clock_ns;
    if (cddp_group_rank(group) == 0) {
        printf("{\"ranks\": %d, \"grad_ready_ns\": %.1f, \"grad_ready_mean_ns\": %.1f, "
               "\"step_ns\": %.0f, \"record_ns\": %.1f, \"group_kib\": %.0f, \"ddp_kib\": %.0f, "
               "\"grads_kib\": %zu}\n",
               cddp_group_world_size(group), one_ns, median(whole, STEPS) / (PARAMS - 1),
               whole_step_ns, record_ns(times), with_group - before, with_ddp - with_group,
               PARAMS * ELEMENTS * sizeof *grads / 1024);
    }
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    free(times);
    free(values);
    free(grads);
    return 0;
}
