/* data_file_exchange.h - lets the ranks that open data compare what they found, and share the
 * contents that one rank of each machine has read. */
#ifndef CDDPI_DATA_FILES_EXCHANGE_H
#define CDDPI_DATA_FILES_EXCHANGE_H

#include "data/files/data_file.h"

#include <cddp/group.h>

enum { CDDPI_EXCHANGED_FILES_MAX = 2 };

/** Check that @p count numbers are the same on all ranks; if not, CDDP_ERR_MISMATCH on all of them.
 *  @param path   The file that the numbers describe, for the error text.
 *  @param names  What each number is, for the error text. */
CDDP_CHECKED cddp_status cddpi_agree_on(cddp_group *group, const char *path,
                                        const char *const *names, const uint64_t *numbers,
                                        size_t count);

/* A file's contents, or what was made of files, as this rank has them. */
struct cddpi_content {
    const char *path;    /* for error texts */
    const uint8_t *data; /* NULL: read the file @p path, if it can be read */
    uint64_t bytes;      /* size of @p data */
};

enum { CDDPI_SAMPLE_BYTES = 4096, CDDPI_SAMPLES = 1024, CDDPI_SAMPLES_OF_EACH = 8 };

/** How many samples represent each of @p count contents: CDDPI_SAMPLES divided among them, but at
 *  least CDDPI_SAMPLES_OF_EACH. They are few enough that a thousand files on a slow server take
 *  seconds. */
static inline uint64_t cddpi_samples_of_each(size_t count)
{
    return count > 0 && CDDPI_SAMPLES / count > CDDPI_SAMPLES_OF_EACH ? CDDPI_SAMPLES / count
                                                                      : CDDPI_SAMPLES_OF_EACH;
}

/** Entry @p i of @p count > 0 numbers that are spread evenly over [0, @p all), from the first to
 *  the last. */
static inline uint64_t cddpi_spread(uint64_t i, uint64_t count, uint64_t all)
{
    return count == all || count < 2
               ? i
               : (uint64_t)((double)i * (double)(all - 1) / (double)(count - 1));
}

/** Extend @p hash by @p bytes bytes. */
uint64_t cddpi_hash_bytes(uint64_t hash, const uint8_t *data, size_t bytes);
/** Extend @p hash by all of @p bytes bytes, or by @p samples samples of CDDPI_SAMPLE_BYTES (the
 * size of a disk read), spread evenly.
 *  @param data  NULL: read the bytes from @p fd. Returns false if that fails. */
bool cddpi_hash_samples(const uint8_t *data, int fd, uint64_t bytes, uint64_t samples,
                        uint64_t *hash);

/** Check that @p count contents are the same on all ranks, by their sizes and a digest: of all
 *  bytes of small ones, of samples of large ones. Collective; @p count is the same on all ranks. If
 *  they differ, CDDP_ERR_MISMATCH on all ranks, and the text names the file and the rank.
 *  @param between_machines  false: compare only the ranks of each machine, because machines may
 *                           hold the same data in different files, for example one gzip'd. */
CDDP_CHECKED cddp_status cddpi_agree_on_contents(cddp_group *group,
                                                 const struct cddpi_content *contents, size_t count,
                                                 bool between_machines);
/** The same for the contents of the @p count files @p paths. Ranks that cannot read a file are not
 *  compared. */
CDDP_CHECKED cddp_status cddpi_agree_on_files(cddp_group *group, char *const *paths, size_t count,
                                              bool between_machines);

/** Tell all ranks where this rank's @p count <= CDDPI_EXCHANGED_FILES_MAX @p data_files are (NULL:
 *  this rank has read none), and learn where the files are that a rank of this machine has read.
 *  @param out_found  Whether a rank of this machine has read them, so that @p out is set. If
 *                    several have, @p out is the lowest rank's. */
CDDP_CHECKED cddp_status cddpi_exchange_data_files(cddp_group *group,
                                                   const struct cddpi_data_file *data_files,
                                                   int count, bool *out_found,
                                                   struct cddpi_data_file_address *out);

/** Map the @p count files that another rank of this machine has opened, as
 *  cddpi_exchange_data_files() found them. If that is impossible, log why, and leave @p out closed.
 *  @param paths  Of the files; the first one is in the log. */
bool cddpi_map_exchanged(bool found, const struct cddpi_data_file_address *addresses,
                         const char *const *paths, int count, struct cddpi_data_file *out);

#endif
