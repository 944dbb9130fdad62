/* data_file_exchange.h - what ranks tell each other while they open data: what they found in it,
 * and where the one that read a file for its machine has put the contents. */
#ifndef CDDPI_DATA_FILES_EXCHANGE_H
#define CDDPI_DATA_FILES_EXCHANGE_H

#include "data/files/data_file.h"

#include <cddp/group.h>

enum { CDDPI_EXCHANGED_FILES_MAX = 2 };

/** Check that @p count numbers are the same on all ranks, else CDDP_ERR_MISMATCH on all of them.
 *  @param path   Which file they are of, and
 *  @param names  what each of them is, for the text. */
CDDP_CHECKED cddp_status cddpi_agree_on(cddp_group *group, const char *path,
                                        const char *const *names, const uint64_t *numbers,
                                        size_t count);

/* A file, or what was made of files, as this rank has it. */
struct cddpi_content {
    const char *path;    /* for texts of failures */
    const uint8_t *data; /* NULL: what lies in the file @p path, if it can be read */
    uint64_t bytes;      /* of @p data */
};

/** Check that @p count contents (as many on all ranks) are the same everywhere, as far as their
 * sizes and a digest tell: of all bytes of small ones, of samples of large ones. Collective; else
 *  CDDP_ERR_MISMATCH on all ranks, with a text that names the file and the rank.
 *  @param between_machines  false: only ranks that share a machine are, as machines may hold the
 *                           same data in files that differ: one gzip'd, say. */
CDDP_CHECKED cddp_status cddpi_agree_on_contents(cddp_group *group,
                                                 const struct cddpi_content *contents, size_t count,
                                                 bool between_machines);
/** The same for what lies in the @p count files @p paths; ranks that cannot read one have
 *  no say. */
CDDP_CHECKED cddp_status cddpi_agree_on_files(cddp_group *group, char *const *paths, size_t count,
                                              bool between_machines);

/** Tell all ranks where this rank's @p count <= CDDPI_EXCHANGED_FILES_MAX @p data_files are (NULL:
 * it has read none), and learn where those are that were read on this machine.
 *  @param out_found  Whether a rank of this machine has read, and @p out is set; of several, the
 *                    lowest. */
CDDP_CHECKED cddp_status cddpi_exchange_data_files(cddp_group *group,
                                                   const struct cddpi_data_file *data_files,
                                                   int count, bool *out_found,
                                                   struct cddpi_data_file_address *out);

#endif
