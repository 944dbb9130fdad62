/* normalize.h - lets a run normalise its data by the statistics that it began with: they are found
 * once, and kept in its checkpoints. */
#ifndef CDDPI_TRAIN_NORMALIZE_H
#define CDDPI_TRAIN_NORMALIZE_H

#include <cddp/status.h>
#include <jansson.h>
#include <stdbool.h>

struct cddpi_normalization;
struct cddpi_trainer;

/** Rank 0: read what the checkpoint @p path, whose state.json says @p state, normalises by.
 *  @return CDDP_OK, CDDP_ERR_CONFIG (the run normalises otherwise), CDDP_ERR_FORMAT,
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_normalize_read(struct cddpi_trainer *trainer, const char *path,
                                              const json_t *state);

/** Read "subtract" and "divide" of @p state's "normalize" into @p out.
 *  @param path  Of the checkpoint, for error texts.
 *  @return CDDP_OK, CDDP_ERR_FORMAT. */
CDDP_CHECKED cddp_status cddpi_normalize_parse(const char *path, const json_t *state,
                                               struct cddpi_normalization *out);

/** Rank 0: put it into the state of a checkpoint, with the names of columns of CSV files. False: no
 *  memory. */
bool cddpi_normalize_write(const struct cddpi_trainer *trainer, json_t *state);

/** Find the statistics, unless the run goes on from a checkpoint, and use them on all ranks.
 *  Collective, after cddpi_trainer_resume() and before the first batch. */
CDDP_CHECKED cddp_status cddpi_trainer_normalize(struct cddpi_trainer *trainer);

#endif
