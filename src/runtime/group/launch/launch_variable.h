/* launch_variable.h - reads one variable, for the files that read launchers' variables
 * (launch_*.c), and finds variables that look like those of a launcher that is not in the table. */
#ifndef CDDPI_GROUP_LAUNCH_VARIABLE_H
#define CDDPI_GROUP_LAUNCH_VARIABLE_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/** The variable's value; NULL when it is not set or is set to "". */
const char *cddpi_launch_variable(const char *name);

/** Whether it has a value. */
static inline bool cddpi_launch_has(const char *name)
{
    return cddpi_launch_variable(name) != NULL;
}

/** The same as a whole number in [@p low, @p high]. The text of CDDP_ERR_ARGUMENT names @p name and
 *  @p origin, the launcher that sets it. */
cddp_status cddpi_launch_number(const char *origin, const char *name, int64_t low, int64_t high,
                                int *out);

/** The same for a port. @p name ends with "_PORT". If the value is the URL of a Service, which
 *  Kubernetes sets, the error text says so. */
cddp_status cddpi_launch_port(const char *origin, const char *name, int *out);

/** Whether one launcher's variables give the number of a process or machine and a count above 1:
 *  HOROVOD_RANK=0 and HOROVOD_SIZE=2, NODE_RANK=1 and NNODES=2.
 *  @param out  "HOROVOD_RANK=0 and HOROVOD_SIZE=2". */
bool cddpi_launch_find_unknown(char *out, size_t bytes);

#endif
