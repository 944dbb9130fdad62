/* passes.c - owns the passes of a step: the discriminator on images of the data and on generated
 * ones, and the generator's through the discriminator. */
#include "base/clock.h"
#include "base/launcher_report.h"
#include "base/normal.h"
#include "group/trace.h"
#include "train/gan/state.h"
#include "train/micro_batch.h"
#include "train/models.h"
#include "train/update.h"

#include <math.h>
#include <string.h>

enum { LOSS_D, LOSS_G, D_REAL, D_FAKE, COUNT, SUMS };

void cddpi_gan_draw(const struct cddpi_trainer *trainer, enum cddpi_random_purpose purpose,
                    uint64_t step, const uint64_t *sample_ids, int count)
{
    struct cddpi_philox stream = cddpi_philox_stream((uint64_t)trainer->config->train.seed, purpose,
                                                     (uint32_t)step);
    size_t latent = trainer->gan->latent;
    uint64_t quads = (latent + 3) / 4;

    for (int n = 0; n < count; n++) {
        float *vector = trainer->gan->noise + (size_t)n * latent;

        for (size_t i = 0; i < latent; i += 4) {
            size_t left = latent - i < 4 ? latent - i : 4;
            uint32_t words[4];
            float values[4];

            cddpi_philox4(&stream, sample_ids[n] * quads + i / 4, words);
            cddpi_normal4(words, 0, 1, values);
            memcpy(vector + i, values, left * sizeof *values);
        }
    }
}

cddp_status cddpi_gan_forward(struct cddpi_trainer *trainer, int count, bool training)
{
    struct cddpi_gan *gan = trainer->gan;
    struct cddpi_batch batch = {
        .input = gan->noise, .count = count, .step = trainer->cursor.step, .sample_ids = gan->ids};

    gan->count = count;
    cddpi_model_bind_edge(trainer->generator->model, CDDPI_EDGE_OUT, 0, gan->fake, gan->fake_grad);
    return cddpi_model_forward(trainer->generator->model, &batch, training, NULL);
}

/* The discriminator on @p images, of which all are real or none is. @p probability: what it says,
 * added up. */
static cddp_status judge(struct cddpi_trainer *trainer, const float *images, bool is_real,
                         int count, bool training, struct cddpi_loss_result *out,
                         double *probability)
{
    struct cddpi_gan *gan = trainer->gan;
    struct cddpi_batch batch = {.label = is_real ? gan->ones : gan->zeros,
                                .count = count,
                                .step = trainer->cursor.step,
                                .sample_ids = gan->ids};
    const float *logits;
    cddp_status status;

    cddpi_model_bind_edge(trainer->model, CDDPI_EDGE_IN, 0, (float *)(uintptr_t)images,
                          gan->fake_grad);
    status = cddpi_model_forward(trainer->model, &batch, training, out);
    logits = status == CDDP_OK && count > 0 ? cddpi_model_outputs(trainer->model) : NULL;
    for (int n = 0; logits != NULL && n < count; n++) {
        *probability += 1 / (1 + exp(-(double)logits[n]));
    }
    return status;
}

cddp_status cddpi_gan_evaluate(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                               struct cddpi_loss_result *out)
{
    double probability = 0;

    return judge(trainer, batch->input, true, batch->count, false, out, &probability);
}

static cddp_status grad_ready(void *context, size_t index)
{
    struct cddpi_trainer *trainer = context;

    return cddp_ddp_grad_ready(trainer->ddp, index);
}

static double scale_of(int share)
{
    return share > 0 ? 1.0 / share : 1.0;
}

/* Of the discriminator on images of one kind; @p last: the gradients of both kinds are there, and
 * become the mean over ranks. */
static cddp_status train_discriminator(struct cddpi_trainer *trainer, const float *images,
                                       bool is_real, int count, bool last)
{
    struct cddpi_gan *gan = trainer->gan;
    struct cddpi_interval *interval = &trainer->interval;
    struct cddpi_loss_result result = {0};
    cddp_step sync = CDDP_STEP_INIT;
    int64_t begun = cddpi_now_ns();
    int64_t forwarded;
    cddp_status status = judge(trainer, images, is_real, count, true, &result,
                               &gan->sums[is_real ? D_REAL : D_FAKE]);

    if (status == CDDP_OK) {
        status = cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result.loss_sum);
    }
    forwarded = cddpi_now_ns();
    sync.weight = count;
    sync.no_sync = !last;
    if (status == CDDP_OK) {
        status = cddp_ddp_begin(trainer->ddp, &sync);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_backward(trainer->model, scale_of(count), last, grad_ready, trainer);
    }
    cddpi_trace_add(trainer->group, CDDPI_SPAN_FORWARD, begun, forwarded, -1, 0);
    cddpi_trace_add(trainer->group, CDDPI_SPAN_BACKWARD, forwarded, cddpi_now_ns(), -1, 0);
    interval->forward_ns += forwarded - begun;
    interval->backward_ns += cddpi_now_ns() - forwarded;
    interval->loss_sum += result.loss_sum;
    interval->correct += 0.5 * result.correct; /* of twice as many judgements as samples */
    gan->sums[LOSS_D] += result.loss_sum;
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp) : status;
}

cddp_status cddpi_gan_discriminate(struct cddpi_trainer *trainer,
                                   const struct cddpi_micro_batch *micro_batch)
{
    struct cddpi_gan *gan = trainer->gan;
    struct cddpi_batch batch = cddpi_prefetcher_batch(micro_batch);
    int64_t begun;
    cddp_status status;

    cddpi_launcher_report_alive();
    status = train_discriminator(trainer, batch.input, true, batch.count, false);
    if (status != CDDP_OK) {
        return status;
    }
    begun = cddpi_now_ns();
    cddpi_gan_draw(trainer, CDDPI_RANDOM_LATENT, trainer->cursor.step, batch.sample_ids,
                   batch.count);
    status = cddpi_gan_forward(trainer, batch.count, true);
    cddpi_trace_add(trainer->group, CDDPI_SPAN_FORWARD, begun, cddpi_now_ns(), -1, 0);
    trainer->interval.forward_ns += cddpi_now_ns() - begun;
    if (status == CDDP_OK) {
        status = train_discriminator(trainer, gan->fake, false, batch.count, true);
    }
    trainer->interval.count += batch.count;
    gan->sums[COUNT] += batch.count;
    return status;
}

/* Gradients of the generated images, by the discriminator as it is now, which they should convince;
 * and by them the generator's. */
static cddp_status train_generator(struct cddpi_trainer *trainer)
{
    struct cddpi_gan *gan = trainer->gan;
    struct cddpi_trainer *generator = trainer->generator;
    struct cddpi_loss_result result = {0};
    cddp_step sync = CDDP_STEP_INIT;
    int64_t begun = cddpi_now_ns();
    int64_t forwarded;
    double probability = 0;
    cddp_status status = judge(trainer, gan->fake, true, gan->count, true, &result, &probability);

    if (status == CDDP_OK) {
        status = cddpi_trainer_check_loss(trainer, trainer->cursor.step, result.loss_sum);
    }
    forwarded = cddpi_now_ns();
    if (status == CDDP_OK) {
        status = cddpi_model_backward(trainer->model, scale_of(gan->count), false, NULL, NULL);
    }
    sync.weight = gan->count;
    if (status == CDDP_OK) {
        status = cddp_ddp_begin(generator->ddp, &sync);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_backward(generator->model, 1, false, grad_ready, generator);
    }
    cddpi_trace_add(trainer->group, CDDPI_SPAN_FORWARD, begun, forwarded, -1, 0);
    cddpi_trace_add(trainer->group, CDDPI_SPAN_BACKWARD, forwarded, cddpi_now_ns(), -1, 0);
    trainer->interval.forward_ns += forwarded - begun;
    trainer->interval.backward_ns += cddpi_now_ns() - forwarded;
    gan->sums[LOSS_G] += result.loss_sum;
    return status == CDDP_OK ? cddp_ddp_wait(generator->ddp) : status;
}

/* What the generator's reducer and update took is the step's, too. */
static cddp_status add_times(struct cddpi_trainer *trainer)
{
    struct cddpi_interval *interval = &trainer->interval;
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    cddp_status status = cddp_ddp_get_stats(trainer->generator->ddp, &stats);

    if (status == CDDP_OK) {
        interval->stages_wait_ns += (int64_t)(stats.total_exposed_ns - trainer->gan->exposed_ns);
        trainer->gan->exposed_ns = stats.total_exposed_ns;
        interval->optimizer_ns += trainer->generator->interval.optimizer_ns;
        trainer->generator->interval.optimizer_ns = 0;
    }
    return status;
}

cddp_status cddpi_gan_generate(struct cddpi_trainer *trainer, const struct cddpi_step *step)
{
    struct cddpi_trainer *generator = trainer->generator;
    struct cddpi_step own = *step;
    double norm = 0;
    cddp_status status;

    own.lr = cddpi_schedule_lr(&generator->schedule, (int64_t)generator->cursor.step);
    own.reported = false; /* the norm in reports is the discriminator's */
    cddpi_model_bind_grads(trainer->model, trainer->gan->unwanted_grads);
    status = train_generator(trainer);
    cddpi_trainer_bind_grads(trainer);
    if (status == CDDP_OK) {
        status = cddpi_trainer_bind_again(generator);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_update(generator, &own, &norm);
    }
    generator->cursor = trainer->cursor;
    return status == CDDP_OK ? add_times(trainer) : status;
}

cddp_status cddpi_gan_close_means(struct cddpi_trainer *trainer, struct cddpi_gan_means *out)
{
    double *sums = trainer->gan->sums;
    cddp_status status = cddp_all_reduce(trainer->group, sums, sums, SUMS, CDDP_F64, CDDP_OP_SUM,
                                         NULL);

    if (status == CDDP_OK) {
        *out = (struct cddpi_gan_means){sums[LOSS_D] / sums[COUNT], sums[LOSS_G] / sums[COUNT],
                                        sums[D_REAL] / sums[COUNT], sums[D_FAKE] / sums[COUNT]};
        memset(sums, 0, SUMS * sizeof *sums);
    }
    return status;
}
