/* divide.h - decides which layers of a model each pipeline stage gets. */
#ifndef CDDPI_PARALLEL_DIVIDE_H
#define CDDPI_PARALLEL_DIVIDE_H

#include "nn/model.h"

/** Divide layers among @p stages so that the cost of the most expensive stage is minimal. Pure
 *  function.
 *  @param costs   One per layer. 0: the previous layer does this layer's work, so no stage begins
 *                 with it.
 *  @param learns  One per layer: whether it has parameters. If there are enough such layers, each
 *                 stage gets at least one, even if another division would be cheaper. NULL: all
 *                 have parameters.
 *  @param out     One range per stage, in order; together all layers.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: there are fewer layers than stages; CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_divide_layers(const double *costs, const bool *learns, int layers,
                                             int stages, struct cddpi_layer_range *out);
/** The same, but @p spec tells which layers have parameters. */
CDDP_CHECKED cddp_status cddpi_divide_by_time(const struct cddpi_model_spec *spec,
                                              const double *costs, int layers, int stages,
                                              struct cddpi_layer_range *out);

/* What a stage holds in memory. */
struct cddpi_stage_memory {
    int parameter_copies; /* parameters, gradients and the optimizer's moments: how often the
                             parameters' size counts */
    int micro_batches;    /* at most this many are between forward and backward */
};

/** Divide layers among @p stages so that the largest memory use of a stage is minimal: the
 *  parameters times memory[stage].parameter_copies, and the outputs of the stage's layers for its
 *  micro-batches. Each stage begins with a layer that has parameters, but layers before the first
 *  such layer belong to the first stage.
 *  @return as cddpi_divide_layers(). */
CDDP_CHECKED cddp_status cddpi_divide_by_memory(const struct cddpi_layer_bytes *layers, int count,
                                                const struct cddpi_stage_memory *memory, int stages,
                                                struct cddpi_layer_range *out);
/** The memory of a stage of these layers in bytes, calculated as cddpi_divide_by_memory() does. */
size_t cddpi_stage_bytes(const struct cddpi_layer_bytes *layers, struct cddpi_layer_range range,
                         const struct cddpi_stage_memory *memory);

/** Make the stages that the user's layer names ask for.
 *  @param names   The first layer of each stage after the first one; @p count names.
 *  @param out     count + 1 ranges.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: no layer has that name, or the names are not in the layers'
 *          order. */
CDDP_CHECKED cddp_status cddpi_stages_from_names(const struct cddpi_model_spec *spec,
                                                 char *const *names, int count,
                                                 struct cddpi_layer_range *out);

/** Divide by measured time: each layer's forward and backward run here with @p samples samples of
 *  noise. The result differs between ranks and runs, so one rank must measure for all.
 *  @param spec  Of the whole model, for the processor or a device. */
CDDP_CHECKED cddp_status cddpi_stages_measured(const struct cddpi_model_spec *spec, int samples,
                                               int stages, struct cddpi_layer_range *out);

#endif
