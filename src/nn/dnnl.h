/* dnnl.h - oneDNN's engine and primitives, in the little that the ops need of them.
 *
 * Only files of ops that run on oneDNN include <oneapi/dnnl/dnnl.h> through here. */
#ifndef CDDPI_NN_DNNL_H
#define CDDPI_NN_DNNL_H

#include "nn/plan.h"

#include <oneapi/dnnl/dnnl.h>

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

/** The model's engine and stream, made at the first call. Starting oneDNN costs time, so a model
 *  without images never does. */
CDDP_CHECKED cddp_status cddpi_dnnl_get(struct cddpi_model *model, struct cddpi_dnnl **out);
void cddpi_dnnl_destroy(struct cddpi_dnnl *dnnl); /* accepts NULL */

/** Turn a failure of oneDNN into ours: "@p what: oneDNN says ...". */
CDDP_CHECKED cddp_status cddpi_dnnl_check(dnnl_status_t status, const char *what);

/** Describe samples x shape in our layout with @p block. */
dnnl_memory_desc_t cddpi_dnnl_image(int count, const struct cddpi_shape *shape, int block);
/** As N x H x W x C: block = channels, which has another name where the channels are one block. */
dnnl_memory_desc_t cddpi_dnnl_channels_last(int count, const struct cddpi_shape *shape);
/** The same with the layout left to oneDNN. */
dnnl_memory_desc_t cddpi_dnnl_any_image(int count, const struct cddpi_shape *shape);
/** A row-major tensor. */
dnnl_memory_desc_t cddpi_dnnl_plain(int dims, const dnnl_dim_t *shape);
/** Which of our layouts @p desc is, by its block; 0: none of them. Of any type. */
int cddpi_dnnl_block(const dnnl_memory_desc_t *desc);

/* What a primitive does with its result. */
enum cddpi_post { CDDPI_POST_RELU = 1, CDDPI_POST_ADD = 2 /* to what is there, first */ };

/** The implementation that oneDNN would run for @p op_desc; the caller releases it. @p post: of
 * enum cddpi_post. @p hint: of the forward, for backward. */
CDDP_CHECKED cddp_status cddpi_dnnl_describe(struct cddpi_dnnl *dnnl, const_dnnl_op_desc_t op_desc,
                                             unsigned post, const_dnnl_primitive_desc_t hint,
                                             const char *what, dnnl_primitive_desc_t *out);
const dnnl_memory_desc_t *cddpi_dnnl_query(const_dnnl_primitive_desc_t desc, dnnl_query_t what);
/** Whether it is a compiled kernel, not a fallback. */
bool cddpi_dnnl_is_fast(const_dnnl_primitive_desc_t desc);

/** Make the primitive of @p desc, which it takes over (also when it fails). Its scratch memory is
 *  planned for @p op's forward or backward. */
CDDP_CHECKED cddp_status cddpi_primitive_init(struct cddpi_primitive *primitive,
                                              struct cddpi_dnnl *dnnl, dnnl_primitive_desc_t desc,
                                              struct cddpi_plan *plan, int op,
                                              enum cddpi_lifetime lifetime);
/** A copy from one layout to another; no scratch memory is planned for it. */
CDDP_CHECKED cddp_status cddpi_primitive_reorder(struct cddpi_primitive *primitive,
                                                 struct cddpi_dnnl *dnnl,
                                                 const dnnl_memory_desc_t *from,
                                                 const dnnl_memory_desc_t *to);
/** Add argument @p arg (DNNL_ARG_...) of layout @p desc. */
CDDP_CHECKED cddp_status cddpi_primitive_arg(struct cddpi_primitive *primitive, int arg,
                                             const dnnl_memory_desc_t *desc);
/** Add what the forward @p primitive of op @p index keeps for its backward, if anything, as its
 * last argument.
 *  @param out  The buffer of the plan that holds it; not written if there is none. */
CDDP_CHECKED cddp_status cddpi_primitive_workspace(struct cddpi_primitive *primitive,
                                                   struct cddpi_plan *plan, int index, int *out);
/** Run it. @p pointers: one for each argument, in the order in which they were added. */
CDDP_CHECKED cddp_status cddpi_primitive_run(const struct cddpi_run *run,
                                             struct cddpi_primitive *primitive,
                                             const void *const *pointers);
void cddpi_primitive_fini(struct cddpi_primitive *primitive); /* accepts one that was not made */

#endif
