/* optim.h - optimizers and learning rate schedules over the parameters of a model. */
#ifndef CDDPI_OPTIM_H
#define CDDPI_OPTIM_H

#include "base/choices.h"
#include "base/exact_sum.h"
#include "device/device.h"

#include <cddp/ddp.h>

/* The names in train.conf. */
#define CDDPI_OPTIM_TYPE_MAP(X)                                                                    \
    X(CDDPI_OPTIM_SGD, "sgd")                                                                      \
    X(CDDPI_OPTIM_ADAMW, "adamw")
enum cddpi_optim_type { CDDPI_OPTIM_TYPE_MAP(CDDPI_CHOICE_ID) };

/* Zero is not a default here: the caller sets all values (the defaults are in train.conf's table).
 */
struct cddpi_optim_spec {
    enum cddpi_optim_type type;
    double momentum;              /* sgd */
    bool nesterov;                /* sgd */
    double weight_decay;          /* sgd: added to the gradient; adamw: decoupled */
    bool decay_all;               /* also decay biases and normalisation */
    double beta1, beta2, epsilon; /* adamw */
};

/** How many tensors of its own shape the optimizer keeps for each parameter. */
size_t cddpi_optim_moments_of(const struct cddpi_optim_spec *spec);

enum { CDDPI_OPTIM_MOMENTS = 2 }; /* what cddpi_optim_moments_of() returns at most */

struct cddpi_optim;

/** @param params  @p count float32 tensors; they and their gradients stay the caller's. Frozen
 *                 parameters are skipped.
 *  @param decays  Whether each parameter has weight decay; NULL: all have it.
 *  @param group   NULL: not sharded. Else this is a rank of a sharded optimizer (options.shard of
 *                 @p ddp, which is borrowed): it updates this rank's spans of @p params, whose data
 *                 is where cddp_ddp_param() placed it. */
CDDP_CHECKED cddp_status cddpi_optim_create(const struct cddpi_optim_spec *spec,
                                            const cddp_param *params, const bool *decays,
                                            size_t count, cddp_group *group, cddp_ddp *ddp,
                                            struct cddpi_optim **out);
void cddpi_optim_destroy(struct cddpi_optim *optim);

/** One update, as in torch.optim.SGD and AdamW. @p grads[i] is multiplied by @p grad_scale in the
 *  same pass (clipping). @p grads[i] NULL: parameter i does not change.
 *  @param squares  To this, add what cddpi_optim_add_squares() would have added before the update,
 *                  computed in the same pass; may be NULL. */
void cddpi_optim_step(struct cddpi_optim *optim, void *const *grads, double lr, double grad_scale,
                      struct cddpi_exact_sum *squares);

/** Add the squares of this rank's part of the gradients to @p sum. The sum over all ranks is the
 *  square of the gradients' norm, with the same bits for any shards. */
void cddpi_optim_add_squares(const struct cddpi_optim *optim, void *const *grads,
                             struct cddpi_exact_sum *sum);

/** Bytes of the state of parameter @p index on this rank, without the full tensors for checkpoints.
 */
size_t cddpi_optim_state_bytes(const struct cddpi_optim *optim, size_t index);

/** The state as named tensors ("momentum.fc1.weight", "step" ...), for checkpoints. They point into
 *  the optimizer, so loading into them restores it. Sharded: only on rank 0, and only between
 *  cddpi_optim_alloc_full_state() or cddpi_optim_gather_full_state() and
 *  cddpi_optim_free_full_state(); otherwise, moments have no data. */
const cddp_param *cddpi_optim_tensors(struct cddpi_optim *optim, size_t *out_count);

/** How many of these tensors, from the first on, are complete on every rank even if the optimizer
 *  is sharded. */
size_t cddpi_optim_counters(const struct cddpi_optim *optim);

/* The state of a sharded optimizer in the form of a checkpoint, which is the same as without
 * shards. These functions do nothing if the optimizer is not sharded. */

/** Rank 0 only: allocate full tensors, so that they can be loaded. */
CDDP_CHECKED cddp_status cddpi_optim_alloc_full_state(struct cddpi_optim *optim);
/** Gather all ranks' state in full tensors on rank 0. Collective. */
CDDP_CHECKED cddp_status cddpi_optim_gather_full_state(struct cddpi_optim *optim);
/** Scatter rank 0's full tensors to all ranks; the caller broadcasts the counters. Collective. */
CDDP_CHECKED cddp_status cddpi_optim_scatter_full_state(struct cddpi_optim *optim);
/** Release the full tensors, if there are any. */
void cddpi_optim_free_full_state(struct cddpi_optim *optim);

/* Elements of a parameter that this rank updates, and their state. */
struct cddpi_optim_part {
    size_t param, first, count;
    float *data;
    float *moments[CDDPI_OPTIM_MOMENTS]; /* as many as the optimizer has */
};

/** The parts of this rank's parameters that it updates, ordered by parameter: all of the parameters
 *  if the optimizer is not sharded. On the CPU.
 *  @param index  Below cddpi_optim_part_count(). */
struct cddpi_optim_part cddpi_optim_part(const struct cddpi_optim *optim, size_t index);
size_t cddpi_optim_part_count(const struct cddpi_optim *optim);
/** The index among cddpi_optim_tensors() of the first moment of the parameter of part @p index; its
 *  other moments follow. */
size_t cddpi_optim_part_tensor(const struct cddpi_optim *optim, size_t index);

/* On a CUDA device. Parameters, gradients and the state are device memory then, and an update only
 * enqueues work in the device's compute stream:
 *
 *     rate       what changes from step to step; not part of a capture
 *     squares    (optional) for clipping
 *     update     also in a capture
 *
 * Tensors for checkpoints are copies in CPU memory: fetch copies from the device, send to it. */

/** Move the state to @p device (borrowed, outlives the optimizer). @p timeout_ms limits each wait
 *  for the device.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_DEVICE, CDDP_ERR_TIMEOUT. */
CDDP_CHECKED cddp_status cddpi_optim_to_device(struct cddpi_optim *optim,
                                               struct cddpi_device *device, uint32_t timeout_ms);
/** Let updates also write the new values of parameter i as @p type (CDDP_F32, CDDP_BF16 or
 *  CDDP_F16) to @p copies[i], rounded as by the kernel `cast`. @p copies[i] is device memory for
 *  the whole parameter that outlives the optimizer; NULL: no copy. There is one entry for each
 *  parameter given to create; the array is only read during the call. What an update does not
 *  change (skipped, no gradient, another rank's shard), it does not change in the copy either. */
void cddpi_optim_device_copies(struct cddpi_optim *optim, cddp_type type, void *const *copies);
/** Set the learning rate of the updates that are enqueued from now on, and the place of the
 *  gradients, which moves if the reducer has moved them. */
CDDP_CHECKED cddp_status cddpi_optim_device_rate(struct cddpi_optim *optim, void *const *grads,
                                                 double lr);
/** Leave parameters out of the sum of squares: @p skips[i] of parameter i, whose gradient another
 *  rank counts. */
CDDP_CHECKED cddp_status cddpi_optim_device_uncount(struct cddpi_optim *optim, const bool *skips);
/** Enqueue the sum of squares of this rank's gradients, written to @p out in device memory,
 * carried.
 */
CDDP_CHECKED cddp_status cddpi_optim_device_squares(struct cddpi_optim *optim,
                                                    struct cddpi_exact_sum *out);
/** @p scale, @p skip: device memory, as in struct cddpi_cuda_update; may be NULL. The CPU counts a
 *  skipped update as done until cddpi_optim_skipped() reports it. */
CDDP_CHECKED cddp_status cddpi_optim_device_update(struct cddpi_optim *optim, const float *scale,
                                                   const int32_t *skip);
/** Report that the update @p back rates ago was skipped (0: the last one; at most 3). */
void cddpi_optim_skipped(struct cddpi_optim *optim, uint64_t back);
/** Copy the device's state to the CPU's tensors, or back; both wait. They do nothing if the state
 *  is on the CPU. */
CDDP_CHECKED cddp_status cddpi_optim_fetch(struct cddpi_optim *optim);
CDDP_CHECKED cddp_status cddpi_optim_send(struct cddpi_optim *optim);

#define CDDPI_SCHEDULE_TYPE_MAP(X)                                                                 \
    X(CDDPI_SCHEDULE_CONSTANT, "constant")                                                         \
    X(CDDPI_SCHEDULE_LINEAR, "linear")                                                             \
    X(CDDPI_SCHEDULE_COSINE, "cosine")                                                             \
    X(CDDPI_SCHEDULE_STEP, "step")                                                                 \
    X(CDDPI_SCHEDULE_WSD, "wsd") /* warm up, stable, decay */
enum cddpi_schedule_type { CDDPI_SCHEDULE_TYPE_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_SCHEDULE_DECAY_MAP(X)                                                                \
    X(CDDPI_DECAY_LINEAR, "linear")                                                                \
    X(CDDPI_DECAY_SQRT, "sqrt")
enum cddpi_schedule_decay { CDDPI_SCHEDULE_DECAY_MAP(CDDPI_CHOICE_ID) };

struct cddpi_lr_schedule {
    enum cddpi_schedule_type type;
    double lr;            /* the peak */
    double final_lr;      /* linear, cosine, wsd: at the last step */
    int64_t warmup_steps; /* grows linearly from lr / warmup_steps */
    int64_t total_steps;  /* of the whole run */
    int64_t step_size;    /* step: every step_size steps after warm-up ... */
    double gamma;         /* ... lr is multiplied by this */
    int64_t decay_steps;  /* wsd: the number of last steps, over which lr falls; 0: a tenth of
                             total_steps */
    enum cddpi_schedule_decay decay; /* wsd: the shape of the decay */
};

/** The learning rate of step @p step (0 is the first): a pure function. */
double cddpi_schedule_lr(const struct cddpi_lr_schedule *schedule, int64_t step);

#endif
