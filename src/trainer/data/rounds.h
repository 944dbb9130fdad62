/* rounds.h - lets ranks wait for others that read data, however long it takes: while some rank is
 * busy, all ranks meet in rounds that are far shorter than any deadline. */
#ifndef CDDPI_DATA_ROUNDS_H
#define CDDPI_DATA_ROUNDS_H

#include <cddp/group.h>
#include <stdbool.h>
#include <stdint.h>

/* How long ranks that wait hear nothing. */
#define CDDPI_ROUND_NS INT64_C(200000000)

struct cddpi_rounds {
    cddp_group *group;
    int64_t next_ns; /* when the next round is due; 0: at once */
    bool failed;     /* all ranks know of a failure, and none takes part in a round any more */
};

/** A busy rank calls this often. If a round is due, meet the ranks that are busy or wait.
 *  @param rounds  NULL: nobody waits.
 *  @return CDDP_OK, or what another rank failed with: then give up. */
CDDP_CHECKED cddp_status cddpi_rounds_tick(struct cddpi_rounds *rounds);

/** A rank that is done, or had nothing to do, waits for the others. Collective with the ticks.
 *  @param mine  What this rank's work ended with.
 *  @return As cddpi_agree(). */
CDDP_CHECKED cddp_status cddpi_rounds_end(struct cddpi_rounds *rounds, cddp_status mine);

#endif
