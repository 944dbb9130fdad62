/* straggler.h - warns of ranks that let a collective wait. */
#ifndef CDDPI_GROUP_STRAGGLER_H
#define CDDPI_GROUP_STRAGGLER_H

#include <cddp/group.h>

#include <stdint.h>

struct cddpi_group_op; /* group/operation.h */

/* Of the thread that runs the queue: when it warns of ranks that are late. */
struct cddpi_straggler {
    int64_t limit_ns;  /* CDDP_STRAGGLER_MS; 0: never */
    uint64_t number;   /* of the collective that was last looked at, */
    int64_t since_ns;  /* which has waited since then */
    int64_t again_ns;  /* no warning before */
    unsigned warnings; /* so far, up to a limit: each doubles the pause before the next */
};

void cddpi_straggler_init(struct cddpi_straggler *straggler);
/** Collective @p op has not ended yet: warn of the ranks that it waits for, if a warning is due. */
void cddpi_straggler_look(cddp_group *group, const struct cddpi_group_op *op, int64_t now_ns);

#endif
