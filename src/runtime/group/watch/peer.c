/* peer.c - sets error texts for missing peers. While all ranks are alive, it warns about ranks for
 * which a collective has waited for long: nothing else reports a rank that computes, reads its data
 * or is stopped before the deadline. */
#include "group/watch/peer.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "group/engine/group_call.h"
#include "group/group.h"

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

enum { DEFAULT_MS = 5000, SLOW_BYTES_MS = 5000, MOST_DOUBLINGS = 6 };

void cddpi_straggler_init(struct cddpi_straggler *straggler)
{
    *straggler = (struct cddpi_straggler){0};
    straggler->limit_ns =
        (int64_t)cddpi_env_integer(CDDPI_ENV_STRAGGLER_MS, 0, 86400000, DEFAULT_MS) * 1000000;
}

static void warn_of_late(cddp_group *group, const struct cddpi_group_op *op, int64_t now_ns)
{
    struct cddpi_straggler *straggler = &group->straggler;
    struct cddpi_late late = {.used = 0};
    char title[64];

    group->backend->ops->late(group->backend, op, &late);
    if (late.used == 0) {
        return; /* another rank knows better which rank is late, and warns */
    }
    cddpi_op_title(op, title, sizeof title);
    cddpi_log(CDDPI_LOG_WARN, "rank %d: %s has been waiting for %.1f s for %s", group->rank, title,
              (double)(now_ns - straggler->since_ns) * 1e-9, late.text);
    straggler->again_ns = now_ns + (straggler->limit_ns << straggler->warnings);
    straggler->warnings += straggler->warnings < MOST_DOUBLINGS;
}

void cddpi_straggler_look(cddp_group *group, const struct cddpi_group_op *op, int64_t now_ns)
{
    struct cddpi_straggler *straggler = &group->straggler;
    int64_t patience_ns;

    if (straggler->limit_ns == 0 || group->backend->ops->late == NULL) {
        return;
    }
    /* allow for a link of 5 MB/s, since a slow link is not a rank's fault */
    patience_ns = straggler->limit_ns +
                  (int64_t)(op->count * cddp_type_bytes(op->type) / SLOW_BYTES_MS) * 1000000;
    if (straggler->number != op->number) { /* a new collective has begun since the last check */
        straggler->number = op->number;
        straggler->since_ns = now_ns;
    }
    if (now_ns >= straggler->again_ns && now_ns - straggler->since_ns >= patience_ns) {
        warn_of_late(group, op, now_ns);
    }
}
