/* gan.h - the training of a generative adversarial network: a generator, which makes images of
 * latent vectors, beside a discriminator, which tells them from the data's.
 *
 * The trainer's own model, reducer and optimizer are the discriminator's. The generator has those
 * of a trainer of its own, trainer->generator, with nothing else in it. A step makes the passes of
 * PyTorch's DCGAN example in their order: the discriminator on images of the data, then on
 * generated ones; its update; then once more on the generated ones, for the generator's gradients;
 * its update. On a device all of this is work for its compute stream, and what the passes found is
 * taken a step later, as that of other steps is (device/collect_results.h). */
#ifndef CDDPI_TRAIN_GAN_GAN_H
#define CDDPI_TRAIN_GAN_GAN_H

#include "train/step.h"

/* Means over the samples of all ranks, since the last report. */
struct cddpi_gan_means {
    double loss_d, loss_g; /* loss_d: of the data's images, and of generated ones, added */
    double d_real, d_fake; /* probabilities of being real that the discriminator gives */
};

/** Make both models of a complete @p spec. */
CDDP_CHECKED cddp_status cddpi_gan_build_models(struct cddpi_trainer *trainer,
                                                const struct cddpi_model_spec *spec);
/** The generator's reducer and optimizer, and memory for generated images; nothing where the model
 *  is another. Collective, behind those of the discriminator. */
CDDP_CHECKED cddp_status cddpi_gan_build(struct cddpi_trainer *trainer);
/** The cursor is where the run begins: so is the generator's, and its learning rate is known. */
void cddpi_gan_begin(struct cddpi_trainer *trainer);
void cddpi_gan_destroy(struct cddpi_trainer *trainer);

/** A step's gradients of the discriminator: @p micro_batch is this rank's share of the step. */
CDDP_CHECKED cddp_status cddpi_gan_discriminate(struct cddpi_trainer *trainer,
                                                const struct cddpi_micro_batch *micro_batch);
/** Behind the discriminator's update: the generator's gradients, by the images of the same step,
 *  and its update.
 *  @param out_norm  On a device of the discriminator's gradients, if the step is reported; else
 *                   left as it is: its update has told. */
CDDP_CHECKED cddp_status cddpi_gan_generate(struct cddpi_trainer *trainer,
                                            const struct cddpi_train_step *step, double *out_norm);
/** Take what the passes of step @p step (from 1) found, the oldest one whose passes were not taken,
 *  into the interval and the means; on a device with what the generator's update took. The
 *  discriminator's update is the caller's. */
CDDP_CHECKED cddp_status cddpi_gan_take(struct cddpi_trainer *trainer, uint64_t step);
/** What the discriminator says about images of the test data. */
CDDP_CHECKED cddp_status cddpi_gan_evaluate(struct cddpi_trainer *trainer,
                                            const struct cddpi_batch *batch,
                                            struct cddpi_loss_result *out);
/** Collective. */
CDDP_CHECKED cddp_status cddpi_gan_close_means(struct cddpi_trainer *trainer,
                                               struct cddpi_gan_means *out);

/** Rank 0: write images of the same latent vectors each time, by running statistics, into the run's
 *  folder: images/step-00000100.pgm, or .ppm with colours. That it cannot be is told, and training
 *  goes on. CDDP_ERR_NO_MEMORY ... are of the generator's forward. */
CDDP_CHECKED cddp_status cddpi_gan_write_sheet(struct cddpi_trainer *trainer);

#endif
