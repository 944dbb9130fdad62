/* gan_passes.c - owns the passes of a step: the discriminator on images of the data and on
 * generated ones, and the generator's through the discriminator. */
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/normal.h"
#include "group/watch/group_trace.h"
#include "train/device/collect_results.h"
#include "train/engines/gan/gan_state.h"
#include "train/micro_batch.h"
#include "train/update.h"

#include <string.h>

cddp_status cddpi_gan_draw(const struct cddpi_trainer *trainer, enum cddpi_random_purpose purpose,
                           uint64_t step, const uint64_t *sample_ids, int count)
{
    struct cddpi_philox stream = cddpi_philox_stream((uint64_t)trainer->config->train.seed, purpose,
                                                     (uint32_t)step);
    const struct cddpi_gan *gan = cddpi_gan_of(trainer);
    float *noise = cddpi_gan_slot_of(cddpi_gan_of(trainer), trainer->cursor.step)->noise;
    size_t latent = gan->latent;
    uint64_t quads = (latent + 3) / 4;

    for (int n = 0; n < count; n++) {
        float *vector = noise + (size_t)n * latent;

        for (size_t i = 0; i < latent; i += 4) {
            size_t left = latent - i < 4 ? latent - i : 4;
            uint32_t words[4];
            float values[4];

            cddpi_philox4(&stream, sample_ids[n] * quads + i / 4, words);
            cddpi_normal4(words, 0, 1, values);
            memcpy(vector + i, values, left * sizeof *values);
        }
    }
    return count == 0
               ? CDDP_OK
               : trainer->device->ops->copy(trainer->device, CDDPI_STREAM_COMPUTE, gan->noise,
                                            noise, (size_t)count * latent * sizeof *noise);
}

cddp_status cddpi_gan_forward(struct cddpi_trainer *trainer, int count, bool training)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct cddpi_batch batch = {
        .input = gan->noise, .count = count, .step = trainer->cursor.step, .sample_ids = gan->ids};

    cddpi_model_bind_edge(cddpi_gan_of(trainer)->generator->model, CDDPI_EDGE_OUT, 0, gan->fake,
                          gan->fake_grad);
    return cddpi_model_forward(cddpi_gan_of(trainer)->generator->model, &batch, training, NULL);
}

/* The discriminator on @p images, of which all are real or none is. */
static cddp_status judge(struct cddpi_trainer *trainer, const float *images, bool is_real,
                         int count, bool training, struct cddpi_loss_result *out)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct cddpi_batch batch = {.label = is_real ? gan->ones : gan->zeros,
                                .count = count,
                                .step = trainer->cursor.step,
                                .sample_ids = gan->ids};

    cddpi_model_bind_edge(trainer->model, CDDPI_EDGE_IN, 0, (float *)(uintptr_t)images,
                          gan->fake_grad);
    return cddpi_model_forward(trainer->model, &batch, training, out);
}

cddp_status cddpi_gan_evaluate(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                               struct cddpi_loss_result *out)
{
    return judge(trainer, batch->input, true, batch->count, false, out);
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

/* A pass began at @p begun, and was forward until @p forwarded. Of a device its own times are
 * taken. */
static void note_times(struct cddpi_trainer *trainer, int64_t begun, int64_t forwarded)
{
    int64_t now = cddpi_now_ns();

    cddpi_trace_add(trainer->group, CDDPI_SPAN_FORWARD, begun, forwarded, -1, 0);
    cddpi_trace_add(trainer->group, CDDPI_SPAN_BACKWARD, forwarded, now, -1, 0);
    if (!cddpi_device_is_async(trainer->device)) {
        trainer->records.interval.forward_ns += forwarded - begun;
        trainer->records.interval.backward_ns += now - forwarded;
    }
}

/* Of the discriminator on images of one kind, forward of which @p began; those of the second kind
 * come last: then gradients of both are there, and become the mean over ranks. */
static cddp_status train_discriminator(struct cddpi_trainer *trainer, const float *images,
                                       enum cddpi_gan_pass pass, int count, int64_t begun)
{
    bool last = pass == CDDPI_GAN_FAKE;
    float *logits = cddpi_gan_slot_of(cddpi_gan_of(trainer), trainer->cursor.step)->logits[pass];
    struct cddpi_loss_result result = {0};
    cddp_step sync = CDDP_STEP_INIT;
    int64_t forwarded;
    cddp_status status = judge(trainer, images, pass == CDDPI_GAN_REAL, count, true, &result);

    if (status == CDDP_OK) {
        status = cddpi_model_send_outputs(trainer->model, logits);
    }
    if (status == CDDP_OK) { /* a device knows it later */
        status = cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result.loss_sum);
    }
    forwarded = cddpi_now_ns();
    if (status == CDDP_OK) {
        status = cddpi_device_step_mark(trainer->device_step, CDDPI_MARK_BACKWARD);
    }
    sync.weight = count;
    sync.no_sync = !last;
    if (status == CDDP_OK) {
        status = cddp_ddp_begin(trainer->ddp, &sync);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_backward(trainer->model, scale_of(count), last, grad_ready, trainer);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_collect(trainer->model, count);
    }
    note_times(trainer, begun, forwarded);
    return status == CDDP_OK ? cddp_ddp_wait(trainer->ddp) : status;
}

static cddp_status discriminate(struct cddpi_trainer *trainer, struct cddpi_train_step *step,
                                const struct cddpi_micro_batch *micro_batch, uint64_t done)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct cddpi_batch batch = cddpi_prefetcher_batch(micro_batch);
    int64_t begun = cddpi_now_ns();
    cddp_status status = cddpi_device_step_mark(trainer->device_step, CDDPI_MARK_FORWARD);

    (void)step;
    (void)done; /* a step has one micro-batch */
    cddpi_launcher_report_alive();
    cddpi_gan_slot_of(gan, trainer->cursor.step)->count = batch.count;
    if (status == CDDP_OK) {
        status = train_discriminator(trainer, batch.input, CDDPI_GAN_REAL, batch.count, begun);
    }
    begun = cddpi_now_ns();
    if (status == CDDP_OK) {
        status = cddpi_device_step_mark(trainer->device_step, CDDPI_MARK_FORWARD);
    }
    if (status == CDDP_OK) {
        status = cddpi_gan_draw(trainer, CDDPI_RANDOM_LATENT, trainer->cursor.step,
                                batch.sample_ids, batch.count);
    }
    if (status == CDDP_OK) {
        status = cddpi_gan_forward(trainer, batch.count, true);
    }
    return status == CDDP_OK
               ? train_discriminator(trainer, gan->fake, CDDPI_GAN_FAKE, batch.count, begun)
               : status;
}

cddp_status cddpi_gan_compute(struct cddpi_trainer *trainer, struct cddpi_train_step *step)
{
    return cddpi_trainer_each_micro_batch(trainer, step, discriminate);
}

/* Gradients of the @p count generated images, by the discriminator as it is now, which they should
 * convince; and by them the generator's. */
static cddp_status train_generator(struct cddpi_trainer *trainer, int count)
{
    struct cddpi_trainer *generator = cddpi_gan_of(trainer)->generator;
    struct cddpi_loss_result result = {0};
    cddp_step sync = CDDP_STEP_INIT;
    int64_t begun = cddpi_now_ns();
    int64_t forwarded;
    cddp_status status = cddpi_device_step_mark(generator->device_step, CDDPI_MARK_FORWARD);

    if (status == CDDP_OK) {
        status = judge(trainer, cddpi_gan_of(trainer)->fake, true, count, true, &result);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_check_loss(trainer, trainer->cursor.step, result.loss_sum);
    }
    forwarded = cddpi_now_ns();
    if (status == CDDP_OK) {
        status = cddpi_device_step_mark(generator->device_step, CDDPI_MARK_BACKWARD);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_backward(trainer->model, scale_of(count), false, NULL, NULL);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_collect(trainer->model, count);
    }
    sync.weight = count;
    if (status == CDDP_OK) {
        status = cddp_ddp_begin(generator->ddp, &sync);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_backward(generator->model, 1, false, grad_ready, generator);
    }
    note_times(trainer, begun, forwarded);
    return status == CDDP_OK ? cddp_ddp_wait(generator->ddp) : status;
}

/* What the generator's reducer and update took is the step's, too. */
static cddp_status add_times(struct cddpi_trainer *trainer)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    cddp_status status = cddp_ddp_get_stats(cddpi_gan_of(trainer)->generator->ddp, &stats);

    if (status == CDDP_OK) {
        interval->stages_wait_ns += (int64_t)(stats.total_exposed_ns -
                                              cddpi_gan_of(trainer)->exposed_ns);
        cddpi_gan_of(trainer)->exposed_ns = stats.total_exposed_ns;
        interval->optimizer_ns += cddpi_gan_of(trainer)->generator->records.interval.optimizer_ns;
        cddpi_gan_of(trainer)->generator->records.interval.optimizer_ns = 0;
    }
    return status;
}

static cddp_status update_generator(struct cddpi_trainer *trainer,
                                    const struct cddpi_train_step *step, double *out_norm)
{
    struct cddpi_trainer *generator = cddpi_gan_of(trainer)->generator;
    struct cddpi_train_step own = *step;
    struct cddpi_loss_result taken = {0};
    double norm = 0;
    cddp_status status;

    own.lr = cddpi_schedule_lr(&generator->plan.schedule, (int64_t)generator->cursor.step);
    own.reported = false; /* the norm in reports is the discriminator's */
    cddpi_model_bind_grads(trainer->model, cddpi_gan_of(trainer)->unwanted_grads);
    status = train_generator(
        trainer, cddpi_gan_slot_of(cddpi_gan_of(trainer), generator->cursor.step)->count);
    trainer->engine->bind_grads(trainer);
    if (status == CDDP_OK) {
        status = cddpi_trainer_bind_again(generator);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_update(generator, &own, false, &norm);
    }
    generator->cursor = trainer->cursor;
    if (status == CDDP_OK) {
        status = cddpi_device_is_async(trainer->device)
                     ? cddpi_trainer_collect_results(trainer, step->reported ? 0 : 1, out_norm)
                     : cddpi_gan_take_result(trainer, trainer->cursor.step, &taken);
    }
    return status == CDDP_OK ? add_times(trainer) : status;
}

cddp_status cddpi_gan_update(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                             double *out_norm)
{
    CDDPI_TRY(cddpi_trainer_update(trainer, step, false, out_norm));
    return update_generator(trainer, step, out_norm);
}
