/* fake_cublaslt.h - what tests may ask of the fake cuBLASLt. */
#ifndef CDDP_TESTS_FAKE_CUBLASLT_H
#define CDDP_TESTS_FAKE_CUBLASLT_H

#include <stdint.h>

/* Algorithms, in the order in which heuristics name them where they fit. $CDDP_FAKE_CUBLASLT is a
 * list of what goes wrong: "broken" (a handle cannot be made), "plain" (no epilogues), "unstable"
 * (the first algorithm gives other bits each time), "slow" (so do the first two, in that they take
 * milliseconds). */
enum fake_cublaslt_algorithm {
    FAKE_CUBLASLT_WIDE,     /* wants rows and pointers aligned to 16 bytes */
    FAKE_CUBLASLT_NARROW,   /* the same sums; wants an alignment of 4 */
    FAKE_CUBLASLT_SPLIT,    /* two sums, added in float32 from the workspace */
    FAKE_CUBLASLT_OUTPUT,   /* two sums, added in the type of the output */
    FAKE_CUBLASLT_ANYTHING, /* the same sums as the first, for any alignment */
    FAKE_CUBLASLT_ALGORITHMS
};

/** How many products were started with @p algorithm. */
uint64_t fake_cublaslt_started(enum fake_cublaslt_algorithm algorithm);

#endif
