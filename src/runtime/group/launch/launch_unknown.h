/* launch_unknown.h - finds variables that look like those of a launcher that is not in the
 * table. */
#ifndef CDDPI_GROUP_LAUNCH_UNKNOWN_H
#define CDDPI_GROUP_LAUNCH_UNKNOWN_H

#include <stdbool.h>
#include <stddef.h>

/** Whether one launcher's variables give the number of a process or machine and a count above 1:
 *  HOROVOD_RANK=0 and HOROVOD_SIZE=2, NODE_RANK=1 and NNODES=2.
 *  @param out  "HOROVOD_RANK=0 and HOROVOD_SIZE=2". */
bool cddpi_launch_find_unknown(char *out, size_t bytes);

#endif
