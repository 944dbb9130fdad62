/* step_graphs.c - owns the captures of a step's micro-batches, and their replay. */
#include "train/device/step_graphs.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "ddp/copies.h"
#include "group/join/group_agree.h"
#include "train/device/device_step.h"
#include "train/engines/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_KINDS = 16 };

/* Identifies micro-batches that enqueue the same work. */
struct step_graphs_kind {
    int slot; /* the prefetcher's slot */
    bool first, last;
    bool even; /* gradients are summed without weights */
    bool norm; /* last: compute the norm just for a report */
    int count;
    uint64_t share;
};

struct captured {
    struct step_graphs_kind kind;
    struct cddpi_group_capture graph;
};

struct cddpi_step_graphs {
    struct cddpi_trainer *trainer; /* borrowed */
    struct cddpi_graph_choice choice;
    struct captured captured[MAX_KINDS];
    int count;
    uint64_t version;             /* of the model's memory when it was captured */
    struct cddpi_failure failure; /* from capturing a micro-batch other than the last */
};

void cddpi_step_graphs_drop(struct cddpi_step_graphs *graphs)
{
    for (int i = 0; graphs != NULL && i < graphs->count; i++) {
        struct cddpi_device *device = graphs->trainer->device;

        device->ops->graph_destroy(device, graphs->captured[i].graph.work);
    }
    if (graphs != NULL) {
        graphs->count = 0;
    }
}

cddp_status cddpi_step_graphs_create(struct cddpi_trainer *trainer, struct cddpi_step_graphs **out)
{
    int setting = trainer->config->train.cuda_graph;
    struct cddpi_step_graphs *graphs;

    if (setting == CDDPI_GRAPH_NEVER || !trainer->engine->replays ||
        cddpi_trainer_has_same_bits(trainer)) {
        return CDDP_OK;
    }
    if (cddpi_group_can_capture(trainer->group) != CDDP_OK) {
        char why[256];

        snprintf(why, sizeof why, "%s", cddp_last_error());
        if (setting == CDDPI_GRAPH_ALWAYS) {
            return cddpi_fail(CDDP_ERR_CONFIG, "train.cuda_graph = \"always\": %s", why);
        }
        cddpi_log(CDDPI_LOG_INFO, "CUDA graphs are not used: %s", why);
        return CDDP_OK;
    }
    graphs = cddpi_zalloc(sizeof *graphs);
    CDDPI_TRY_MEMORY(graphs != NULL, "trainer: no memory for %zu bytes", sizeof *graphs);
    graphs->trainer = trainer;
    graphs->choice.always = setting == CDDPI_GRAPH_ALWAYS;
    *out = graphs;
    return CDDP_OK;
}

void cddpi_step_graphs_destroy(struct cddpi_step_graphs *graphs)
{
    cddpi_step_graphs_drop(graphs);
    cddpi_free(graphs);
}

/* --- the choice --- */

enum {
    PLAIN_STEPS = 3,   /* not replayed and not timed, because kernels are chosen in them */
    BEFORE_ALWAYS = 2, /* the same if nothing is timed: buckets are rebuilt in the first */
    FIRST_REPLAYS = 2, /* not timed: they capture, one per slot of the prefetcher */
    FIRST_TIMED = PLAIN_STEPS + FIRST_REPLAYS,
    END_TIMED = FIRST_TIMED + 2 * CDDPI_GRAPH_TIMED_STEPS
};

static int compare_times(const void *a, const void *b)
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
    qsort(times->ms, (size_t)times->count, sizeof times->ms[0], compare_times);
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

static void tell(struct cddpi_trainer *trainer, bool replay, const double *ms)
{
    if (trainer->rank != 0) {
        return;
    }
    cddpi_progress_line(&trainer->records.progress,
                        "a step takes %.3f ms replayed as CUDA graphs, %.3f ms otherwise: steps "
                        "are %s",
                        ms[1], ms[0], replay ? "replayed" : "not replayed");
    if (trainer->records.metrics != NULL) {
        cddpi_metrics_add_object(trainer->records.metrics,
                                 json_pack("{s:s, s:I, s:I, s:b, s:f, s:f}", "kind", "cuda_graph",
                                           "step", (json_int_t)trainer->cursor.step, "epoch",
                                           (json_int_t)trainer->cursor.epoch, "replayed", replay,
                                           "plain_ms", ms[0], "replayed_ms", ms[1]));
    }
}

/* Choose by the slowest rank's times, so that all ranks choose the same. */
static cddp_status choose(struct cddpi_step_graphs *graphs)
{
    double ms[2];

    CDDPI_TRY(cddpi_graph_choice_make(&graphs->choice, graphs->trainer->group, ms));
    if (isfinite(ms[0]) && isfinite(ms[1])) {
        tell(graphs->trainer, !graphs->choice.off, ms);
    } else {
        cddpi_log(CDDPI_LOG_INFO, "CUDA graphs are not used: there was none to be timed");
    }
    if (graphs->choice.off) {
        cddpi_step_graphs_drop(graphs);
    }
    return CDDP_OK;
}

bool cddpi_step_graphs_chooses(const struct cddpi_step_graphs *graphs, bool whole)
{
    return graphs != NULL && cddpi_graph_choice_is_due(&graphs->choice, whole);
}

cddp_status cddpi_step_graphs_decide(struct cddpi_step_graphs *graphs, bool whole,
                                     struct cddpi_step_mode *out)
{
    *out = (struct cddpi_step_mode){false, false};
    if (cddpi_step_graphs_chooses(graphs, whole)) {
        CDDPI_TRY(choose(graphs));
    }
    if (graphs != NULL) {
        *out = cddpi_graph_choice_next(&graphs->choice, whole);
    }
    return CDDP_OK;
}

void cddpi_step_graphs_time(struct cddpi_step_graphs *graphs, bool replayed, int64_t step_ns)
{
    cddpi_graph_choice_time(&graphs->choice, replayed, step_ns);
}

/* --- captures --- */

bool cddpi_step_graphs_are_stale(struct cddpi_step_graphs *graphs)
{
    if (graphs == NULL || graphs->count == 0 ||
        graphs->version == cddpi_model_memory_version(graphs->trainer->model)) {
        return false;
    }
    cddpi_step_graphs_drop(graphs);
    return true;
}

static struct captured *find_captured(struct cddpi_step_graphs *graphs,
                                      const struct step_graphs_kind *kind)
{
    for (int i = 0; i < graphs->count; i++) {
        const struct step_graphs_kind *own = &graphs->captured[i].kind;

        if (own->slot == kind->slot && own->first == kind->first && own->last == kind->last &&
            own->even == kind->even && own->norm == kind->norm && own->count == kind->count &&
            own->share == kind->share) {
            return &graphs->captured[i];
        }
    }
    return NULL;
}

static cddp_status put_work(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                            const struct cddpi_micro_batch *batch, uint64_t done)
{
    CDDPI_TRY(cddpi_trainer_run_micro_batch(trainer, step, batch, done));
    return batch->last ? cddpi_device_step_work(trainer->step.device, step->reported) : CDDP_OK;
}

/* Make the first micro-batch cast the parameter copies that updates do not write. It must do so
 * even if an evaluation has made them since the last update, and again if the capture fails. */
static void want_copies(struct cddpi_trainer *trainer, const struct step_graphs_kind *kind)
{
    if (kind->first) {
        cddpi_model_params_changed(trainer->model, true);
    }
}

/* Capture on this rank only. */
static cddp_status capture(struct cddpi_step_graphs *graphs, const struct cddpi_train_step *step,
                           const struct step_graphs_kind *kind,
                           const struct cddpi_micro_batch *batch, uint64_t done,
                           struct cddpi_group_capture *out)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    struct cddpi_device *device = trainer->device;
    struct cddpi_failure failure;
    cddp_status status;
    cddp_status ended;

    if (graphs->count == MAX_KINDS) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%d kinds of micro-batches were captured already",
                          MAX_KINDS);
    }
    want_copies(trainer, kind);
    status = cddpi_ddp_capture_begin(trainer->ddp);
    if (status == CDDP_OK) {
        status = put_work(trainer, step, batch, done);
        failure = *cddpi_last_failure();
        ended = cddpi_ddp_capture_end(trainer->ddp, out);
        if (status != CDDP_OK && ended == CDDP_OK) {
            device->ops->graph_destroy(device, out->work);
            out->work = NULL;
        }
        status = status != CDDP_OK ? cddpi_fail_again(status, &failure) : ended;
    }
    if (status != CDDP_OK) {
        want_copies(trainer, kind);
    }
    return status;
}

/* Find out on all ranks whether a rank failed, and why. Fails if the group does. */
static cddp_status compare_outcomes(struct cddpi_trainer *trainer, cddp_status own,
                                    bool *out_failed, cddp_status *out_failure)
{
    uint8_t failed = own != CDDP_OK;
    struct cddpi_failure why = *cddpi_last_failure();

    CDDPI_TRY(cddp_all_reduce(trainer->group, &failed, &failed, 1, CDDP_U8, CDDP_OP_MAX, NULL));
    *out_failed = failed != 0;
    if (*out_failed) {
        *out_failure = cddpi_agree(trainer->group,
                                   own != CDDP_OK ? cddpi_fail_again(own, &why) : CDDP_OK);
    }
    return CDDP_OK;
}

/* Stop replaying on all ranks, because some rank could not capture. */
static cddp_status give_up(struct cddpi_step_graphs *graphs, cddp_status status)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    char why[1024];

    snprintf(why, sizeof why, "%s", cddp_last_error());
    if (graphs->choice.always) {
        return cddpi_fail(status,
                          "train.cuda_graph = \"always\", but a step cannot be captured: %s", why);
    }
    graphs->choice.off = true;
    cddpi_step_graphs_drop(graphs);
    if (trainer->rank == 0) {
        cddpi_trainer_warn(
            trainer,
            "CUDA graphs are not used: they cannot be captured: %s (train.cuda_graph "
            "= \"never\" does not try)",
            why);
    }
    return cddpi_group_capture_failed(trainer->group);
}

static cddp_status fail_as_before(const struct cddpi_step_graphs *graphs)
{
    return cddpi_fail_again((cddp_status)graphs->failure.status, &graphs->failure);
}

/* Capture a micro-batch. Only the last micro-batch of a step uses the group. The earlier ones are
 * each rank's own business, and if they cannot be captured, the ranks learn it with the last
 * one. */
static cddp_status add(struct cddpi_step_graphs *graphs, const struct cddpi_train_step *step,
                       const struct step_graphs_kind *kind, const struct cddpi_micro_batch *batch,
                       uint64_t done, struct captured **out)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    struct cddpi_group_capture graph = {NULL, 0};
    cddp_status failure = CDDP_OK;
    bool failed = false;
    cddp_status status;

    status = graphs->failure.status == CDDP_OK ? capture(graphs, step, kind, batch, done, &graph)
                                               : fail_as_before(graphs);
    if (!kind->last && status != CDDP_OK) {
        graphs->failure = *cddpi_last_failure();
        graphs->failure.status = status;
        return CDDP_OK;
    }
    if (kind->last) {
        status = compare_outcomes(trainer, status, &failed, &failure);
    }
    if (status != CDDP_OK || failed) {
        trainer->device->ops->graph_destroy(trainer->device, graph.work);
        want_copies(trainer, kind);
        return failed ? give_up(graphs, failure) : status;
    }
    graphs->version = cddpi_model_memory_version(trainer->model);
    graphs->captured[graphs->count] = (struct captured){*kind, graph};
    *out = &graphs->captured[graphs->count++];
    return CDDP_OK;
}

cddp_status cddpi_step_graphs_micro_batch(struct cddpi_step_graphs *graphs,
                                          const struct cddpi_train_step *step,
                                          const struct cddpi_micro_batch *batch, uint64_t done,
                                          enum cddpi_replay *out)
{
    struct cddpi_trainer *trainer = graphs->trainer;
    struct step_graphs_kind kind = {batch->slot, done == 0,    batch->last, batch->even,
                                    false,       batch->count, batch->share};
    cddp_step begun = cddpi_trainer_step_of(trainer, batch, done);
    struct captured *captured;

    if (batch->last) { /* values for the device, before the step's last work */
        CDDPI_TRY(cddpi_device_step_prepare(trainer->step.device, step->lr));
    }
    if (done == 0) { /* updates write the other copies, so here copies of parameters are made only
                        if they have changed without an update */
        CDDPI_TRY(cddpi_device_step_begin_replay(trainer->step.device));
        CDDPI_TRY(cddpi_model_refresh_copies(trainer->model));
    }
    kind.norm = batch->last && step->reported &&
                !cddpi_device_step_has_factor(trainer->step.device);
    captured = find_captured(graphs, &kind);
    *out = CDDPI_REPLAYED;
    if (captured == NULL && !graphs->choice.off) {
        *out = CDDPI_CAPTURED;
        CDDPI_TRY(add(graphs, step, &kind, batch, done, &captured));
    }
    if (captured != NULL && batch->last && graphs->choice.always &&
        graphs->failure.status != CDDP_OK) {
        return give_up(graphs, fail_as_before(graphs));
    }
    if (captured == NULL) {
        *out = CDDPI_NOT_REPLAYED;
        return put_work(trainer, step, batch, done);
    }
    CDDPI_TRY(cddpi_ddp_replay(trainer->ddp, &captured->graph, &begun));
    if (kind.first) {
        cddpi_model_replayed(trainer->model);
    }
    return CDDP_OK;
}
