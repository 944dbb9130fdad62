/* gpu.h - tests on real GPUs: scripts/gpu-test sets CDDP_TEST_GPU to their number. Tests that
 * usually run on the emulated module then use the real one, if they need nothing from the fake
 * runtime. Tests that need its faults or its orders of streams skip themselves. */
#ifndef CDDP_TESTS_SUPPORT_GPU_H
#define CDDP_TESTS_SUPPORT_GPU_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

bool gpu_is_real(void);

/* The number that scripts/gpu-test gave. Asking CUDA would need a separate process each time, which
 * takes as long as a test. */
int gpu_count(void);

/* A GPU has only one order of streams, so two of @p runs are enough: the second shows that the
 * first left nothing behind. */
int gpu_runs(int runs);

/* Whether NCCL lets ranks share a GPU. NCCL from 2.30.3 on does if a variable is set, which this
 * function sets. */
bool gpu_nccl_shares(void);

/* Whether @p ranks are too many for real GPUs: ranks start slowly there, and NCCL before 2.30.3
 * needs one GPU per rank. */
bool gpu_is_beyond(const char *transport, int ranks);

#endif
