/* loss_scale.h - the factor that multiplies losses so that 16-bit gradients do not underflow:
 * torch.amp.GradScaler's rules as a state machine. It handles neither gradients nor ranks:
 *
 *     backward of loss x scale -> mean over ranks
 *     -> cddpi_loss_scale_allows() -> cddpi_loss_scale_update()
 *
 * The norm is that of the averaged gradients, which are equal on all ranks, so all ranks skip the
 * same updates. */
#ifndef CDDPI_OPTIM_LOSS_SCALE_H
#define CDDPI_OPTIM_LOSS_SCALE_H

#include <cddp/types.h>

#include <stdbool.h>

struct cddpi_loss_scale {
    float scale;         /* for the next step; a float, as in PyTorch */
    int64_t good_steps;  /* steps since the scale last changed; negative: number of consecutive
                            skipped steps */
    int64_t skipped;     /* updates skipped so far; only reported, no rule uses it */
    double growth;       /* > 1 */
    double backoff;      /* in (0, 1) */
    float least;         /* the scale never falls below this */
    int64_t interval;    /* consecutive good steps after which the scale grows */
    int64_t patience;    /* consecutive skipped steps after which the run is hopeless */
    cddp_param state[3]; /* see cddpi_loss_scale_tensors() */
};

/** PyTorch's defaults: 65536, doubled after 2000 good steps, halved after a bad one. Unlike in
 *  PyTorch, it does not fall below 1, where gradients have their true size: otherwise a batch that
 *  overflows now and then, whatever the scale, would drive the scale so low that all gradients
 *  vanish. */
void cddpi_loss_scale_init(struct cddpi_loss_scale *out);

/** Decide what to do with gradients of the scaled loss whose global norm is @p norm.
 *  @param out_grad_scale  The factor for the gradients in the update; written only if there is an
 *                         update.
 *  @return Whether to update. If not, a gradient is Inf or NaN, and so is the norm: it is the root
 *          of a float64 sum of squares, which finite floats cannot overflow. */
bool cddpi_loss_scale_allows(const struct cddpi_loss_scale *scale, double norm,
                             double *out_grad_scale);

/** Set the scale for the next step; @p allowed: the last step was not skipped. */
void cddpi_loss_scale_update(struct cddpi_loss_scale *scale, bool allowed);

/** Whether a step can still succeed. False: the scale is at its minimum, and the last `patience`
 *  steps were all skipped. */
bool cddpi_loss_scale_helps(const struct cddpi_loss_scale *scale);

/** The state for checkpoints: "loss_scale", "loss_scale.good_steps", "loss_scale.skipped". The
 *  tensors point into @p scale, so loading into them restores it. */
const cddp_param *cddpi_loss_scale_tensors(struct cddpi_loss_scale *scale, size_t *out_count);

#endif
