/* transport_fault.h - shared by the tests of failing transports: jobs of forked ranks on a fake
 * CUDA with injected faults. */
#ifndef CDDP_TESTS_SUPPORT_TRANSPORT_FAULT_H
#define CDDP_TESTS_SUPPORT_TRANSPORT_FAULT_H

#include "support/transport.h"

enum { COUNT = 20000 };

/* What the ranks are started with. */
struct job {
    struct transport_world *world;
    const char *transport;
    const char *text; /* in the error's message */
    int culprit;
    bool registered;
};

/* Run @p body on all ranks. If it @p dies, the culprit may end in any way. Returns how many others
 * failed. */
int run_job(int size, rank_fn body, struct job job, bool dies);

/* Start a rank of @p job, and make a sum that can be run. */
int begin(const struct job *job, int rank, struct transport_rank *me, struct cddpi_group_op *out);
void use_devices(const char *count);

/* Set or unset an environment variable for one test. */
void with(const char *name, const char *value);
void without(const char *name);

#endif
