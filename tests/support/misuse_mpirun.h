/* misuse_mpirun.h - runs the ranks of a case of wrong use as processes of the real mpirun. */
#ifndef CDDP_TESTS_SUPPORT_MISUSE_MPIRUN_H
#define CDDP_TESTS_SUPPORT_MISUSE_MPIRUN_H

#include "support/misuse.h"

/* As misuse_run(), on 2 or 3 ranks; the job and variant are set. Skips the case if there is no Open
 * MPI. */
int misuse_mpirun(struct misuse *misuse, int size, rank_fn body, int *statuses);

#endif
