/* replace_rank.h - receives rank 0's reports about slow ranks: tells the user of stragglers, and
 * lets them be replaced (slow_ranks.h decides). */
#ifndef CDDPI_LAUNCHER_REPLACE_RANK_H
#define CDDPI_LAUNCHER_REPLACE_RANK_H

struct cddpi_supervision;

/** Process run->report, a whole CDDPI_REPORT_SLOW, which may come from any program. */
void cddpi_supervision_take_slow(struct cddpi_supervision *run);

#endif
