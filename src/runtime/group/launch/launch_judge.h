/* launch_judge.h - decides which of the launchers whose variables are set started this process. */
#ifndef CDDPI_GROUP_LAUNCH_JUDGE_H
#define CDDPI_GROUP_LAUNCH_JUDGE_H

#include "group/launch/launch_claim.h"

enum { CDDPI_REASON_BYTES = 1600 };

/* The result of the decision. */
struct cddpi_finding {
    struct cddpi_claim claims[CDDPI_LAUNCHERS]; /* of all launchers whose variables are set */
    int count;
    bool is_in_cddp_run; /* a rank of cddp-run started the launcher of this process  */
    int chosen; /* index in `claims`; -1: no launcher started this process as one of several */
    /* The claims that agree with the chosen one, in the order in which they may define where the
     * ranks meet. */
    int agreeing[CDDPI_LAUNCHERS];
    int agreeing_count;
    /* reason for the choice among several; "": no reason to give */
    char reason[CDDPI_REASON_BYTES];
    char warning[CDDPI_REASON_BYTES]; /* a problem that the user should look at; "": none */
};

/** Read all launchers' variables, and compare them: either they agree, or one launcher is the
 *  nearest to this process. For the latter, cddp-run tells its ranks what they inherit through it,
 *  and /proc shows which process set which variables and which daemons are ancestors.
 *  @param is_cddp_run  True for cddp-run, which sets RANK and WORLD_SIZE for its ranks anyway: if
 *                      only one of them is set, that is just a warning.
 *  @param out          Also filled in on failure, as far as known.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT with a text that names the variables of both launchers, and
 *          which of them to unset. */
cddp_status cddpi_launch_judge(bool is_cddp_run, struct cddpi_finding *out);

#endif
