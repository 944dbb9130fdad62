/* restarts.c - owns the decision whether a failed job is restarted. */
#include "launcher/supervise/restarts.h"

/* The pause before a restart that follows the second fruitless generation in a row. It doubles with
 * each further one; CDDPI_MOST_FRUITLESS keeps it below two seconds. */
enum { FIRST_PAUSE_MS = 250 };

bool cddpi_restarts_has_got_on(const struct cddpi_generation_outcome *outcome, int64_t lived_ms)
{
    return outcome->has_saved || outcome->has_kept || lived_ms >= CDDPI_SHORT_LIFE_MS;
}

enum cddpi_restart cddpi_restarts_next(struct cddpi_restarts *restarts, int most,
                                       const struct cddpi_generation_outcome *outcome,
                                       int64_t lived_ms, int64_t *out_pause_ms)
{
    if (!outcome->may_restart || restarts->made == most) {
        return CDDPI_RESTART_NOT;
    }
    restarts->fruitless = cddpi_restarts_has_got_on(outcome, lived_ms) ? 0
                                                                       : restarts->fruitless + 1;
    if (restarts->fruitless >= CDDPI_MOST_FRUITLESS) {
        return CDDPI_RESTART_GIVE_UP;
    }
    restarts->made++;
    *out_pause_ms = restarts->fruitless < 2 ? 0
                                            : (int64_t)FIRST_PAUSE_MS << (restarts->fruitless - 2);
    return CDDPI_RESTART_NOW;
}
