/* gan.h - runs of dcgan on small images, and what PyTorch's example makes of the same. */
#ifndef CDDP_TESTS_SUPPORT_GAN_H
#define CDDP_TESTS_SUPPORT_GAN_H

#include "support/train.h"

/* An epoch has so many samples, and steps. */
enum { GAN_SAMPLES = 240, GAN_TESTED = 12, GAN_SIDE = 16, GAN_STEPS = 20 };

/* In PyTorch, float32 differs from float64 by 2e-7; another order of sums may make some times that.
 */
#define GAN_TOLERANCE 5e-6

/* As make_work(), and a configuration "gan.conf" of an epoch on the processor, each step of which
 * is reported. */
int make_gan_work(void **state);

/* The steps of that run are those of PyTorch's example on as many ranks (dcgan_vectors.txt). */
void expect_pytorchs_steps(const char *run_dir, int ranks, double tolerance);

#endif
