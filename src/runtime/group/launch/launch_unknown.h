/* launch_unknown.h - variables that look like a launcher's whom the table does not have. */
#ifndef CDDPI_GROUP_LAUNCH_UNKNOWN_H
#define CDDPI_GROUP_LAUNCH_UNKNOWN_H

#include <stdbool.h>
#include <stddef.h>

/** Whether the environment has the number of a process or machine and how many there are, more than
 *  1, under names of one launcher: HOROVOD_RANK=0 and HOROVOD_SIZE=2, NODE_RANK=1 and NNODES=2.
 *  @param out  "HOROVOD_RANK=0 and HOROVOD_SIZE=2". */
bool cddpi_launch_find_unknown(char *out, size_t bytes);

#endif
