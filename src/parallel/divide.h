/* divide.h - which layers of a model each stage gets. */
#ifndef CDDPI_PARALLEL_DIVIDE_H
#define CDDPI_PARALLEL_DIVIDE_H

#include "nn/model.h"

/** Divide layers among @p stages so that the longest stage is as short as can be: a pure function.
 *  @param costs   One a layer; 0: the layer before does its work, so no stage begins with it.
 *  @param out     One a stage, in order: together all layers.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: there are fewer layers than stages; CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_divide_layers(const double *costs, int layers, int stages,
                                             struct cddpi_layer_range *out);

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
