/* filters.h - our own copies between plain filters and the layouts in which they are multiplied,
 * for those that oneDNN copies by a reference, and for filters with channels added that are zero.
 *
 * In a blocked layout the place of an element is the sum of one number for each of its indices. */
#ifndef CDDPI_NN_CPU_FILTERS_H
#define CDDPI_NN_CPU_FILTERS_H

#include "nn/cpu/dnnl.h"

enum { CDDPI_FILTER_DIMS = 5 };

struct cddpi_filters {
    /* of the plain ones: groups, and of each outputs, inputs, height, width */
    size_t sizes[CDDPI_FILTER_DIMS];
    size_t *places[CDDPI_FILTER_DIMS]; /* sizes[i] numbers each */
    size_t bytes;                      /* of the other layout, which has zeros between ... */
    bool gaps;                         /* ... if this is set */
    bool half;                         /* its elements are bf16 */
};

/** For the layout @p md, which may have more outputs and inputs than @p sizes says, and without
 *  groups may have four dimensions.
 *  @return CDDP_ERR_UNAVAILABLE: @p md is no blocked layout of float32 or bf16. */
CDDP_CHECKED cddp_status cddpi_filters_init(struct cddpi_filters *filters, const dnnl_dim_t *sizes,
                                            cddpi_md md);
/** For outputs x height x width x inputs, one group after the other. */
CDDP_CHECKED cddp_status cddpi_filters_init_last(struct cddpi_filters *filters,
                                                 const dnnl_dim_t *sizes);
void cddpi_filters_pack(const struct cddpi_filters *filters, const float *plain, void *packed);
/** @p packed is float32. */
void cddpi_filters_unpack(const struct cddpi_filters *filters, const float *packed, float *plain);
void cddpi_filters_fini(struct cddpi_filters *filters); /* accepts zeroed ones */

#endif
