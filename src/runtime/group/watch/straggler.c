/* straggler.c - warns, while all ranks are alive, about ranks for which a collective has waited for
 * long. Nothing else reports a rank that computes, reads its data or is stopped before the
 * deadline. */
#include "group/watch/straggler.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "group/engine/group_call.h"
#include "group/group.h"
#include "group/watch/peer.h"

enum { DEFAULT_MS = 5000, SLOW_BYTES_MS = 5000, MOST_DOUBLINGS = 6 };

void cddpi_straggler_init(struct cddpi_straggler *straggler)
{
    *straggler = (struct cddpi_straggler){0};
    straggler->limit_ns =
        (int64_t)cddpi_env_integer(CDDPI_ENV_STRAGGLER_MS, 0, 86400000, DEFAULT_MS) * 1000000;
}

/* How long @p op may wait without a warning. Allows for a link of 5 MB/s, since a slow link is not
 * a rank's fault. */
static int64_t patience_ns(const struct cddpi_straggler *straggler, const struct cddpi_group_op *op)
{
    return straggler->limit_ns +
           (int64_t)(op->count * cddp_type_bytes(op->type) / SLOW_BYTES_MS) * 1000000;
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

    if (straggler->limit_ns == 0 || group->backend->ops->late == NULL) {
        return;
    }
    if (straggler->number != op->number) { /* a new collective has begun since the last check */
        straggler->number = op->number;
        straggler->since_ns = now_ns;
    }
    if (now_ns >= straggler->again_ns &&
        now_ns - straggler->since_ns >= patience_ns(straggler, op)) {
        warn_of_late(group, op, now_ns);
    }
}
