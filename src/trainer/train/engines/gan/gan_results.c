/* gan_results.c - owns the results of a step's passes, which a device returns later: losses and
 * probabilities, and their means. */
#include "base/error.h"
#include "train/engines/gan/gan_state.h"
#include "train/telemetry/train_report.h"

#include <math.h>
#include <string.h>

static void add_probabilities(const struct cddpi_gan_slot *slot, struct cddpi_exact_sum *sum)
{
    for (int n = 0; n < slot->count; n++) {
        cddpi_exact_add(sum, 1 / (1 + exp(-(double)slot->logits[n])));
    }
}

/* Take the oldest result. */
static cddp_status take_one(struct cddpi_trainer *trainer)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    const struct cddpi_gan_slot *slot = &gan->slots[gan->taken % CDDPI_GAN_SLOTS];
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_loss_result found = {0};
    bool is_real = slot->pass == CDDPI_GAN_REAL;

    gan->taken++;
    CDDPI_TRY(cddpi_model_result(trainer->model, &found));
    CDDPI_TRY(cddpi_trainer_check_loss(trainer, slot->step, found.loss_sum));
    if (slot->pass == CDDPI_GAN_CONVINCE) {
        cddpi_exact_add(&gan->sums[CDDPI_GAN_LOSS_G], found.loss_sum);
        return CDDP_OK;
    }
    cddpi_exact_add(&interval->loss_sum, found.loss_sum);
    interval->correct += 0.5 * found.correct; /* there are two judgements per sample */
    cddpi_exact_add(&gan->sums[CDDPI_GAN_LOSS_D], found.loss_sum);
    add_probabilities(slot, &gan->sums[is_real ? CDDPI_GAN_D_REAL : CDDPI_GAN_D_FAKE]);
    interval->count += is_real ? slot->count : 0;
    gan->count += is_real ? slot->count : 0;
    return CDDP_OK;
}

cddp_status cddpi_gan_end_pass(struct cddpi_trainer *trainer, enum cddpi_gan_pass pass,
                               uint64_t step, int count)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct cddpi_gan_slot *slot = cddpi_gan_next_slot(gan);

    CDDPI_TRY(cddpi_model_collect(trainer->model, count));
    slot->pass = pass;
    slot->step = step;
    slot->count = count;
    gan->ended++;
    return gan->ended - gan->taken < CDDPI_GAN_SLOTS ? CDDP_OK : take_one(trainer);
}

/* On a device: add the time of the generator's part of a step. */
static cddp_status take_times(struct cddpi_trainer *trainer)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_step_result ended = {0};
    cddp_status status = cddpi_device_step_take(cddpi_gan_of(trainer)->generator->step.device,
                                                &ended);

    interval->forward_ns += ended.forward_ns;
    interval->backward_ns += ended.backward_ns;
    interval->optimizer_ns += ended.optimizer_ns;
    return status;
}

cddp_status cddpi_gan_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                  struct cddpi_loss_result *out)
{
    const struct cddpi_gan *gan = cddpi_gan_of(trainer);

    (void)out;
    while (gan->taken < gan->ended && gan->slots[gan->taken % CDDPI_GAN_SLOTS].step <= step) {
        CDDPI_TRY(take_one(trainer));
    }
    return cddpi_device_is_async(trainer->device) ? take_times(trainer) : CDDP_OK;
}

/* Add up the sums of all ranks. */
static cddp_status add_ranks(const struct cddpi_trainer *trainer)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);

    for (int i = 0; i < CDDPI_GAN_MEANS; i++) {
        cddpi_exact_carry(&gan->sums[i]);
    }
    CDDPI_TRY(cddp_all_reduce(trainer->group, gan->sums[0].parts, gan->sums[0].parts,
                              (size_t)CDDPI_GAN_MEANS * CDDPI_EXACT_PARTS, CDDP_I64, CDDP_OP_SUM,
                              NULL));
    return cddp_all_reduce(trainer->group, &gan->count, &gan->count, 1, CDDP_I64, CDDP_OP_SUM,
                           NULL);
}

/* The means over the samples of all ranks. The discriminator's loss is the sum of its losses on
 * real and on generated images. d_real and d_fake are its probabilities that a real, or a
 * generated, image is real. */
cddp_status cddpi_gan_add_metrics(struct cddpi_trainer *trainer, struct cddpi_report_line *line)
{
    static const char *const names[CDDPI_GAN_MEANS] = {"loss_d", "loss_g", "d_real", "d_fake"};
    struct cddpi_gan *gan = cddpi_gan_of(trainer);

    CDDPI_TRY(add_ranks(trainer));
    for (int i = 0; i < CDDPI_GAN_MEANS; i++) {
        cddpi_report_line_put(line, names[i],
                              cddpi_exact_value(&gan->sums[i]) / (double)gan->count);
    }
    gan->count = 0;
    memset(gan->sums, 0, sizeof gan->sums);
    return CDDP_OK;
}

/* The sums, as a rank keeps them. */
struct gan_kept {
    int64_t count;
    struct cddpi_exact_sum sums[CDDPI_GAN_MEANS];
};

static cddp_status save_sums(void *owner, void *to)
{
    const struct cddpi_gan *gan = cddpi_gan_of(owner);
    struct gan_kept kept = {.count = gan->count};

    memcpy(kept.sums, gan->sums, sizeof kept.sums);
    memcpy(to, &kept, sizeof kept);
    return CDDP_OK;
}

/* Rank 0 goes on with the sums of all ranks. */
static cddp_status load_sums(void *owner, const void *from, int part, int parts)
{
    const struct cddpi_trainer *trainer = owner;
    struct cddpi_gan *gan = cddpi_gan_of(trainer);
    struct gan_kept kept;

    (void)part;
    (void)parts;
    memcpy(&kept, from, sizeof kept);
    for (int i = 0; trainer->rank == 0 && i < CDDPI_GAN_MEANS; i++) {
        cddpi_exact_merge(&gan->sums[i], &kept.sums[i]);
    }
    gan->count += trainer->rank == 0 ? kept.count : 0;
    return CDDP_OK;
}

void cddpi_gan_keep_sums(struct cddpi_trainer *trainer, struct cddpi_keep_calls *out)
{
    *out = (struct cddpi_keep_calls){
        .bytes = sizeof(struct gan_kept), .save = save_sums, .load = load_sums, .owner = trainer};
}
