/* train_agree.h - what ranks ask of each other while they compute: whether to save, to stop, and
 * whether steps that were captured are still of use. */
#ifndef CDDPI_TRAIN_AGREE_H
#define CDDPI_TRAIN_AGREE_H

#include <cddp/group.h>

#include <stdbool.h>

/* What a rank may ask for; the greatest of all ranks' is done by all. */
enum cddpi_request { CDDPI_REQUEST_NONE, CDDPI_REQUEST_SAVE, CDDPI_REQUEST_STOP };

/* Lies where it is as long as the group: a collective writes into it, also once the run
 * has failed. */
struct cddpi_agreement {
    struct {
        uint8_t request; /* enum cddpi_request */
        uint8_t stale;   /* captured steps are of no use any more */
    } own, agreed;       /* this rank's, and the greatest of all ranks */
    cddp_work *work;     /* the collective that finds it; NULL: none is under way */
};

/** Begin to ask all ranks. Collective. */
CDDP_CHECKED cddp_status cddpi_agreement_begin(struct cddpi_agreement *agreement, cddp_group *group,
                                               enum cddpi_request request, bool stale);
/** Wait for the answer, which is in agreement->agreed then. */
CDDP_CHECKED cddp_status cddpi_agreement_end(struct cddpi_agreement *agreement);
/** Release what is under way; accepts a zeroed one. */
void cddpi_agreement_fini(struct cddpi_agreement *agreement);

#endif
