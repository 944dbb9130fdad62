/* gan.h - runs of dcgan on small images, and the values of PyTorch's example on the same images. */
#ifndef CDDP_TESTS_SUPPORT_GAN_H
#define CDDP_TESTS_SUPPORT_GAN_H

#include "support/train.h"

/* Samples and steps per epoch. */
enum { GAN_SAMPLES = 240, GAN_TESTED = 12, GAN_SIDE = 16, GAN_STEPS = 20 };

/* In PyTorch, float32 differs from float64 by 2e-7; another order of sums may multiply that several
 * times. */
#define GAN_TOLERANCE 5e-6

/* As make_work(), plus a configuration "gan.conf": one epoch on the CPU that reports each step. */
int make_gan_work(void **state);

/* Assert that the steps of that run equal those of PyTorch's example on as many ranks
 * (dcgan_vectors.txt). */
void expect_pytorchs_steps(const char *run_dir, int ranks, double tolerance);

#endif
