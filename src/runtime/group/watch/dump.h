/* dump.h - writes a group's most recent operations as JSON when the group fails or a signal
 * requests it. A group without a folder writes nothing.
 *
 * The folder is CDDP_DUMP_DIR, else CDDP_RUN_DIR, else the one given to cddpi_dump_set_folder().
 * The file in it is collectives/rank-R.json, with .part-N before ".json" for a part of the job's
 * group, and .generation-N for a restarted job. */
#ifndef CDDPI_GROUP_DUMP_H
#define CDDPI_GROUP_DUMP_H

#include "group/group.h"

#include <jansson.h>

/** Dump the group from now on, since it is complete. Installs the handler of CDDP_DUMP_SIGNAL. */
void cddpi_dump_publish(cddp_group *group);
/** Stop dumping the group, which ends. Waits for a dump in progress. */
void cddpi_dump_withdraw(cddp_group *group);
/** Write into @p folder, which is copied (NULL: nowhere), unless CDDP_DUMP_DIR names another. */
void cddpi_dump_set_folder(cddp_group *group, const char *folder);

/** Write the file because of @p failure; does so only for the group's first failure. Any thread. */
void cddpi_dump_failure(cddp_group *group, const struct cddpi_failure *failure);

/** Start a thread that waits for requests until the process ends. */
void cddpi_dump_expect_requests(void);
/** Request the files of all groups of this process. Safe in signal handlers. */
void cddpi_dump_request(void);

/** Build the beginning of dumps and traces: the rank, its machine and its clock. NULL: no memory.
 *  The caller owns the result. */
json_t *cddpi_dump_head(const cddp_group *group, const char *kind);
/** Build one operation's object; NULL: no memory. The caller owns the result. */
json_t *cddpi_dump_call(const struct cddpi_recorded_call *call);
/** Write @p json as the rank's file in subfolder @p below of the group's folder. Releases @p
 *  json. */
CDDP_CHECKED cddp_status cddpi_dump_put(cddp_group *group, json_t *json, const char *below);

#endif
