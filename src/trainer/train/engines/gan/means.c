/* means.c - owns the results of a step's passes, which a device returns a step later, and their
 * means. */
#include "base/error.h"
#include "train/engines/gan/gan_state.h"
#include "train/micro_batch.h"
#include "train/telemetry/train_report.h"

#include <math.h>
#include <string.h>

enum { LOSS_D, LOSS_G, D_REAL, D_FAKE, COUNT, SUMS };

/* A step's results are taken before the second step after it begins, so two slots are enough. */
struct cddpi_gan_slot *cddpi_gan_slot_of(struct cddpi_gan *gan, uint64_t done)
{
    return &gan->slots[done % CDDPI_GAN_SLOTS];
}

/* On a device: add the time of the generator's part of a step. */
static cddp_status take_times(struct cddpi_trainer *trainer)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_step_result ended = {0};
    cddp_status status = cddpi_device_step_take(cddpi_gan_of(trainer)->generator->device_step,
                                                &ended);

    interval->forward_ns += ended.forward_ns;
    interval->backward_ns += ended.backward_ns;
    interval->optimizer_ns += ended.optimizer_ns;
    return status;
}

static double probabilities(const float *logits, int count, double sum)
{
    for (int n = 0; n < count; n++) {
        sum += 1 / (1 + exp(-(double)logits[n]));
    }
    return sum;
}

cddp_status cddpi_gan_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                  struct cddpi_loss_result *out)
{
    const struct cddpi_gan_slot *slot = cddpi_gan_slot_of(cddpi_gan_of(trainer), step - 1);
    struct cddpi_interval *interval = &trainer->records.interval;
    double *sums = cddpi_gan_of(trainer)->sums;
    struct cddpi_loss_result found[CDDPI_GAN_PASSES] = {{0}};
    cddp_status status = CDDP_OK;

    (void)out;
    for (int pass = 0; status == CDDP_OK && pass < CDDPI_GAN_PASSES; pass++) {
        status = cddpi_model_result(trainer->model, &found[pass]);
        if (status == CDDP_OK) {
            status = cddpi_trainer_check_loss(trainer, step, found[pass].loss_sum);
        }
    }
    if (status == CDDP_OK && cddpi_device_is_async(trainer->device)) {
        status = take_times(trainer);
    }
    if (status != CDDP_OK) {
        return status;
    }
    for (int pass = 0; pass < CDDPI_GAN_CONVINCE; pass++) {
        interval->loss_sum += found[pass].loss_sum;
        interval->correct += 0.5 * found[pass].correct; /* there are two judgements per sample */
        sums[LOSS_D] += found[pass].loss_sum;
    }
    interval->count += slot->count;
    sums[COUNT] += slot->count;
    sums[LOSS_G] += found[CDDPI_GAN_CONVINCE].loss_sum;
    sums[D_REAL] = probabilities(slot->logits[CDDPI_GAN_REAL], slot->count, sums[D_REAL]);
    sums[D_FAKE] = probabilities(slot->logits[CDDPI_GAN_FAKE], slot->count, sums[D_FAKE]);
    return CDDP_OK;
}

/* The means over the samples of all ranks. The discriminator's loss is the sum of its losses on
 * real and on generated images. d_real and d_fake are its probabilities that a real, or a
 * generated, image is real. */
cddp_status cddpi_gan_add_metrics(struct cddpi_trainer *trainer, struct cddpi_report_line *line)
{
    double *sums = cddpi_gan_of(trainer)->sums;

    CDDPI_TRY(cddp_all_reduce(trainer->group, sums, sums, SUMS, CDDP_F64, CDDP_OP_SUM, NULL));
    cddpi_report_line_put(line, "loss_d", sums[LOSS_D] / sums[COUNT]);
    cddpi_report_line_put(line, "loss_g", sums[LOSS_G] / sums[COUNT]);
    cddpi_report_line_put(line, "d_real", sums[D_REAL] / sums[COUNT]);
    cddpi_report_line_put(line, "d_fake", sums[D_FAKE] / sums[COUNT]);
    memset(sums, 0, SUMS * sizeof *sums);
    return CDDP_OK;
}
