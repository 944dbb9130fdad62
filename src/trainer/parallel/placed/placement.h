/* placement.h - which layers of a model are on which of a process's devices: from what a user wrote
 * to segments, which are layers one after the other on one device. Pure functions. */
#ifndef CDDPI_PARALLEL_PLACED_PLACEMENT_H
#define CDDPI_PARALLEL_PLACED_PLACEMENT_H

#include "nn/model.h"

/* Some layers on a device. */
struct cddpi_segment {
    struct cddpi_layer_range layers;
    int device; /* its number among those of the process */
};

/* The place of every layer of a model, as far as it was said. */
struct cddpi_placement {
    const struct cddpi_model_spec *spec; /* borrowed */
    int layers;
    int *devices; /* one a layer; -1: not said yet */
};

/** Nothing is placed yet. @p out: cddpi_placement_fini() releases it, also after a failure. */
CDDP_CHECKED cddp_status cddpi_placement_init(const struct cddpi_model_spec *spec,
                                              struct cddpi_placement *out);
void cddpi_placement_fini(struct cddpi_placement *placement);

/** Place the layers from the first that @p first names to the last that @p last names (the same, or
 *  another) on @p device.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: no layer has such a name, one is placed already, or the last
 *          comes before the first. */
CDDP_CHECKED cddp_status cddpi_placement_put(struct cddpi_placement *placement, const char *first,
                                             const char *last, int device);

/** The segments: layers without parameters that were not placed go with the layer before them, at
 *  the beginning with the one after.
 *  @param out        In the order of the layers; release with cddpi_free().
 *  @return CDDP_OK; CDDP_ERR_CONFIG: a layer with parameters was not placed, by name;
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_placement_segments(struct cddpi_placement *placement,
                                                  struct cddpi_segment **out, int *out_count);

#endif
