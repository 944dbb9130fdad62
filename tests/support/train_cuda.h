/* train_cuda.h - runs of the real programs on CUDA devices that the module for tests
 * emulates, or on real ones. */
#ifndef CDDP_TESTS_SUPPORT_TRAIN_CUDA_H
#define CDDP_TESTS_SUPPORT_TRAIN_CUDA_H

#include "support/device.h"
#include "support/gpu.h"
#include "support/job.h"

#define CUDA "train.device=\"cuda\""
#define CPU "train.device=\"cpu\""

enum { MOST_ARGUMENTS = 8 };

/* Ranks of the emulated machine have a device each. */
int make_devices(void **state);

/* Starting ranks takes seconds on a real GPU: two say what three would. */
int ranks_up_to(int most);

/* Run @p conf with a run_dir of that name and these arguments; NULL: none. More ranks than real
 * GPUs share them. */
struct run run_named(const char *conf, int ranks, const char *name, const char *device,
                     const char *const *arguments);
void assert_close(const char *run_a, const char *run_b, uint64_t step, const char *name,
                  double tolerance);
void assert_same_steps(const char *run_a, const char *run_b, uint64_t first, uint64_t last,
                       double tolerance);

#endif
