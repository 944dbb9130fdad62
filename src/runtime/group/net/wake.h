/* wake.h - ends the sleep of a rank. */
#ifndef CDDPI_GROUP_NET_WAKE_H
#define CDDPI_GROUP_NET_WAKE_H

#include "group/net/net.h"

/** End this rank's sleep. Any thread. */
void cddpi_net_wake(struct cddpi_backend *backend);
/** The same, called by the carrier. @p context is the rank's struct. */
void cddpi_net_wake_by_carrier(void *context);
/** Whether the ranks of this host have failed and other hosts do not know it yet. If true, the
 *  caller must notify them. @p context is the rank's struct. Any thread. */
bool cddpi_net_host_failed(void *context, struct cddpi_failure *out);

#endif
