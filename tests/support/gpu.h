/* gpu.h - tests on a real GPU: scripts/gpu-test sets CDDP_TEST_GPU to their number. Then
 * tests that otherwise run on the emulated module take the real one where nothing in them asks the
 * fake runtime for something; those that need its faults, or its orders of streams, skip
 * themselves. */
#ifndef CDDP_TESTS_SUPPORT_GPU_H
#define CDDP_TESTS_SUPPORT_GPU_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

bool gpu_is_real(void);

/* As scripts/gpu-test says: to ask CUDA takes a process of its own, each time as long as a test. */
int gpu_count(void);

/* A GPU has one order of streams: two runs are enough to see that the second finds all as the
 * first. */
int gpu_runs(int runs);

/* Whether NCCL lets ranks share a GPU, which it does from 2.30.3 on if it is told to: it is, then.
 */
bool gpu_nccl_shares(void);

/* Ranks start slowly there, and NCCL before 2.30.3 wants a GPU for each. */
bool gpu_is_beyond(const char *transport, int ranks);

#endif
