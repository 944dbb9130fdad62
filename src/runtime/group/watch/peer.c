/* peer.c - sets error texts for missing peers. */
#include "group/watch/peer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"

#include <stdio.h>

cddp_status cddpi_peer_left(const char *title, int rank, int pid, enum cddpi_peer_end end)
{
    if (end == CDDPI_PEER_EXITED) {
        (void)cddpi_fail(CDDP_ERR_PEER,
                         "%s: rank %d (pid %d) has left the group: its program ended by exit() "
                         "before this was done",
                         title, rank, pid);
    } else {
        (void)cddpi_fail(CDDP_ERR_PEER, "%s: rank %d has left the group", title, rank);
    }
    cddpi_error_blame(rank);
    cddpi_error_left();
    return CDDP_ERR_PEER;
}

cddp_status cddpi_peer_died(const char *title, int rank, int pid)
{
    (void)cddpi_fail(CDDP_ERR_PEER, "%s: rank %d (pid %d) died before it was done", title, rank,
                     pid);
    cddpi_error_blame(rank);
    return CDDP_ERR_PEER;
}

void cddpi_late_add_text(struct cddpi_late *late, const char *what)
{
    enum { MOST = 250 }; /* maximum bytes of one entry, so that the last is not cut off */

    if (late->used < sizeof late->text - MOST) {
        late->used += (size_t)snprintf(late->text + late->used, sizeof late->text - late->used,
                                       "%s%.*s", late->used > 0 ? ", " : "", MOST - 3, what);
    }
}

void cddpi_late_add(struct cddpi_late *late, int rank, int pid)
{
    bool is_stopped = cddpi_process_is_stopped(pid);
    char what[64];

    snprintf(what, sizeof what, "rank %d (pid %d%s)", rank, pid, is_stopped ? ", stopped" : "");
    late->any_stopped = late->any_stopped || is_stopped;
    cddpi_late_add_text(late, what);
}

cddp_status cddpi_late_fail(const struct cddpi_late *late, const char *title, int64_t start_ns,
                            const char *otherwise, const char *more)
{
    (void)cddpi_fail(CDDP_ERR_TIMEOUT, "%s: waited %lld ms for %s%s", title,
                     (long long)((cddpi_now_ns() - start_ns) / 1000000),
                     late->used > 0 ? late->text : otherwise, more);
    if (late->any_stopped) {
        cddpi_error_stopped();
    }
    return CDDP_ERR_TIMEOUT;
}
