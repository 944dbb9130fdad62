/* dnnl.h - the part of oneDNN (engine, layouts, primitives) that ops use. oneDNN is version 2
 * (Debian 12) or 3, which describe layouts and primitives differently.
 *
 * Only ops that run on oneDNN include <oneapi/dnnl/dnnl.h>, and they do so through this file. */
#ifndef CDDPI_NN_CPU_DNNL_H
#define CDDPI_NN_CPU_DNNL_H

#include "nn/plan/model_plan.h"

#include <oneapi/dnnl/dnnl.h>
#include <string.h>

/* A tensor's layout, with its type: a struct in version 2, a handle in version 3. It belongs to its
 * holder (struct cddpi_mds), or to the primitive that it was queried from. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t cddpi_md;
#else
typedef const dnnl_memory_desc_t *cddpi_md;
#endif

struct cddpi_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

enum { CDDPI_PRIMITIVE_ARGS = 12 };

/* A primitive with memory objects for its arguments. Each run sets their pointers. */
struct cddpi_primitive {
    struct cddpi_dnnl *dnnl;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t handle; /* NULL: not created */
    int arg_count;
    dnnl_exec_arg_t args[CDDPI_PRIMITIVE_ARGS];
    void *set[CDDPI_PRIMITIVE_ARGS]; /* their current pointers */
    int scratch;                     /* buffer; -1: no scratch memory */
};

/** Limit oneDNN to the instructions that CDDP_MAX_ISA allows. Call this before any other function
 *  of oneDNN. Any thread. */
void cddpi_dnnl_limit(void);

/** The model's engine and stream, created by the first call. Starting oneDNN takes time, so a model
 *  without images never does it. */
CDDP_CHECKED cddp_status cddpi_dnnl_get(struct cddpi_model *model, struct cddpi_dnnl **out);
void cddpi_dnnl_destroy(struct cddpi_dnnl *dnnl); /* accepts NULL */

/** Translate an error of oneDNN into ours: "@p what: oneDNN says ...". */
CDDP_CHECKED cddp_status cddpi_dnnl_check(dnnl_status_t status, const char *what);

/* A new layout is added to @p holder, and cddpi_mds_drop() releases it; each plan has a holder.
 * NULL: out of memory. The holder remembers that, so that the plan fails in the end. See
 * dnnl_layout.c. */

/** A layout with @p dims dimensions in oneDNN's format @p tag; with the tag `any`, oneDNN chooses.
 */
cddpi_md cddpi_md_tagged(struct cddpi_mds *holder, int dims, const dnnl_dim_t *shape,
                         dnnl_data_type_t type, dnnl_format_tag_t tag);
/** A layout with the strides @p strides, in elements. */
cddpi_md cddpi_md_strided(struct cddpi_mds *holder, int dims, const dnnl_dim_t *shape,
                          const dnnl_dim_t *strides);
/** A row-major tensor of float32. */
cddpi_md cddpi_md_plain(struct cddpi_mds *holder, int dims, const dnnl_dim_t *shape);
/** Samples x shape of float32 in our layout with @p block. */
cddpi_md cddpi_md_image(struct cddpi_mds *holder, int count, const struct cddpi_shape *shape,
                        int block);
/** N x H x W x C, i.e. block = channels. If the channels are exactly one block, the tag has another
 *  name. */
cddpi_md cddpi_md_channels_last(struct cddpi_mds *holder, int count,
                                const struct cddpi_shape *shape);
/** The same shape, with a layout that oneDNN chooses. */
cddpi_md cddpi_md_any_image(struct cddpi_mds *holder, int count, const struct cddpi_shape *shape);
/** @p layout with another type. @p layout is one of our image layouts or comes from
 *  cddpi_md_channels_last(). */
cddpi_md cddpi_md_typed(struct cddpi_mds *holder, cddpi_md layout, dnnl_data_type_t type);
/** @p layout with @p count samples. */
cddpi_md cddpi_md_counted(struct cddpi_mds *holder, cddpi_md layout, int count);
dnnl_data_type_t cddpi_md_type(cddpi_md layout);
/** The block size of @p layout if it is one of our image layouts, of any type; otherwise 0. */
int cddpi_md_block(cddpi_md layout);
void cddpi_mds_drop(struct cddpi_mds *holder);

/* The order of the elements in a blocked layout. */
struct cddpi_md_blocks {
    int dims;
    dnnl_dim_t padded[DNNL_MAX_NDIMS], strides[DNNL_MAX_NDIMS];
    int inner_count; /* inner blocks, the innermost last: which dimension each divides, and its size
                      */
    dnnl_dim_t inner_dim[DNNL_MAX_NDIMS], inner_size[DNNL_MAX_NDIMS];
};
/** False: @p layout is not blocked. */
bool cddpi_md_blocks(cddpi_md layout, struct cddpi_md_blocks *out);

/* What a primitive does with its result: first ADD (to what the destination holds), then RELU. */
enum cddpi_post { CDDPI_POST_RELU = 1, CDDPI_POST_ADD = 2 };

enum cddpi_dnnl_kind {
    CDDPI_DNNL_CONV,
    CDDPI_DNNL_CONV_DATA,    /* gradient of the input */
    CDDPI_DNNL_CONV_WEIGHTS, /* gradients of weight and bias */
    CDDPI_DNNL_POOL,
    CDDPI_DNNL_POOL_DATA,
    CDDPI_DNNL_MATMUL
};

struct cddpi_dnnl_window {
    dnnl_dims_t strides, kernel, before, after;
};

/* The primitive that an op asks for. For gradients, the layouts are those of the gradients. */
struct cddpi_dnnl_request {
    enum cddpi_dnnl_kind kind;
    bool training;
    cddpi_md src, weight, bias, dst; /* bias NULL: there is no bias */
    struct cddpi_dnnl_window window; /* for a convolution, `weight` determines the kernel */
    dnnl_alg_kind_t pooling;
    unsigned post;                       /* of enum cddpi_post */
    const_dnnl_primitive_desc_t forward; /* gradients only */
    const char *what;                    /* for error messages */
};

/** The best implementation that oneDNN has, excluding reference implementations; the caller
 *  releases it.
 *  @return CDDP_ERR_UNAVAILABLE: oneDNN has only a reference implementation, or none. */
CDDP_CHECKED cddp_status cddpi_dnnl_describe(struct cddpi_dnnl *dnnl,
                                             const struct cddpi_dnnl_request *request,
                                             dnnl_primitive_desc_t *out);
cddpi_md cddpi_dnnl_query(const_dnnl_primitive_desc_t desc, dnnl_query_t what);
/** oneDNN's name for it: "jit:avx2", "x64:gemm:jit", "ref:any". Never NULL. */
const char *cddpi_dnnl_name(const_dnnl_primitive_desc_t desc);
/** Whether it is a compiled kernel, not a fallback. */
bool cddpi_dnnl_is_fast(const_dnnl_primitive_desc_t desc);
/** The same for a kernel of that name. */
static inline bool cddpi_dnnl_is_generated(const char *name)
{
    return strncmp(name, "jit", 3) == 0 || strncmp(name, "brg", 3) == 0;
}
/** Whether @p name belongs to a reference implementation, which is hundreds of times slower. */
bool cddpi_dnnl_is_reference(const char *name);

/** Create the primitive of @p desc, and take ownership of @p desc even if this fails. Its scratch
 *  memory is planned for the forward or backward of @p part's op. A @p part with a name is recorded
 *  in the plan. */
CDDP_CHECKED cddp_status cddpi_primitive_init(struct cddpi_primitive *primitive,
                                              struct cddpi_dnnl *dnnl, dnnl_primitive_desc_t desc,
                                              struct cddpi_plan *plan,
                                              const struct cddpi_plan_part *part,
                                              enum cddpi_lifetime lifetime);
/** A copy from one layout to another; no scratch memory is planned for it.
 *  @return CDDP_ERR_UNAVAILABLE: oneDNN has only a reference implementation. */
CDDP_CHECKED cddp_status cddpi_primitive_reorder(struct cddpi_primitive *primitive,
                                                 struct cddpi_dnnl *dnnl, cddpi_md from,
                                                 cddpi_md to);
/** Add @p count arguments @p args (DNNL_ARG_...); those with the layout NULL are left out. */
CDDP_CHECKED cddp_status cddpi_primitive_args(struct cddpi_primitive *primitive, int count,
                                              const int *args, const cddpi_md *layouts);
/** The buffer of the plan for the workspace that the forward @p primitive of op @p index saves for
 *  its backward; -1: there is none. */
int cddpi_primitive_workspace(struct cddpi_primitive *primitive, struct cddpi_plan *plan,
                              int index);
/** Run it. @p pointers: one for each argument, in the order in which the arguments were added. */
CDDP_CHECKED cddp_status cddpi_primitive_run(const struct cddpi_exec *exec,
                                             struct cddpi_primitive *primitive,
                                             const void *const *pointers);
void cddpi_primitive_fini(struct cddpi_primitive *primitive); /* accepts one that was not made */

/* nn_bf16.c: matrix products of bf16 factors, with float32 sums and results. */

/** Ask oneDNN which bf16 kernels it has on this CPU, and set model->bf16. */
CDDP_CHECKED cddp_status cddpi_bf16_probe(struct cddpi_model *model);

/** Implements cddpi_model_precision_note(). */
const char *cddpi_bf16_note(const struct cddpi_model *model);

/* C (m x n) = A (m x k) B (k x n): A row-major, B packed (kernels/cpu/bf16.h). */
struct cddpi_bf16_matmul {
    size_t m, n, k;
    bool bias;     /* adds n float32 numbers to each row */
    unsigned post; /* of enum cddpi_post */
};

/** Plan it for @p op's forward or backward. Its arguments are A, B, C and the bias, if there is
 *  one.
 *  @return CDDP_ERR_UNAVAILABLE: oneDNN has no fast kernel for it. */
CDDP_CHECKED cddp_status cddpi_bf16_matmul_init(struct cddpi_primitive *primitive,
                                                struct cddpi_dnnl *dnnl,
                                                const struct cddpi_bf16_matmul *matmul,
                                                struct cddpi_plan *plan, int op,
                                                enum cddpi_lifetime lifetime);

/* What differs between versions 2 and 3: in dnnl_v2.c or dnnl_v3.c; Meson chooses by the headers.
 */

/** No limit to the processor's instructions. */
extern const dnnl_cpu_isa_t cddpi_dnnl_every_isa;

/** The first implementation that is not a reference implementation. */
dnnl_status_t cddpi_dnnl_make(dnnl_engine_t engine, const struct cddpi_dnnl_request *request,
                              dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *out);
dnnl_status_t cddpi_dnnl_append_sum(dnnl_post_ops_t ops);
dnnl_status_t cddpi_dnnl_append_relu(dnnl_post_ops_t ops);

#endif
