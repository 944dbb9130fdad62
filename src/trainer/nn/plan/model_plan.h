/* model_plan.h - a graph compiled for one batch size and mode: layouts, memory, primitives; and the
 * execution context of one. What ops see of it is here. */
#ifndef CDDPI_NN_PLAN_PLAN_H
#define CDDPI_NN_PLAN_PLAN_H

#include "nn/graph/graph.h"
#include "nn/plan/arena.h"

/* How an op uses memory, set while it is planned; the planner derives lifetimes and sharing. */
enum cddpi_plan_flag {
    CDDPI_FORWARD_VIEW = 1,       /* the output is the input, only looked at differently */
    CDDPI_FORWARD_INPLACE = 2,    /* the output may take the place of an input */
    CDDPI_NEEDS_INPUT = 4,        /* backward reads the inputs */
    CDDPI_NEEDS_OUTPUT = 8,       /* backward reads the output */
    CDDPI_MAKES_PREACT_GRAD = 16, /* backward first makes the pre-activation gradient from the
                              output's gradient, and reads only that afterwards */
    CDDPI_GRAD_VIEW = 32,         /* the inputs' gradients are a view of it, or of the output's */
    CDDPI_GRAD_INPLACE = 64, /* the first input's gradient may take the place of the output's */
    CDDPI_TAKES_INPUT = 256, /* loss: forward writes over the input, and backward makes its
                                gradient there */
    CDDPI_SUMS_GRADS = 128,  /* takes the output's gradient in two parts, too */
    CDDPI_NEEDS_FIRST = 512, /* backward reads the first input, but no other */
    CDDPI_FORWARD_DEFERRED = 1024, /* where both run, the next op does its forward, too */
    CDDPI_ADDS_OTHER = 2048,       /* backward adds what others contributed to the first input's
                                      gradient: `other` of the op's plan */
    CDDPI_WEIGHTS_INPUT = 4096,    /* the gradients of parameters are made from the inputs ... */
    CDDPI_WEIGHTS_GRAD = 8192      /* ... and from the output's gradient, or from the pre-activation
                                      gradient if there is one: see struct cddpi_op_kernels */
};

/* Activations: samples x ceil(channels / block) x height x width x block. Block 1 is plain
 * N x C x H x W, block = channels is N x H x W x C, 8 and 16 are oneDNN's own; channels that fill
 * the last block up are zero. */
struct cddpi_plan_value {
    int block;
    cddp_type type;  /* of the elements; on the processor float32 */
    size_t elements; /* with padding */
    size_t stride;   /* from row to row of features, where they lie apart; 0: they do not */
    int activation;  /* buffer; -1: the data, which is the caller's */
    int grads[2];    /* buffers: what the producer's backward takes; -1: none */
};

struct cddpi_plan_op {
    void *state;
    unsigned flags;
    int recompute_time; /* when it is recomputed; -1: it is not */
    int backward;       /* when that runs */
    int weights; /* when gradients of parameters are made: with backward, unless they are split */
    int preact_grad;                  /* buffer; -1: none */
    int other;                        /* buffer: with CDDPI_ADDS_OTHER; -1: there is none */
    int grad_inputs[CDDPI_OP_INPUTS]; /* buffers that backward writes; -1: not wanted */
};

/* The gradient of @p value that one of its consumers makes. */
struct cddpi_contribution {
    int value, buffer;
};

/* Before an op's backward: out = a + b, for a value that several ops used. */
struct cddpi_grad_sum {
    int value, a, b, out;
};

/* Until backward, or until the gradients of parameters are made, which is the same time in an op
 * that does both at once. */
enum cddpi_lifetime {
    CDDPI_IN_FORWARD,
    CDDPI_IN_BACKWARD,
    CDDPI_IN_BOTH,
    CDDPI_IN_WEIGHTS, /* while gradients of parameters are made */
    CDDPI_FORWARD_TO_WEIGHTS,
    CDDPI_BACKWARD_TO_WEIGHTS
};

/* Memory that an op asked for. */
struct cddpi_owned_buffer {
    int buffer, op;
    enum cddpi_lifetime lifetime;
};

/* What does one part of an op: the name of the implementation (oneDNN's, or "own ..." for ours),
 * and what it is expected to cost beside the op's own activations, whose bytes are known. */
struct cddpi_plan_part {
    int op;
    const char *what; /* static: "convolution", "gradient of the filters", ... */
    char name[40];
    double work;        /* multiplications, as many as would take a good kernel that long */
    double copied;      /* bytes that are copied into other layouts and back */
    bool reference;     /* the name is that of a reference implementation */
    const char *reason; /* static: why it is not what it could be; NULL: it is */
};

/* What becomes of images before the first op reads them: on a device only. */
enum cddpi_data { CDDPI_DATA_AS_IT_IS, CDDPI_DATA_CAST, CDDPI_DATA_CHANNELS_LAST };

struct cddpi_held_md;

/* Layouts that somebody holds for oneDNN; zeroed: none. */
struct cddpi_mds {
    struct cddpi_held_md *last;
    bool failed; /* one could not be made */
};

struct cddpi_plan {
    struct cddpi_model *model;
    int count; /* samples */
    enum cddpi_data data;
    bool training;
    bool recompute; /* in training: segments are recomputed */
    bool split;     /* in training: gradients of parameters are made later than backward */
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
    int end; /* the time after the last backward; what is split comes later */
    struct cddpi_arena arena;
    struct cddpi_mds layouts; /* of the ops */
    uint64_t used;            /* when last, in runs of the model */
    int *whole_blocks;        /* of a part on the processor that receives images: of the
                              whole model's values; else NULL */
};

struct cddpi_exec {
    struct cddpi_model *model;
    struct cddpi_plan *plan; /* NULL: a rank without samples */
    const struct cddpi_op *op;
    int index; /* of op */
    const struct cddpi_batch *batch;
    struct cddpi_loss_result *result; /* forward only; the loss fills it */
    double scale;                     /* backward only */
    bool recomputed;                  /* backward: what was recomputed is read */
    bool accumulate;
    cddpi_grad_ready_fn ready;
    void *context;
};

CDDP_CHECKED cddp_status cddpi_plan_create(struct cddpi_model *model, int count, bool training,
                                           struct cddpi_plan **out);
void cddpi_plan_destroy(struct cddpi_plan *plan);

/** Decide which ops are recomputed, and when everything runs; the ops' flags are set. */
void cddpi_plan_schedule(struct cddpi_plan *plan);
/** Tell when what the ops own is alive, and where it lies when they are recomputed. */
CDDP_CHECKED cddp_status cddpi_plan_set_lifetimes(struct cddpi_plan *plan);
/** Tell in which region each buffer is. */
void cddpi_plan_set_regions(struct cddpi_plan *plan);
/** The first op of the segment that backward enters at @p index, so that those up to that one are
 *  recomputed before; @p index + 1: it enters none. */
int cddpi_plan_segment_begin(const struct cddpi_plan *plan, int index);
/** The work of what is recomputed, as a part of one forward. */
double cddpi_plan_extra_work(const struct cddpi_plan *plan);

/** Place the gradients that op @p index's backward reads and makes; those of later ops
 *  are placed. */
CDDP_CHECKED cddp_status cddpi_plan_gradients(struct cddpi_plan *plan, int index);
cddp_status cddpi_plan_no_memory(const struct cddpi_plan *plan);
size_t cddpi_plan_value_bytes(const struct cddpi_plan *plan, int value);

/* For an op that is being planned. */

/** The op itself, and its input @p k. */
const struct cddpi_op *cddpi_plan_op_of(const struct cddpi_plan *plan, int op);
const struct cddpi_plan_value *cddpi_plan_input(const struct cddpi_plan *plan, int op, int k);
/** Choose the layout of @p op's output. */
void cddpi_plan_output(struct cddpi_plan *plan, int op, int block);
/** Memory of @p op's own; *out is the buffer. CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_plan_buffer(struct cddpi_plan *plan, int op, size_t bytes,
                                           enum cddpi_lifetime lifetime, int *out);
/** Tell what does a part of an op; the name is copied. CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_plan_part(struct cddpi_plan *plan, const char *name,
                                         const struct cddpi_plan_part *part);
/** What an op has asked for so far, so that it can take it back and ask for something else. */
struct cddpi_plan_mark {
    int parts, owned, buffers;
};
struct cddpi_plan_mark cddpi_plan_mark(const struct cddpi_plan *plan);
void cddpi_plan_rollback(struct cddpi_plan *plan, struct cddpi_plan_mark mark);
bool cddpi_plan_wants_grad(const struct cddpi_plan *plan, int op, int k);
/** The block that value @p value of a part has in the whole model. */
int cddpi_part_block(const struct cddpi_plan *plan, int value);
/** The elements of a value of @p shape, padding included. */
size_t cddpi_plan_elements(const struct cddpi_plan *plan, const struct cddpi_shape *shape,
                           int block);

/* For an op that runs. Pointers are valid within one forward or backward of the op; on a device
 * they are the device's. */

const void *cddpi_exec_input(const struct cddpi_exec *exec, int k);
/** The input of an op with CDDPI_TAKES_INPUT, to be written over. */
void *cddpi_exec_taken_input(const struct cddpi_exec *exec);
void *cddpi_exec_output(const struct cddpi_exec *exec);
/** Part @p k (0 or 1) of the gradient of the output; NULL: there is no such part. */
void *cddpi_exec_grad_output(const struct cddpi_exec *exec, int k);
void *cddpi_exec_preact_grad(const struct cddpi_exec *exec);
/** Where the gradient of input @p k goes; NULL: it is not wanted. */
void *cddpi_exec_grad_input(const struct cddpi_exec *exec, int k);
void *cddpi_exec_buffer(const struct cddpi_exec *exec, int buffer);
size_t cddpi_exec_output_elements(const struct cddpi_exec *exec);

/** Data and gradient of the op's parameter @p k, float32; NULL: it has none. */
float *cddpi_exec_param(const struct cddpi_exec *exec, int k);
float *cddpi_exec_grad(const struct cddpi_exec *exec, int k);
float *cddpi_exec_running(const struct cddpi_exec *exec, int k);
/** Whether the op adds to the gradient of its parameter @p k: something is there already, from
 *  before or from another op that has the same parameter. */
bool cddpi_exec_adds(const struct cddpi_exec *exec, int k);
/** Tell that the op's part of the gradient of its parameter @p k is there (nothing where it has
 *  none). */
CDDP_CHECKED cddp_status cddpi_exec_ready(struct cddpi_exec *exec, int k);
/** Whether the op's backward leaves the gradients of parameters to `weights` of its kernels. */
bool cddpi_exec_defers(const struct cddpi_exec *exec);
/** The gradient of the output after the relu's mask, for an op that does a relu and therefore has
 *  CDDPI_MAKES_PREACT_GRAD and CDDPI_SUMS_GRADS; of another op, the gradient as it is. */
const float *cddpi_exec_mask_relu(struct cddpi_exec *exec);
/** What that has returned. */
const float *cddpi_exec_masked(const struct cddpi_exec *exec);

#endif
