/* transport_fault.h - what tests of transports that fail have in common: jobs of forked ranks on a
 * fake CUDA that is as wrong as the test wants. */
#ifndef CDDP_TESTS_SUPPORT_TRANSPORT_FAULT_H
#define CDDP_TESTS_SUPPORT_TRANSPORT_FAULT_H

#include "support/transport.h"

enum { COUNT = 20000 };

/* What ranks are started with. */
struct job {
    struct transport_world *world;
    const char *transport;
    const char *text; /* of the error */
    int culprit;
    bool registered;
};

/* Run @p body; the culprit may end as it likes if it @p dies. Returns how many others fail. */
int run_job(int size, rank_fn body, struct job job, bool dies);

/* A rank of @p job with a sum to be run. */
int begin(const struct job *job, int rank, struct transport_rank *me, struct cddpi_group_op *out);
void use_devices(const char *count);

/* An environment variable of one test. */
void with(const char *name, const char *value);
void without(const char *name);

#endif
