/* group_wire.h - owns the queue of a group over several machines, on a rank without a spare
 * core. */
#ifndef CDDPI_GROUP_WIRE_H
#define CDDPI_GROUP_WIRE_H

#include "group/engine/queue.h"

void *cddpi_wire_main(void *group);
/** Run @p work when no other operation is in progress. */
void cddpi_wire_run(cddp_group *group, struct cddp_work *work);
void cddpi_wire_submit(cddp_group *group, struct cddp_work *work);
void cddpi_wire_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns);

#endif
