/* step_graphs.c - owns the recordings of a step's micro-batches, and the times by which is chosen
 * whether they are used. */
#include "train/step_graphs.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "ddp/record.h"
#include "group/agree.h"
#include "train/device_step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MOST_KINDS = 16,
    PLAIN_STEPS = 3,   /* that are neither replayed nor timed: kernels are chosen in them */
    BEFORE_ALWAYS = 2, /* of these, where nothing is timed: buckets are rebuilt in the first */
    FIRST_REPLAYS = 2, /* that are not timed: one for each place of the feed, to be recorded */
    TIMED_STEPS = 5    /* of either way, in turns: devices change their pace in time */
};

/* Micro-batches that put the same work into the streams. */
struct kind {
    int place; /* of the feed */
    bool first, last;
    bool even; /* gradients may be added up, not weighed */
    bool norm; /* last: the norm is found although nothing needs it but a report */
    int count;
    uint64_t share;
};

struct recorded {
    struct kind kind;
    struct cddpi_group_recording recording;
};

/* Times of one way to do steps. */
struct times {
    double ms[TIMED_STEPS];
    int count;
};

struct cddpi_step_graphs {
    struct cddpi_trainer *trainer; /* borrowed */
    bool always;                   /* no choice */
    bool off;                      /* steps are not replayed any more */
    uint64_t steps;                /* whole ones since the run began */
    struct recorded recorded[MOST_KINDS];
    int count;
    uint64_t version;    /* of the model's memory, as the recordings know it */
    bool replayed;       /* all of the present step so far */
    cddp_status failure; /* of recording a micro-batch that is not the last; then why */
    char why[1024];
    struct times plain, replays;
};

static void drop(struct cddpi_step_graphs *graphs)
{
    struct cddpi_device *device = graphs->trainer->device;

    for (int i = 0; i < graphs->count; i++) {
        device->ops->recording_destroy(device, graphs->recorded[i].recording.work);
    }
    graphs->count = 0;
}

cddp_status cddpi_step_graphs_create(struct cddpi_trainer *trainer, struct cddpi_step_graphs **out)
{
    int wish = trainer->config->train.cuda_graph;
    struct cddpi_step_graphs *graphs;

    if (wish == CDDPI_GRAPH_NEVER) {
        return CDDP_OK;
    }
    if (cddpi_group_records(trainer->group) != CDDP_OK) {
        char why[256];

        snprintf(why, sizeof why, "%s", cddp_last_error());
        if (wish == CDDPI_GRAPH_ALWAYS) {
            return cddpi_fail(CDDP_ERR_CONFIG, "train.cuda_graph = \"always\": %s", why);
        }
        cddpi_log(CDDPI_LOG_INFO, "steps are not replayed: %s", why);
        return CDDP_OK;
    }
    graphs = cddpi_zalloc(sizeof *graphs);
    if (graphs == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory for %zu bytes", sizeof *graphs);
    }
    graphs->trainer = trainer;
    graphs->always = wish == CDDPI_GRAPH_ALWAYS;
    *out = graphs;
    return CDDP_OK;
}

void cddpi_step_graphs_destroy(struct cddpi_step_graphs *graphs)
{
    if (graphs != NULL) {
        drop(graphs);
    }
    cddpi_free(graphs);
}

/* --- the choice --- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(struct times *times)
{
    int middle = times->count / 2;

    if (times->count == 0) {
        return INFINITY;
    }
    qsort(times->ms, (size_t)times->count, sizeof times->ms[0], compare);
    return times->count % 2 != 0 ? times->ms[middle]
                                 : (times->ms[middle - 1] + times->ms[middle]) / 2;
}

static void tell(struct cddpi_trainer *trainer, bool replay, const double *ms)
{
    if (trainer->rank != 0) {
        return;
    }
    cddpi_progress_line(&trainer->progress,
                        "a step takes %.3f ms replayed as CUDA graphs, %.3f ms otherwise: steps "
                        "are %s",
                        ms[1], ms[0], replay ? "replayed" : "not replayed");
    if (trainer->metrics != NULL) {
        cddpi_metrics_add_object(trainer->metrics,
                                 json_pack("{s:s, s:I, s:I, s:b, s:f, s:f}", "kind", "cuda_graph",
                                           "step", (json_int_t)trainer->at.step, "epoch",
                                           (json_int_t)trainer->at.epoch, "replayed", replay,
                                           "plain_ms", ms[0], "replayed_ms", ms[1]));
    }
}

/* As the slowest rank has it, so that all choose the same. */
static cddp_status choose(struct cddpi_step_graphs *graphs)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    double ms[2];
    cddp_status status = cddpi_trainer_settle(trainer, 0, NULL);

    if (status != CDDP_OK) {
        return status;
    }
    ms[0] = median(&graphs->plain);
    ms[1] = median(&graphs->replays);
    status = cddp_all_reduce(trainer->group, ms, ms, 2, CDDP_F64, CDDP_OP_MAX, NULL);
    if (status != CDDP_OK) {
        return status;
    }
    if (!isfinite(ms[0]) || !isfinite(ms[1])) {
        graphs->off = true; /* on all ranks */
        cddpi_log(CDDPI_LOG_INFO, "steps are not replayed: there was none to be timed");
    } else {
        graphs->off = ms[1] >= ms[0];
        tell(trainer, !graphs->off, ms);
    }
    if (graphs->off) {
        drop(graphs);
    }
    return CDDP_OK;
}

cddp_status cddpi_step_graphs_begin(struct cddpi_step_graphs *graphs, bool whole)
{
    const uint64_t first = PLAIN_STEPS + FIRST_REPLAYS; /* that is timed */
    const uint64_t last = first + (uint64_t)2 * TIMED_STEPS;
    struct cddpi_trainer *trainer;
    uint64_t step;
    cddp_status status = CDDP_OK;

    if (graphs == NULL) {
        return CDDP_OK;
    }
    trainer = graphs->trainer;
    trainer->replays = false;
    trainer->timed = false;
    graphs->replayed = false;
    if (graphs->off || !whole) {
        return CDDP_OK;
    }
    step = graphs->steps++;
    if (graphs->always) {
        trainer->replays = step >= BEFORE_ALWAYS;
    } else {
        if (step == last) {
            status = choose(graphs);
        }
        trainer->timed = step >= first && step < last;
        trainer->replays = !graphs->off && step >= PLAIN_STEPS &&
                           (!trainer->timed || (step - first) % 2 != 0);
    }
    graphs->replayed = trainer->replays;
    return status;
}

void cddpi_step_graphs_time(struct cddpi_step_graphs *graphs, bool replayed, int64_t step_ns)
{
    struct times *times = replayed ? &graphs->replays : &graphs->plain;

    if (times->count < TIMED_STEPS) {
        times->ms[times->count++] = (double)step_ns * 1e-6;
    }
}

bool cddpi_step_graphs_replayed(const struct cddpi_step_graphs *graphs)
{
    return graphs != NULL && graphs->replayed;
}

/* --- recordings --- */

bool cddpi_step_graphs_are_stale(struct cddpi_step_graphs *graphs)
{
    bool stale;

    if (graphs == NULL || graphs->count == 0) {
        return false;
    }
    stale = graphs->version != cddpi_model_memory_version(graphs->trainer->model);
    if (stale) {
        drop(graphs);
    }
    return stale;
}

void cddpi_step_graphs_heard(struct cddpi_step_graphs *graphs)
{
    if (graphs != NULL && graphs->trainer->agreed.stale && !graphs->trainer->own.stale) {
        drop(graphs);
    }
}

static bool same_kind(const struct kind *a, const struct kind *b)
{
    return a->place == b->place && a->first == b->first && a->last == b->last &&
           a->even == b->even && a->norm == b->norm && a->count == b->count && a->share == b->share;
}

static struct recorded *find(struct cddpi_step_graphs *graphs, const struct kind *kind)
{
    for (int i = 0; i < graphs->count; i++) {
        if (same_kind(&graphs->recorded[i].kind, kind)) {
            return &graphs->recorded[i];
        }
    }
    return NULL;
}

static cddp_status put_work(struct cddpi_trainer *trainer, const struct cddpi_fed *fed,
                            uint64_t done)
{
    cddp_status status = cddpi_trainer_run_micro_batch(trainer, fed, done);

    return status == CDDP_OK && fed->last
               ? cddpi_device_step_work(trainer->device_step, trainer->reported)
               : status;
}

/* The first micro-batch makes the copies of parameters that updates do not write. It has to, also
 * where they were made since the last update, for an evaluation, and again if the recording comes
 * to nothing. */
static void want_copies(struct cddpi_trainer *trainer, const struct kind *kind)
{
    if (kind->first) {
        cddpi_model_params_changed(trainer->model,
                                   cddpi_device_step_writes_copies(trainer->device_step));
    }
}

/* The others are there, but where parameters have changed without an update. */
static cddp_status begin(struct cddpi_trainer *trainer)
{
    cddp_status status = cddpi_device_step_begin_replay(trainer->device_step);

    return status == CDDP_OK && cddpi_device_step_writes_copies(trainer->device_step)
               ? cddpi_model_refresh_copies(trainer->model)
               : status;
}

/* On this rank alone. */
static cddp_status record(struct cddpi_step_graphs *graphs, const struct kind *kind,
                          const struct cddpi_fed *fed, uint64_t done,
                          struct cddpi_group_recording *out)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    struct cddpi_device *device = trainer->device;
    char text[1024];
    cddp_status status;
    cddp_status ended;

    if (graphs->count == MOST_KINDS) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%d kinds of micro-batches were recorded already",
                          MOST_KINDS);
    }
    want_copies(trainer, kind);
    status = cddpi_ddp_record_begin(trainer->ddp);
    if (status == CDDP_OK) {
        status = put_work(trainer, fed, done);
        snprintf(text, sizeof text, "%s", cddp_last_error());
        ended = cddpi_ddp_record_end(trainer->ddp, out);
        if (status != CDDP_OK && ended == CDDP_OK) {
            device->ops->recording_destroy(device, out->work);
            out->work = NULL;
        }
        status = status != CDDP_OK ? cddpi_fail(status, "%s", text) : ended;
    }
    if (status != CDDP_OK) {
        want_copies(trainer, kind);
    }
    return status;
}

/* Whether a rank failed, and with what, on all of them. */
static cddp_status compare_outcomes(struct cddpi_trainer *trainer, cddp_status own,
                                    bool *out_failed, cddp_status *out_failure)
{
    uint8_t failed = own != CDDP_OK;
    char why[1024];
    cddp_status status;

    snprintf(why, sizeof why, "%s", cddp_last_error());
    status = cddp_all_reduce(trainer->group, &failed, &failed, 1, CDDP_U8, CDDP_OP_MAX, NULL);
    if (status != CDDP_OK) {
        return status; /* of the group */
    }
    *out_failed = failed != 0;
    if (*out_failed) {
        *out_failure = cddpi_agree(trainer->group,
                                   own != CDDP_OK ? cddpi_fail(own, "%s", why) : CDDP_OK);
    }
    return CDDP_OK;
}

/* What some rank could not record is not replayed by any. */
static cddp_status give_up(struct cddpi_step_graphs *graphs, cddp_status status)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    char why[1024];

    snprintf(why, sizeof why, "%s", cddp_last_error());
    if (graphs->always) {
        return cddpi_fail(status,
                          "train.cuda_graph = \"always\", but a step cannot be recorded: %s", why);
    }
    graphs->off = true;
    drop(graphs);
    if (trainer->rank == 0) {
        cddpi_trainer_warn(trainer,
                           "steps are not replayed: they cannot be recorded: %s (train.cuda_graph "
                           "= \"never\" does not try)",
                           why);
    }
    return cddpi_group_record_failed(trainer->group);
}

/* Only a step's last micro-batch has operations of the group: those before it are each rank's own
 * matter, and what they cannot record is told with the last. */
static cddp_status add(struct cddpi_step_graphs *graphs, const struct kind *kind,
                       const struct cddpi_fed *fed, uint64_t done, struct recorded **out)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    struct cddpi_group_recording recording = {NULL, 0};
    cddp_status failure = CDDP_OK;
    bool failed = false;
    cddp_status status;

    trainer->timed = false;
    status = graphs->failure == CDDP_OK ? record(graphs, kind, fed, done, &recording)
                                        : cddpi_fail(graphs->failure, "%s", graphs->why);
    if (!kind->last && status != CDDP_OK) {
        graphs->failure = status;
        snprintf(graphs->why, sizeof graphs->why, "%s", cddp_last_error());
        return CDDP_OK;
    }
    if (kind->last) {
        status = compare_outcomes(trainer, status, &failed, &failure);
    }
    if (status != CDDP_OK || failed) {
        trainer->device->ops->recording_destroy(trainer->device, recording.work);
        want_copies(trainer, kind);
        return failed ? give_up(graphs, failure) : status;
    }
    graphs->version = cddpi_model_memory_version(trainer->model);
    graphs->recorded[graphs->count] = (struct recorded){*kind, recording};
    *out = &graphs->recorded[graphs->count++];
    return CDDP_OK;
}

/* What is told to the device before the step's last work. */
static cddp_status prepare_last(struct cddpi_step_graphs *graphs)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    cddp_status status = cddpi_trainer_agree(trainer);

    return status == CDDP_OK ? cddpi_device_step_prepare(trainer->device_step, trainer->lr)
                             : status;
}

cddp_status cddpi_step_graphs_micro_batch(struct cddpi_step_graphs *graphs,
                                          const struct cddpi_fed *fed, uint64_t done)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    struct kind kind = {fed->place, done == 0,        fed->last, fed->even,
                        false,      fed->batch.count, fed->share};
    struct recorded *recorded;
    cddp_status status = fed->last ? prepare_last(graphs) : CDDP_OK;

    if (status == CDDP_OK && done == 0) {
        status = begin(trainer);
    }
    if (status != CDDP_OK) {
        return status;
    }
    kind.norm = fed->last && trainer->reported &&
                !cddpi_device_step_has_factor(trainer->device_step);
    recorded = find(graphs, &kind);
    if (recorded == NULL && !graphs->off) {
        status = add(graphs, &kind, fed, done, &recorded);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (recorded != NULL && fed->last && graphs->always && graphs->failure != CDDP_OK) {
        return give_up(graphs, cddpi_fail(graphs->failure, "%s", graphs->why));
    }
    if (recorded == NULL) {
        graphs->replayed = false;
        return put_work(trainer, fed, done);
    }
    status = cddpi_ddp_replay(trainer->ddp, &recorded->recording, fed->last);
    if (status == CDDP_OK && kind.first) {
        cddpi_model_replayed(trainer->model);
    }
    return status;
}
