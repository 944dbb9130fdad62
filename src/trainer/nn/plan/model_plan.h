/* model_plan.h - a graph compiled for one batch size and mode (layouts, memory, primitives), and
 * its execution context. Ops see both through the functions below. */
#ifndef CDDPI_NN_PLAN_PLAN_H
#define CDDPI_NN_PLAN_PLAN_H

#include "kernels/cpu/cpu_layout.h"
#include "nn/graph/graph.h"
#include "nn/plan/arena.h"

/* How an op uses memory. An op sets these flags while it is planned; the planner derives lifetimes
 * and sharing from them. */
enum cddpi_plan_flag {
    CDDPI_FORWARD_VIEW = 1,       /* the output is a view of the input */
    CDDPI_FORWARD_INPLACE = 2,    /* the output may overwrite an input */
    CDDPI_NEEDS_INPUT = 4,        /* backward reads the inputs */
    CDDPI_NEEDS_OUTPUT = 8,       /* backward reads the output */
    CDDPI_MAKES_PREACT_GRAD = 16, /* backward first computes the pre-activation gradient from the
                                     output's gradient, and reads only the former afterwards */
    CDDPI_GRAD_VIEW = 32, /* the inputs' gradients are a view of the pre-activation gradient, or of
                             the output's gradient */
    CDDPI_GRAD_INPLACE = 64, /* the first input's gradient may overwrite the output's gradient */
    CDDPI_TAKES_INPUT = 256, /* loss: forward overwrites the input, and backward writes the input's
                                gradient there */
    CDDPI_SUMS_GRADS = 128,  /* accepts the output's gradient as two summands */
    CDDPI_NEEDS_FIRST = 512, /* backward reads only the first input */
    CDDPI_FORWARD_DEFERRED = 1024, /* if the next op runs too, it does this op's forward */
    CDDPI_ADDS_OTHER = 2048,       /* backward adds the contribution of other consumers to the first
                                      input's gradient: `other` in the op's plan */
    CDDPI_WEIGHTS_INPUT = 4096,    /* parameter gradients are computed from the inputs ... */
    CDDPI_WEIGHTS_GRAD = 8192 /* ... and from the output's gradient, or the pre-activation gradient
                                 if there is one: see struct cddpi_op_kernels */
};

/* Activations have the layout samples x ceil(channels / block) x height x width x block. Block 1 is
 * plain N x C x H x W, block = channels is N x H x W x C, 8 and 16 are oneDNN's own. Channels that
 * pad the last block are zero. */
struct cddpi_plan_value {
    int block;
    cddp_type type;  /* of the elements; float32 on the CPU */
    size_t elements; /* with padding channels */
    /* elements between rows of features that are not adjacent; 0: rows are adjacent */
    size_t stride;
    int activation; /* buffer; -1: the caller's data */
    int grads[2];   /* buffers that the producer's backward reads; -1: no such summand */
};

struct cddpi_plan_op {
    void *state; /* the op's own; NULL: it has none */
    unsigned flags;
    bool one_thread;    /* its passes run on one thread */
    int recompute_time; /* when it is recomputed; -1: it is not recomputed */
    int backward;       /* the time at which backward runs */
    int weights; /* when parameter gradients are computed: together with backward, unless they are
                    split */
    int preact_grad;                  /* buffer; -1: there is none */
    int other;                        /* buffer, for CDDPI_ADDS_OTHER; -1: there is none */
    int grad_inputs[CDDPI_OP_INPUTS]; /* buffers that backward writes; -1: not needed */
};

/* The gradient of @p value that one of its consumers computes. */
struct cddpi_contribution {
    int value, buffer;
};

/* A sum before an op's backward: out = a + b, for a value with several consumers. */
struct cddpi_grad_sum {
    int value, a, b, out;
};

/* Memory lives until backward, or until parameter gradients are computed. An op that computes both
 * at once does so at the same time. */
enum cddpi_lifetime {
    CDDPI_IN_FORWARD,
    CDDPI_IN_BACKWARD,
    CDDPI_IN_BOTH,
    CDDPI_IN_WEIGHTS, /* while parameter gradients are computed */
    CDDPI_FORWARD_TO_WEIGHTS,
    CDDPI_BACKWARD_TO_WEIGHTS
};

/* Memory that an op asked for. */
struct cddpi_owned_buffer {
    int buffer, op;
    enum cddpi_lifetime lifetime;
};

/* The implementation of one part of an op: its name (oneDNN's, or "own ..." for ours), and its
 * expected cost apart from the op's own activations, whose bytes are known. */
struct cddpi_plan_part {
    int op;
    const char *what; /* static: "convolution", "gradient of the filters", ... */
    char name[40];
    double work;    /* cost as a number of multiplications that take a good kernel equally long */
    double copied;  /* bytes that are copied to other layouts and back */
    bool reference; /* the name belongs to a reference implementation */
    const char *reason; /* static: why it is slower than possible; NULL: it is not */
};

/* How images are converted before the first op reads them; on a device only. */
enum cddpi_data { CDDPI_DATA_AS_IT_IS, CDDPI_DATA_CAST, CDDPI_DATA_CHANNELS_LAST };

struct cddpi_held_md;

/* Layouts that a holder keeps for oneDNN; zeroed: empty. */
struct cddpi_mds {
    struct cddpi_held_md *last;
    bool failed; /* a layout could not be made */
};

struct cddpi_plan {
    struct cddpi_model *model;
    int count; /* samples */
    enum cddpi_data data;
    bool training;
    bool recompute; /* in training: segments are recomputed */
    bool split;     /* in training: parameter gradients are computed after backward */
    struct cddpi_plan_value *values;
    struct cddpi_plan_op *ops;
    struct cddpi_contribution *contributions;
    int contribution_count;
    struct cddpi_grad_sum *sums;
    int sum_count;
    struct cddpi_owned_buffer *owned;
    int owned_count, owned_capacity;
    struct cddpi_plan_part *parts; /* in the order in which they were planned */
    int part_count, part_capacity;
    bool no_memory; /* while an op was planned, so the plan fails in the end */
    int end;        /* the time after the last backward; split parameter gradients come later */
    struct cddpi_arena arena;
    struct cddpi_mds layouts; /* of the ops */
    uint64_t used;            /* when it was last used, in runs of the model */
    int *whole_blocks; /* for the values of the whole model, if this is a part on the CPU that
                          receives images; else NULL */
};

struct cddpi_exec {
    struct cddpi_model *model;
    struct cddpi_plan *plan; /* NULL: this rank has no samples */
    const struct cddpi_op *op;
    int index;   /* of op */
    void *state; /* of op */
    const struct cddpi_batch *batch;
    struct cddpi_loss_result *result; /* forward only; the loss op fills it */
    double scale;                     /* backward only */
    bool recomputed;                  /* backward reads recomputed activations */
    bool accumulate;
    cddpi_grad_ready_fn ready;
    void *context;
};

CDDP_CHECKED cddp_status cddpi_plan_create(struct cddpi_model *model, int count, bool training,
                                           struct cddpi_plan **out);
void cddpi_plan_destroy(struct cddpi_plan *plan);

/** Plan an op by its kernels; in an invariant model with the same result for any number of threads.
 */
CDDP_CHECKED cddp_status cddpi_plan_by_kernels(struct cddpi_plan *plan, int index);
/** Decide which ops are recomputed, and when each pass runs. Reads the ops' flags. */
void cddpi_plan_schedule(struct cddpi_plan *plan);
/** Set the lifetimes of the ops' own buffers, and add buffers for those that are recomputed. */
CDDP_CHECKED cddp_status cddpi_plan_set_lifetimes(struct cddpi_plan *plan);
/** Set the region of each buffer. */
void cddpi_plan_set_regions(struct cddpi_plan *plan);
/** The first op of the segment that backward enters at @p index: the ops from it up to @p index are
 *  recomputed first. @p index + 1: backward enters no segment there. */
int cddpi_plan_segment_begin(const struct cddpi_plan *plan, int index);
/** The recomputed work as a fraction of one forward. */
double cddpi_plan_extra_work(const struct cddpi_plan *plan);

/** Place the gradients that the backward of op @p index reads and writes. The gradients of later
 *  ops must be placed already. */
CDDP_CHECKED cddp_status cddpi_plan_gradients(struct cddpi_plan *plan, int index);
cddp_status cddpi_plan_no_memory(const struct cddpi_plan *plan);
size_t cddpi_plan_value_bytes(const struct cddpi_plan *plan, int value);

/* For an op while it is planned. */

/** The op itself, and its input @p k. */
const struct cddpi_op *cddpi_plan_op_of(const struct cddpi_plan *plan, int op);
const struct cddpi_plan_value *cddpi_plan_input(const struct cddpi_plan *plan, int op, int k);
/** Choose the layout of @p op's output. */
void cddpi_plan_output(struct cddpi_plan *plan, int op, int block);
/** Plan an op whose output is flat and that needs no memory. */
cddp_status cddpi_plan_flat(struct cddpi_plan *plan, int op);
/** Allocate a buffer of @p op's own, and return its number. If memory runs out, the plan remembers
 *  that, so that it fails in the end. */
int cddpi_plan_buffer(struct cddpi_plan *plan, int op, size_t bytes, enum cddpi_lifetime lifetime);
/** Record the implementation of a part of an op, in the same way; the name is copied. */
void cddpi_plan_part(struct cddpi_plan *plan, const char *name, const struct cddpi_plan_part *part);
/** What an op has requested so far, so that it can undo that and request something else. */
struct cddpi_plan_mark {
    int parts, owned, buffers;
};
struct cddpi_plan_mark cddpi_plan_mark(const struct cddpi_plan *plan);
void cddpi_plan_rollback(struct cddpi_plan *plan, struct cddpi_plan_mark mark);
bool cddpi_plan_wants_grad(const struct cddpi_plan *plan, int op, int k);
/** The block size that value @p value of a part has in the whole model. */
int cddpi_part_block(const struct cddpi_plan *plan, int value);
/** Elements of a value of @p shape, with padding channels. */
size_t cddpi_plan_elements(const struct cddpi_plan *plan, const struct cddpi_shape *shape,
                           int block);
/** The layout of a value of @p shape with blocks of @p block, and that of the op's first input. */
struct cddpi_nn_layout cddpi_plan_layout(const struct cddpi_plan *plan,
                                         const struct cddpi_shape *shape, int block);
struct cddpi_nn_layout cddpi_plan_input_layout(const struct cddpi_plan *plan, int op);
/** Rows of features in the batch: its samples, or its tokens. */
static inline size_t cddpi_plan_rows(const struct cddpi_plan *plan, const struct cddpi_op *op)
{
    return (size_t)plan->count * cddpi_shape_rows(&op->in);
}

/* For an op while it runs. Pointers are valid during one forward or backward of the op; on a device
 * they are device memory. */

const void *cddpi_exec_input(const struct cddpi_exec *exec, int k);
/** The input of an op with CDDPI_TAKES_INPUT, which the op may overwrite. */
void *cddpi_exec_taken_input(const struct cddpi_exec *exec);
void *cddpi_exec_output(const struct cddpi_exec *exec);
/** Summand @p k (0 or 1) of the output's gradient; NULL: there is no such summand. */
void *cddpi_exec_grad_output(const struct cddpi_exec *exec, int k);
void *cddpi_exec_preact_grad(const struct cddpi_exec *exec);
/** Where to write the gradient of input @p k; NULL: it is not needed. */
void *cddpi_exec_grad_input(const struct cddpi_exec *exec, int k);
void *cddpi_exec_buffer(const struct cddpi_exec *exec, int buffer);
size_t cddpi_exec_output_elements(const struct cddpi_exec *exec);
/** On the CPU, @p x in the layout @p to: itself, or converted to @p buffer if its layout @p from
 * has other blocks. */
const void *cddpi_exec_converted(const struct cddpi_exec *exec, const void *x,
                                 const struct cddpi_nn_layout *from,
                                 const struct cddpi_nn_layout *to, int buffer);

/** Data and gradient of the op's parameter @p k, float32; NULL: the op has no such parameter. */
float *cddpi_exec_param(const struct cddpi_exec *exec, int k);
float *cddpi_exec_grad(const struct cddpi_exec *exec, int k);
float *cddpi_exec_running(const struct cddpi_exec *exec, int k);
/** Where the batch's statistics are written; NULL: to the running ones. */
float *cddpi_exec_statistics(const struct cddpi_exec *exec, int k);
/** Whether the op must add to the gradient of its parameter @p k, because it already holds a
 *  contribution from an earlier batch or from another op that shares the parameter. */
bool cddpi_exec_adds(const struct cddpi_exec *exec, int k);
/** On the CPU, the gradient of the op's parameter @p k, to which the op adds: cleared, unless it
 * holds such a contribution. NULL: the op has no such parameter. */
float *cddpi_exec_sums(const struct cddpi_exec *exec, int k);
/** Report that the op's contribution to the gradient of its parameter @p k is complete (does
 *  nothing if the op has no such parameter). */
CDDP_CHECKED cddp_status cddpi_exec_ready(struct cddpi_exec *exec, int k);
/** Report both parameters as complete, the second one first. */
CDDP_CHECKED cddp_status cddpi_exec_ready_both(struct cddpi_exec *exec);
/** Whether the op's backward must leave parameter gradients to `weights` of its kernels. */
bool cddpi_exec_defers(const struct cddpi_exec *exec);
/** The gradient of the output after the relu's mask, for an op with a fused relu, which therefore
 *  has CDDPI_MAKES_PREACT_GRAD and CDDPI_SUMS_GRADS. For another op, the gradient unchanged. */
const float *cddpi_exec_mask_relu(struct cddpi_exec *exec);
/** What cddpi_exec_mask_relu() has returned. */
const float *cddpi_exec_masked(const struct cddpi_exec *exec);

#endif
