/* filters.h - copies filters between the plain layout and those in which they are multiplied. It is
 * used where oneDNN has only a reference implementation for the copy, and where filters are padded
 * with zero channels.
 *
 * In a blocked layout, the offset of an element is a sum with one term for each of its indices. */
#ifndef CDDPI_NN_CPU_FILTERS_H
#define CDDPI_NN_CPU_FILTERS_H

#include "nn/cpu/dnnl.h"

enum { CDDPI_FILTER_DIMS = 5 };

struct cddpi_filters {
    /* of the plain filters: groups; then for each group outputs, inputs, height, width */
    size_t sizes[CDDPI_FILTER_DIMS];
    /* offsets for each index: sizes[i] numbers for dimension i */
    size_t *places[CDDPI_FILTER_DIMS];
    size_t bytes; /* of the other layout, which may contain gaps of zeros ... */
    bool gaps;    /* ... if this is true */
    bool half;    /* its elements are bf16 */
};

/** Prepare copies to and from the layout @p md. It may have more outputs and inputs than @p sizes;
 *  without groups it may have four dimensions.
 *  @return CDDP_ERR_UNAVAILABLE: @p md is not a blocked layout of float32 or bf16. */
CDDP_CHECKED cddp_status cddpi_filters_init(struct cddpi_filters *filters, const dnnl_dim_t *sizes,
                                            cddpi_md md);
/** Prepare copies to and from outputs x height x width x inputs, one group after the other. */
CDDP_CHECKED cddp_status cddpi_filters_init_last(struct cddpi_filters *filters,
                                                 const dnnl_dim_t *sizes);
void cddpi_filters_pack(const struct cddpi_filters *filters, const float *plain, void *packed);
/** @p packed is float32. */
void cddpi_filters_unpack(const struct cddpi_filters *filters, const float *packed, float *plain);
void cddpi_filters_fini(struct cddpi_filters *filters); /* accepts zeroed ones */

#endif
