/* gan_passes.c - owns the passes of a step: the discriminator on real and on generated images, and
 * the generator through the discriminator; and their results, which a device returns a step later.
 */
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/philox.h"
#include "group/watch/group_trace.h"
#include "train/engines/gan/gan_state.h"
#include "train/telemetry/train_report.h"

#include <math.h>
#include <string.h>

enum { LOSS_D, LOSS_G, D_REAL, D_FAKE, COUNT, SUMS };

/* The slot of the step after @p done others. A step's results are taken before the second step
 * after it begins, so two slots are enough. */
static struct cddpi_gan_slot *slot_of(struct cddpi_gan *gan, uint64_t done)
{
    return &gan->slots[done % CDDPI_GAN_SLOTS];
}

/* On a device: add the time of the generator's part of a step. */
static cddp_status take_times(struct cddpi_trainer *trainer)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_step_result ended = {0};
    cddp_status status = cddpi_device_step_take(cddpi_gan_of(trainer)->generator->step.device,
                                                &ended);

    interval->forward_ns += ended.forward_ns;
    interval->backward_ns += ended.backward_ns;
    interval->optimizer_ns += ended.optimizer_ns;
    return status;
}

static double probabilities(const float *logits, int count, double sum)
{
    for (int n = 0; n < count; n++) {
        sum += 1 / (1 + exp(-(double)logits[n]));
    }
    return sum;
}

cddp_status cddpi_gan_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                  struct cddpi_loss_result *out)
{
    const struct cddpi_gan_slot *slot = slot_of(cddpi_gan_of(trainer), step - 1);
    struct cddpi_interval *interval = &trainer->records.interval;
    double *sums = cddpi_gan_of(trainer)->sums;
    struct cddpi_loss_result found[CDDPI_GAN_PASSES] = {{0}};

    (void)out;
    for (int pass = 0; pass < CDDPI_GAN_PASSES; pass++) {
        CDDPI_TRY(cddpi_model_result(trainer->model, &found[pass]));
        CDDPI_TRY(cddpi_trainer_check_loss(trainer, step, found[pass].loss_sum));
    }
    if (cddpi_device_is_async(trainer->device)) {
        CDDPI_TRY(take_times(trainer));
    }
    for (int pass = 0; pass < CDDPI_GAN_CONVINCE; pass++) {
        cddpi_exact_add(&interval->loss_sum, found[pass].loss_sum);
        interval->correct += 0.5 * found[pass].correct; /* there are two judgements per sample */
        sums[LOSS_D] += found[pass].loss_sum;
    }
    interval->count += slot->count;
    sums[COUNT] += slot->count;
    sums[LOSS_G] += found[CDDPI_GAN_CONVINCE].loss_sum;
    sums[D_REAL] = probabilities(slot->logits[CDDPI_GAN_REAL], slot->count, sums[D_REAL]);
    sums[D_FAKE] = probabilities(slot->logits[CDDPI_GAN_FAKE], slot->count, sums[D_FAKE]);
    return CDDP_OK;
}

/* The means over the samples of all ranks. The discriminator's loss is the sum of its losses on
 * real and on generated images. d_real and d_fake are its probabilities that a real, or a
 * generated, image is real. */
cddp_status cddpi_gan_add_metrics(struct cddpi_trainer *trainer, struct cddpi_report_line *line)
{
    double *sums = cddpi_gan_of(trainer)->sums;

    CDDPI_TRY(cddp_all_reduce(trainer->group, sums, sums, SUMS, CDDP_F64, CDDP_OP_SUM, NULL));
    cddpi_report_line_put(line, "loss_d", sums[LOSS_D] / sums[COUNT]);
    cddpi_report_line_put(line, "loss_g", sums[LOSS_G] / sums[COUNT]);
    cddpi_report_line_put(line, "d_real", sums[D_REAL] / sums[COUNT]);
    cddpi_report_line_put(line, "d_fake", sums[D_FAKE] / sums[COUNT]);
    memset(sums, 0, SUMS * sizeof *sums);
    return CDDP_OK;
}

cddp_status cddpi_gan_draw(const struct cddpi_trainer *trainer, enum cddpi_random_purpose purpose,
                           uint64_t step, const uint64_t *sample_ids, int count)
{
    struct cddpi_philox stream = cddpi_philox_stream((uint64_t)trainer->config->train.seed, purpose,
                                                     (uint32_t)step);
    const struct cddpi_gan *gan = cddpi_gan_of(trainer);
    float *noise = slot_of(cddpi_gan_of(trainer), trainer->cursor.step)->noise;
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

/* Run the discriminator on @p images, which are all real or all generated. */
static cddp_status judge_images(struct cddpi_trainer *trainer, const float *images, bool is_real,
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
    return judge_images(trainer, batch->input, true, batch->count, false, out);
}

static double scale_of(int share)
{
    return share > 0 ? 1.0 / share : 1.0;
}

/* Add a pass's times to the interval: it began at @p begun, and its backward at @p forwarded. On a
 * device, the device measures instead. Unless the pass failed with @p status, wait for @p ddp. */
static cddp_status end_pass(struct cddpi_trainer *trainer, const struct cddpi_moment *begun,
                            const struct cddpi_moment *forwarded, cddp_status status, cddp_ddp *ddp)
{
    struct cddpi_moment ended = cddpi_moment_now(trainer);

    cddpi_trace_add_work(trainer->group, CDDPI_SPAN_FORWARD, begun->now_ns, forwarded->now_ns, -1);
    cddpi_trace_add_work(trainer->group, CDDPI_SPAN_BACKWARD, forwarded->now_ns, ended.now_ns, -1);
    if (!cddpi_device_is_async(trainer->device)) {
        trainer->records.interval.forward_ns += cddpi_moment_work_ns(begun, forwarded);
        trainer->records.interval.backward_ns += cddpi_moment_work_ns(forwarded, &ended);
    }
    return status == CDDP_OK ? cddp_ddp_wait(ddp) : status;
}

/* Run forward, which ends at *@p out_forwarded, and backward of a pass. */
static cddp_status pass_through_discriminator(struct cddpi_trainer *trainer, const float *images,
                                              enum cddpi_gan_pass pass, int count,
                                              struct cddpi_moment *out_forwarded)
{
    bool last = pass == CDDPI_GAN_FAKE;
    float *logits = slot_of(cddpi_gan_of(trainer), trainer->cursor.step)->logits[pass];
    struct cddpi_loss_result result = {0};
    cddp_step sync = CDDP_STEP_INIT;

    CDDPI_TRY(judge_images(trainer, images, pass == CDDPI_GAN_REAL, count, true, &result));
    CDDPI_TRY(cddpi_model_send_outputs(trainer->model, logits));
    /* On a device, the loss is known later. */
    CDDPI_TRY(cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result.loss_sum));
    *out_forwarded = cddpi_moment_now(trainer);
    CDDPI_TRY(cddpi_device_step_mark(trainer->step.device, CDDPI_MARK_BACKWARD));
    sync.number = trainer->cursor.step + 1;
    sync.samples = (uint64_t)count;
    sync.micro_batch = 2 * (uint64_t)trainer->replicas.rank +
                       last; /* the two passes of each rank */
    sync.micro_batches = 2 * (uint64_t)trainer->replicas.count;
    CDDPI_TRY(cddp_ddp_begin(trainer->ddp, &sync));
    CDDPI_TRY(cddpi_model_backward(trainer->model, scale_of(count), last, cddpi_trainer_grad_ready,
                                   trainer));
    return cddpi_model_collect(trainer->model, count);
}

/* Train the discriminator on images of one kind, whose forward began at @p begun. The second kind
 * completes the gradients, which are then averaged over ranks. */
static cddp_status train_discriminator(struct cddpi_trainer *trainer, const float *images,
                                       enum cddpi_gan_pass pass, int count,
                                       const struct cddpi_moment *begun)
{
    struct cddpi_moment forwarded = *begun;
    cddp_status status = pass_through_discriminator(trainer, images, pass, count, &forwarded);

    return end_pass(trainer, begun, &forwarded, status, trainer->ddp);
}

/* Compute the discriminator's gradients. A step has one micro-batch. */
static cddp_status discriminate(struct cddpi_trainer *trainer, struct cddpi_train_step *step,
                                const struct cddpi_micro_batch *micro_batch, uint64_t done)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct cddpi_batch batch = cddpi_prefetcher_batch(micro_batch);
    struct cddpi_moment begun = cddpi_moment_now(trainer);

    (void)step;
    (void)done;
    CDDPI_TRY(cddpi_device_step_mark(trainer->step.device, CDDPI_MARK_FORWARD));
    cddpi_launcher_report_alive();
    slot_of(gan, trainer->cursor.step)->count = batch.count;
    CDDPI_TRY(train_discriminator(trainer, batch.input, CDDPI_GAN_REAL, batch.count, &begun));
    begun = cddpi_moment_now(trainer);
    CDDPI_TRY(cddpi_device_step_mark(trainer->step.device, CDDPI_MARK_FORWARD));
    CDDPI_TRY(cddpi_gan_draw(trainer, CDDPI_RANDOM_LATENT, trainer->cursor.step, batch.sample_ids,
                             batch.count));
    CDDPI_TRY(cddpi_gan_forward(trainer, batch.count, true));
    return train_discriminator(trainer, gan->fake, CDDPI_GAN_FAKE, batch.count, &begun);
}

cddp_status cddpi_gan_compute(struct cddpi_trainer *trainer, struct cddpi_train_step *step)
{
    return cddpi_trainer_each_micro_batch(trainer, step, discriminate);
}

/* Compute the generator's gradients: run the generated images, which should convince the updated
 * discriminator, through it again, and the gradients back through it and the generator. @p
 * out_forwarded: as above. */
static cddp_status pass_through_both(struct cddpi_trainer *trainer, int count,
                                     struct cddpi_moment *out_forwarded)
{
    struct cddpi_trainer *generator = cddpi_gan_of(trainer)->generator;
    struct cddpi_loss_result result = {0};
    cddp_step sync = CDDP_STEP_INIT;

    CDDPI_TRY(cddpi_device_step_mark(generator->step.device, CDDPI_MARK_FORWARD));
    CDDPI_TRY(judge_images(trainer, cddpi_gan_of(trainer)->fake, true, count, true, &result));
    CDDPI_TRY(cddpi_trainer_check_loss(trainer, trainer->cursor.step, result.loss_sum));
    *out_forwarded = cddpi_moment_now(trainer);
    CDDPI_TRY(cddpi_device_step_mark(generator->step.device, CDDPI_MARK_BACKWARD));
    CDDPI_TRY(cddpi_model_backward(trainer->model, scale_of(count), false, NULL, NULL));
    CDDPI_TRY(cddpi_model_collect(trainer->model, count));
    sync.number = trainer->cursor.step;
    sync.samples = (uint64_t)count;
    CDDPI_TRY(cddp_ddp_begin(generator->ddp, &sync));
    return cddpi_model_backward(generator->model, 1, false, cddpi_trainer_grad_ready, generator);
}

/* Add the time of the generator's update to the step's. */
static void add_times(struct cddpi_trainer *trainer)
{
    int64_t *optimizer_ns = &cddpi_gan_of(trainer)->generator->records.interval.optimizer_ns;

    trainer->records.interval.optimizer_ns += *optimizer_ns;
    *optimizer_ns = 0;
}

cddp_status cddpi_gan_update(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                             double *out_norm)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct cddpi_trainer *generator = gan->generator;
    struct cddpi_train_step own = *step;
    struct cddpi_loss_result taken = {0};
    double norm = 0;
    struct cddpi_moment begun, forwarded;
    cddp_status status;

    CDDPI_TRY(cddpi_trainer_update(trainer, step, false, out_norm));
    own.lr = cddpi_schedule_lr(&generator->plan.schedule, (int64_t)generator->cursor.step);
    own.reported = false; /* reports have the discriminator's norm */
    cddpi_model_bind_grads(trainer->model, gan->unwanted_grads);
    begun = cddpi_moment_now(trainer);
    forwarded = begun;
    status = pass_through_both(trainer, slot_of(gan, generator->cursor.step)->count, &forwarded);
    status = end_pass(trainer, &begun, &forwarded, status, generator->ddp);
    trainer->engine->bind_grads(trainer);
    CDDPI_TRY(status);
    CDDPI_TRY(cddpi_trainer_bind_again(generator));
    CDDPI_TRY(cddpi_trainer_update(generator, &own, false, &norm));
    generator->cursor = trainer->cursor;
    CDDPI_TRY(cddpi_device_is_async(trainer->device)
                  ? cddpi_trainer_collect_results(trainer, step->reported ? 0 : 1, out_norm)
                  : cddpi_gan_take_result(trainer, trainer->cursor.step, &taken));
    add_times(trainer);
    return CDDP_OK;
}
