/* infer.h - models that compute and do not train: what <cddp/model.h> is made of, and the entry for
 * cddp-train, which has read its configuration already. */
#ifndef CDDPI_INFER_INFER_H
#define CDDPI_INFER_INFER_H

#include "base/handle.h"
#include "data/batch.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/model.h"
#include "train/config/config.h"

#include <cddp/model.h>
#include <jansson.h>

/* What a model takes, and what it gives. */
enum cddpi_infer_kind {
    CDDPI_INFER_IMAGES,
    CDDPI_INFER_TOKENS,
    CDDPI_INFER_LATENT,
    CDDPI_INFER_NUMBERS
};

struct cddp_model {
    struct cddpi_handle handle;
    const struct cddpi_config *config; /* own, or borrowed from cddp-train */
    struct cddpi_config own;
    cddp_model_options options; /* defaults filled in; its pointers are not kept */
    enum cddpi_infer_kind kind;
    char *path; /* where the weights came from */
    uint64_t step;
    struct cddpi_device *device;
    struct cddpi_model *model;
    struct cddpi_tokenizer *tokenizer; /* NULL: texts are numbers of tokens */
    struct cddpi_dataset data;         /* only shapes, no samples */
    struct cddpi_layer *layers;        /* model.layers without sync */
    struct cddpi_batch_maker maker;    /* its tables normalise bytes */
    int latent;
    size_t sample_elements; /* of an input's sample */
    size_t output_elements; /* of an output's sample */
    /* Room for max_batch samples in host memory, and the device's if that is another. */
    void *input;
    uint64_t *ids;
    void *device_input;
    int32_t *labels; /* zeros in the device's memory: the loss is not used */
    struct cddpi_normalization *normalization; /* of numbers; NULL: none */
    json_t *columns;                           /* of CSV files, as in state.json; NULL: none */
    float *missing; /* what numbers get that are NaN; NULL: no number may be */
    float *images;  /* what a generator makes, in the device's memory */
    struct cddpi_image_scratch scratch;
};

/** Open the model of @p config, which outlives it, with weights from a checkpoint.
 *  @param checkpoint  A checkpoint's folder; NULL: the weights are in the file @p weights.
 *  @param options     As in cddp_model_open(); the configuration is not read from it. */
CDDP_CHECKED cddp_status cddpi_infer_open(const struct cddpi_config *config, const char *checkpoint,
                                          const char *weights, const cddp_model_options *options,
                                          cddp_model **out);

/* Between the files of this folder. */

/** Find out what a model of numbers takes. @p state: of its checkpoint; NULL: it has none. */
CDDP_CHECKED cddp_status cddpi_infer_describe_numbers(struct cddp_model *model,
                                                      const json_t *state);

/** Build the model of model->config and load its weights. */
CDDP_CHECKED cddp_status cddpi_infer_complete(struct cddp_model *model, const char *checkpoint,
                                              const char *weights);

/** Enter @p model for the public call @p call, which computes and so may not be nested. */
CDDP_CHECKED cddp_status cddpi_infer_enter(struct cddp_model *model, const char *call);

/* Calls compute on the model's threads; the caller's team is as before afterwards. */
size_t cddpi_infer_begin(const struct cddp_model *model);
void cddpi_infer_end(size_t team);

#endif
