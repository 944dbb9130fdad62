/* divide.h - which layers of a model each stage gets. */
#ifndef CDDPI_PARALLEL_DIVIDE_H
#define CDDPI_PARALLEL_DIVIDE_H

#include "nn/model.h"

/** Divide layers among @p stages so that the longest stage is as short as possible: a pure
 * function.
 *  @param costs   One a layer; 0: the layer before does its work, so no stage begins with it.
 *  @param learns  One a layer, whether it has parameters: where there are enough such layers, each
 *                 stage has one, however short another division would be. NULL: all have.
 *  @param out     One a stage, in order: together all layers.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: there are fewer layers than stages; CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_divide_layers(const double *costs, const bool *learns, int layers,
                                             int stages, struct cddpi_layer_range *out);
/** The same with the layers of @p spec, whose parameters it looks up. */
CDDP_CHECKED cddp_status cddpi_divide_by_time(const struct cddpi_model_spec *spec,
                                              const double *costs, int layers, int stages,
                                              struct cddpi_layer_range *out);

/* What a stage keeps of its parameters and of micro-batches. */
struct cddpi_stage_memory {
    int parameter_copies; /* parameters, gradients and the optimizer's moments */
    int micro_batches;    /* that are between forward and backward at once */
};

/** Divide layers among @p stages so that the stage that takes most memory takes as little as can
 *  be: parameters, as often as memory[stage] says, and the outputs of its layers. Each begins with
 *  a layer that has parameters, but for what comes before the first of them.
 *  @return as cddpi_divide_layers(). */
CDDP_CHECKED cddp_status cddpi_divide_by_memory(const struct cddpi_layer_bytes *layers, int count,
                                                const struct cddpi_stage_memory *memory, int stages,
                                                struct cddpi_layer_range *out);
/** What a stage of these layers takes in bytes, by the same measure. */
size_t cddpi_stage_bytes(const struct cddpi_layer_bytes *layers, struct cddpi_layer_range range,
                         const struct cddpi_stage_memory *memory);

/** Stages that begin where the user says.
 *  @param names   The first layer of each stage but the first; @p count of them.
 *  @param out     count + 1.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: no layer has that name, or one comes before its predecessor.
 */
CDDP_CHECKED cddp_status cddpi_stages_from_names(const struct cddpi_model_spec *spec,
                                                 char *const *names, int count,
                                                 struct cddpi_layer_range *out);

/** Divide by the time that each layer's forward and backward take here with @p samples samples of
 *  noise: not the same on every rank or in every run, so one rank measures for all.
 *  @param spec  Of the whole model, for the processor or a device. */
CDDP_CHECKED cddp_status cddpi_stages_measured(const struct cddpi_model_spec *spec, int samples,
                                               int stages, struct cddpi_layer_range *out);

#endif
