/* evaluate.c - computes loss, and accuracy or error, over the test data, each sample exactly once
 * with any number of ranks, and counts broken image files over all ranks. */
#include "train/evaluate.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/shape.h"
#include "train/engines/engine.h"
#include "train/trainer.h"

#include <cddp/process.h>
#include <math.h>
#include <string.h>

enum { TEXT_BYTES = 1024 };

cddp_status cddpi_trainer_tell_broken(struct cddpi_trainer *trainer)
{
    int64_t counts[2] = {0, 0};
    char text[TEXT_BYTES] = "";
    char other[TEXT_BYTES] = "";
    char *shown = text;
    int64_t from;

    if (trainer->config->data.on_error != CDDPI_DATA_SKIP) {
        return CDDP_OK;
    }
    if (trainer->data.reads_samples) { /* the other ranks of a replica load the same samples */
        counts[0] = (int64_t)cddpi_data_loader_broken(trainer->data.train.loader, text,
                                                      sizeof text);
        counts[1] = (int64_t)cddpi_data_loader_broken(trainer->data.test.loader, other,
                                                      sizeof other);
    }
    if (text[0] == '\0') {
        shown = other;
    }
    CDDPI_TRY(cddp_all_reduce(trainer->group, counts, counts, 2, CDDP_I64, CDDP_OP_SUM, NULL));
    from = shown[0] != '\0' ? trainer->rank : trainer->world_size;
    CDDPI_TRY(cddp_all_reduce(trainer->group, &from, &from, 1, CDDP_I64, CDDP_OP_MIN, NULL));
    if (from < trainer->world_size) { /* the text of the lowest rank that has one */
        CDDPI_TRY(cddp_broadcast(trainer->group, shown, TEXT_BYTES, CDDP_U8, (int)from, NULL));
    }
    if (trainer->rank == 0 && counts[0] + counts[1] > trainer->records.told_broken) {
        cddpi_trainer_warn(
            trainer,
            "data.on_error = \"skip\": until step %llu, %lld samples to train on and "
            "%lld to evaluate on were replaced by others, since their files are "
            "broken, as this one: %s",
            (unsigned long long)trainer->cursor.step, (long long)counts[0], (long long)counts[1],
            shown);
        trainer->records.told_broken = counts[0] + counts[1];
    }
    return CDDP_OK;
}

/* Broadcast rank 0's running statistics of batch normalisation. They differ between ranks, except
 * where bits do not depend on ranks (statistics.h), and rank 0's are saved, so these are evaluated.
 */
static cddp_status share_buffers(struct cddpi_trainer *trainer)
{
    bool differ = !cddpi_trainer_has_same_bits(trainer);

    for (size_t i = 0; differ && i < trainer->buffers.count; i++) {
        const cddp_param *buffer = &trainer->buffers.list[i];

        CDDPI_TRY(cddp_broadcast(trainer->replicas.group, buffer->data,
                                 cddpi_elements(buffer->dims, buffer->shape), buffer->type, 0,
                                 NULL));
    }
    return CDDP_OK;
}

/* What this rank's batches add up to. */
struct evaluation_sums {
    struct cddpi_exact_sum loss; /* the same for any division among ranks */
    int64_t correct, count;
    int late; /* batches whose results were not taken yet */
};

enum { MOST_LATE = 4 }; /* results are taken later, so that the host does not wait for the device */

/* The model with the loss, if this rank has it. */
static struct cddpi_model *last_model(const struct cddpi_trainer *trainer)
{
    return trainer->models.list[trainer->models.count - 1].model;
}

/* Take results until at most @p keep are left to take. */
static cddp_status take_results(const struct cddpi_trainer *trainer, int keep,
                                struct evaluation_sums *sums)
{
    while (sums->late > keep) {
        struct cddpi_loss_result result;

        CDDPI_TRY(cddpi_model_result(last_model(trainer), &result));
        cddpi_exact_add(&sums->loss, result.loss_sum);
        sums->correct += result.correct;
        sums->count += result.count;
        sums->late--;
    }
    return CDDP_OK;
}

/* Take all updated parameters, for a rank that computes nothing: others, which wait for its shards,
 * may do so in another group than the one in which this rank waits for them. */
static cddp_status take_params(const struct cddpi_trainer *trainer)
{
    for (; trainer != NULL && trainer->config->ddp.shard_optimizer; trainer = trainer->next) {
        CDDPI_TRY(cddp_ddp_params_wait(trainer->ddp));
    }
    return CDDP_OK;
}

/* Evaluate this rank's part of the next global batch. @p out_at_end: there was no more batch. */
static cddp_status evaluate_batch(struct cddpi_trainer *trainer, struct evaluation_sums *sums,
                                  bool *out_at_end)
{
    struct cddpi_micro_batch micro_batch;
    struct cddpi_batch batch;
    struct cddpi_loss_result result = {0};

    CDDPI_TRY(cddpi_prefetcher_next(trainer->data.test.prefetcher, &micro_batch));
    *out_at_end = micro_batch.label == NULL;
    if (*out_at_end) {
        return CDDP_OK;
    }
    batch = cddpi_prefetcher_batch(&micro_batch);
    if (batch.count > 0) {
        CDDPI_TRY(cddpi_trainer_add_advice(trainer->engine->evaluate(trainer, &batch, &result),
                                           "a smaller train.eval_batch_size needs less"));
        CDDPI_TRY(cddpi_model_collect(last_model(trainer), result.count));
        sums->late++;
        CDDPI_TRY(take_results(trainer, MOST_LATE, sums));
    } else {
        CDDPI_TRY(take_params(trainer));
    }
    return cddpi_prefetcher_release(trainer->data.test.prefetcher);
}

/* Evaluate up to the end of the test data, or until a rank was asked to stop: then
 * trainer->step.stopped is set on all ranks. */
static cddp_status evaluate_batches(struct cddpi_trainer *trainer, struct evaluation_sums *sums)
{
    bool at_end = false;

    cddpi_prefetcher_start(trainer->data.test.prefetcher, trainer->cursor.step);
    while (!at_end && !trainer->step.stopped) {
        enum cddpi_request request = cddp_stop_requested() ? CDDPI_REQUEST_STOP
                                                           : CDDPI_REQUEST_NONE;

        /* While a batch computes, ask all ranks whether one was asked to stop. */
        CDDPI_TRY(cddpi_agreement_begin(&trainer->step.agreement, trainer->group, request, false));
        CDDPI_TRY(evaluate_batch(trainer, sums, &at_end));
        CDDPI_TRY(cddpi_agreement_end(&trainer->step.agreement));
        cddpi_save_behind_look(trainer);
        trainer->step.stopped = trainer->step.agreement.agreed.request == CDDPI_REQUEST_STOP;
    }
    return take_results(trainer, 0, sums);
}

/* This rank's share of the test data: all of it, or train.eval_batches. */
static cddp_status evaluate_share(struct cddpi_trainer *trainer, struct evaluation_sums *sums)
{
    uint64_t batch = (uint64_t)trainer->config->train.eval_batch_size;
    uint64_t most = (uint64_t)trainer->config->train.eval_batches;
    uint64_t samples = trainer->data.test.data.count;
    cddp_status status;

    if (most > 0 && most <= samples / batch) {
        samples = most * batch;
    }
    CDDPI_TRY(cddpi_trainer_collect_results(trainer, 0, NULL));
    CDDPI_TRY(cddpi_model_reset_sums(last_model(trainer))); /* discard what training has added */
    CDDPI_TRY(cddpi_data_loader_start(trainer->data.test.loader, trainer->data.test.sampler, 0, 0,
                                      samples, batch, trainer->replicas.rank,
                                      trainer->replicas.count, false));
    status = evaluate_batches(trainer, sums);
    cddpi_data_loader_cancel(trainer->data.test.loader);
    return status;
}

/* Write a line of metrics and a progress line. */
static cddp_status report_evaluation(struct cddpi_trainer *trainer, int64_t predictions,
                                     double took_ms)
{
    const char *names[] = {"eval_loss", "eval_accuracy",   "eval_samples",
                           "eval_ms",   "eval_perplexity", "eval_tokens" /* of text */};
    uint64_t epoch = trainer->cursor.epoch +
                     (trainer->cursor.position > 0); /* the current or just completed one */
    bool is_text = cddpi_trainer_is_text(trainer);
    const struct cddpi_evaluation *found = &trainer->evaluation;
    double values[] = {
        found->loss, found->accuracy,  (double)(predictions / trainer->models.predictions),
        took_ms,     exp(found->loss), (double)predictions};

    if (found->error_name != NULL) {
        names[1] = strcmp(found->error_name, "mae") == 0 ? "eval_mae" : "eval_rmse";
        values[1] = found->error;
    }
    if (trainer->records.metrics != NULL) {
        cddpi_metrics_add(trainer->records.metrics, "eval", trainer->cursor.step, epoch, names,
                          values, is_text ? 6 : 4);
    }
    return trainer->engine->show_evaluation(trainer, epoch);
}

cddp_status cddpi_trainer_evaluate(struct cddpi_trainer *trainer)
{
    int64_t began = cddpi_now_ns();
    struct evaluation_sums sums = {.late = 0};
    int64_t counts[2];

    CDDPI_TRY(share_buffers(trainer));
    CDDPI_TRY(evaluate_share(trainer, &sums));
    counts[0] = sums.correct;
    counts[1] = sums.count;
    CDDPI_TRY(cddpi_interval_add_ranks(trainer->group, &sums.loss));
    CDDPI_TRY(cddp_all_reduce(trainer->group, counts, counts, 2, CDDP_I64, CDDP_OP_SUM, NULL));
    if (trainer->step.stopped) {
        return CDDP_OK; /* a partial evaluation is not reported */
    }
    trainer->evaluation = (struct cddpi_evaluation){
        .step = trainer->cursor.step,
        .loss = cddpi_exact_value(&sums.loss) / (double)counts[1],
        .accuracy = (double)counts[0] / (double)counts[1]};
    if (cddpi_trainer_is_regression(trainer)) {
        struct cddpi_evaluation *found = &trainer->evaluation;
        bool is_l1 = trainer->config->model.loss == CDDPI_LOSS_L1;

        found->error = is_l1 ? found->loss : sqrt(found->loss);
        found->error_name = is_l1 ? "mae" : "rmse";
    }
    CDDPI_TRY(report_evaluation(trainer, counts[1], (double)(cddpi_now_ns() - began) * 1e-6));
    return cddpi_trainer_tell_broken(trainer);
}
