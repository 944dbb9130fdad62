/* gan_passes.c - owns the passes of a step: the discriminator on real and on generated images, and
 * the generator through the discriminator. */
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/philox.h"
#include "group/watch/group_trace.h"
#include "train/engines/gan/gan_state.h"

#include <string.h>

cddp_status cddpi_gan_draw(const struct cddpi_trainer *trainer, enum cddpi_random_purpose purpose,
                           uint64_t step, const uint64_t *sample_ids, int count)
{
    struct cddpi_philox stream = cddpi_philox_stream((uint64_t)trainer->config->train.seed, purpose,
                                                     (uint32_t)step);
    const struct cddpi_gan *gan = cddpi_gan_of(trainer);
    float *noise = cddpi_gan_next_slot(cddpi_gan_of(trainer))->noise;
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

cddp_status cddpi_gan_forward(struct cddpi_trainer *trainer, const struct cddpi_batch *of,
                              bool training)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct cddpi_model *model = gan->generator->model;
    struct cddpi_batch batch = {.input = gan->noise,
                                .count = of->count,
                                .step = trainer->cursor.step,
                                .sample_ids = gan->ids,
                                .weight = of->weight};

    cddpi_model_bind_edge(model, CDDPI_EDGE_OUT, 0, gan->fake, gan->fake_grad);
    return cddpi_model_forward(model, &batch, training, NULL);
}

/* Run the discriminator on as many images as @p of has, which are all real or all generated. */
static cddp_status judge_images(struct cddpi_trainer *trainer, const float *images, bool is_real,
                                const struct cddpi_batch *of, bool training,
                                struct cddpi_loss_result *out)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct cddpi_batch batch = {.label = is_real ? gan->ones : gan->zeros,
                                .count = of->count,
                                .step = trainer->cursor.step,
                                .sample_ids = gan->ids,
                                .weight = of->weight};

    cddpi_model_bind_edge(trainer->model, CDDPI_EDGE_IN, 0, (float *)(uintptr_t)images,
                          gan->fake_grad);
    return cddpi_model_forward(trainer->model, &batch, training, out);
}

cddp_status cddpi_gan_evaluate(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                               struct cddpi_loss_result *out)
{
    return judge_images(trainer, batch->input, true, batch, false, out);
}

/* By what the loss of a micro-batch is multiplied. */
static double scale_of(const struct cddpi_micro_batch *own)
{
    if (own->of > 0) {
        return 1.0 / (double)own->samples;
    }
    return own->count > 0 ? 1.0 / own->count : 1.0;
}

/* Add a pass's times to the interval: it began at @p begun, and its backward at @p forwarded. On a
 * device, the device measures instead. */
static void add_times(const struct cddpi_moment *begun, const struct cddpi_moment *forwarded,
                      struct cddpi_trainer *trainer)
{
    struct cddpi_moment ended = cddpi_moment_now(trainer);

    cddpi_trace_add_work(trainer->group, CDDPI_SPAN_FORWARD, begun->now_ns, forwarded->now_ns, -1);
    cddpi_trace_add_work(trainer->group, CDDPI_SPAN_BACKWARD, forwarded->now_ns, ended.now_ns, -1);
    if (!cddpi_device_is_async(trainer->device)) {
        trainer->records.interval.forward_ns += cddpi_moment_work_ns(begun, forwarded);
        trainer->records.interval.backward_ns += cddpi_moment_work_ns(forwarded, &ended);
    }
}

/* Whether the backward of the discriminator's @p pass has to begin with the reducer. By position,
 * the gradients of a micro-batch are the sum of its two passes; otherwise, each pass is one. */
static bool is_reduced(const struct cddpi_micro_batch *own, enum cddpi_gan_pass pass)
{
    return own->of == 0 || pass == CDDPI_GAN_FAKE;
}

static cddp_status begin_gradients(struct cddpi_trainer *trainer,
                                   const struct cddpi_micro_batch *own, enum cddpi_gan_pass pass,
                                   uint64_t done)
{
    cddp_step sync = cddpi_trainer_step_of(trainer, own, done);

    if (own->of == 0) {
        sync.kind = CDDP_STEP_BY_SAMPLES;
        sync.samples = (uint64_t)own->count;
        /* the two passes of each rank */
        sync.micro_batch = 2 * (uint64_t)trainer->replicas.rank + (pass == CDDPI_GAN_FAKE);
        sync.micro_batches = 2 * (uint64_t)trainer->replicas.count;
    }
    return cddp_ddp_begin(trainer->ddp, &sync);
}

/* Run forward, which ends at *@p out_forwarded, and backward of a pass. */
static cddp_status pass_through_discriminator(struct cddpi_trainer *trainer, const float *images,
                                              enum cddpi_gan_pass pass,
                                              const struct cddpi_micro_batch *own, uint64_t done,
                                              struct cddpi_moment *out_forwarded)
{
    bool reduced = is_reduced(own, pass);
    struct cddpi_batch batch = cddpi_prefetcher_batch(own);
    struct cddpi_loss_result result = {0};

    CDDPI_TRY(judge_images(trainer, images, pass == CDDPI_GAN_REAL, &batch, true, &result));
    CDDPI_TRY(cddpi_model_send_outputs(trainer->model,
                                       cddpi_gan_next_slot(cddpi_gan_of(trainer))->logits));
    /* On a device, the loss is known later. */
    CDDPI_TRY(cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, result.loss_sum));
    *out_forwarded = cddpi_moment_now(trainer);
    CDDPI_TRY(cddpi_device_step_mark(trainer->step.device, CDDPI_MARK_BACKWARD));
    CDDPI_TRY(reduced ? begin_gradients(trainer, own, pass, done) : CDDP_OK);
    CDDPI_TRY(cddpi_model_backward(trainer->model, scale_of(own), pass == CDDPI_GAN_FAKE,
                                   reduced ? cddpi_trainer_grad_ready : NULL, trainer));
    return cddpi_gan_end_pass(trainer, pass, trainer->cursor.step + 1, own->count);
}

/* End a micro-batch of the reducer of @p trainer: its gradients, then its statistics, which are
 * also in @p more. */
static cddp_status end_micro_batch(struct cddpi_trainer *trainer,
                                   const struct cddpi_micro_batch *own, uint64_t done,
                                   struct cddpi_statistics *more)
{
    cddp_step sync = cddpi_trainer_step_of(trainer, own, done);

    CDDPI_TRY(cddp_ddp_wait(trainer->ddp));
    CDDPI_TRY(cddpi_statistics_add(trainer->step.statistics, &sync));
    return cddpi_statistics_add(more, &sync);
}

/* Take part in a step whose micro-batches other ranks have. */
static cddp_status follow(struct cddpi_trainer *trainer, const struct cddpi_micro_batch *own,
                          struct cddpi_statistics *more)
{
    cddp_step sync = cddpi_trainer_step_of(trainer, own, 0);

    CDDPI_TRY(cddp_ddp_begin(trainer->ddp, &sync));
    return end_micro_batch(trainer, own, 0, more);
}

/* Train the discriminator on images of one kind, whose forward began at @p begun. The second kind
 * completes the gradients. */
static cddp_status train_discriminator(struct cddpi_trainer *trainer, const float *images,
                                       enum cddpi_gan_pass pass,
                                       const struct cddpi_micro_batch *own, uint64_t done,
                                       const struct cddpi_moment *begun)
{
    struct cddpi_moment forwarded = *begun;
    cddp_status status = pass_through_discriminator(trainer, images, pass, own, done, &forwarded);

    add_times(begun, &forwarded, trainer);
    CDDPI_TRY(status);
    return is_reduced(own, pass)
               ? end_micro_batch(trainer, own, done, cddpi_gan_of(trainer)->fake_statistics)
               : CDDP_OK;
}

/* Remember what the generator's part of the step needs of a micro-batch. */
static void keep(struct cddpi_gan *gan, const struct cddpi_micro_batch *own, uint64_t done)
{
    struct cddpi_micro_batch *kept = &gan->kept[done];

    *kept = *own;
    kept->input = NULL;
    kept->tokens = NULL;
    kept->label = NULL;
    kept->sample_ids = gan->kept_ids + done * gan->kept_room;
    if (own->count > 0) {
        memcpy(kept->sample_ids, own->sample_ids, (size_t)own->count * sizeof *own->sample_ids);
    }
    gan->kept_count = (int)done + 1;
}

/* Compute the discriminator's gradients of a micro-batch. */
static cddp_status discriminate(struct cddpi_trainer *trainer, struct cddpi_train_step *step,
                                const struct cddpi_micro_batch *own, uint64_t done)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct cddpi_batch batch = cddpi_prefetcher_batch(own);
    struct cddpi_moment begun = cddpi_moment_now(trainer);

    (void)step;
    keep(gan, own, done);
    if (own->of > 0 && own->count == 0) {
        return follow(trainer, own, gan->fake_statistics);
    }
    CDDPI_TRY(cddpi_device_step_mark(trainer->step.device, CDDPI_MARK_FORWARD));
    cddpi_launcher_report_alive();
    cddpi_statistics_bind(trainer->step.statistics);
    CDDPI_TRY(train_discriminator(trainer, own->input, CDDPI_GAN_REAL, own, done, &begun));
    begun = cddpi_moment_now(trainer);
    CDDPI_TRY(cddpi_device_step_mark(trainer->step.device, CDDPI_MARK_FORWARD));
    CDDPI_TRY(cddpi_gan_draw(trainer, CDDPI_RANDOM_LATENT, trainer->cursor.step, own->sample_ids,
                             own->count));
    CDDPI_TRY(cddpi_gan_forward(trainer, &batch, true));
    cddpi_statistics_bind(gan->fake_statistics);
    return train_discriminator(trainer, gan->fake, CDDPI_GAN_FAKE, own, done, &begun);
}

cddp_status cddpi_gan_compute(struct cddpi_trainer *trainer, struct cddpi_train_step *step)
{
    return cddpi_trainer_each_micro_batch(trainer, step, discriminate);
}

/* Generate the images of a micro-batch again, unless they are still there. */
static cddp_status generate_again(struct cddpi_trainer *trainer, const struct cddpi_batch *own)
{
    if (cddpi_gan_of(trainer)->kept_count == 1) {
        return CDDP_OK;
    }
    /* The cursor is at the next step already. */
    CDDPI_TRY(cddpi_gan_draw(trainer, CDDPI_RANDOM_LATENT, trainer->cursor.step - 1,
                             own->sample_ids, own->count));
    return cddpi_gan_forward(trainer, own, true);
}

static cddp_status begin_generator(struct cddpi_trainer *generator,
                                   const struct cddpi_micro_batch *own, uint64_t done)
{
    cddp_step sync = CDDP_STEP_INIT;

    if (own->of > 0) {
        sync = cddpi_trainer_step_of(generator, own, done);
    } else {
        sync.number = generator->cursor.step + 1;
        sync.samples = (uint64_t)own->count;
    }
    return cddp_ddp_begin(generator->ddp, &sync);
}

/* Compute the generator's gradients of a micro-batch: run the generated images, which should
 * convince the updated discriminator, through it again, and the gradients back through it and the
 * generator. @p out_forwarded: as above. */
static cddp_status pass_through_both(struct cddpi_trainer *trainer,
                                     const struct cddpi_micro_batch *own, uint64_t done,
                                     struct cddpi_moment *out_forwarded)
{
    struct cddpi_trainer *generator = cddpi_gan_of(trainer)->generator;
    struct cddpi_batch batch = cddpi_prefetcher_batch(own);
    struct cddpi_loss_result result = {0};

    CDDPI_TRY(cddpi_device_step_mark(generator->step.device, CDDPI_MARK_FORWARD));
    CDDPI_TRY(generate_again(trainer, &batch));
    CDDPI_TRY(judge_images(trainer, cddpi_gan_of(trainer)->fake, true, &batch, true, &result));
    CDDPI_TRY(cddpi_trainer_check_loss(trainer, trainer->cursor.step, result.loss_sum));
    *out_forwarded = cddpi_moment_now(trainer);
    CDDPI_TRY(cddpi_device_step_mark(generator->step.device, CDDPI_MARK_BACKWARD));
    CDDPI_TRY(cddpi_model_backward(trainer->model, scale_of(own), false, NULL, NULL));
    CDDPI_TRY(cddpi_gan_end_pass(trainer, CDDPI_GAN_CONVINCE, trainer->cursor.step, own->count));
    CDDPI_TRY(begin_generator(generator, own, done));
    return cddpi_model_backward(generator->model, 1, false, cddpi_trainer_grad_ready, generator);
}

static cddp_status train_generator(struct cddpi_trainer *trainer,
                                   const struct cddpi_micro_batch *own, uint64_t done)
{
    struct cddpi_trainer *generator = cddpi_gan_of(trainer)->generator;
    struct cddpi_moment begun = cddpi_moment_now(trainer);
    struct cddpi_moment forwarded = begun;
    cddp_status status;

    if (own->of > 0 && own->count == 0) {
        return follow(generator, own, NULL);
    }
    cddpi_launcher_report_alive();
    status = pass_through_both(trainer, own, done, &forwarded);
    add_times(&begun, &forwarded, trainer);
    return status == CDDP_OK ? end_micro_batch(generator, own, done, NULL) : status;
}

/* Compute the generator's gradients. Those of the discriminator are written elsewhere, not to
 * memory that other ranks may read. */
static cddp_status convince(struct cddpi_trainer *trainer)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    cddp_status status = CDDP_OK;

    cddpi_model_bind_grads(trainer->model, gan->unwanted_grads);
    for (int m = 0; status == CDDP_OK && m < gan->kept_count; m++) {
        status = train_generator(trainer, &gan->kept[m], (uint64_t)m);
    }
    trainer->engine->bind_grads(trainer);
    return status;
}

/* Add the time of the generator's update to the step's. */
static void add_update_time(struct cddpi_trainer *trainer)
{
    int64_t *optimizer_ns = &cddpi_gan_of(trainer)->generator->records.interval.optimizer_ns;

    trainer->records.interval.optimizer_ns += *optimizer_ns;
    *optimizer_ns = 0;
}

cddp_status cddpi_gan_update(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                             double *out_norm)
{
    struct cddpi_trainer *generator = cddpi_gan_of(trainer)->generator;
    struct cddpi_train_step own = *step;
    struct cddpi_loss_result taken = {0};
    double norm = 0;

    CDDPI_TRY(cddpi_trainer_update(trainer, step, false, out_norm));
    own.lr = cddpi_schedule_lr(&generator->plan.schedule, (int64_t)generator->cursor.step);
    own.reported = false; /* reports have the discriminator's norm */
    CDDPI_TRY(convince(trainer));
    CDDPI_TRY(cddpi_trainer_bind_again(generator));
    CDDPI_TRY(cddpi_trainer_update(generator, &own, false, &norm));
    generator->cursor = trainer->cursor;
    CDDPI_TRY(cddpi_device_is_async(trainer->device)
                  ? cddpi_trainer_collect_results(trainer, step->reported ? 0 : 1, out_norm)
                  : cddpi_gan_take_result(trainer, trainer->cursor.step, &taken));
    add_update_time(trainer);
    return CDDP_OK;
}
