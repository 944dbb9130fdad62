/* launch_judge.h - which of the launchers whose variables are set has started this very process. */
#ifndef CDDPI_GROUP_LAUNCH_JUDGE_H
#define CDDPI_GROUP_LAUNCH_JUDGE_H

#include "group/launch/launch_claim.h"

enum { CDDPI_REASON_BYTES = 1600 };

/* What came of it. */
struct cddpi_finding {
    struct cddpi_claim claims[CDDPI_LAUNCHERS]; /* all that are there */
    int count;
    bool is_in_cddp_run; /* a rank of cddp-run has started another launcher, whose this is */
    int chosen;          /* of those; -1: nobody has started this process as one of several */
    /* Those that agree with it, in the order in which they may say where the ranks meet. */
    int agreeing[CDDPI_LAUNCHERS];
    int agreeing_count;
    char reason[CDDPI_REASON_BYTES];  /* why, where several were there; "": nothing to say */
    char warning[CDDPI_REASON_BYTES]; /* what a user should look at; "": nothing */
};

/** Read all launchers' variables, and hold them against each other: they agree, or one of them is
 *  nearest to this process (cddp-run tells its ranks what they inherit through it, and /proc shows
 *  who set what, and whose daemons are the parents).
 *  @param is_cddp_run  For cddp-run, which gives its ranks RANK and WORLD_SIZE anyhow: that only
 * one of them is set is no more than a warning.
 *  @param out          What is known is written on failure, too.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT with a text that names the variables of both, and which to
 *          unset. */
cddp_status cddpi_launch_judge(bool is_cddp_run, struct cddpi_finding *out);

#endif
