/* node_join.h - how a node that comes after an elastic job has begun is let in. */
#ifndef CDDPI_LAUNCHER_NODE_JOIN_H
#define CDDPI_LAUNCHER_NODE_JOIN_H

#include "launcher/nodes/node_link.h"
#include "launcher/nodes/node_place.h"
#include "launcher/nodes/node_record.h"

/** Whether the job, which has begun, has ended: its log has END. */
CDDP_CHECKED cddp_status cddpi_node_has_ended(struct cddpi_place *place, bool *out);

/** Compare this node's record @p own with that of node @p first, the first of the job, and publish
 *  JOIN.
 *  @return CDDP_ERR_ARGUMENT: they differ, as the text says, and the leader's user is told. */
CDDP_CHECKED cddp_status cddpi_node_join(struct cddpi_place *place,
                                         const struct cddpi_node_record *own, int first,
                                         struct cddpi_node_link *link);

#endif
