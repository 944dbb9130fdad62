/* gan_state.h - the training of a generative adversarial network: a generator, which makes images
 * of latent vectors, beside a discriminator, which tells them from the data's.
 *
 * The trainer's own model, reducer and optimizer are the discriminator's. The generator has those
 * of a trainer of its own, which is the next of the run and has nothing else in it. A step makes
 * the passes of PyTorch's DCGAN example in their order: the discriminator on images of the data,
 * then on generated ones; its update; then once more on the generated ones, for the generator's
 * gradients; its update. On a device all of this is work for its compute stream, and what the
 * passes found is taken a step later, as that of other steps is (device/collect_results.h). */
#ifndef CDDPI_TRAIN_GAN_STATE_H
#define CDDPI_TRAIN_GAN_STATE_H

#include "base/philox.h"
#include "train/engines/engine.h"

enum { CDDPI_GAN_SHEET_SIDE = 8 }; /* images in a row of a sheet, and rows */

/* The passes of a step through the discriminator, in their order. */
enum cddpi_gan_pass { CDDPI_GAN_REAL, CDDPI_GAN_FAKE, CDDPI_GAN_CONVINCE, CDDPI_GAN_PASSES };

/* Steps whose results are not taken yet, at most. */
enum { CDDPI_GAN_SLOTS = 2 };

/* What the processor and the device exchange of a step; pinned. */
struct cddpi_gan_slot {
    float *noise;                      /* a latent vector a sample */
    float *logits[CDDPI_GAN_CONVINCE]; /* the discriminator's outputs, of its own passes */
    int count;                         /* samples */
};

struct cddpi_gan {
    struct cddpi_trainer *generator;
    size_t latent; /* numbers of a latent vector */
    size_t image;  /* numbers of an image */
    struct cddpi_gan_slot slots[CDDPI_GAN_SLOTS];
    uint64_t *ids; /* 0, 1 ...: of a sheet's samples */
    /* on the device */
    float *noise;            /* a latent vector a sample */
    float *fake, *fake_grad; /* a generated image a sample, and its gradient */
    int32_t *zeros, *ones;   /* labels: generated, real */
    float *unwanted;         /* where gradients of the discriminator go that are not used ... */
    void **unwanted_grads;   /* ... all of them */
    double sums[5];          /* over samples: losses and probabilities, and their number */
    uint64_t exposed_ns;     /* of the generator's reducer, as far as it is reported */
};

static inline struct cddpi_gan *cddpi_gan_of(const struct cddpi_trainer *trainer)
{
    return trainer->engine_state;
}

/* Functions of the row (engine.h). */

/** A step's gradients of the discriminator, from this rank's share of the step. */
CDDP_CHECKED cddp_status cddpi_gan_compute(struct cddpi_trainer *trainer,
                                           struct cddpi_train_step *step);
/** The discriminator's update; then the generator's gradients, by the images of the same step, and
 *  its update. */
CDDP_CHECKED cddp_status cddpi_gan_update(struct cddpi_trainer *trainer,
                                          const struct cddpi_train_step *step, double *out_norm);
/** What the passes found goes into the interval and the means; on a device with what the
 *  generator's update took. The discriminator's update is the caller's, and @p out stays empty. */
CDDP_CHECKED cddp_status cddpi_gan_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                               struct cddpi_loss_result *out);
/** What the discriminator says about images of the test data. */
CDDP_CHECKED cddp_status cddpi_gan_evaluate(struct cddpi_trainer *trainer,
                                            const struct cddpi_batch *batch,
                                            struct cddpi_loss_result *out);
CDDP_CHECKED cddp_status cddpi_gan_add_metrics(struct cddpi_trainer *trainer,
                                               struct cddpi_report_line *line);

/** Rank 0: write images of the same latent vectors each time, by running statistics, into the run's
 *  folder: images/step-00000100.pgm, or .ppm with colours. If they cannot be written, a warning
 *  says so, and training goes on. CDDP_ERR_NO_MEMORY ... are of the generator's forward. */
CDDP_CHECKED cddp_status cddpi_gan_write_sheet(struct cddpi_trainer *trainer);

/** The slot of the step that follows @p done others. */
struct cddpi_gan_slot *cddpi_gan_slot_of(struct cddpi_gan *gan, uint64_t done);
/** The latent vectors of @p count samples, on their way to the device: functions of the seed, @p
 *  purpose, the step and the sample alone. */
CDDP_CHECKED cddp_status cddpi_gan_draw(const struct cddpi_trainer *trainer,
                                        enum cddpi_random_purpose purpose, uint64_t step,
                                        const uint64_t *sample_ids, int count);
/** Generate the images of these latent vectors. */
CDDP_CHECKED cddp_status cddpi_gan_forward(struct cddpi_trainer *trainer, int count, bool training);

#endif
