/* comm.h - the queue of a rank with a core to spare. */
#ifndef CDDPI_GROUP_COMM_H
#define CDDPI_GROUP_COMM_H

#include "group/engine/queue.h"

void *cddpi_comm_main(void *group);
void cddpi_comm_submit(cddp_group *group, struct cddp_work *work);
/** Whether @p work was done by @p deadline_ns; 0: there is none. */
bool cddpi_comm_wait(struct cddpi_queue *queue, struct cddp_work *work, int64_t deadline_ns);

#endif
