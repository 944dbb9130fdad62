/* carriers.h - owns the list of carriers, which carry bytes between machines. */
#ifndef CDDPI_GROUP_NET_CARRIERS_H
#define CDDPI_GROUP_NET_CARRIERS_H

#include "group/net/carrier.h"

/* With CDDP_ENCRYPT=1, a carrier that does not encrypt is chosen only if $CDDP_CARRIER names it. */

/** Choose the carrier @p name, if it can serve as far as this rank knows. @p name NULL: the one
 *  that $CDDP_CARRIER names, else the best. Returns NULL and sets this thread's failure if no
 *  carrier has that name (CDDP_ERR_ARGUMENT) or it cannot serve. Ranks may get different results,
 *  so they must agree on one. Any thread. */
const struct cddpi_carrier_ops *cddpi_carrier_choose(const char *name);

/** Choose the best carrier that all ranks can use, among those that $CDDP_CARRIER allows.
 * Collective: every rank gets the same carrier or every rank fails. */
CDDP_CHECKED cddp_status cddpi_carrier_agree(const struct cddpi_exchange *exchange,
                                             const struct cddpi_carrier_ops **out);

/** Log a warning if CDDP_ENCRYPT=1 and @p carrier, which was requested by name, does not
 *  encrypt. */
void cddpi_carrier_warn(const struct cddpi_carrier_ops *carrier);

#endif
