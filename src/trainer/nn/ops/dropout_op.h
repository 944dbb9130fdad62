/* dropout_op.h - the streams of dropout's random numbers. */
#ifndef CDDPI_NN_OPS_DROPOUT_H
#define CDDPI_NN_OPS_DROPOUT_H

#include "base/philox.h"
#include "nn/graph/graph.h"

/** The key for all samples of @p step in @p op. */
struct cddpi_philox cddpi_dropout_stream(const struct cddpi_model *model, const struct cddpi_op *op,
                                         uint64_t step);
/** The stream of one sample: key (2 words), purpose, index. */
void cddpi_dropout_sample(const struct cddpi_philox *step, uint64_t sample_id, uint32_t out[4]);

/** An element is dropped if its random word is below this. */
uint32_t cddpi_dropout_threshold(const struct cddpi_op *op);
/** The factor for the elements that are kept. */
float cddpi_dropout_scale(const struct cddpi_op *op);

#endif
