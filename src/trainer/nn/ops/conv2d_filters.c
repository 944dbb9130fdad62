/* conv2d_filters.c - copies filters between the plain layout and those in which they are
 * multiplied. It is used where oneDNN has only a reference implementation for the copy, and where
 * filters are padded with zero channels.
 *
 * In a blocked layout, the offset of an element is a sum with one term for each of its indices. */
#include "nn/ops/conv2d.h"

#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/reduce.h"

#include <string.h>

static cddp_status make_places(struct cddpi_filters *filters, const dnnl_dim_t *sizes)
{
    size_t total = 0;
    size_t *places;

    for (int i = 0; i < CDDPI_FILTER_DIMS; i++) {
        filters->sizes[i] = (size_t)sizes[i];
        total += filters->sizes[i];
    }
    places = cddpi_zalloc_array(total, sizeof *places);
    CDDPI_TRY_MEMORY(places != NULL, "filters: no memory for %zu places", total);
    for (int i = 0; i < CDDPI_FILTER_DIMS; i++) {
        filters->places[i] = places;
        places += filters->sizes[i];
    }
    return CDDP_OK;
}

/* The term that index @p index of dimension @p dim adds to the offset: for each inner block of that
 * dimension, from the innermost on, the index within it; then the stride. */
static size_t place_of(const struct cddpi_md_blocks *blocks, int dim, size_t index)
{
    size_t place = 0;
    size_t step = 1;

    for (int i = blocks->inner_count - 1; i >= 0; i--) {
        size_t size = (size_t)blocks->inner_size[i];

        if (blocks->inner_dim[i] == dim) {
            place += index % size * step;
            index /= size;
        }
        step *= size;
    }
    return place + index * (size_t)blocks->strides[dim];
}

cddp_status cddpi_filters_init(struct cddpi_filters *filters, const dnnl_dim_t *sizes, cddpi_md md)
{
    struct cddpi_md_blocks blocks;
    dnnl_data_type_t type = cddpi_md_type(md);
    int without; /* number of dimensions that the layout lacks: with one group, its index is 0 */
    cddp_status status;

    *filters = (struct cddpi_filters){0};
    if (!cddpi_md_blocks(md, &blocks) || blocks.dims > CDDPI_FILTER_DIMS ||
        blocks.dims < CDDPI_FILTER_DIMS - (sizes[0] == 1) ||
        (type != dnnl_f32 && type != dnnl_bf16)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "filters: oneDNN has a layout of its own for them");
    }
    status = make_places(filters, sizes);
    filters->bytes = dnnl_memory_desc_get_size(md);
    filters->half = type == dnnl_bf16;
    without = CDDPI_FILTER_DIMS - blocks.dims;
    for (int i = without; status == CDDP_OK && i < CDDPI_FILTER_DIMS; i++) {
        filters->gaps |= blocks.padded[i - without] != sizes[i];
        for (size_t k = 0; k < filters->sizes[i]; k++) {
            filters->places[i][k] = place_of(&blocks, i - without, k);
        }
    }
    return status;
}

cddp_status cddpi_filters_init_last(struct cddpi_filters *filters, const dnnl_dim_t *sizes)
{
    const dnnl_dim_t filter = sizes[2] * sizes[3] * sizes[4];
    const dnnl_dim_t strides[] = {sizes[1] * filter, filter, 1, sizes[2] * sizes[4], sizes[2]};
    cddp_status status;

    *filters = (struct cddpi_filters){0};
    status = make_places(filters, sizes);
    filters->bytes = (size_t)(sizes[0] * strides[0]) * sizeof(float);
    for (int i = 0; status == CDDP_OK && i < CDDPI_FILTER_DIMS; i++) {
        for (size_t k = 0; k < filters->sizes[i]; k++) {
            filters->places[i][k] = k * (size_t)strides[i];
        }
    }
    return status;
}

/* Run @p body for each element, with `at`, the offset in the other layout of plain element `from`.
 */
#define FOR_EACH_ELEMENT(filters, at, from, body)                                                  \
    do {                                                                                           \
        const size_t *const *p_ = (const size_t *const *)(filters)->places;                        \
        size_t from = 0;                                                                           \
        size_t outputs_ = (filters)->sizes[1];                                                     \
        for (size_t o_ = 0; o_ < (filters)->sizes[0] * outputs_; o_++) {                           \
            for (size_t i_ = 0; i_ < (filters)->sizes[2]; i_++) {                                  \
                for (size_t h_ = 0; h_ < (filters)->sizes[3]; h_++) {                              \
                    size_t base_ = p_[0][o_ / outputs_] + p_[1][o_ % outputs_] + p_[2][i_] +       \
                                   p_[3][h_];                                                      \
                    for (size_t w_ = 0; w_ < (filters)->sizes[4]; w_++) {                          \
                        size_t at = base_ + p_[4][w_];                                             \
                        body;                                                                      \
                        from++;                                                                    \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    } while (0)

void cddpi_filters_pack(const struct cddpi_filters *filters, const float *plain, void *packed)
{
    if (filters->gaps) {
        memset(packed, 0, filters->bytes);
    }
    if (filters->half) {
        uint16_t *to = packed;

        FOR_EACH_ELEMENT(filters, at, from,
                         cddpi_cast(to + at, CDDP_BF16, plain + from, CDDP_F32, 1));
    } else {
        float *to = packed;

        FOR_EACH_ELEMENT(filters, at, from, to[at] = plain[from]);
    }
}

void cddpi_filters_unpack(const struct cddpi_filters *filters, const float *packed, float *plain)
{
    FOR_EACH_ELEMENT(filters, at, from, plain[from] = packed[at]);
}

void cddpi_filters_fini(struct cddpi_filters *filters)
{
    cddpi_free(filters->places[0]);
    *filters = (struct cddpi_filters){0};
}
