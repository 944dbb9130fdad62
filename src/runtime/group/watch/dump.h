/* dump.h - writes a group's last operations as JSON: when the group fails, and when a signal asks
 * for it. A group without a folder writes nothing.
 *
 * The folder is CDDP_DUMP_DIR, else CDDP_RUN_DIR, else what cddpi_dump_set_folder() says; the file
 * in it collectives/rank-R.json, with .part-N before the end for a part of the job's group and
 * .generation-N for a job that was restarted. */
#ifndef CDDPI_GROUP_DUMP_H
#define CDDPI_GROUP_DUMP_H

#include "group/group.h"

#include <jansson.h>

/** The group is complete: from now on it is dumped. Lets CDDP_DUMP_SIGNAL ask for dumps. */
void cddpi_dump_publish(cddp_group *group);
/** The group ends; waits for a dump that is under way. */
void cddpi_dump_withdraw(cddp_group *group);
/** Write into @p folder, which is copied (NULL: nowhere), unless CDDP_DUMP_DIR names another. */
void cddpi_dump_set_folder(cddp_group *group, const char *folder);

/** Write the file because of @p failure: of a group only the first time. Any thread. */
void cddpi_dump_failure(cddp_group *group, const struct cddpi_failure *failure);

/** Let a thread wait for requests, as long as the process lives. */
void cddpi_dump_expect_requests(void);
/** Ask for the files of all groups of this process. For signal handlers, too. */
void cddpi_dump_request(void);

/** Who the group's rank is, on which machine, and what its clock shows: the beginning of dumps and
 *  traces. NULL: no memory. The caller's. */
json_t *cddpi_dump_head(const cddp_group *group, const char *kind);
/** One operation; NULL: no memory. The caller's. */
json_t *cddpi_dump_call(const struct cddpi_recorded_call *call);
/** @p json, which is released, becomes the rank's file in @p below of the group's folder. */
CDDP_CHECKED cddp_status cddpi_dump_put(cddp_group *group, json_t *json, const char *below);

#endif
