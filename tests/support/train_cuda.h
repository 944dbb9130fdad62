/* train_cuda.h - runs of the real programs on CUDA devices, real or emulated by the module for
 * tests. */
#ifndef CDDP_TESTS_SUPPORT_TRAIN_CUDA_H
#define CDDP_TESTS_SUPPORT_TRAIN_CUDA_H

#include "support/device.h"
#include "support/gpu.h"
#include "support/job.h"

#define CUDA "train.device=\"cuda\""
#define CPU "train.device=\"cpu\""

enum { MOST_ARGUMENTS = 8 };

/* Set up the emulated machine, with one device per rank. */
int make_devices(void **state);

/* At most two ranks on real GPUs, where starting ranks takes seconds: two show what three would. */
int ranks_up_to(int most);

/* Run @p conf with the run_dir @p name and these arguments (NULL: none). If there are more ranks
 * than real GPUs, they share them. */
struct run run_named(const char *conf, int ranks, const char *name, const char *device,
                     const char *const *arguments);
void assert_close(const char *run_a, const char *run_b, uint64_t step, const char *name,
                  double tolerance);
void assert_same_steps(const char *run_a, const char *run_b, uint64_t first, uint64_t last,
                       double tolerance);

#endif
