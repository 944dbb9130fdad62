/* straggler.h - warns about ranks that a collective waits for. */
#ifndef CDDPI_GROUP_STRAGGLER_H
#define CDDPI_GROUP_STRAGGLER_H

#include <cddp/group.h>

#include <stdint.h>

struct cddpi_group_op; /* group/operation.h */

/* When to warn about late ranks. Only the thread that runs the queue uses it. */
struct cddpi_straggler {
    int64_t limit_ns;  /* CDDP_STRAGGLER_MS; 0: never */
    uint64_t number;   /* the collective that was checked last */
    int64_t since_ns;  /* since when that collective has waited */
    int64_t again_ns;  /* earliest time of the next warning */
    unsigned warnings; /* number so far, up to a limit: each doubles the pause before the next */
};

void cddpi_straggler_init(struct cddpi_straggler *straggler);
/** Warn about the ranks that @p op, a collective in progress, waits for, if a warning is due. */
void cddpi_straggler_look(cddp_group *group, const struct cddpi_group_op *op, int64_t now_ns);

#endif
