/* trainer.c - small functions used by all parts of a run. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "train/batch_sizes.h"

#include <stdarg.h>
#include <string.h>

bool cddpi_trainer_is_text(const struct cddpi_trainer *trainer)
{
    return trainer->data.train.data.kind == CDDPI_DATASET_TOKENS;
}

int cddpi_trainer_parts(const struct cddpi_trainer *trainer)
{
    return trainer->world_size / trainer->replicas.count;
}

bool cddpi_trainer_has_same_bits(const struct cddpi_trainer *trainer)
{
    return cddpi_trainer_by_position(trainer->config) &&
           (trainer->config->ddp.deterministic || !cddpi_device_is_async(trainer->device));
}

struct cddpi_model *cddpi_trainer_model_of(const struct cddpi_trainer *trainer, size_t index,
                                           size_t *out_own)
{
    int m = trainer->models.count - 1;

    *out_own = index;
    if (m < 1) {
        return trainer->model;
    }
    while (trainer->models.list[m].first > index) {
        m--;
    }
    *out_own = index - trainer->models.list[m].first;
    return trainer->models.list[m].model;
}

void cddpi_trainer_params_changed(const struct cddpi_trainer *trainer, bool copies_written)
{
    cddpi_model_params_changed(trainer->model, copies_written);
    for (int m = 1; m < trainer->models.count; m++) {
        cddpi_model_params_changed(trainer->models.list[m].model, copies_written);
    }
}

bool cddpi_trainer_is_regression(const struct cddpi_trainer *trainer)
{
    return trainer->data.train.data.target_count > 0;
}

void cddpi_trainer_warn(struct cddpi_trainer *trainer, const char *format, ...)
{
    char text[4096];
    size_t length = (size_t)snprintf(text, sizeof text, "cddp-train: warning: ");
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + length, sizeof text - length - 1, format, arguments);
    va_end(arguments);
    cddpi_text_clean(text, sizeof text - 1, false);
    length = strlen(text);
    if (text[length - 1] != '\n') {
        memcpy(text + length, "\n", 2);
    }
    cddpi_progress_end(&trainer->records.progress);
    cddpi_print(text);
}

struct cddpi_optim_spec cddpi_trainer_optim_spec(const struct cddpi_config *config)
{
    return (struct cddpi_optim_spec){
        .type = (enum cddpi_optim_type)config->optimizer.type,
        .momentum = config->optimizer.momentum,
        .nesterov = config->optimizer.nesterov,
        .weight_decay = config->optimizer.weight_decay,
        .decay_all = config->optimizer.decay_all,
        .beta1 = config->optimizer.beta1,
        .beta2 = config->optimizer.beta2,
        .epsilon = config->optimizer.epsilon,
    };
}

cddp_status cddpi_agreement_begin(struct cddpi_agreement *agreement, cddp_group *group,
                                  enum cddpi_request request, bool stale)
{
    agreement->own.request = (uint8_t)request;
    agreement->own.stale = stale;
    return cddp_all_reduce(group, &agreement->own, &agreement->agreed, sizeof agreement->own,
                           CDDP_U8, CDDP_OP_MAX, &agreement->work);
}

cddp_status cddpi_agreement_end(struct cddpi_agreement *agreement)
{
    CDDPI_TRY(cddp_work_wait(agreement->work));
    cddpi_agreement_fini(agreement);
    return CDDP_OK;
}

void cddpi_agreement_fini(struct cddpi_agreement *agreement)
{
    cddp_work_destroy(agreement->work);
    agreement->work = NULL;
}
