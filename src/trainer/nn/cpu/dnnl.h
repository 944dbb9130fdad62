/* dnnl.h - what the ops need of oneDNN's engine and primitives. It is version 2 (Debian 12) or 3,
 * which describe layouts and primitives differently.
 *
 * Only files of ops that run on oneDNN include <oneapi/dnnl/dnnl.h> through here. */
#ifndef CDDPI_NN_CPU_DNNL_H
#define CDDPI_NN_CPU_DNNL_H

#include "nn/plan/model_plan.h"

#include <oneapi/dnnl/dnnl.h>

/* A layout of a tensor, with its type: a struct of version 2's, a handle of version 3's. It belongs
 * to its holder (struct cddpi_mds), or to the primitive that was asked for it. */
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

/* A primitive with memory objects for its arguments; where these point is set for each run. */
struct cddpi_primitive {
    struct cddpi_dnnl *dnnl;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t handle; /* NULL: not made */
    int arg_count;
    dnnl_exec_arg_t args[CDDPI_PRIMITIVE_ARGS];
    void *set[CDDPI_PRIMITIVE_ARGS]; /* where they point now */
    int scratch;                     /* buffer; -1: none */
};

/** Let oneDNN keep to CDDP_MAX_ISA; before anything else is asked of it. Any thread. */
void cddpi_dnnl_limit(void);

/** The model's engine and stream, made at the first call. Starting oneDNN costs time, so a model
 *  without images never does. */
CDDP_CHECKED cddp_status cddpi_dnnl_get(struct cddpi_model *model, struct cddpi_dnnl **out);
void cddpi_dnnl_destroy(struct cddpi_dnnl *dnnl); /* accepts NULL */

/** Turn a failure of oneDNN into ours: "@p what: oneDNN says ...". */
CDDP_CHECKED cddp_status cddpi_dnnl_check(dnnl_status_t status, const char *what);

/* Layouts that are made are added to @p holder, for cddpi_mds_drop(); a plan has one. NULL: there
 * is no memory, which the holder remembers, so that the plan fails in the end. dnnl_layout.c */

/** Of @p dims sizes, in oneDNN's format @p tag, which may leave it to oneDNN (any). */
cddpi_md cddpi_md_tagged(struct cddpi_mds *holder, int dims, const dnnl_dim_t *shape,
                         dnnl_data_type_t type, dnnl_format_tag_t tag);
/** Elements lie @p strides apart. */
cddpi_md cddpi_md_strided(struct cddpi_mds *holder, int dims, const dnnl_dim_t *shape,
                          const dnnl_dim_t *strides);
/** A row-major tensor of float32. */
cddpi_md cddpi_md_plain(struct cddpi_mds *holder, int dims, const dnnl_dim_t *shape);
/** Samples x shape of float32 in our layout with @p block. */
cddpi_md cddpi_md_image(struct cddpi_mds *holder, int count, const struct cddpi_shape *shape,
                        int block);
/** As N x H x W x C: block = channels, which has another name where the channels are one block. */
cddpi_md cddpi_md_channels_last(struct cddpi_mds *holder, int count,
                                const struct cddpi_shape *shape);
/** The same with the layout left to oneDNN. */
cddpi_md cddpi_md_any_image(struct cddpi_mds *holder, int count, const struct cddpi_shape *shape);
/** @p layout, which is one of our images' or of cddpi_md_channels_last(), with another type. */
cddpi_md cddpi_md_typed(struct cddpi_mds *holder, cddpi_md layout, dnnl_data_type_t type);
/** The same of @p count samples. */
cddpi_md cddpi_md_counted(struct cddpi_mds *holder, cddpi_md layout, int count);
dnnl_data_type_t cddpi_md_type(cddpi_md layout);
/** Which of our images @p layout is, by its block; 0: none of them. Of any type. */
int cddpi_md_block(cddpi_md layout);
void cddpi_mds_drop(struct cddpi_mds *holder);

/* How the elements of a blocked layout lie. */
struct cddpi_md_blocks {
    int dims;
    dnnl_dim_t padded[DNNL_MAX_NDIMS], strides[DNNL_MAX_NDIMS];
    int inner_count; /* blocks inside, the innermost last: which dimension, how long */
    dnnl_dim_t inner_dim[DNNL_MAX_NDIMS], inner_size[DNNL_MAX_NDIMS];
};
/** False: @p layout is of another kind. */
bool cddpi_md_blocks(cddpi_md layout, struct cddpi_md_blocks *out);

/* What a primitive does with its result. */
enum cddpi_post { CDDPI_POST_RELU = 1, CDDPI_POST_ADD = 2 /* to what is there, first */ };

enum cddpi_dnnl_kind {
    CDDPI_DNNL_CONV,
    CDDPI_DNNL_CONV_DATA,    /* gradients: of the input, ... */
    CDDPI_DNNL_CONV_WEIGHTS, /* ... of weight and bias */
    CDDPI_DNNL_POOL,
    CDDPI_DNNL_POOL_DATA,
    CDDPI_DNNL_MATMUL
};

struct cddpi_dnnl_window {
    dnnl_dims_t strides, kernel, before, after;
};

/* What is wanted of a primitive. In gradients the layouts are those of gradients. */
struct cddpi_dnnl_request {
    enum cddpi_dnnl_kind kind;
    bool training;
    cddpi_md src, weight, bias, dst; /* bias: NULL: none */
    struct cddpi_dnnl_window window; /* a convolution's kernel: that of weight */
    dnnl_alg_kind_t pooling;
    unsigned post;                       /* of enum cddpi_post */
    const_dnnl_primitive_desc_t forward; /* for gradients */
    const char *what;                    /* for texts */
};

/** The best implementation that oneDNN has, a reference excepted; the caller releases it.
 *  @return CDDP_ERR_UNAVAILABLE: it has nothing but a reference, or nothing at all. */
CDDP_CHECKED cddp_status cddpi_dnnl_describe(struct cddpi_dnnl *dnnl,
                                             const struct cddpi_dnnl_request *request,
                                             dnnl_primitive_desc_t *out);
cddpi_md cddpi_dnnl_query(const_dnnl_primitive_desc_t desc, dnnl_query_t what);
/** What oneDNN calls it: "jit:avx2", "x64:gemm:jit", "ref:any". Never NULL. */
const char *cddpi_dnnl_name(const_dnnl_primitive_desc_t desc);
/** Whether it is a compiled kernel, not a fallback. */
bool cddpi_dnnl_is_fast(const_dnnl_primitive_desc_t desc);
/** Whether @p name is that of a reference implementation, which is hundreds of times slower. */
bool cddpi_dnnl_is_reference(const char *name);

/** Make the primitive of @p desc, which it takes over (also when it fails). Its scratch memory is
 *  planned for the forward or backward of @p part's op, and the part is told to the plan if
 *  it has a name. */
CDDP_CHECKED cddp_status cddpi_primitive_init(struct cddpi_primitive *primitive,
                                              struct cddpi_dnnl *dnnl, dnnl_primitive_desc_t desc,
                                              struct cddpi_plan *plan,
                                              const struct cddpi_plan_part *part,
                                              enum cddpi_lifetime lifetime);
/** A copy from one layout to another; no scratch memory is planned for it.
 *  @return CDDP_ERR_UNAVAILABLE: oneDNN has nothing but a reference for it. */
CDDP_CHECKED cddp_status cddpi_primitive_reorder(struct cddpi_primitive *primitive,
                                                 struct cddpi_dnnl *dnnl, cddpi_md from,
                                                 cddpi_md to);
/** Add argument @p arg (DNNL_ARG_...). */
CDDP_CHECKED cddp_status cddpi_primitive_arg(struct cddpi_primitive *primitive, int arg,
                                             cddpi_md layout);
/** Add what the forward @p primitive of op @p index keeps for its backward, if anything, as its
 * last argument.
 *  @param out  The buffer of the plan that holds it; not written if there is none. */
CDDP_CHECKED cddp_status cddpi_primitive_workspace(struct cddpi_primitive *primitive,
                                                   struct cddpi_plan *plan, int index, int *out);
/** Run it. @p pointers: one for each argument, in the order in which they were added. */
CDDP_CHECKED cddp_status cddpi_primitive_run(const struct cddpi_exec *exec,
                                             struct cddpi_primitive *primitive,
                                             const void *const *pointers);
void cddpi_primitive_fini(struct cddpi_primitive *primitive); /* accepts one that was not made */

/* What versions 2 and 3 say differently: dnnl_v2.c or dnnl_v3.c, as Meson finds the headers. */

/** No limit to the processor's instructions. */
extern const dnnl_cpu_isa_t cddpi_dnnl_every_isa;

/** The first implementation that is no reference. */
dnnl_status_t cddpi_dnnl_make(dnnl_engine_t engine, const struct cddpi_dnnl_request *request,
                              dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *out);
dnnl_status_t cddpi_dnnl_append_sum(dnnl_post_ops_t ops);
dnnl_status_t cddpi_dnnl_append_relu(dnnl_post_ops_t ops);

#endif
