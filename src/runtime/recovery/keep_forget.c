/* keep_forget.c - owns what of a kept state is not to be used again. */
#include "base/error.h"
#include "recovery/keep_impl.h"

void cddpi_keep_forget(struct cddpi_keep *keep)
{
    for (int i = 0; i < keep->count; i++) {
        cddpi_kept_forget_others(&keep->files[i], keep->run, keep->restored.writer,
                                 keep->restored.step);
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
