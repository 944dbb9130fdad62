/* lr_schedule.c - owns learning rates as pure functions of the step, with the same bits on every
 * machine. Each rank of a job computes its own, so libm's pow() and cos(), whose last bit may
 * differ between CPUs, are not used.
 *
 * With warmup = max(0, warmup_steps), total = total_steps, and steps below 0 counted as 0:
 *
 *     step < warmup:  lr (step + 1) / warmup
 *     else:           progress = (step - warmup) / max(1, total - warmup - 1), at most 1
 *       constant:     lr
 *       linear:       lr + (final_lr - lr) progress
 *       cosine:       final_lr + (lr - final_lr) (1 + cos(pi progress)) / 2
 *       step:         lr gamma^floor((step - warmup) / max(1, step_size))
 *       wsd:          final_lr + (lr - final_lr) f(done / decay)
 *
 * In wsd, decay is decay_steps, at most total - warmup; done is step + 1 - (total - decay), in 0 to
 * decay; f(x) is 1 - x (linear) or 1 - sqrt(x) (sqrt; Haegele et al. 2024, Hu et al. 2024).
 *
 * So the last step, total - 1, has exactly final_lr (unless it is the only one after warm-up: then
 * lr), and so does every later step. Results are finite for all finite inputs: overflows are
 * clamped. */
#include "optim/optim_impl.h"

#include <float.h>
#include <math.h>

/* cos(pi x) for x in [0, 1], by the series of sin(pi (1/2 - x)); the error is within 2 units in the
 * last place of 1. */
static double cos_pi(double x)
{
    double y = 3.14159265358979323846 * (0.5 - x);
    double term = y;
    double sum = y;

    for (int i = 2; i <= 24; i += 2) {
        term = -term * y * y / (double)(i * (i + 1));
        sum += term;
    }
    return sum;
}

double cddpi_power(double base, int64_t exponent)
{
    double result = 1.0;

    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) {
            result *= base;
        }
        base *= base;
    }
    return result;
}

static double bounded(double value)
{
    if (!(value <= DBL_MAX)) {
        return DBL_MAX;
    }
    return value >= -DBL_MAX ? value : -DBL_MAX;
}

/* Warm up, stay at lr, decay. sqrt() is rounded correctly everywhere, unlike pow() and cos(). */
static double wsd_lr(const struct cddpi_lr_schedule *s, int64_t warmup, int64_t step)
{
    int64_t total = s->total_steps > 0 ? s->total_steps : 1;
    int64_t decay = s->decay_steps > 0 ? s->decay_steps : total / 10;
    double progress;

    if (step >= total - 1) {
        return s->final_lr;
    }
    decay = decay < total - warmup ? decay : total - warmup; /* warmup <= step < total here */
    if (step < total - decay) {
        return s->lr;
    }
    progress = (double)(step - (total - decay) + 1) / (double)decay;
    progress = s->decay == CDDPI_DECAY_SQRT ? sqrt(progress) : progress;
    return s->lr * (1.0 - progress) + s->final_lr * progress;
}

double cddpi_schedule_lr(const struct cddpi_lr_schedule *schedule, int64_t step)
{
    const struct cddpi_lr_schedule s = *schedule;
    int64_t warmup = s.warmup_steps > 0 ? s.warmup_steps : 0;
    int64_t size = s.step_size > 0 ? s.step_size : 1;
    double span = (double)s.total_steps - (double)warmup - 1.0;
    double progress;

    step = step > 0 ? step : 0;
    if (step < warmup) {
        return s.lr * ((double)(step + 1) / (double)warmup);
    }
    progress = (double)(step - warmup) / (span > 1.0 ? span : 1.0);
    switch (s.type) {
    case CDDPI_SCHEDULE_LINEAR:
        return progress >= 1.0 ? s.final_lr : s.lr * (1.0 - progress) + s.final_lr * progress;
    case CDDPI_SCHEDULE_COSINE:
        if (progress >= 1.0) {
            return s.final_lr;
        }
        progress = 0.5 + 0.5 * cos_pi(progress); /* falls from 1 to 0 */
        return s.lr * progress + s.final_lr * (1.0 - progress);
    case CDDPI_SCHEDULE_STEP:
        return bounded(s.lr * bounded(cddpi_power(s.gamma, (step - warmup) / size)));
    case CDDPI_SCHEDULE_WSD:
        return wsd_lr(&s, warmup, step);
    case CDDPI_SCHEDULE_CONSTANT:
        break;
    }
    return s.lr;
}
