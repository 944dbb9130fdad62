/* npy.h - reads NumPy's files in memory: .npy arrays, and the members of .npz archives. They come
 * from strangers: every length is checked, and nothing in them is executed. Any thread. */
#ifndef CDDPI_DATA_NPY_H
#define CDDPI_DATA_NPY_H

#include "data/files/data_file.h"
#include "data/numbers.h"

enum { CDDPI_NPY_DIMS = 32 }; /* NumPy's own limit of old */

struct cddpi_npy {
    struct cddpi_numbers numbers; /* in the memory that was read */
    int dims;                     /* >= 1 */
    uint64_t shape[CDDPI_NPY_DIMS];
    uint64_t row_elements; /* product of all dimensions but the first */
};

/** Read the array in the @p bytes bytes at @p data: formats 1.0, 2.0 and 3.0, in C order, of
 *  little-endian real numbers, integers or booleans. It has at least one row and one number, and
 *  ends where the memory does.
 *  @return CDDP_OK, CDDP_ERR_FORMAT; texts begin with the byte or what is wrong, without a path. */
CDDP_CHECKED cddp_status cddpi_npy_read(const uint8_t *data, size_t bytes, struct cddpi_npy *out);

/** Whether the contents begin as a zip archive, and so as an .npz file, does. */
bool cddpi_is_npz(const uint8_t *data, size_t bytes);

/* npz.c */
/** Find the array @p name (member "NAME.npy") of the archive @p archive.
 *  @param path      Of the archive, for error texts of memory.
 *  @param inflated  Closed; of a compressed member, it gets its contents. Release with
 *                   cddpi_data_file_close().
 *  @param out_data, out_bytes  The member's contents, in @p archive or in @p inflated.
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY, CDDP_ERR_IO; texts have no path, but for
 *          the last two. */
CDDP_CHECKED cddp_status cddpi_npz_find(const struct cddpi_data_file *archive, const char *path,
                                        const char *name, struct cddpi_data_file *inflated,
                                        const uint8_t **out_data, size_t *out_bytes);
/** The bytes of memory that cddpi_npz_find() takes for the array: 0 if it is not compressed. Texts
 * of failures have no path. */
CDDP_CHECKED cddp_status cddpi_npz_measure(const struct cddpi_data_file *archive, const char *name,
                                           uint64_t *out);

/* npy_files.c */
/** Open the array of samples in the .npy file @p path, or the array @p name of an archive.
 *  @param files  Two closed ones, which keep the numbers; release both, also after a failure.
 *  @param shape  Channels, height and width of a sample.
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_npy_open_samples(const char *path, const char *name,
                                                struct cddpi_data_file files[2],
                                                struct cddpi_npy *out, int shape[3]);

#endif
