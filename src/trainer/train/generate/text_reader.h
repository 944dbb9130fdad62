/* text_reader.h - reads a model's logits for the token that follows a text. */
#ifndef CDDPI_TRAIN_GENERATE_TEXT_READER_H
#define CDDPI_TRAIN_GENERATE_TEXT_READER_H

#include "device/device.h"
#include "nn/model.h"

/* The arguments of a model call. Tokens and labels are in the model's memory. */
struct cddpi_text_reader {
    struct cddpi_model *model;   /* borrowed */
    struct cddpi_device *device; /* borrowed */
    int32_t *tokens;             /* on a device; NULL: use the generator's own */
    int32_t *labels;             /* zeros: the loss is not used */
    float *logits;
    int context, vocabulary;
    uint64_t step;
};

/** @param out  Release with cddpi_text_reader_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_text_reader_init(struct cddpi_text_reader *out,
                                                struct cddpi_model *model,
                                                struct cddpi_device *device, int context,
                                                int vocabulary, uint64_t step);
void cddpi_text_reader_fini(struct cddpi_text_reader *reader);
/** A cddpi_logits_fn; @p reader is one of these. */
CDDP_CHECKED cddp_status cddpi_text_reader_logits(void *reader, const int32_t *tokens, int last,
                                                  const float **out);

#endif
