/* loss_scale.h - the factor by which losses are multiplied so that 16-bit gradients do not vanish:
 * torch.amp.GradScaler's rules as a state machine. It knows no gradients and no ranks:
 *
 *     backward of loss x scale -> mean over ranks
 *     -> cddpi_loss_scale_allows() -> cddpi_loss_scale_update()
 *
 * The norm is that of gradients that are the same on all ranks, so all of them skip the same
 * updates. */
#ifndef CDDPI_OPTIM_LOSS_SCALE_H
#define CDDPI_OPTIM_LOSS_SCALE_H

#include <cddp/checkpoint.h>

struct cddpi_loss_scale {
    float scale;          /* of the next step; PyTorch keeps it as a float, too */
    int64_t good_steps;   /* since it last changed; below 0: so many were skipped in a row */
    int64_t skipped;      /* updates so far; only reported, no rule needs it */
    double growth;        /* > 1 */
    double backoff;       /* in (0, 1) */
    float least;          /* it does not fall below */
    int64_t interval;     /* after so many good steps in a row the scale grows */
    int64_t patience;     /* after so many skipped ones in a row the run is beyond help */
    cddp_tensor state[3]; /* see cddpi_loss_scale_tensors() */
};

/** PyTorch's defaults: 65536, doubled after 2000 good steps, halved after a bad one; but not below
 *  1, where gradients are as large as they are: a batch that overflows now and then, whatever the
 *  scale, would drive it to where all gradients vanish. */
void cddpi_loss_scale_init(struct cddpi_loss_scale *out);

/** What to do with gradients of the scaled loss whose global norm is @p norm.
 *  @param out_grad_scale  What the gradients are to be multiplied by in the update; set only if
 *                         there is to be one.
 *  @return Whether there is to be an update. If not, a gradient is infinite or not a number (then
 *          so is the norm, a float64 sum of squares, which floats cannot overflow). */
bool cddpi_loss_scale_allows(const struct cddpi_loss_scale *scale, double norm,
                             double *out_grad_scale);

/** The scale of the step after one whose update was @p allowed or not. */
void cddpi_loss_scale_update(struct cddpi_loss_scale *scale, bool allowed);

/** Whether a step may yet come that is not skipped: false if the scale is the least, and `patience`
 *  steps in a row were skipped. */
bool cddpi_loss_scale_helps(const struct cddpi_loss_scale *scale);

/** What checkpoints hold of it: "loss_scale", "loss_scale.good_steps", "loss_scale.skipped". They
 * point into @p scale, so loading into them restores it. */
const cddp_tensor *cddpi_loss_scale_tensors(struct cddpi_loss_scale *scale, size_t *out_count);

#endif
