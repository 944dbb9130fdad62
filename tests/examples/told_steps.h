/* told_steps.h - what the ranks of a job tell a test of the steps that they begin, in a file that
 * all map: so the test knows it, also if they are killed at once. */
#ifndef CDDP_TESTS_EXAMPLES_TOLD_STEPS_H
#define CDDP_TESTS_EXAMPLES_TOLD_STEPS_H

#include <stdatomic.h>
#include <stdint.h>

struct told_steps {
    _Atomic uint64_t most;     /* the greatest step that any rank has begun */
    _Atomic uint64_t stopped;  /* the last step where ranks were told to stop */
    _Atomic uint64_t restored; /* where the last generation went on, from memory */
    _Atomic uint64_t lost;     /* the most steps that were done again on such an occasion */
    _Atomic int begun;         /* generations whose rank 0 has begun */
    _Atomic int ranks;         /* of the last one */
    _Atomic int dies;          /* a rank that kills itself, once, when its loop is over; -1: none */
};

/* The variable that names the file. */
#define TOLD_STEPS "TEST_TOLD_STEPS"

#endif
