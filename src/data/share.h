/* share.h - what ranks tell each other while they open data: what they found in it, and where the
 * one that read a file for its machine has put the contents. */
#ifndef CDDPI_DATA_SHARE_H
#define CDDPI_DATA_SHARE_H

#include "data/source.h"

#include <cddp/group.h>

enum { CDDPI_SHARED_FILES = 2 };

/** Check that @p count numbers are the same on all ranks, else CDDP_ERR_MISMATCH on all of them.
 *  @param path   Which file they are of, and
 *  @param names  what each of them is, for the text. */
CDDP_CHECKED cddp_status cddpi_agree_on(cddp_group *group, const char *path,
                                        const char *const *names, const uint64_t *numbers,
                                        size_t count);

/** Tell all ranks where this rank's @p count <= CDDPI_SHARED_FILES @p sources are (NULL: it has
 * read none), and learn where those are that were read on this machine.
 *  @param out_found  Whether a rank of this machine has read, and @p out is set; of several, the
 *                    lowest. */
CDDP_CHECKED cddp_status cddpi_share_sources(cddp_group *group, const struct cddpi_source *sources,
                                             int count, bool *out_found,
                                             struct cddpi_source_address *out);

#endif
