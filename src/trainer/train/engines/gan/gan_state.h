/* gan_state.h - owns the training of a generative adversarial network (GAN): the generator makes
 * images from latent vectors, and the discriminator tells them from real images.
 *
 * The trainer's own model, reducer and optimizer are the discriminator's. The generator's are in a
 * trainer of its own, the next of the run, which has nothing else in it. A step runs the passes of
 * PyTorch's DCGAN example in the same order: the discriminator on real images, then on generated
 * ones; the discriminator's update; the discriminator on the generated images again, for the
 * generator's gradients; the generator's update. On a device, all of this is work in the compute
 * stream, and its results are read a step later, as for other models (step.h). */
#ifndef CDDPI_TRAIN_GAN_STATE_H
#define CDDPI_TRAIN_GAN_STATE_H

#include "base/philox.h"
#include "train/engines/engine.h"

enum { CDDPI_GAN_SHEET_SIDE = 8 }; /* images per row of a sheet, and rows */

/* A step's passes through the discriminator, in order. */
enum cddpi_gan_pass { CDDPI_GAN_REAL, CDDPI_GAN_FAKE, CDDPI_GAN_CONVINCE, CDDPI_GAN_PASSES };

/* At most this many steps whose results were not taken yet. */
enum { CDDPI_GAN_SLOTS = 2 };

/* What host and device exchange for one step; pinned memory. */
struct cddpi_gan_slot {
    float *noise;                      /* one latent vector per sample */
    float *logits[CDDPI_GAN_CONVINCE]; /* the discriminator's outputs in its own two passes */
    int count;                         /* number of samples */
};

struct cddpi_gan {
    struct cddpi_trainer *generator;
    size_t latent; /* elements of a latent vector */
    size_t image;  /* elements of an image */
    struct cddpi_gan_slot slots[CDDPI_GAN_SLOTS];
    uint64_t *ids; /* 0, 1, ...: sample ids of a sheet */
    /* in device memory */
    float *noise;            /* one latent vector per sample */
    float *fake, *fake_grad; /* one generated image per sample, and its gradient */
    int32_t *zeros, *ones;   /* labels: generated, real */
    float *unwanted;         /* receives unused gradients of the discriminator ... */
    void **unwanted_grads;   /* ... one pointer to it per parameter */
    double sums[5];          /* over samples: losses, probabilities and the number of samples */
};

static inline struct cddpi_gan *cddpi_gan_of(const struct cddpi_trainer *trainer)
{
    return trainer->engine_state;
}

/* Functions of this engine's row (engine.h). */

/** Compute the discriminator's gradients from this rank's share of the step. */
CDDP_CHECKED cddp_status cddpi_gan_compute(struct cddpi_trainer *trainer,
                                           struct cddpi_train_step *step);
/** Update the discriminator; then compute the generator's gradients from the same generated images,
 *  and update the generator. */
CDDP_CHECKED cddp_status cddpi_gan_update(struct cddpi_trainer *trainer,
                                          const struct cddpi_train_step *step, double *out_norm);
/** Add the passes' results to the interval and the means; on a device, also the generator's update
 *  time. The caller adds the discriminator's update; @p out stays zero. */
CDDP_CHECKED cddp_status cddpi_gan_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                               struct cddpi_loss_result *out);
/** Run the discriminator on images of the test data. */
CDDP_CHECKED cddp_status cddpi_gan_evaluate(struct cddpi_trainer *trainer,
                                            const struct cddpi_batch *batch,
                                            struct cddpi_loss_result *out);
CDDP_CHECKED cddp_status cddpi_gan_add_metrics(struct cddpi_trainer *trainer,
                                               struct cddpi_report_line *line);

/** Rank 0: write a sheet of generated images to the run folder, images/step-00000100.png and .pgm
 *  (.ppm with colours). The latent vectors are the same each time, and batch_norm uses running
 * statistics. If writing fails, a warning is printed and training continues. Returned errors are
 * those of the generator's forward. */
CDDP_CHECKED cddp_status cddpi_gan_write_sheet(struct cddpi_trainer *trainer);

/** Draw the latent vectors of @p count samples and start copying them to the device. They depend
 *  only on the seed, @p purpose, the step and the sample. */
CDDP_CHECKED cddp_status cddpi_gan_draw(const struct cddpi_trainer *trainer,
                                        enum cddpi_random_purpose purpose, uint64_t step,
                                        const uint64_t *sample_ids, int count);
/** Generate the images of the latent vectors drawn last. */
CDDP_CHECKED cddp_status cddpi_gan_forward(struct cddpi_trainer *trainer, int count, bool training);

#endif
