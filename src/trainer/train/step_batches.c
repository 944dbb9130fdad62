/* step_batches.c - owns the copies of a step's micro-batches, and their common begin and end. */
#include "train/step_batches.h"

#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "train/batch_sizes.h"
#include "train/statistics.h"

#include <string.h>

void cddpi_step_batches_fini(struct cddpi_step_batches *all)
{
    for (int m = 0; all->stored != NULL && m < all->room; m++) {
        all->device->ops->unpin(all->device, all->stored[m].input);
        all->device->ops->unpin(all->device, all->stored[m].tokens);
        all->device->ops->unpin(all->device, all->stored[m].label);
        cddpi_free(all->stored[m].ids);
    }
    cddpi_free(all->stored);
    cddpi_free(all->batches);
    cddpi_free(all->scales);
    cddpi_free(all->results);
    *all = (struct cddpi_step_batches){0};
}

/* The sizes of a sample's copied arrays. */
struct step_batches_sizes {
    size_t input, tokens, labels; /* elements */
};

static struct step_batches_sizes sizes_of(const struct cddpi_trainer *trainer,
                                          const struct cddpi_step_batches *all)
{
    const struct cddpi_dataset *data = &trainer->data.train.data;
    bool is_text = cddpi_trainer_is_text(trainer);
    struct step_batches_sizes sizes = {0, 0, 0};

    if (!all->no_data) {
        sizes.tokens = is_text ? (size_t)data->context : 0;
        sizes.input = is_text ? 0 : cddpi_dataset_elements(data);
    }
    if (!all->no_labels) {
        sizes.labels = cddpi_dataset_labels(data);
    }
    return sizes;
}

/* Memory that a device copies from while it computes. NULL: there is none. */
static void *pin(const struct cddpi_step_batches *all, size_t bytes)
{
    void *memory = NULL;

    return all->device->ops->pin(all->device, bytes + 1, &memory) == CDDP_OK ? memory : NULL;
}

static cddp_status allocate(const struct cddpi_trainer *trainer, int multiple,
                            struct cddpi_step_batches *all)
{
    struct step_batches_sizes sizes = sizes_of(trainer, all);
    size_t samples = (size_t)cddpi_trainer_micro_batch(trainer->config, trainer->replicas.count);
    int count = (int)cddpi_trainer_micro_batches(trainer->config, trainer->replicas.count) +
                multiple;
    bool done;

    all->device = trainer->device;
    all->stored = cddpi_zalloc_array((size_t)count, sizeof *all->stored);
    all->batches = cddpi_zalloc_array((size_t)count, sizeof *all->batches);
    all->scales = cddpi_zalloc_array((size_t)count, sizeof *all->scales);
    all->results = cddpi_zalloc_array((size_t)count, sizeof *all->results);
    all->room = count;
    done = all->stored != NULL && all->batches != NULL && all->scales != NULL &&
           all->results != NULL;
    for (int m = 0; done && m < count; m++) {
        struct cddpi_stored_batch *batch = &all->stored[m];

        batch->input = pin(all, samples * sizes.input * sizeof *batch->input);
        batch->tokens = pin(all, samples * sizes.tokens * sizeof *batch->tokens);
        batch->label = pin(all, samples * sizes.labels * sizeof *batch->label);
        batch->ids = cddpi_alloc_aligned(samples * sizeof *batch->ids + 1);
        done = batch->input != NULL && batch->tokens != NULL && batch->label != NULL &&
               batch->ids != NULL;
    }
    if (!done) {
        cddpi_step_batches_fini(all);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %d micro-batches", count);
    }
    return CDDP_OK;
}

static struct cddpi_batch store_batch(const struct step_batches_sizes *sizes,
                                      struct cddpi_stored_batch *to,
                                      const struct cddpi_micro_batch *from)
{
    struct cddpi_batch batch = cddpi_prefetcher_batch(from);
    size_t count = (size_t)batch.count;

    if (count > 0) {
        memcpy(to->ids, batch.sample_ids, count * sizeof *to->ids);
    }
    if (count > 0 && sizes->labels > 0) {
        memcpy(to->label, batch.label, count * sizes->labels * sizeof *to->label);
    }
    if (count > 0 && sizes->tokens > 0) {
        memcpy(to->tokens, batch.tokens, count * sizes->tokens * sizeof *to->tokens);
    }
    if (count > 0 && sizes->input > 0) {
        memcpy(to->input, batch.input, count * sizes->input * sizeof *to->input);
    }
    batch.input = sizes->input > 0 ? to->input : NULL;
    batch.tokens = sizes->tokens > 0 ? to->tokens : NULL;
    batch.label = sizes->labels > 0 ? to->label : NULL;
    batch.sample_ids = to->ids;
    return batch;
}

cddp_status cddpi_step_batches_fetch(struct cddpi_trainer *trainer, struct cddpi_train_step *step,
                                     int multiple, bool logs, struct cddpi_step_batches *all)
{
    struct cddpi_micro_batch batch = {.last = false};
    struct step_batches_sizes sizes = sizes_of(trainer, all);
    uint64_t samples; /* over which the loss is a mean */

    if (all->stored == NULL) {
        CDDPI_TRY(allocate(trainer, multiple, all));
    }
    for (all->count = 0; !batch.last; all->count++) {
        CDDPI_TRY(cddpi_trainer_take_batch(trainer, step, logs, &batch));
        all->batches[all->count] = store_batch(&sizes, &all->stored[all->count], &batch);
        CDDPI_TRY(cddpi_prefetcher_release(trainer->data.train.prefetcher));
    }
    CDDPI_TRY(cddpi_trainer_skip_batches(trainer, &batch, (uint64_t)all->count));
    all->share = batch.share;
    all->of = batch.of;
    while (all->of > 0 && all->count > 0 && all->batches[all->count - 1].count == 0) {
        all->count--; /* other ranks have all of them */
    }
    while (all->count % multiple != 0) {
        all->batches[all->count] = all->batches[0];
        all->batches[all->count++].count = 0;
    }
    samples = all->of > 0 ? batch.samples : batch.share;
    for (int m = 0; m < all->count; m++) {
        all->scales[m] = samples > 0 ? 1.0 / ((double)samples * trainer->models.predictions) : 1.0;
    }
    return CDDP_OK;
}

cddp_status cddpi_step_batches_begin(struct cddpi_trainer *trainer,
                                     const struct cddpi_step_batches *all)
{
    cddp_step sync = CDDP_STEP_INIT;

    sync.number = trainer->cursor.step + 1;
    if (all->of == 0) {
        sync.samples = all->share;
        return cddp_ddp_begin(trainer->ddp, &sync);
    }
    sync.kind = CDDP_STEP_BY_MICRO_BATCHES;
    sync.micro_batches = all->of;
    CDDPI_TRY(cddpi_ddp_begin_run(trainer->ddp, &sync));
    return cddpi_statistics_begin_run(trainer->step.statistics, &sync);
}

cddp_status cddpi_step_batches_note(struct cddpi_trainer *trainer,
                                    const struct cddpi_step_batches *all)
{
    struct cddpi_interval *interval = &trainer->records.interval;

    for (int m = 0; m < all->count; m++) {
        const struct cddpi_loss_result *result = &all->results[m];

        CDDPI_TRY(cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result->loss_sum));
        cddpi_exact_add(&interval->loss_sum, result->loss_sum);
        interval->correct += result->correct;
        interval->count += result->count;
    }
    return CDDP_OK;
}

cddp_status cddpi_step_batches_wait(struct cddpi_trainer *trainer,
                                    const struct cddpi_step_batches *all)
{
    CDDPI_TRY(cddp_ddp_wait(trainer->ddp));
    return all->of > 0 ? cddpi_statistics_end_run(trainer->step.statistics) : CDDP_OK;
}
