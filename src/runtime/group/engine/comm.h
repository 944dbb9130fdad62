/* comm.h - owns the thread that runs the queue on a rank with a spare core. */
#ifndef CDDPI_GROUP_COMM_H
#define CDDPI_GROUP_COMM_H

#include "group/engine/queue.h"

void *cddpi_comm_main(void *group);
void cddpi_comm_submit(cddp_group *group, struct cddp_work *work);
/** Wait for @p work until @p deadline_ns; 0: no deadline. Returns whether it is done. */
bool cddpi_comm_wait(struct cddpi_queue *queue, struct cddp_work *work, int64_t deadline_ns);

#endif
