/* normalization.h - owns how numbers of samples are normalised: one pass over the training data
 * finds what is subtracted from each, and what divides it. */
#ifndef CDDPI_DATA_NORMALIZATION_H
#define CDDPI_DATA_NORMALIZATION_H

#include "data/dataset.h"

struct cddpi_rounds;
struct json_t;

#define CDDPI_NORMALIZE_MAP(X)                                                                     \
    X(CDDPI_NORMALIZE_NONE, "none")                                                                \
    X(CDDPI_NORMALIZE_STANDARD, "standard") /* mean 0, standard deviation 1 */                     \
    X(CDDPI_NORMALIZE_MINMAX, "minmax")     /* from 0 to 1 */
#define CDDPI_NORMALIZE_ID(id, word) id,
enum cddpi_normalize { CDDPI_NORMALIZE_MAP(CDDPI_NORMALIZE_ID) };

struct cddpi_normalization {
    size_t count;    /* parts of a sample that have their own: its channels, or, if it is one row of
                        numbers, each of them */
    float *subtract; /* from the numbers of a part */
    float *divide;   /* what is left; > 0 */
};

/** How many parts the samples of @p dataset have. */
size_t cddpi_normalization_count(const struct cddpi_dataset *dataset);

/** A normalization of @p count parts that changes nothing. Release with
 *  cddpi_normalization_destroy(), which accepts NULL. NULL: no memory, and the error text is set.
 */
struct cddpi_normalization *cddpi_normalization_create(size_t count);
void cddpi_normalization_destroy(struct cddpi_normalization *normalization);

/** Find the numbers in one pass over all samples of @p dataset, in an order that depends on nothing
 *  else. Parts of one value only are divided by 1. Categories of CSV files (dataset->columns) stay
 * 0 and 1.
 *  @param rounds  Of the ranks that wait for this one; NULL: none.
 *  @param out     Of cddpi_normalization_count() parts.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_FORMAT (a number is not finite, or a
 *          range is not), CDDP_ERR_IO; what cddpi_rounds_tick() returns. */
CDDP_CHECKED cddp_status cddpi_normalization_find(const struct cddpi_dataset *dataset,
                                                  enum cddpi_normalize type,
                                                  struct cddpi_rounds *rounds,
                                                  struct cddpi_normalization *out);

/** Read "subtract" and "divide" of "normalize" in @p state, a checkpoint's.
 *  @param path  Of the checkpoint, for error texts.
 *  @return CDDP_OK, CDDP_ERR_FORMAT. */
CDDP_CHECKED cddp_status cddpi_normalization_parse(const char *path, const struct json_t *state,
                                                   struct cddpi_normalization *out);

/** Normalise a sample of @p elements numbers, a multiple of the parts. Any thread. */
void cddpi_normalization_apply(const struct cddpi_normalization *normalization, size_t elements,
                               float *sample);

#endif
