/* data_ranks.h - ranks, as processes, that open data together. */
#ifndef CDDP_TESTS_SUPPORT_DATA_RANKS_H
#define CDDP_TESTS_SUPPORT_DATA_RANKS_H

#include "support/test.h"

#include <cddp/group.h>
#include <stdbool.h>

/* Which ranks believe that they share a machine. */
enum machines { TOGETHER, EACH_ALONE, FIRST_ALONE };

/* Join a group whose store is a file in @p folder. */
cddp_status support_join(const char *folder, enum machines machines, int rank, int world_size,
                         cddp_group **out);

/* Use a new store, so that the next ranks do not meet the previous ones. */
void support_new_store(const char *folder);

/* Whether the page that holds @p memory belongs to a file whose name contains @p name. */
bool support_is_mapped_from(const void *memory, const char *name);

#endif
