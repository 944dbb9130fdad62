/* carriers.h - the list of what carries bytes between machines. */
#ifndef CDDPI_GROUP_NET_CARRIERS_H
#define CDDPI_GROUP_NET_CARRIERS_H

#include "group/net/carrier.h"

/* Where CDDP_ENCRYPT=1, a carrier that does not encrypt is taken only if $CDDP_CARRIER names it. */

/** The carrier called @p name, if it could serve as far as this rank knows; NULL: the one that
 *  $CDDP_CARRIER names, else the best. NULL with this thread's failure: there is none of that name
 *  (CDDP_ERR_ARGUMENT), or why it cannot serve. Ranks may come to different results: they have to
 *  agree on one. Any thread. */
const struct cddpi_carrier_ops *cddpi_carrier_choose(const char *name);

/** The best carrier that all ranks can use, among those that $CDDP_CARRIER allows. Collective:
 * every rank succeeds with the same one or every rank fails. */
CDDP_CHECKED cddp_status cddpi_carrier_agree(const struct cddpi_exchange *exchange,
                                             const struct cddpi_carrier_ops **out);

/** Say so, where CDDP_ENCRYPT=1 and @p carrier, which was asked for by name, does not encrypt. */
void cddpi_carrier_warn(const struct cddpi_carrier_ops *carrier);

#endif
