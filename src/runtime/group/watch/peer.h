/* peer.h - owns the error texts for a missing peer, the same for every transport: it left, died, or
 * is late. Warns about stragglers, the ranks that a collective waits for. */
#ifndef CDDPI_GROUP_PEER_H
#define CDDPI_GROUP_PEER_H

#include <cddp/group.h>
#include <cddp/status.h>

#include <stdbool.h>
#include <stdint.h>

/* What a rank writes about itself in shared memory once it no longer takes part. */
enum cddpi_peer_end {
    CDDPI_PEER_HERE,
    CDDPI_PEER_LEFT,  /* it destroyed its group */
    CDDPI_PEER_EXITED /* it called exit() or returned from main() without destroying its group */
};

/** Fail with CDDP_ERR_PEER: @p title ("all_reduce #12") needs @p rank, which ended as @p end says.
 *  @p rank is the culprit. */
cddp_status cddpi_peer_left(const char *title, int rank, int pid, enum cddpi_peer_end end);
/** The same for a rank whose process disappeared without such a note. */
cddp_status cddpi_peer_died(const char *title, int rank, int pid);

/* The ranks that are late. All zero at first. */
struct cddpi_late {
    char text[900];
    size_t used;
    bool any_stopped;
};

/** A process of this machine: "rank 1 (pid 123, stopped)". */
void cddpi_late_add(struct cddpi_late *late, int rank, int pid);
/** A peer described by @p what: for peers on other hosts. */
void cddpi_late_add_text(struct cddpi_late *late, const char *what);
/** Fail with CDDP_ERR_TIMEOUT: "TITLE: waited 300 ms for rank 1 (pid 123), rank 2 ...".
 *  @param otherwise  What the operation waits for if no rank is late.
 *  @param more       More information, which is appended; may be "". */
cddp_status cddpi_late_fail(const struct cddpi_late *late, const char *title, int64_t start_ns,
                            const char *otherwise, const char *more);

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
