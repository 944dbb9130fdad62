/* gan_state.h - what the files of gan/ share. */
#ifndef CDDPI_TRAIN_GAN_STATE_H
#define CDDPI_TRAIN_GAN_STATE_H

#include "base/philox.h"
#include "train/engines/gan/gan.h"

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
    size_t latent; /* numbers of a latent vector */
    size_t image;  /* numbers of an image */
    struct cddpi_gan_slot slots[CDDPI_GAN_SLOTS];
    uint64_t *ids; /* 0, 1 ...: of a sheet's samples */
    /* on the device */
    float *noise;            /* a latent vector a sample */
    float *fake, *fake_grad; /* a generated image a sample, and its gradient */
    int32_t *zeros, *ones;   /* labels: generated, real */
    float *unwanted;         /* where gradients of the discriminator go that nobody wants ... */
    void **unwanted_grads;   /* ... all of them */
    double sums[5];          /* over samples: as in struct cddpi_gan_means, and their number */
    uint64_t exposed_ns;     /* of the generator's reducer, as far as it is reported */
};

/** That of the step behind @p done ones. */
struct cddpi_gan_slot *cddpi_gan_slot_of(struct cddpi_gan *gan, uint64_t done);
/** The latent vectors of @p count samples, on their way to the device: functions of the seed, @p
 *  purpose, the step and the sample alone. */
CDDP_CHECKED cddp_status cddpi_gan_draw(const struct cddpi_trainer *trainer,
                                        enum cddpi_random_purpose purpose, uint64_t step,
                                        const uint64_t *sample_ids, int count);
/** Generate the images of these latent vectors. */
CDDP_CHECKED cddp_status cddpi_gan_forward(struct cddpi_trainer *trainer, int count, bool training);

#endif
