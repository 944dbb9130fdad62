/* group_wire.h - the queue of a group over several machines on a rank without a core to spare. */
#ifndef CDDPI_GROUP_WIRE_H
#define CDDPI_GROUP_WIRE_H

#include "group/engine/queue.h"

void *cddpi_wire_main(void *group);
/** Run @p work when no other operation is under way. */
void cddpi_wire_run(cddp_group *group, struct cddp_work *work);
void cddpi_wire_submit(cddp_group *group, struct cddp_work *work);
void cddpi_wire_wait(cddp_group *group, struct cddp_work *work, int64_t deadline_ns);

#endif
