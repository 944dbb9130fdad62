/* fake_cublaslt.h - what tests can query from the fake cuBLASLt. */
#ifndef CDDP_TESTS_FAKE_CUBLASLT_H
#define CDDP_TESTS_FAKE_CUBLASLT_H

#include <stdint.h>

/* Algorithms, in the order in which heuristics list those that fit. $CDDP_FAKE_CUBLASLT is a list
 * of faults: "broken" (creating a handle fails), "plain" (no epilogues), "unstable" (the first
 * algorithm gives different bits each time), "slow" (the first two take milliseconds), "many" (the
 * heuristics list eight variants of each), "refuses" (no stored algorithm is accepted), "stale"
 * (algorithms of other processes are accepted, but fail when they start).
 * $CDDP_FAKE_CUBLASLT_VERSION is the library's version. */
enum fake_cublaslt_algorithm {
    FAKE_CUBLASLT_WIDE,     /* requires rows and pointers aligned to 16 bytes */
    FAKE_CUBLASLT_NARROW,   /* the same sums; requires alignment to 4 bytes */
    FAKE_CUBLASLT_SPLIT,    /* two sums, added in float32 from the workspace */
    FAKE_CUBLASLT_OUTPUT,   /* two sums, added in the type of the output */
    FAKE_CUBLASLT_ANYTHING, /* the same sums as the first, with any alignment */
    FAKE_CUBLASLT_ALGORITHMS
};

/** The number of products started with @p algorithm. */
uint64_t fake_cublaslt_started(enum fake_cublaslt_algorithm algorithm);

/** How often heuristics were asked. */
uint64_t fake_cublaslt_asked(void);

#endif
