/* pace_report.h - compares the ranks' times now and then, at a line of metrics, and tells the
 * launcher which ranks are slow. */
#ifndef CDDPI_TRAIN_REPORT_PACE_REPORT_H
#define CDDPI_TRAIN_REPORT_PACE_REPORT_H

#include "train/trainer.h"

/** Add the interval, which is about to be closed, to this rank's times. Rank 0 says in it whether
 *  ranks are to compare their times: at most once a second, so that this costs nothing. */
void cddpi_pace_note(struct cddpi_trainer *trainer);

/** Compare the ranks' times, and begin anew. Rank 0 tells its launcher which ranks are slow.
 *  Collective.
 *  @param out  On other ranks, nothing is known. */
CDDP_CHECKED cddp_status cddpi_pace_compare(struct cddpi_trainer *trainer,
                                            struct cddpi_pace_result *out);

#endif
