/* train_agree.c - owns the collective in which ranks agree on what follows a step. */
#include "train/train_agree.h"

cddp_status cddpi_agreement_begin(struct cddpi_agreement *agreement, cddp_group *group,
                                  enum cddpi_request request, bool stale)
{
    agreement->own.request = (uint8_t)request;
    agreement->own.stale = stale;
    return cddp_all_reduce(group, &agreement->own, &agreement->agreed, sizeof agreement->own,
                           CDDP_U8, CDDP_OP_MAX, &agreement->work);
}

cddp_status cddpi_agreement_end(struct cddpi_agreement *agreement)
{
    cddp_status status = cddp_work_wait(agreement->work, 0);

    if (status == CDDP_OK) {
        cddpi_agreement_fini(agreement);
    }
    return status;
}

void cddpi_agreement_fini(struct cddpi_agreement *agreement)
{
    cddp_work_destroy(agreement->work);
    agreement->work = NULL;
}
