/* placement.h - turns the layer names that users give into layers: into segments, which are runs of
 * consecutive layers on one device of the process, or into the layers that are copied to each
 * device; and plans what each device does with its segments, in order. Pure functions. */
#ifndef CDDPI_PARALLEL_PLACED_PLACEMENT_H
#define CDDPI_PARALLEL_PLACED_PLACEMENT_H

#include "nn/model.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/placed/placement.h"

/* Consecutive layers on one device. */
struct cddpi_segment {
    struct cddpi_layer_range layers;
    int device; /* its index among the process's devices */
};

/* The device of each layer, as far as it is assigned. */
struct cddpi_placement {
    const struct cddpi_model_spec *spec; /* borrowed */
    int layers;
    int *devices; /* one per layer; -1: not assigned yet */
};

/** Begin with no layer assigned. @p out: release with cddpi_placement_fini(), also after a
 *  failure. */
CDDP_CHECKED cddp_status cddpi_placement_init(const struct cddpi_model_spec *spec,
                                              struct cddpi_placement *out);
void cddpi_placement_fini(struct cddpi_placement *placement);

/** Assign the layers from @p first to @p last (both names; they may be equal) to @p device.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: no layer has such a name, a layer is assigned already, or @p
 *          last comes before @p first. */
CDDP_CHECKED cddp_status cddpi_placement_put(struct cddpi_placement *placement, const char *first,
                                             const char *last, int device);

/** Make the segments. An unassigned layer without parameters goes to the device of the layer before
 *  it; at the beginning of the model, to the device of the next assigned layer.
 *  @param out        In the order of the layers; release with cddpi_free().
 *  @return CDDP_OK; CDDP_ERR_CONFIG: a layer with parameters is not assigned (the text names it);
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_placement_segments(struct cddpi_placement *placement,
                                                  struct cddpi_segment **out, int *out_count);

/* The layers of replicated/, which have a copy on each device. */

/** Find the range of consecutive layers that @p names name. Layers without parameters between them
 *  and directly after them need no name.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: a name is not a layer's, a name is repeated, or a layer with
 *          parameters between two named ones is not named; CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_replicated_layers(const struct cddpi_model_spec *spec,
                                                 char *const *names, int name_count,
                                                 struct cddpi_layer_range *out);

enum cddpi_placed_passes { CDDPI_PLACED_FORWARD, CDDPI_PLACED_BACKWARD, CDDPI_PLACED_BOTH };

struct cddpi_placed_shape {
    const struct cddpi_segment *segments; /* in order */
    int segment_count, device_count;
    enum cddpi_pipeline_schedule
        schedule; /* for several micro-batches; zero_bubble: for one, too */
    int micro_batches;
};

/* In its actions, `chunk` is the index of a segment. */
struct cddpi_placed_plan {
    struct cddpi_pipeline_action **actions; /* one list per device ... */
    size_t *counts;                         /* ... and its length */
    int device_count;
    int micro_batches;
    int slots; /* slots per segment, at most */
};

/** Plan actions without circular waits. A forward waits for the forward of the segment before it, a
 *  backward for the backward of the segment after it; gradients of parameters wait for no other
 *  segment. The backwards of a segment are in the order of the micro-batches.
 *  @param out  Release with cddpi_placed_plan_fini().
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the schedule needs segment n on device n, or is interleaved;
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_placed_plan(const struct cddpi_placed_shape *shape,
                                           enum cddpi_placed_passes passes,
                                           struct cddpi_placed_plan *out);
void cddpi_placed_plan_fini(struct cddpi_placed_plan *plan); /* accepts a zeroed one */

#endif
