/* train_agree.h - lets ranks agree while they compute: whether to save, to stop, and to drop
 * captured steps. */
#ifndef CDDPI_TRAIN_AGREE_H
#define CDDPI_TRAIN_AGREE_H

#include <cddp/group.h>

#include <stdbool.h>

/* What a rank may request. All ranks do the greatest request of any rank. */
enum cddpi_request { CDDPI_REQUEST_NONE, CDDPI_REQUEST_SAVE, CDDPI_REQUEST_STOP };

/* Must not move while the group exists: a collective writes into it, even after the run has
 * failed. */
struct cddpi_agreement {
    struct {
        uint8_t request; /* enum cddpi_request */
        uint8_t stale;   /* captured steps are outdated */
    } own, agreed;       /* this rank's values, and the maximum over all ranks */
    cddp_work *work;     /* the collective that computes agreed; NULL: none is under way */
};

/** Start the collective. Collective. */
CDDP_CHECKED cddp_status cddpi_agreement_begin(struct cddpi_agreement *agreement, cddp_group *group,
                                               enum cddpi_request request, bool stale);
/** Wait for the collective; then agreement->agreed is set. */
CDDP_CHECKED cddp_status cddpi_agreement_end(struct cddpi_agreement *agreement);
/** Release a collective that is under way; accepts a zeroed agreement. */
void cddpi_agreement_fini(struct cddpi_agreement *agreement);

#endif
