/* optim.h - optimizers and learning rate schedules over the parameters of a model. */
#ifndef CDDPI_OPTIM_H
#define CDDPI_OPTIM_H

#include "base/choices.h"
#include "device/device.h"

#include <cddp/checkpoint.h>
#include <cddp/ddp.h>

/* The words are train.conf's. */
#define CDDPI_OPTIM_TYPE_MAP(X)                                                                    \
    X(CDDPI_OPTIM_SGD, "sgd")                                                                      \
    X(CDDPI_OPTIM_ADAMW, "adamw")
enum cddpi_optim_type { CDDPI_OPTIM_TYPE_MAP(CDDPI_CHOICE_ID) };

/* Values are used as they are: the caller sets the defaults (train.conf's table does). */
struct cddpi_optim_spec {
    enum cddpi_optim_type type;
    double momentum;              /* sgd */
    bool nesterov;                /* sgd */
    double weight_decay;          /* sgd: added to the gradient; adamw: decoupled */
    bool decay_all;               /* also biases and normalisation */
    double beta1, beta2, epsilon; /* adamw */
};

struct cddpi_optim;

/** @param params         @p count float32 tensors; they and their gradients stay the caller's.
 * Frozen parameters are passed over.
 *  @param decays         Per parameter; NULL: all. */
CDDP_CHECKED cddp_status cddpi_optim_create(const struct cddpi_optim_spec *spec,
                                            const cddp_param *params, const bool *decays,
                                            size_t count, struct cddpi_optim **out);
/** The same for a rank of a sharded optimizer (options.shard of @p ddp, which is borrowed): it
 *  updates this rank's spans of @p params, whose data is where cddp_ddp_param() has it. With
 * @p group NULL it is not sharded. */
CDDP_CHECKED cddp_status cddpi_optim_create_sharded(const struct cddpi_optim_spec *spec,
                                                    const cddp_param *params, const bool *decays,
                                                    size_t count, cddp_group *group, cddp_ddp *ddp,
                                                    struct cddpi_optim **out);
void cddpi_optim_destroy(struct cddpi_optim *optim);

/** One update, as torch.optim.SGD and AdamW do it. @p grads[i] is scaled by @p grad_scale on the
 * way (clipping). @p grads[i] NULL: parameter i keeps still.
 *  @param out_squares  What cddpi_optim_square_sum() would have been before, found on the way; may
 *                      be NULL. */
void cddpi_optim_step(struct cddpi_optim *optim, void *const *grads, double lr, double grad_scale,
                      double *out_squares);

/** The sum of squares of this rank's part of the gradients, in float64, in an order fixed by the
 *  shapes: all ranks' together are the square of the gradients' norm. */
double cddpi_optim_square_sum(const struct cddpi_optim *optim, void *const *grads);

/** Bytes of the state of parameter @p index that this rank holds; checkpoints' full tensors not
 *  counted. */
size_t cddpi_optim_state_bytes(const struct cddpi_optim *optim, size_t index);

/** The state as named tensors ("momentum.fc1.weight", "step" ...), for checkpoints; they point into
 * the optimizer, so loading into them restores it. Sharded: between the calls below, on rank 0. */
const cddp_tensor *cddpi_optim_tensors(struct cddpi_optim *optim, size_t *out_count);

/** How many of these tensors, from the first on, every rank has whole even when it is sharded. */
size_t cddpi_optim_counters(const struct cddpi_optim *optim);

/* The state of a sharded optimizer as a file has it, which is the same as without shards. All of
 * these do nothing where the optimizer is not sharded. */

/** Rank 0 alone: make room for full tensors, so that they can be loaded. */
CDDP_CHECKED cddp_status cddpi_optim_alloc_full_state(struct cddpi_optim *optim);
/** Rank 0 gets everyone's state in full tensors. Collective. */
CDDP_CHECKED cddp_status cddpi_optim_gather_full_state(struct cddpi_optim *optim);
/** Everyone gets its part of rank 0's full tensors; the counters are the caller's to share.
 * Collective. */
CDDP_CHECKED cddp_status cddpi_optim_scatter_full_state(struct cddpi_optim *optim);
/** Release the full tensors, if there are any. */
void cddpi_optim_free_full_state(struct cddpi_optim *optim);

/* On a CUDA device. Parameters and gradients are its memory then, the state lies there, and an
 * update only puts work into its compute stream:
 *
 *     rate       what changes from step to step; not part of a capture
 *     squares    (optional) what gradients are clipped by
 *     update     in a capture, too
 *
 * Tensors for checkpoints are copies in the processor's memory, made by fetch and given back by
 * send. */

/** Move the state to @p device (borrowed, outlives the optimizer). @p timeout_ms: of waiting for
 * it.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_DEVICE, CDDP_ERR_TIMEOUT. */
CDDP_CHECKED cddp_status cddpi_optim_to_device(struct cddpi_optim *optim,
                                               struct cddpi_device *device, uint32_t timeout_ms);
/** Let updates write new values of parameter i in @p type (CDDP_F32, CDDP_BF16 or CDDP_F16) to
 *  @p copies[i], too, rounded as the kernel `cast` does it: memory of the device for the whole
 *  parameter, which outlives the optimizer; NULL: nowhere. As many as create was given parameters;
 *  the array is read by the call. What an update leaves as it is (skipped, no gradient, another
 *  rank's shard), it leaves in the copy, too. */
void cddpi_optim_device_copies(struct cddpi_optim *optim, cddp_type type, void *const *copies);
/** The learning rate of the updates that are put into the stream from now on, and where the
 *  gradients are: those of the step before, or others if the reducer has moved them. */
CDDP_CHECKED cddp_status cddpi_optim_device_rate(struct cddpi_optim *optim, void *const *grads,
                                                 double lr);
/** What cddpi_optim_square_sum() gives, to @p out in device memory. */
CDDP_CHECKED cddp_status cddpi_optim_device_squares(struct cddpi_optim *optim, double *out);
/** @p scale, @p skip: device memory, as struct cddpi_cuda_update has them; may be NULL. An update
 *  that is skipped is counted by the processor until it is told: cddpi_optim_skipped(). */
CDDP_CHECKED cddp_status cddpi_optim_device_update(struct cddpi_optim *optim, const float *scale,
                                                   const int32_t *skip);
/** The update @p back rates ago (0: of the last one; at most 3) turned out to have been skipped. */
void cddpi_optim_skipped(struct cddpi_optim *optim, uint64_t back);
/** The device's state to the processor's tensors, or back; both wait. Nothing on the processor. */
CDDP_CHECKED cddp_status cddpi_optim_fetch(struct cddpi_optim *optim);
CDDP_CHECKED cddp_status cddpi_optim_send(struct cddpi_optim *optim);

#define CDDPI_SCHEDULE_TYPE_MAP(X)                                                                 \
    X(CDDPI_SCHEDULE_CONSTANT, "constant")                                                         \
    X(CDDPI_SCHEDULE_LINEAR, "linear")                                                             \
    X(CDDPI_SCHEDULE_COSINE, "cosine")                                                             \
    X(CDDPI_SCHEDULE_STEP, "step")                                                                 \
    X(CDDPI_SCHEDULE_WSD, "wsd") /* warm up, stay, decay */
enum cddpi_schedule_type { CDDPI_SCHEDULE_TYPE_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_SCHEDULE_DECAY_MAP(X)                                                                \
    X(CDDPI_DECAY_LINEAR, "linear")                                                                \
    X(CDDPI_DECAY_SQRT, "sqrt")
enum cddpi_schedule_decay { CDDPI_SCHEDULE_DECAY_MAP(CDDPI_CHOICE_ID) };

struct cddpi_lr_schedule {
    enum cddpi_schedule_type type;
    double lr;            /* the peak */
    double final_lr;      /* linear, cosine, wsd: at the last step */
    int64_t warmup_steps; /* linear from lr / warmup_steps */
    int64_t total_steps;  /* of the whole run */
    int64_t step_size;    /* step: that number of steps after warm-up ... */
    double gamma;         /* ... lr is multiplied by this */
    int64_t decay_steps;  /* wsd: the last so many steps fall; 0: a tenth of total_steps */
    enum cddpi_schedule_decay decay; /* wsd: how they fall */
};

/** The learning rate of step @p step (0 is the first): a pure function. */
double cddpi_schedule_lr(const struct cddpi_lr_schedule *schedule, int64_t step);

#endif
