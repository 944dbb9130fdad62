/* keep_forget.c - owns what of a kept state is not to be used again. */
#include "base/error.h"
#include "recovery/keep_impl.h"

static void forget_others(struct cddpi_keep *keep, uint64_t writer, uint64_t step)
{
    for (int i = 0; i < keep->count; i++) {
        cddpi_kept_forget_others(&keep->files[i], keep->run, writer, step);
    }
}

void cddpi_keep_forget(struct cddpi_keep *keep)
{
    forget_others(keep, keep->restored.writer, keep->restored.step);
}

/* A state that is kept again is another one, too: parts of both must not be taken for one. If ranks
 * are killed before all have forgotten it, it is whole and is used, or it is not and the job goes
 * back to its checkpoint. */
void cddpi_keep_follow(struct cddpi_keep *keep, uint64_t step)
{
    if (step < keep->newest || (step > 0 && step == keep->kept_step)) {
        forget_others(keep, 0, 0);
        keep->newest = 0;
        keep->prepared = 0; /* copies begin with the first slot again, and may not have had both */
        keep->kept_step = 0;
    }
}

cddp_status cddpi_keep_begin(struct cddpi_keep *keep)
{
    cddpi_keep_forget(keep);
    if (!keep->was_refused) {
        return CDDP_OK;
    }
    /* no rank goes on from what others still have of it */
    CDDPI_TRY(cddp_barrier(keep->group, NULL));
    for (int i = 0; i < keep->count; i++) {
        cddpi_kept_forget_refusal(&keep->files[i], keep->run);
    }
    return CDDP_OK;
}

void cddpi_keep_refuse(const struct cddpi_keep *keep)
{
    for (int i = 0; i < keep->count; i++) {
        cddpi_kept_refuse(&keep->files[i], keep->run);
    }
}
