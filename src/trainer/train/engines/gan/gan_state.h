/* gan_state.h - owns the training of a generative adversarial network (GAN): the generator makes
 * images from latent vectors, and the discriminator tells them from real images.
 *
 * The trainer's own model, reducer and optimizer are the discriminator's. The generator's are in a
 * trainer of its own, the next of the run, which has nothing else in it. A step runs the passes of
 * PyTorch's DCGAN example in the same order: the discriminator on real images, then on generated
 * ones; the discriminator's update; the discriminator on the generated images again, for the
 * generator's gradients; the generator's update. On a device, all of this is work in the compute
 * stream, and its results are read a step later, as for other models (step.h).
 *
 * By position (train.micro_batch), a step has several micro-batches on a rank, and memory holds the
 * generated images of one. So the updated discriminator judges images that the generator makes
 * again, from the same latent vectors. Running statistics (statistics.h) of the generator have one
 * update a step; the discriminator's have two, by real and by generated images, and the pass for
 * the generator does not count. */
#ifndef CDDPI_TRAIN_GAN_STATE_H
#define CDDPI_TRAIN_GAN_STATE_H

#include "base/exact_sum.h"
#include "base/philox.h"
#include "train/engines/engine.h"
#include "train/statistics.h"

enum { CDDPI_GAN_SHEET_SIDE = 8 }; /* images per row of a sheet, and rows */

/* A step's passes through the discriminator, in order. */
enum cddpi_gan_pass { CDDPI_GAN_REAL, CDDPI_GAN_FAKE, CDDPI_GAN_CONVINCE, CDDPI_GAN_PASSES };

/* Room for the passes of two steps with one micro-batch, and for the next pass. */
enum { CDDPI_GAN_SLOTS = 2 * CDDPI_GAN_PASSES + 1 };

/* A pass whose result was not taken yet, and what host and device exchange for it, in pinned
 * memory. */
struct cddpi_gan_slot {
    float *noise;  /* one latent vector per sample */
    float *logits; /* the discriminator's outputs; not of the pass for the generator */
    enum cddpi_gan_pass pass;
    uint64_t step; /* its number, from 1 */
    int count;     /* number of samples */
};

/* What is reported: means over the samples. */
enum cddpi_gan_mean {
    CDDPI_GAN_LOSS_D,
    CDDPI_GAN_LOSS_G,
    CDDPI_GAN_D_REAL,
    CDDPI_GAN_D_FAKE,
    CDDPI_GAN_MEANS
};

struct cddpi_gan {
    struct cddpi_trainer *generator;
    size_t latent; /* elements of a latent vector */
    size_t image;  /* elements of an image */
    struct cddpi_gan_slot slots[CDDPI_GAN_SLOTS];
    uint64_t ended, taken; /* number of passes */
    uint64_t *ids;         /* 0, 1, ...: sample ids of a sheet */
    /* This rank's micro-batches of the current step, of whose members only the numbers and the
     * sample ids are kept; the first one may be empty. */
    struct cddpi_micro_batch *kept;
    uint64_t *kept_ids; /* room for the sample ids of all */
    size_t kept_room;   /* sample ids of each */
    int kept_count;
    /* by position, the discriminator's of generated images; step.statistics are those of real ones
     */
    struct cddpi_statistics *fake_statistics;
    /* in device memory */
    float *noise;            /* one latent vector per sample */
    float *fake, *fake_grad; /* one generated image per sample, and its gradient */
    int32_t *zeros, *ones;   /* labels: generated, real */
    float *unwanted;         /* receives unused gradients of the discriminator ... */
    void **unwanted_grads;   /* ... one pointer to it per parameter */
    /* since the last report: the number of samples, and sums over them */
    int64_t count;
    struct cddpi_exact_sum sums[CDDPI_GAN_MEANS];
};

static inline struct cddpi_gan *cddpi_gan_of(const struct cddpi_trainer *trainer)
{
    return trainer->engine_state;
}

/* The slot of the next pass; never one in use. */
static inline struct cddpi_gan_slot *cddpi_gan_next_slot(struct cddpi_gan *gan)
{
    return &gan->slots[gan->ended % CDDPI_GAN_SLOTS];
}

/* Functions of this engine's row (engine.h). */

/** Compute the discriminator's gradients from this rank's share of the step. */
CDDP_CHECKED cddp_status cddpi_gan_compute(struct cddpi_trainer *trainer,
                                           struct cddpi_train_step *step);
/** Update the discriminator; then compute the generator's gradients from the same generated images,
 *  and update the generator. */
CDDP_CHECKED cddp_status cddpi_gan_update(struct cddpi_trainer *trainer,
                                          const struct cddpi_train_step *step, double *out_norm);
/** Add the results of the step's passes to the interval and the means; on a device, also the
 *  generator's update time. The caller adds the discriminator's update; @p out stays zero. */
CDDP_CHECKED cddp_status cddpi_gan_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                               struct cddpi_loss_result *out);
/** Run the discriminator on images of the test data. */
CDDP_CHECKED cddp_status cddpi_gan_evaluate(struct cddpi_trainer *trainer,
                                            const struct cddpi_batch *batch,
                                            struct cddpi_loss_result *out);
CDDP_CHECKED cddp_status cddpi_gan_add_metrics(struct cddpi_trainer *trainer,
                                               struct cddpi_report_line *line);
void cddpi_gan_keep_sums(struct cddpi_trainer *trainer, struct cddpi_keep_calls *out);

/* Results of passes (gan_results.c). */

/** The pass that has the next slot has run forward, and backward: its result follows. If no
 *  slot is left, take the oldest result. */
CDDP_CHECKED cddp_status cddpi_gan_end_pass(struct cddpi_trainer *trainer, enum cddpi_gan_pass pass,
                                            uint64_t step, int count);

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
/** Generate the images of the latent vectors drawn last.
 *  @param of  Their number, and the weight of their statistics. */
CDDP_CHECKED cddp_status cddpi_gan_forward(struct cddpi_trainer *trainer,
                                           const struct cddpi_batch *of, bool training);

#endif
