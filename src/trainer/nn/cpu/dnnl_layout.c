/* dnnl_layout.c - owns tensor layouts for oneDNN, version 2 or 3. */
#include "base/alloc.h"
#include "nn/cpu/dnnl.h"

#include <string.h>

struct cddpi_held_md {
    struct cddpi_held_md *next;
    dnnl_memory_desc_t layout;
};

#if DNNL_VERSION_MAJOR >= 3

#define MAKE_TAGGED dnnl_memory_desc_create_with_tag
#define MAKE_STRIDED dnnl_memory_desc_create_with_strides

static cddpi_md inside(const struct cddpi_held_md *held)
{
    return held->layout;
}

static void release(struct cddpi_held_md *held)
{
    dnnl_memory_desc_destroy(held->layout);
}

dnnl_data_type_t cddpi_md_type(cddpi_md layout)
{
    dnnl_data_type_t type = dnnl_data_type_undef;

    (void)dnnl_memory_desc_query(layout, dnnl_query_data_type, &type);
    return type;
}

/* The sizes of a blocked image; NULL: the layout is something else. */
static const dnnl_dim_t *sizes_of(cddpi_md layout)
{
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    const dnnl_dims_t *sizes = NULL;
    int dims = 0;

    if (dnnl_memory_desc_query(layout, dnnl_query_ndims_s32, &dims) != dnnl_success || dims != 4 ||
        dnnl_memory_desc_query(layout, dnnl_query_format_kind, &kind) != dnnl_success ||
        kind != dnnl_blocked ||
        dnnl_memory_desc_query(layout, dnnl_query_dims, &sizes) != dnnl_success) {
        return NULL;
    }
    return *sizes;
}

bool cddpi_md_blocks(cddpi_md layout, struct cddpi_md_blocks *out)
{
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    const dnnl_dims_t *padded = NULL;
    const dnnl_dims_t *strides = NULL;
    const dnnl_dims_t *inner_dim = NULL;
    const dnnl_dims_t *inner_size = NULL;

    memset(out, 0, sizeof *out);
    if (dnnl_memory_desc_query(layout, dnnl_query_format_kind, &kind) != dnnl_success ||
        kind != dnnl_blocked ||
        dnnl_memory_desc_query(layout, dnnl_query_ndims_s32, &out->dims) != dnnl_success ||
        dnnl_memory_desc_query(layout, dnnl_query_padded_dims, &padded) != dnnl_success ||
        dnnl_memory_desc_query(layout, dnnl_query_strides, &strides) != dnnl_success ||
        dnnl_memory_desc_query(layout, dnnl_query_inner_nblks_s32, &out->inner_count) !=
            dnnl_success) {
        return false;
    }
    memcpy(out->padded, *padded, (size_t)out->dims * sizeof **padded);
    memcpy(out->strides, *strides, (size_t)out->dims * sizeof **strides);
    if (out->inner_count == 0) {
        return true;
    }
    if (dnnl_memory_desc_query(layout, dnnl_query_inner_idxs, &inner_dim) != dnnl_success ||
        dnnl_memory_desc_query(layout, dnnl_query_inner_blks, &inner_size) != dnnl_success) {
        return false;
    }
    memcpy(out->inner_dim, *inner_dim, (size_t)out->inner_count * sizeof **inner_dim);
    memcpy(out->inner_size, *inner_size, (size_t)out->inner_count * sizeof **inner_size);
    return true;
}

#else

#define MAKE_TAGGED dnnl_memory_desc_init_by_tag
#define MAKE_STRIDED dnnl_memory_desc_init_by_strides

static cddpi_md inside(const struct cddpi_held_md *held)
{
    return &held->layout;
}

static void release(struct cddpi_held_md *held)
{
    (void)held;
}

dnnl_data_type_t cddpi_md_type(cddpi_md layout)
{
    return layout->data_type;
}

static const dnnl_dim_t *sizes_of(cddpi_md layout)
{
    return layout->ndims == 4 && layout->format_kind == dnnl_blocked ? layout->dims : NULL;
}

bool cddpi_md_blocks(cddpi_md layout, struct cddpi_md_blocks *out)
{
    const dnnl_blocking_desc_t *blocking = &layout->format_desc.blocking;

    memset(out, 0, sizeof *out);
    if (layout->format_kind != dnnl_blocked || layout->extra.flags != dnnl_memory_extra_flag_none) {
        return false;
    }
    out->dims = layout->ndims;
    out->inner_count = blocking->inner_nblks;
    memcpy(out->padded, layout->padded_dims, sizeof out->padded);
    memcpy(out->strides, blocking->strides, sizeof out->strides);
    memcpy(out->inner_dim, blocking->inner_idxs, sizeof out->inner_dim);
    memcpy(out->inner_size, blocking->inner_blks, sizeof out->inner_size);
    return true;
}

#endif

void cddpi_mds_drop(struct cddpi_mds *holder)
{
    while (holder->last != NULL) {
        struct cddpi_held_md *held = holder->last;

        holder->last = held->next;
        release(held);
        cddpi_free(held);
    }
}

/* Add @p held to @p holder, if it was allocated and created. */
static cddpi_md hold(struct cddpi_mds *holder, struct cddpi_held_md *held, dnnl_status_t status)
{
    if (held == NULL || status != dnnl_success) {
        holder->failed = true;
        cddpi_free(held);
        return NULL;
    }
    held->next = holder->last;
    holder->last = held;
    return inside(held);
}

cddpi_md cddpi_md_tagged(struct cddpi_mds *holder, int dims, const dnnl_dim_t *shape,
                         dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    struct cddpi_held_md *held = cddpi_zalloc(sizeof *held);
    dnnl_dims_t sizes = {0};

    memcpy(sizes, shape, (size_t)dims * sizeof *sizes);
    return hold(holder, held,
                held != NULL ? MAKE_TAGGED(&held->layout, dims, sizes, type, tag)
                             : dnnl_out_of_memory);
}

cddpi_md cddpi_md_strided(struct cddpi_mds *holder, int dims, const dnnl_dim_t *shape,
                          const dnnl_dim_t *strides)
{
    struct cddpi_held_md *held = cddpi_zalloc(sizeof *held);
    dnnl_dims_t sizes = {0};
    dnnl_dims_t steps = {0};

    memcpy(sizes, shape, (size_t)dims * sizeof *sizes);
    memcpy(steps, strides, (size_t)dims * sizeof *steps);
    return hold(holder, held,
                held != NULL ? MAKE_STRIDED(&held->layout, dims, sizes, dnnl_f32, steps)
                             : dnnl_out_of_memory);
}

cddpi_md cddpi_md_plain(struct cddpi_mds *holder, int dims, const dnnl_dim_t *shape)
{
    dnnl_dims_t strides = {0};
    dnnl_dim_t stride = 1;

    for (int i = dims - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape[i];
    }
    return cddpi_md_strided(holder, dims, shape, strides);
}

static cddpi_md image(struct cddpi_mds *holder, int count, const struct cddpi_shape *shape,
                      dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    const dnnl_dim_t sizes[] = {count, shape->channels, shape->height, shape->width};

    return cddpi_md_tagged(holder, 4, sizes, type, tag);
}

static dnnl_format_tag_t tag_of(const struct cddpi_shape *shape, int block)
{
    bool point = shape->height == 1 && shape->width == 1; /* then nchw and nhwc are the same */

    if (block == 16 || block == 8) {
        return block == 16 ? dnnl_nChw16c : dnnl_nChw8c;
    }
    return (block == shape->channels && block > 1) || point ? dnnl_nhwc : dnnl_nchw;
}

cddpi_md cddpi_md_image(struct cddpi_mds *holder, int count, const struct cddpi_shape *shape,
                        int block)
{
    return image(holder, count, shape, dnnl_f32, tag_of(shape, block));
}

cddpi_md cddpi_md_channels_last(struct cddpi_mds *holder, int count,
                                const struct cddpi_shape *shape)
{
    return image(holder, count, shape, dnnl_f32, dnnl_nhwc);
}

cddpi_md cddpi_md_any_image(struct cddpi_mds *holder, int count, const struct cddpi_shape *shape)
{
    return image(holder, count, shape, dnnl_f32, dnnl_format_tag_any);
}

/* Which of our image layouts @p layout is: its tag, shape and block; block 0: another layout. */
static int recognise(cddpi_md layout, struct cddpi_shape *shape, dnnl_format_tag_t *tag)
{
    static const int blocks[] = {1, 8, 16, 0 /* block = channels */};
    const dnnl_dim_t *sizes = layout != NULL ? sizes_of(layout) : NULL;
    int found = 0;

    for (size_t i = 0; sizes != NULL && found == 0 && i < sizeof blocks / sizeof *blocks; i++) {
        struct cddpi_held_md ours;

        *shape = (struct cddpi_shape){
            .channels = (int)sizes[1], .height = (int)sizes[2], .width = (int)sizes[3]};
        *tag = blocks[i] > 0 ? tag_of(shape, blocks[i]) : dnnl_nhwc;
        memset(&ours, 0, sizeof ours);
        if (MAKE_TAGGED(&ours.layout, 4, sizes, cddpi_md_type(layout), *tag) == dnnl_success) {
            if (dnnl_memory_desc_equal(layout, inside(&ours))) {
                found = blocks[i] > 0 ? blocks[i] : shape->channels;
            }
            release(&ours);
        }
    }
    return found;
}

int cddpi_md_block(cddpi_md layout)
{
    struct cddpi_shape shape;
    dnnl_format_tag_t tag;

    return recognise(layout, &shape, &tag);
}

cddpi_md cddpi_md_typed(struct cddpi_mds *holder, cddpi_md layout, dnnl_data_type_t type)
{
    struct cddpi_shape shape;
    dnnl_format_tag_t tag;

    return recognise(layout, &shape, &tag) > 0
               ? image(holder, (int)sizes_of(layout)[0], &shape, type, tag)
               : NULL;
}

cddpi_md cddpi_md_counted(struct cddpi_mds *holder, cddpi_md layout, int count)
{
    struct cddpi_shape shape;
    dnnl_format_tag_t tag;

    return recognise(layout, &shape, &tag) > 0
               ? image(holder, count, &shape, cddpi_md_type(layout), tag)
               : NULL;
}
